"""The encoders that come with the package: one folder each, which `liebig:NAME` stands for in every recipe.

`DEFAULT` is the one that `demo`, `build` and the library use where no model is named.
"""

from __future__ import annotations

from pathlib import Path

DEFAULT = "mini-v1"
PREFIX = "liebig:"
HOME = Path(__file__).parent


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
