"""The teachers of mini-v3 as small files: int8 with a scale per row, under BERT's names and vocabulary.

    python experiments/encoders/v3/weights.py OUT --vocabulary vocab.txt \\
        mpnet=FOLDER minilm=FOLDER bge=MODEL.onnx e5=MODEL.onnx

A row's step is a fraction of its root mean square, or more where its largest number needs it; codes then have between
six and seven bits of information each, which Huffman coding reaches. all-mpnet-base-v2 has the words of
bert-base-uncased under other numbers: its table is written in BERT's order, so one tokenisation serves all teachers.
"""

from __future__ import annotations

import argparse
import io
import json
import zlib
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper
from safetensors.numpy import load_file

# Steps in a root mean square, and numbers that share a scale (0: a row). MiniLM is also what the student is measured
# against, so it is kept finer.
FINENESS = {"mpnet": (28, 0), "minilm": (1000, 32), "bge": (24, 0), "e5": (20, 0)}
LARGEST = 127
MPNET = {
    "attention.attn.q": "attention.self.query",
    "attention.attn.k": "attention.self.key",
    "attention.attn.v": "attention.self.value",
    "attention.attn.o": "attention.output.dense",
    "attention.LayerNorm": "attention.output.LayerNorm",
}
SPECIAL = {"[PAD]": "<pad>", "[CLS]": "<s>", "[SEP]": "</s>", "[MASK]": "<mask>"}
DISTANCES = "encoder.relative_attention_bias.weight"  # MPNet's table of scores by distance
BIAS, WEIGHT = ".bias", ".weight"  # ends of names in an ONNX export
QUANTIZED = "_quantized"
PRODUCTS = ("MatMul", "MatMulInteger")
Floats = NDArray[np.float32]


class Export:
    """The initialisers of an ONNX export, int8 or fp32, by name, and the graph to name them by.

    Exports keep the names of embeddings, biases and norms and lose those of the weight matrices: each matrix is the
    second input of a product whose result goes to an addition of a named bias, and so gets its name back.
    """

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


def read_mpnet(folder: Path, vocabulary: list[str]) -> dict[str, Floats]:
    """all-mpnet-base-v2 under BERT's names, its words in the order of BERT's vocabulary."""
    given = load_file(folder / "model.safetensors")
    found: dict[str, Floats] = {}
    for name, value in given.items():
        for old, new in MPNET.items():
            name = name.replace(old, new)
        found[name] = np.asarray(value, np.float32)
    own = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    table = found["embeddings.word_embeddings.weight"]
    found["embeddings.word_embeddings.weight"] = table[[own[SPECIAL.get(word, word)] for word in vocabulary]]
    found["embeddings.position_embeddings.weight"] = found["embeddings.position_embeddings.weight"][2:]
    return found


def read(path: Path, vocabulary: list[str]) -> dict[str, Floats]:
    """A teacher's weights, from a folder or an ONNX export."""
    if path.suffix == ".onnx":
        found = Export(path).weights()
    elif json.loads((path / "config.json").read_text())["model_type"] == "mpnet":
        found = read_mpnet(path, vocabulary)
    else:
        found = {
            name: np.asarray(value, np.float32)
            for name, value in load_file(path / "model.safetensors").items()
        }
    types = found.pop("embeddings.token_type_embeddings.weight", None)
    if types is not None:
        found["embeddings.position_embeddings.weight"] = (
            found["embeddings.position_embeddings.weight"] + types[0]
        )
    return {
        name: value for name, value in found.items() if not name.startswith("pooler") and "_ids" not in name
    }


def rounded(value: Floats, fineness: int, group: int) -> tuple[NDArray[np.int8], NDArray[np.float16]]:
    """int8 codes, and the scales of rows or of the groups in them."""
    parts = value.reshape(-1, group or value.shape[1])
    spread = np.sqrt(np.square(parts).mean(1, keepdims=True)) / fineness
    scales = np.maximum(np.maximum(spread, np.abs(parts).max(1, keepdims=True) / LARGEST), 1e-7).astype(
        np.float16
    )
    codes = np.rint(parts / scales.astype(np.float32)).clip(-LARGEST, LARGEST).astype(np.int8)
    return codes.reshape(value.shape), scales


def pack(weights: dict[str, Floats], fineness: int, group: int) -> bytes:
    """The file of a teacher."""
    stored: dict[str, NDArray[np.generic]] = {}
    for name, value in weights.items():
        if value.ndim == 2 and name != DISTANCES:
            stored[name], stored[name + ".scale"] = rounded(value, fineness, group)
        else:
            stored[name] = value.astype(np.float16)
    buffer = io.BytesIO()
    np.savez(buffer, **stored)
    coder = zlib.compressobj(9, strategy=zlib.Z_HUFFMAN_ONLY)
    return coder.compress(buffer.getvalue()) + coder.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("teachers", nargs="+", metavar="NAME=PATH")
    parser.add_argument("--vocabulary", type=Path, required=True, help="vocab.txt of bert-base-uncased")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    vocabulary = args.vocabulary.read_text(encoding="utf-8").splitlines()
    for name, path in (given.split("=", 1) for given in args.teachers):
        weights = read(Path(path), vocabulary)
        packed = pack(weights, *FINENESS[name])
        (args.out / f"{name}.npz.z").write_bytes(packed)
        count = sum(value.size for value in weights.values())
        print(f"{name}: {count / 1e6:.1f} M numbers, {len(packed) / 1e6:.1f} MB", flush=True)


if __name__ == "__main__":
    main()
