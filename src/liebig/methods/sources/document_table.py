"""Which document an example comes from, looked up in a running count kept for every 64th document.

Cost: one pass over the offsets of a store at the start (3 ns per sentence, 20 ns per document), then under 1 us per
example.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from liebig.methods.sources.token_rows import Ints
from liebig.store import TokenStore

GROUP = 64


class Levels(NamedTuple):
    """The offsets of a store, in the form that kernels take."""

    documents: Ints
    sections: Ints
    paragraphs: Ints
    sentences: Ints

    @classmethod
    def of(cls, store: TokenStore) -> Levels:
        """The four levels of a store."""
        return cls(store.documents, store.sections, store.paragraphs, store.sentences)


class ExamplePlaces(NamedTuple):
    """The document of each example, and the number of its window there."""

    documents: Ints
    windows: Ints


class DocumentTable:
    """Examples of the documents of at least `minimum` tokens: one each, or one for every `window` tokens."""

    def __init__(self, store: TokenStore, minimum: int, window: int = 0) -> None:
        self._levels, self._minimum, self._window = Levels.of(store), max(minimum, 1), window
        sums, self.skipped = _survey(self._levels, self._minimum, window)
        self._ends = np.cumsum(sums)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def find(self, examples: Ints) -> ExamplePlaces:
        return ExamplePlaces(*_find(self._levels, self._ends, examples, self._minimum, self._window))


@njit(nogil=True, cache=True)
def first_sentence(levels: Any, document: int) -> int:
    """The first sentence of a document, which is the end of the one before."""
    return levels.paragraphs[levels.sections[levels.documents[document]]]


@njit(nogil=True, cache=True)
def _examples(levels: Any, document: int, minimum: int, window: int) -> int:
    """How many examples a document gives."""
    first, last = first_sentence(levels, document), first_sentence(levels, document + 1)
    tokens = levels.sentences[last] - levels.sentences[first]
    if tokens < minimum:
        return 0
    return max(1, tokens // window) if window > 0 else 1


@njit(nogil=True, cache=True)
def _survey(levels: Any, minimum: int, window: int) -> Any:
    """Examples in each group of documents, and how many documents give none."""
    documents, skipped = len(levels.documents) - 1, 0
    sums = np.zeros((documents + GROUP - 1) // GROUP, np.int64)
    for document in range(documents):
        count = _examples(levels, document, minimum, window)
        sums[document // GROUP] += count
        skipped += count == 0
    return sums, skipped


@njit(nogil=True, cache=True)
def _find(levels: Any, ends: Any, examples: Any, minimum: int, window: int) -> Any:
    documents, windows = np.empty(len(examples), np.int64), np.empty(len(examples), np.int64)
    for i in range(len(examples)):
        group = np.searchsorted(ends, examples[i], side="right")
        left = examples[i] - (ends[group - 1] if group > 0 else 0)
        document = group * GROUP
        count = _examples(levels, document, minimum, window)
        while left >= count:
            left -= count
            document += 1
            count = _examples(levels, document, minimum, window)
        documents[i], windows[i] = document, left
    return documents, windows


def document_at(store: TokenStore, sentences: Ints) -> Ints:
    """The document each sentence lies in: a bisection on every level."""
    return holder(store.documents, holder(store.sections, holder(store.paragraphs, sentences)))


def holder(offsets: Ints, inner: Ints) -> Ints:
    """Which of the pieces that begin at `offsets` holds each inner number; an empty piece holds none."""
    return np.asarray(np.searchsorted(offsets, inner, side="right") - 1, np.int64)
