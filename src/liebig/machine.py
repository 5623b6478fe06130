"""What this machine lets a process use: its cores, its memory, and the device a person names or would name."""

from __future__ import annotations

import os
from pathlib import Path

from liebig.errors import RecipeError


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# Version 2 of control groups says "max" where there is no limit, version 1 a number beyond any machine.
LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def memory() -> int:
    """Bytes of memory this process may use: the machine's, or a container's where that is less."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    said = (path.read_text(encoding="ascii").strip() for path in LIMITS if path.is_file())
    return min([physical, *(int(limit) for limit in said if limit.isdecimal())])


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


def chosen(name: str | None) -> str:
    """The device that is named, if it is there; without a name the GPU if there is one, else the CPU."""
    import torch

    return checked(name) or ("cuda" if torch.cuda.is_available() else "cpu")
