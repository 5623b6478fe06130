"""A BERT encoder out of an ONNX export, int8 or fp32, as a sentence-transformers folder in half precision.

    python experiments/encoders/v2/teachers.py model.onnx TOKENIZER OUT --pooling cls
    python experiments/encoders/v2/teachers.py e5-small.onnx TOKENIZER OUT --pooling mean --prompt "query: "

Exports keep the names of embeddings, biases and norms and lose those of the weight matrices: each matrix is the
second input of a product whose result goes to an addition of a named bias, and so gets its name back. int8 weights are
multiplied by their scale. `TOKENIZER` is a folder with the `tokenizer.json` of bert-base-uncased.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import numpy_helper
from transformers import BertConfig, BertModel

BIAS, WEIGHT = ".bias", ".weight"
QUANTIZED = "_quantized"
PRODUCTS = ("MatMul", "MatMulInteger")
TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
Floats = NDArray[np.float32]


class Export:
    """The initialisers of an export by name, dequantised, and the graph to name them by."""

    def __init__(self, path: Path) -> None:
        graph = onnx.load(str(path)).graph
        self.raw = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
        self.nodes = list(graph.node)
        self.readers: dict[str, list[onnx.NodeProto]] = {}
        for node in self.nodes:
            for name in node.input:
                self.readers.setdefault(name, []).append(node)

    def value(self, name: str) -> Floats:
        """An initialiser in float32."""
        raw = self.raw[name]
        if not name.endswith(QUANTIZED):
            return np.asarray(raw, np.float32)
        stem = name.removesuffix(QUANTIZED)
        zero, scale = self.raw[stem + "_zero_point"], self.raw[stem + "_scale"]
        return (raw.astype(np.float32) - zero.astype(np.float32)) * scale.astype(np.float32)

    def weights(self) -> dict[str, Floats]:
        """Everything a BertModel has, by its names there."""
        found = {
            name.removesuffix(QUANTIZED): self.value(name)
            for name, raw in self.raw.items()
            if name.removesuffix(QUANTIZED).endswith((BIAS, WEIGHT)) and raw.dtype != np.int64
        }
        for node in self.nodes:
            if node.op_type in PRODUCTS and node.input[1] in self.raw:
                bias = self.bias_after(node.output[0])
                found[bias.removesuffix(BIAS) + WEIGHT] = self.value(node.input[1]).T
        return found

    def bias_after(self, name: str) -> str:
        """The named bias that is added to a product, some scaling later."""
        for _ in range(4):
            (reader,) = self.readers[name]
            for other in reader.input:
                if other.endswith(BIAS) and other in self.raw:
                    return other
            name = reader.output[0]
        raise ValueError(f"no bias follows {name}")


def model_of(weights: dict[str, Floats]) -> BertModel:
    """The encoder; its size is read off the weights."""
    layers = 1 + max(int(name.split(".")[2]) for name in weights if name.startswith("encoder.layer."))
    vocabulary, width = weights["embeddings.word_embeddings.weight"].shape
    inner = weights["encoder.layer.0.intermediate.dense.weight"].shape[0]
    config = BertConfig(
        vocab_size=vocabulary, hidden_size=width, num_hidden_layers=layers, num_attention_heads=width // 32,
        intermediate_size=inner,
    )  # fmt: skip
    model = BertModel(config, add_pooling_layer=False)
    state = {name: torch.from_numpy(np.array(value)) for name, value in weights.items()}
    state = {name: value for name, value in state.items() if not name.startswith("pooler.")}
    missing, unexpected = model.load_state_dict(state, strict=False)
    missing = [name for name in missing if not name.endswith("_ids")]
    if missing or unexpected:
        raise ValueError(f"missing {missing[:4]}, not known {unexpected[:4]}")
    return model.half()


def write(model: BertModel, tokenizer: Path, out: Path, pooling: str, prompt: str) -> None:
    """The folder that sentence-transformers and Liebig load."""
    out.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(out)
    for name in TOKENIZER:
        if (tokenizer / name).is_file():
            shutil.copyfile(tokenizer / name, out / name)
    kind = "sentence_transformers.models."
    modules = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    rows = [
        {"idx": n, "name": str(n), "path": path, "type": kind + name}
        for n, (path, name) in enumerate(modules)
    ]
    files = {
        "modules.json": rows,
        "sentence_bert_config.json": {"max_seq_length": 512, "do_lower_case": False},
        "config_sentence_transformers.json": {
            "prompts": {"query": prompt, "passage": prompt} if prompt else {},
            "default_prompt_name": None, "similarity_fn_name": "cosine",
        },
        "1_Pooling/config.json": {
            "word_embedding_dimension": model.config.hidden_size,
            "pooling_mode_cls_token": pooling == "cls", "pooling_mode_mean_tokens": pooling == "mean",
        },
    }  # fmt: skip
    for name, value in files.items():
        (out / name).parent.mkdir(exist_ok=True)
        (out / name).write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("export", type=Path)
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--pooling", choices=("cls", "mean"), required=True)
    parser.add_argument("--prompt", default="", help="put before every text")
    args = parser.parse_args()
    write(model_of(Export(args.export).weights()), args.tokenizer, args.out, args.pooling, args.prompt)


if __name__ == "__main__":
    main()
