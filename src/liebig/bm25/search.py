"""BM25 over segments: opened after a hash check, searched as if they were one index.

Document frequencies and the average length are summed over all segments when they are needed, k1 and b are free at
search time. Equal scores are ordered by insertion. Cost of a query: a pass over the postings of its terms and over
one float per passage; memory: 12 bytes a passage and the terms, everything else is mapped.
"""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Any

import numpy as np

from liebig.base import npy, workspace
from liebig.base.errors import DataError
from liebig.base.records import Passage
from liebig.bm25 import kernels
from liebig.bm25.analysis import Analyzer, words
from liebig.bm25.index import Segment
from liebig.bm25.kernels import Doubles, Floats, Longs
from liebig.vectors.ranked import Ranked, merge, stack

# The terms that queries have asked for: their idf over all segments, and their number in each.
#
# A word of a query is looked up once, by one dictionary, from then on to its place in the tables; document
# frequencies are counted when a term is first seen. What a term adds to each score is kept when it comes a
# second time, because questions share their words. Memory: the queries' different words, and at most 128 MB
# of kept parts.

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


FORMAT = 1
SUMMARY = "bm25.json"
CHUNK = 64  # queries given to a thread at once


@dataclass(frozen=True)
class Settings:
    """How texts become terms, what a term counts for in each field, and BM25's two numbers."""

    language: str = "english"
    stop_words: bool = True
    title_weight: float = 1.0
    body_weight: float = 1.0
    query_weight: float = 1.0
    k1: float = 0.9
    b: float = 0.4

    @property
    def analyzer(self) -> Analyzer:
        """Makes the terms."""
        return Analyzer(self.language, self.stop_words)

    @property
    def weights(self) -> Doubles:
        """Of title, body and generated queries."""
        return np.array([self.title_weight, self.body_weight, self.query_weight])


