"""BM25 over segments: opened after a hash check, searched as if they were one index.

Document frequencies and the average length are summed over all segments when they are needed, k1 and b are free at
search time. Equal scores are ordered by insertion. Cost of a query: a pass over the postings of its terms and over
one float per passage; memory: 12 bytes a passage and the terms, everything else is mapped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Any

import numpy as np

from liebig import workspace
from liebig.data import npy
from liebig.data.ranked import Ranked, merge, stack
from liebig.errors import DataError
from liebig.lexical import kernels
from liebig.lexical.analysis import Analyzer
from liebig.lexical.kernels import Doubles, Floats
from liebig.lexical.segment import Segment
from liebig.lexical.terms import Terms, TermTable
from liebig.records import Passage

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
        cls, path: Path, *, k1: float | None = None, b: float | None = None, hashes: bool = True
    ) -> BM25:
        """Map an index, after its files were held against its manifest; k1 and b may be set anew."""
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
