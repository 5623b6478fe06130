"""A share of the documents that is never trained on, for evaluation while training.

What is held out is a few stretches of neighbouring documents from all over a store, the same ones whatever the
seed, the source or the objective, so that no later stage trains on what an earlier one was judged by. Examples are
numbered in the order of their documents, so a stretch of documents is a stretch of examples, found by bisection.
Cost: a bisection of a short table for each example.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from liebig.base import rng
from liebig.base.errors import RecipeError
from liebig.store.pair_sources import BlockSource, ClozeSource, CropSource, Row, Source, SpanSource
from liebig.store.store import TokenStore

# Which document an example comes from, for sources that know it.


@runtime_checkable
class KnowsDocuments(Protocol):
    """A source that says it itself."""

    def documents(self, examples: Ints, epoch: int, seed: int) -> Ints:
        """A number for the document of each example."""


def documents_of(source: Source, examples: Ints, epoch: int, seed: int) -> Ints:
    """A number for the document of each example; numbers of a store rise with the examples'."""
    if isinstance(source, KnowsDocuments):
        return source.documents(examples, epoch, seed)
    if isinstance(source, SpanSource | CropSource) and source._table is not None:
        return source._table.find(examples).documents
    if isinstance(source, BlockSource | ClozeSource):
        blocks = source if isinstance(source, BlockSource) else source._blocks
        return document_at(source.store, blocks.blocks(examples)[:, 0])
    if isinstance(source, CropSource):
        return document_at(source.store, _holder(source.store.sentences, examples * source.window))
    raise RecipeError(
        "this source does not say which document its texts come from", fix="set distinct_documents = false"
    )


def document_at(store: TokenStore, sentences: Ints) -> Ints:
    """The document each sentence lies in: a bisection on every level."""
    return _holder(store.documents, _holder(store.sections, _holder(store.paragraphs, sentences)))


def _holder(offsets: Ints, inner: Ints) -> Ints:
    """Which of the pieces that begin at `offsets` holds each inner number; an empty piece holds none."""
    return np.asarray(np.searchsorted(offsets, inner, side="right") - 1, np.int64)


def document_count(source: Source) -> int | None:
    """Documents of the source's store, a few of which may give no example; None where it reads no store."""
    store = getattr(source, "store", None)
    if isinstance(store, TokenStore):
        return len(store)
    inner = getattr(source, "source", None)
    return None if inner is None else document_count(inner)


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
