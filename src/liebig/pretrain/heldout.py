"""A share of a source's examples that is never trained on, for evaluation while training.

Examples are numbered in the order of their documents, so what is held out is a few stretches of neighbouring
numbers: nearly every document is held out whole or not at all, from all over the corpus. Cost: a bisection of a
short table for each example.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from liebig import rng
from liebig.data.batches import Row, Source

STRETCHES = 32


@dataclass(frozen=True)
class Part:
    """Some stretches of a source's examples as a source of their own."""

    source: Source
    begins: NDArray[np.int64]  # first example of each stretch, ascending
    ends: NDArray[np.int64]  # running number of examples at the end of each stretch

    @classmethod
    def of(cls, source: Source, stretches: NDArray[np.int64]) -> Part:
        """From begin and end of each stretch."""
        stretches = stretches[stretches[:, 1] > stretches[:, 0]]
        return cls(source, stretches[:, 0], np.cumsum(stretches[:, 1] - stretches[:, 0]))

    def __len__(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def examples(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The inner source's numbers of these examples."""
        stretch = np.searchsorted(self.ends, numbers, side="right")
        before = np.concatenate(([0], self.ends))[stretch]
        return np.asarray(self.begins[stretch] + numbers - before)

    def draw(self, examples: NDArray[np.int64], epoch: int, seed: int) -> Row:
        """What the inner source draws for them."""
        return self.source.draw(self.examples(examples), epoch, seed)


def hold_out(source: Source, share: float, seed: int) -> tuple[Source, Source | None]:
    """The source without a share of its examples, and that share (None where it would be empty)."""
    n = len(source)
    wanted = round(share * n)
    if wanted == 0 or wanted == n:
        return source, None
    pieces = min(STRETCHES, wanted)
    sizes = np.full(pieces, wanted // pieces)
    sizes[: wanted % pieces] += 1
    rooms = np.linspace(0, n, pieces + 1).astype(np.int64)
    slack = np.diff(rooms) - sizes
    shifts = rng.integers(rng.key(seed), np.arange(pieces), slack + 1)
    begins = rooms[:-1] + shifts
    held = np.stack([begins, begins + sizes], axis=1)
    edges = np.concatenate(([0], held.reshape(-1), [n])).reshape(-1, 2)
    return Part.of(source, edges), Part.of(source, held)
