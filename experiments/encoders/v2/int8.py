"""A model folder with its matrices rounded to int8, one scale per row: `python int8.py FOLDER OUT`.

OUT is the folder as it is used, weights expanded to half precision again, so that any evaluation of it judges what
the rounding does. Beside it OUT.safetensors has what would be stored: int8 rows, their scales, and the rest in half
precision. The masked-LM head, which fits no more, is left out there.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

LARGEST = 127
HEAD = "cls."


def rounded(value: Tensor) -> tuple[Tensor, Tensor]:
    """int8 rows and their scales."""
    scales = (value.float().abs().amax(dim=1, keepdim=True) / LARGEST).clamp(min=1e-8).half()
    codes = (value.float() / scales.float()).round().clamp(-LARGEST, LARGEST).to(torch.int8)
    return codes, scales


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    shutil.copytree(args.folder, args.out, dirs_exist_ok=True)
    stored: dict[str, Tensor] = {}
    for path in sorted(args.out.rglob("*.safetensors")):
        prefix = "" if path.parent == args.out else f"{path.parent.name}."
        expanded = {}
        for name, value in load_file(path).items():
            kept: dict[str, Tensor] = {name: value.half()}
            expanded[name] = value.half()
            if value.dim() == 2:
                codes, scales = rounded(value)
                expanded[name] = (codes.float() * scales.float()).half()
                kept = {name: codes, f"{name}.scale": scales}
            stored |= {} if name.startswith(HEAD) else {prefix + key: kept[key].contiguous() for key in kept}
        save_file(expanded, path, metadata={"format": "pt"})
    target = args.out.with_name(args.out.name + ".safetensors")
    save_file(stored, target)
    print(f"{target}: {target.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
