"""A share of the documents that is never trained on, for evaluation while training.

What is held out is a few stretches of neighbouring documents from all over a store, the same ones whatever the
seed, the source or the objective, so that no later stage trains on what an earlier one was judged by. Examples are
numbered in the order of their documents, so a stretch of documents is a stretch of examples, found by bisection.
Cost: a bisection of a short table for each example.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from liebig import rng
from liebig.data.batches import Row, Source
from liebig.pretrain.documents import document_count, documents_of

Ints = NDArray[np.int64]
STRETCHES = 32
KEY = rng.key(0)


@dataclass(frozen=True)
class Part:
    """Some stretches of a source's examples as a source of their own."""

    source: Source
    begins: Ints  # first example of each stretch, ascending
    ends: Ints  # running number of examples at the end of each stretch

    @classmethod
    def of(cls, source: Source, stretches: Ints) -> Part:
        """From begin and end of each stretch."""
        stretches = stretches[stretches[:, 1] > stretches[:, 0]]
        return cls(source, stretches[:, 0], np.cumsum(stretches[:, 1] - stretches[:, 0]))

    def __len__(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def examples(self, numbers: Ints) -> Ints:
        """The inner source's numbers of these examples."""
        stretch = np.searchsorted(self.ends, numbers, side="right")
        before = np.concatenate(([0], self.ends))[stretch]
        return np.asarray(self.begins[stretch] + numbers - before)

    def draw(self, examples: Ints, epoch: int, seed: int) -> Row:
        """What the inner source draws for them."""
        return self.source.draw(self.examples(examples), epoch, seed)

    def documents(self, examples: Ints, epoch: int, seed: int) -> Ints:
        """The documents of the inner source's examples."""
        return documents_of(self.source, self.examples(examples), epoch, seed)


def hold_out(source: Source, share: float) -> tuple[Source, Source | None]:
    """The source without a share of its documents, and that share (None where it would be empty)."""
    documents = document_count(source)
    if documents is None:
        held = stretches(len(source), share)
    else:
        held = first_examples(source, stretches(documents, share).reshape(-1)).reshape(-1, 2)
    found = Part.of(source, held)
    if len(found) == 0:
        return source, None
    kept = np.concatenate(([0], held.reshape(-1), [len(source)])).reshape(-1, 2)
    return Part.of(source, kept), found


def stretches(n: int, share: float) -> Ints:
    """Begin and end of a few stretches of range(n) that make up the share, one somewhere in each equal part."""
    wanted = round(share * n)
    pieces = min(STRETCHES, wanted)
    if pieces == 0:
        return np.zeros((0, 2), np.int64)
    sizes = np.full(pieces, wanted // pieces)
    sizes[: wanted % pieces] += 1
    rooms = np.linspace(0, n, pieces + 1).astype(np.int64)
    begins = rooms[:-1] + rng.integers(KEY, np.arange(pieces), np.diff(rooms) - sizes + 1)
    return np.stack([begins, begins + sizes], axis=1)


def first_examples(source: Source, documents: Ints) -> Ints:
    """The first example of each of these documents or of one after it; all bisected at once."""
    low, high = np.zeros(len(documents), np.int64), np.full(len(documents), len(source))
    while (low < high).any():
        open_ = low < high
        middle = (low + high) // 2
        before = np.zeros(len(documents), np.bool_)
        before[open_] = documents_of(source, middle[open_], 0, 0) < documents[open_]
        low = np.where(open_ & before, middle + 1, low)
        high = np.where(open_ & ~before, middle, high)
    return low
