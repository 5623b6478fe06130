"""Where the time of a run goes: seconds by the name of a phase, inner phases not counted in outer ones."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stopwatch:
    """`with watch("steps"): ...` adds up seconds under that name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._inner = [0.0]

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        self._inner.append(0.0)
        try:
            yield
        finally:
            whole, inner = time.monotonic() - began, self._inner.pop()
            self._inner[-1] += whole
            self.seconds[name] = self.seconds.get(name, 0.0) + whole - inner


def said(seconds: dict[str, float]) -> str:
    """`data 0.1, steps 3.2 s`."""
    return ", ".join(f"{name} {value:.1f}" for name, value in seconds.items()) + " s"
