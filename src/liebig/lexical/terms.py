"""The terms that queries have asked for: their idf over all segments, and their number in each.

A word of a query is looked up once, by one dictionary, from then on to its place in the tables; document frequencies
are counted when a term is first seen. Memory: what the queries' different words take.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from liebig.lexical.analysis import Analyzer
from liebig.lexical.kernels import Floats, Longs
from liebig.lexical.scripts import words
from liebig.lexical.segment import Segment

MOST_WORDS = 1 << 20  # different words remembered before the memory is cleared


@dataclass(frozen=True)
class Terms:
    """The terms of some queries, one query after the other: idf, and number in each segment (-1: not there)."""

    ends: Longs
    idf: Floats
    local: list[Longs]


class TermTable(dict[str, int]):
    """Word -> place in the tables; -1 for a stop word and for what no passage has."""

    def __init__(self, analyzer: Analyzer, segments: Sequence[Segment]) -> None:
        super().__init__()
        self._analyzer, self._segments = analyzer, segments
        self._documents = sum(len(segment) - len(segment.deleted) for segment in segments)
        self._places: dict[str, int] = {}
        self._idf, self._local = array("f"), [array("q") for _ in segments]

    def of(self, queries: Sequence[str]) -> Terms:
        """The terms of some queries; those that no passage has are left out."""
        if len(self) > MOST_WORDS:
            self.clear()
        found: list[int] = []
        ends = []
        for query in queries:
            found += [place for word in words(query) if (place := self[word]) >= 0]
            ends.append(len(found))
        places = np.array(found, np.int64)
        local = [np.frombuffer(numbers, np.int64)[places] for numbers in self._local]
        return Terms(np.array(ends, np.int64), np.frombuffer(self._idf, np.float32)[places], local)

    def __missing__(self, word: str) -> int:
        term = self._analyzer.term(word)
        if term not in self._places:
            self._places[term] = self._add(term) if term else -1
        self[word] = self._places[term]
        return self[word]

    def _add(self, term: str) -> int:
        local = [segment.terms.get(term, -1) for segment in self._segments]
        frequency = sum(segment.frequency(t) for segment, t in zip(self._segments, local) if t >= 0)
        if frequency == 0:
            return -1
        self._idf.append(math.log(1 + (self._documents - frequency + 0.5) / (frequency + 0.5)))
        for numbers, number in zip(self._local, local):
            numbers.append(number)
        return len(self._idf) - 1