class BM25:
    """An opened index: `search` gives numbers, `passage` what they stand for."""

    def __init__(self, settings: Settings, segments: Sequence[Segment]) -> None:
        self.settings, self.segments = settings, tuple(segments)
        self.starts = np.cumsum([0, *(len(segment) for segment in segments)])
        self._lock = Lock()

    @classmethod
    def open(
        cls, path: str | Path, *, k1: float | None = None, b: float | None = None, hashes: bool = True
    ) -> BM25:
        """Map an index, after its files were held against its manifest; k1 and b may be set anew."""
        path = Path(path)
        manifest = workspace.verify(path, hashes=hashes)
        if SUMMARY not in manifest.outputs:
            raise DataError("the folder is not a BM25 index", file=path, fix="make one with liebig bm25")
        summary = json.loads((path / SUMMARY).read_text(encoding="utf-8"))
        if summary["format"] != FORMAT:
            raise DataError(
                f"the index has format {summary['format']}, this version reads {FORMAT}",
                file=path,
                fix="run liebig bm25 again",
            )
        saved = Settings(**summary["settings"])
        settings = replace(saved, k1=saved.k1 if k1 is None else k1, b=saved.b if b is None else b)
        return cls(settings, list(open_segments(path, summary["segments"])))

    def __len__(self) -> int:
        return sum(len(segment) - len(segment.deleted) for segment in self.segments)

    def info(self) -> dict[str, Any]:
        """What is in the index, for people."""
        return {
            "kind": "bm25",
            "passages": len(self),
            "deleted": sum(len(segment.deleted) for segment in self.segments),
            "segments": len(self.segments),
            "postings": sum(len(segment.docs) for segment in self.segments),
            **asdict(self.settings),
        }

    def search(self, queries: Sequence[str], k: int, threads: int = 1) -> Ranked:
        """The k best passages of each query; only passages that share a term with it are found."""
        chunks = [queries[i : i + CHUNK] for i in range(0, len(queries), CHUNK)]
        if not chunks or not self.segments:
            return Ranked.nothing(len(queries), k)
        prepared = (self._prepare(chunk) for chunk in chunks)
        if threads == 1:
            return stack([self._search(item, k) for item in prepared])
        with ThreadPoolExecutor(threads) as pool:
            return stack(list(pool.map(lambda item: self._search(item, k), prepared)))

    def id(self, number: int) -> str:
        """The id of a passage found."""
        segment, local = self._locate(number)
        return segment.ids[local]

    def find(self, id: str) -> int | None:
        """The number of a passage that is there."""
        for start, segment in zip(self.starts.tolist(), self.segments):
            local = segment.ids.find(id)
            if local is not None and segment.live[local]:
                return int(start + local)
        return None

    def passage(self, number: int) -> Passage:
        """The text of a passage found."""
        segment, local = self._locate(number)
        if segment.texts is None or segment.titles is None:
            raise DataError("the index was made without texts", file=segment.path, fix="index with --texts")
        return Passage(segment.ids[local], segment.texts[local], segment.titles[local])

    def _locate(self, number: int) -> tuple[Segment, int]:
        place = int(np.searchsorted(self.starts, number, side="right")) - 1
        return self.segments[place], number - int(self.starts[place])

    def _prepare(self, queries: Sequence[str]) -> Terms:
        with self._lock:
            return self._table.of(queries)

    @cached_property
    def _table(self) -> TermTable:
        return TermTable(self.settings.analyzer, self.segments, self._norms)

    def _search(self, terms: Terms, k: int) -> Ranked:
        parts = []
        for start, segment, norm, local in zip(self.starts, self.segments, self._norms, terms.local):
            k_here = min(k, max(len(segment), 1))
            found = Ranked.nothing(len(terms.ends), k_here)
            with self._buffer(len(segment)) as buffer:
                kernels.search(
                    local.numbers, terms.idf, local.known, terms.ends, segment.starts, segment.docs, segment.tf, norm,
                    local.parts, buffer, found.scores, found.numbers,
                )  # fmt: skip
            found.numbers[found.numbers >= 0] += start
            parts.append(found)
        return merge(parts, k)

    @cached_property
    def _norms(self) -> list[Doubles]:
        """k1 * (1 - b + b * length / average) of every passage; infinite where it is deleted."""
        weights, k1, b = self.settings.weights, self.settings.k1, self.settings.b
        total = float(_weighted(sum(segment.totals for segment in self.segments), weights))
        average = total / len(self) if total else 1.0
        norms = []
        for segment in self.segments:
            norm = k1 * ((1 - b) + b * _weighted(segment.lengths.T, weights) / average)
            norm[segment.deleted] = np.inf
            norms.append(norm)
        return norms

    @cached_property
    def _buffers(self) -> SimpleQueue[Floats]:
        return SimpleQueue()

    def _buffer(self, size: int) -> _Borrowed:
        return _Borrowed(self._buffers, size)


class _Borrowed:
    """A row of zeros as long as the largest segment so far, given back as zeros: clearing it is part of the search."""

    def __init__(self, free: SimpleQueue[Floats], size: int) -> None:
        self._free, self._size = free, size

    def __enter__(self) -> Floats:
        try:
            self._row = self._free.get_nowait()
        except Empty:
            self._row = np.zeros(0, np.float32)
        if len(self._row) < self._size:
            self._row = np.zeros(self._size, np.float32)
        return self._row[: self._size]

    def __exit__(self, *_: object) -> None:
        self._free.put(self._row)


def _weighted(lengths: Any, weights: Doubles) -> Any:
    """Field lengths weighed and summed, field by field, so that the result does not depend on the company."""
    return weights[0] * lengths[0] + weights[1] * lengths[1] + weights[2] * lengths[2]


def open_segments(path: Path, names: Sequence[str]) -> Iterator[Segment]:
    """The segments of an index folder, with their deletions."""
    for name in names:
        deleted = path / "deleted" / f"{name}.npy"
        yield Segment.open(path / "segments" / name, npy.load(deleted) if deleted.is_file() else None)
