"""The encoders that come with the package: one folder each, which `liebig:NAME` stands for in every recipe.

`DEFAULT` is the one that `demo`, `build` and the library use where no model is named.
"""

from __future__ import annotations

from pathlib import Path

DEFAULT = "mini-v1"
PREFIX = "liebig:"
HOME = Path(__file__).parent
ADVICE = (
    "The encoder that comes along is small. A larger one often finds more: on the demo's test questions, nDCG@10 was "
    ".503 for all-MiniLM-L6-v2 with BM25, .440 for the bundled one with BM25. Use any sentence-transformers folder: "
    "liebig build SOURCE --model FOLDER --out DIR"
)


def names() -> list[str]:
    """The names of all encoders that are there."""
    return sorted(path.parent.name for path in HOME.glob("*/config.json"))


def folder(name: str = DEFAULT) -> Path:
    """The folder of an encoder, by its name with or without `liebig:`."""
    found = HOME / name.removeprefix(PREFIX)
    if name.removeprefix(PREFIX) not in names():
        there = ", ".join(PREFIX + each for each in names())
        raise ValueError(f"no encoder of this name comes with the package; there is {there}")
    return found
