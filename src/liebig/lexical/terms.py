"""The terms that queries have asked for: their idf over all segments, and their number in each.

A word of a query is looked up once, by one dictionary, from then on to its place in the tables; document frequencies
are counted when a term is first seen. What a term adds to each score is kept when it comes a second time, because
questions share their words. Memory: the queries' different words, and at most 128 MB of kept parts.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from liebig.lexical import kernels
from liebig.lexical.analysis import Analyzer
from liebig.lexical.kernels import Doubles, Floats, Longs
from liebig.lexical.scripts import words
from liebig.lexical.segment import Segment

MOST_WORDS = 1 << 20  # different words remembered before the memory is cleared
MOST_PARTS = 1 << 25  # parts of scores kept, 4 bytes each


@dataclass(frozen=True)
class Local:
    """Terms in one segment: their numbers (-1: not there), where their parts begin (-1: not kept), and the parts."""

    numbers: Longs
    known: Longs
    parts: Floats


@dataclass(frozen=True)
class Terms:
    """The terms of some queries, one query after the other."""

    ends: Longs
    idf: Floats
    local: list[Local]


class Part:
    """What is known of the terms in one segment."""

    def __init__(self, segment: Segment, norm: Doubles, most: int) -> None:
        self.segment, self._norm, self._most = segment, norm, most
        self.numbers, self.known = array("q"), array("q")
        self._parts, self._used = np.zeros(0, np.float32), 0

    def add(self, term: str) -> int:
        """Take up a term; gives the number of passages that have it."""
        number = self.segment.terms.get(term, -1)
        self.numbers.append(number)
        self.known.append(-1)
        return self.segment.frequency(number) if number >= 0 else 0

    def keep(self, place: int, idf: float) -> None:
        """Keep the parts of a term, as long as there is room."""
        number = self.numbers[place]
        if number < 0:
            return
        start, end = self.segment.starts[number], self.segment.starts[number + 1]
        if self._used + end - start > self._most:
            return
        if self._used + end - start > len(self._parts):
            size = min(self._most, max(2 * len(self._parts), int(self._used + end - start)))
            self._parts = np.concatenate([self._parts, np.zeros(size - len(self._parts), np.float32)])
        mine = self._parts[self._used : self._used + int(end - start)]
        kernels.weigh(idf, self.segment.docs[start:end], self.segment.tf[start:end], self._norm, mine)
        self.known[place] = self._used
        self._used += len(mine)

    def of(self, places: Longs) -> Local:
        """The terms at these places."""
        numbers, known = (np.frombuffer(row, np.int64)[places] for row in (self.numbers, self.known))
        return Local(numbers, known, self._parts)


class TermTable(dict[str, int]):
    """Word -> place in the tables; -1 for a stop word and for what no passage has."""

    def __init__(self, analyzer: Analyzer, segments: Sequence[Segment], norms: Sequence[Doubles]) -> None:
        super().__init__()
        self._analyzer = analyzer
        self._documents = sum(len(segment) - len(segment.deleted) for segment in segments)
        most = MOST_PARTS // max(1, len(segments))
        self._parts = [Part(segment, norm, most) for segment, norm in zip(segments, norms)]
        self._places: dict[str, int] = {}
        self._idf, self._seen = array("f"), array("b")

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
        self._keep(places)
        idf = np.frombuffer(self._idf, np.float32)[places]
        return Terms(np.array(ends, np.int64), idf, [part.of(places) for part in self._parts])

    def _keep(self, places: Longs) -> None:
        """Keep the parts of terms that come a second time; 2 stands for more often."""
        chosen, counts = np.unique(places, return_counts=True)
        for place, count in zip(chosen.tolist(), counts.tolist()):
            before = self._seen[place]
            if before < 2:
                self._seen[place] = min(2, before + count)
                if self._seen[place] == 2:
                    for part in self._parts:
                        part.keep(place, self._idf[place])

    def __missing__(self, word: str) -> int:
        term = self._analyzer.term(word)
        if term not in self._places:
            self._places[term] = self._add(term) if term else -1
        self[word] = self._places[term]
        return self[word]

    def _add(self, term: str) -> int:
        if not any(term in part.segment.terms for part in self._parts):
            return -1
        frequency = sum(part.add(term) for part in self._parts)
        idf = math.log(1 + (self._documents - frequency + 0.5) / (frequency + 0.5)) if frequency else 0.0
        self._idf.append(idf)
        self._seen.append(0)
        return len(self._idf) - 1 if frequency else -1
