"""The device that a person names, held against what the machine has before torch is asked for it."""

from __future__ import annotations

from liebig.errors import RecipeError


def checked(name: str | None) -> str | None:
    """A device that is there, by its name (cpu, cuda, cuda:1); None stays None."""
    if name is None or name == "cpu":
        return name
    import torch

    kind, colon, number = name.partition(":")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if kind != "cuda" or (colon and not number.isdecimal()) or int(number or 0) >= count:
        raise RecipeError(f"device = {name}: this machine has no such device", fix="use cpu, or leave it out")
    return name
