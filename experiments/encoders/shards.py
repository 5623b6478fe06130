"""A model folder in half precision, its weights in files of a given size: `python shards.py MODEL OUT --size 25MB`.

The folder loads like any other (transformers reads `model.safetensors.index.json`); files of a limited size can be
carried one by one to a machine without a network.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import torch
from transformers import AutoModel

WEIGHTS = (".safetensors", ".bin", ".onnx", ".h5", ".ot")


def divide(model: Path, out: Path, size: str) -> list[Path]:
    """Write the folder; returns the files of its weights."""
    out.mkdir(parents=True, exist_ok=True)
    for path in sorted(model.rglob("*")):
        if path.is_file() and path.suffix not in WEIGHTS and path.name != "README.md":
            target = out / path.relative_to(model)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    AutoModel.from_pretrained(model, dtype=torch.float16).save_pretrained(out, max_shard_size=size)
    return sorted(out.glob("*.safetensors"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--size", default="25MB")
    asked = parser.parse_args()
    for path in divide(asked.model, asked.out, asked.size):
        print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
