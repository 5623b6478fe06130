"""flan-t5-small from the int8 ONNX graphs of the PyPI package traceforge-title-model 0.2.0 (MIT).

    pip download --no-deps traceforge-title-model==0.2.0
    python experiments/queries/flan_t5.py split traceforge_title_model-0.2.0-py3-none-any.whl PARTS
    python experiments/queries/flan_t5.py join PARTS MODEL

`split` needs the package onnx: it names every quantised matrix as transformers does (the names of the graph's nodes
say which is which) and writes them, still int8, into files of at most 30 MB. `join` multiplies them out into a model
folder of transformers. The weights were fine-tuned for titles; the output embedding is untied from the input's, as in
every flan-t5.
"""

from __future__ import annotations

import argparse
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import load_file, save_file

LIMIT = 30_000_000
FOLDER = "traceforge_title_model/data/span"
CONFIG = {
    "d_model": 512, "d_kv": 64, "d_ff": 1024, "num_layers": 8, "num_decoder_layers": 8, "num_heads": 6,
    "vocab_size": 32128, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "dropout_rate": 0.1,
    "relative_attention_num_buckets": 32, "relative_attention_max_distance": 128, "decoder_start_token_id": 0,
    "pad_token_id": 0, "eos_token_id": 1,
}  # fmt: skip
TOKENIZER = {
    "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>",
    "model_max_length": 512,
}  # fmt: skip


def tensors(graph: object) -> Iterator[tuple[str, np.ndarray]]:
    """Every weight of a graph under its name in transformers; a quantised one with its scale and zero point."""
    from onnx import numpy_helper

    held = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    for name, value in held.items():
        if name.endswith("layer_norm.weight"):
            yield _named(name), value
    for node in graph.node:
        stored = next((i for i in node.input if i.endswith("_quantized") and i in held), None)
        if stored is None or node.op_type not in ("Gather", "MatMulInteger"):
            continue
        is_table = node.op_type == "Gather"
        name = stored.removesuffix("_quantized") if is_table else _of_node(node.name)
        stem = stored.removesuffix("_quantized")
        value = held[stored] if is_table else np.ascontiguousarray(held[stored].T)
        yield _named(name), value
        for part in ("scale", "zero_point"):
            yield f"{_named(name)}:{part}", np.atleast_1d(held[f"{stem}_{part}"])


def _of_node(name: str) -> str:
    """/enc/block.0/layer.0/SelfAttention/q/MatMul_quant -> enc.block.0.layer.0.SelfAttention.q.weight"""
    return name.strip("/").removesuffix("/MatMul_quant").replace("/", ".") + ".weight"


def _named(name: str) -> str:
    name = "encoder." + name.removeprefix("enc.") if name.startswith("enc.") else name.removeprefix("m.")
    return "shared.weight" if name == "encoder.embed_tokens.weight" else name


def split(wheel: Path, out: Path) -> None:
    """The wheel's weights as files of at most 30 MB."""
    import onnx

    out.mkdir(parents=True, exist_ok=True)
    found: dict[str, np.ndarray] = {}
    with zipfile.ZipFile(wheel) as archive:
        (out / "tokenizer.json").write_bytes(archive.read(f"{FOLDER}/tokenizer.json"))
        for name in ("encoder", "decoder"):
            graph = onnx.load_from_string(archive.read(f"{FOLDER}/{name}.onnx")).graph
            found |= dict(tensors(graph))
    part: dict[str, np.ndarray] = {}
    number = 0
    for name in sorted(found):
        if sum(x.nbytes for x in part.values()) + found[name].nbytes > LIMIT:
            save_file(part, out / f"part-{number}.safetensors")
            part, number = {}, number + 1
        part[name] = found[name]
    save_file(part, out / f"part-{number}.safetensors")


def join(parts: Path, out: Path) -> None:
    """A model folder of transformers."""
    from transformers import T5Config, T5ForConditionalGeneration

    stored: dict[str, np.ndarray] = {}
    for path in sorted(parts.glob("part-*.safetensors")):
        stored |= load_file(path)
    state = {name: torch.from_numpy(_whole(stored, name)) for name in stored if ":" not in name}
    model = T5ForConditionalGeneration(T5Config(**CONFIG))
    model.config.tie_word_embeddings = False  # transformers ties them whatever the config says
    model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.shared.weight))
    missing, unexpected = model.load_state_dict(state, strict=False)
    absent = [name for name in missing if not name.endswith("embed_tokens.weight")]
    if absent or unexpected:
        raise SystemExit(f"the parts do not make a flan-t5-small: {(*absent, *unexpected)[0]}")
    model.save_pretrained(out)
    (out / "tokenizer.json").write_bytes((parts / "tokenizer.json").read_bytes())
    (out / "tokenizer_config.json").write_text(json.dumps(TOKENIZER, indent=2) + "\n")


def _whole(stored: dict[str, np.ndarray], name: str) -> np.ndarray:
    value = stored[name]
    if f"{name}:scale" not in stored:
        return value
    zero = stored[f"{name}:zero_point"].astype(np.float32)
    return (value.astype(np.float32) - zero) * stored[f"{name}:scale"]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name, first in (("split", "wheel"), ("join", "parts")):
        command = commands.add_parser(name)
        command.add_argument(first, type=Path)
        command.add_argument("out", type=Path)
    given = parser.parse_args()
    if given.command == "split":
        split(given.wheel, given.out)
    else:
        join(given.parts, given.out)


if __name__ == "__main__":
    main()
