"""Counts of the records of a collection, taken while they are written.

Samples are the records with the smallest id hashes: uniform, reproducible, and without a second pass. Memory: 4 bytes
per record for its length, 16 more per query.
"""

from __future__ import annotations

import heapq
from array import array
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liebig.base.records import Document, Passage, Query, ScoredPair, Tuple
from liebig.collection.lookup import hash64
from liebig.formats.items import Item
from liebig.formats.output import collapse

SAMPLES = 3
SHOWN = 300
LONGEST = (1 << 32) - 1


@dataclass
class KindCensus:
    """What was seen of one kind of record."""

    lengths: array[int] = field(default_factory=lambda: array("I"))
    empty: int = 0
    samples: list[tuple[int, int, dict[str, Any]]] = field(default_factory=list)

    def see(self, name: str, text: str, row: dict[str, Any]) -> None:
        """One more record, its text, and what a sample of it shows."""
        self.lengths.append(min(len(text), LONGEST))
        self.empty += not text or text.isspace()
        key = -hash64(name)
        if len(self.samples) < SAMPLES:
            heapq.heappush(self.samples, (key, len(self.lengths), row))
        elif key > self.samples[0][0]:
            heapq.heapreplace(self.samples, (key, len(self.lengths), row))

    def shown(self) -> list[dict[str, Any]]:
        """The samples, in the order of the file."""
        return [row for _, _, row in sorted(self.samples, key=lambda entry: entry[1])]


@dataclass(frozen=True)
class CensusMark:
    """What a census had counted at one time."""

    kinds: dict[str, tuple[int, int, list[tuple[int, int, dict[str, Any]]]]]
    counts: Counter[str]
    languages: Counter[str]
    queries: int


class Census:
    """Counts over all records of a collection."""

    def __init__(self) -> None:
        self.kinds: defaultdict[str, KindCensus] = defaultdict(KindCensus)
        self.counts: Counter[str] = Counter()
        self.languages: Counter[str] = Counter()  # codes of documents and passages; "" where unknown
        self._queries, self._words = array("Q"), array("Q")

    def mark(self) -> CensusMark:
        """What is counted now, to come back to."""
        kinds = {
            name: (len(kind.lengths), kind.empty, list(kind.samples)) for name, kind in self.kinds.items()
        }
        return CensusMark(kinds, self.counts.copy(), self.languages.copy(), len(self._queries))

    def back_to(self, mark: CensusMark) -> None:
        """Forget all that was counted since the mark."""
        for name in list(self.kinds):
            if name not in mark.kinds:
                del self.kinds[name]
                continue
            count, empty, samples = mark.kinds[name]
            kind = self.kinds[name]
            kind.empty, kind.samples = empty, list(samples)
            del kind.lengths[count:]
        self.counts, self.languages = mark.counts.copy(), mark.languages.copy()
        del self._queries[mark.queries :], self._words[mark.queries :]

    def see(self, item: Item) -> None:
        record = item.record
        if isinstance(record, Document):
            self._see_document(record)
        elif isinstance(record, Passage):
            row = {"id": record.id, "title": record.title, "text": _short(record.text)}
            self.kinds["passages"].see(
                record.id, record.text, row | ({"doc": record.doc} if record.doc else {})
            )
            self.counts["passages with a document"] += bool(record.doc)
            self.languages[record.language] += 1
        elif isinstance(record, Query):
            self._see_query(record)
        elif isinstance(record, Tuple):
            row = {"anchor": _short(record.anchor), "positive": _short(record.positive)}
            row |= {"negatives": str(len(record.negatives))}
            self.kinds["tuples"].see(record.anchor + record.positive, record.anchor + record.positive, row)
        elif isinstance(record, ScoredPair):
            row = {"a": _short(record.a), "b": _short(record.b), "score": str(record.score)}
            self.kinds["pairs"].see(record.a + record.b, record.a + record.b, row)

    def _see_document(self, record: Document) -> None:
        text = record.text
        row = {"id": record.id, "title": record.title, "text": _short(text)}
        headings = [section.heading for section in record.sections if section.heading]
        self.kinds["documents"].see(record.id, text, row | ({"headings": headings[:6]} if headings else {}))
        self.counts["sections"] += len(record.sections)
        self.languages[record.metadata.get("language", "")] += 1
        self.counts["paragraphs"] += sum(len(section.paragraphs) for section in record.sections)

    def _see_query(self, record: Query) -> None:
        row: dict[str, Any] = {"id": record.id, "text": _short(record.text)}
        self.kinds["queries"].see(
            record.id, record.text, row | ({"answers": list(record.answers[:3])} if record.answers else {})
        )
        self.counts["queries with answers"] += bool(record.answers)
        self._queries.append(hash64(record.id))
        self._words.append(hash64(collapse(record.text).casefold()))

    def words_of(self, queries: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """The hashes of these queries' words; a query that is not known stands for itself."""
        known = np.frombuffer(self._queries, np.uint64) if self._queries else np.empty(0, np.uint64)
        if not len(known):
            return queries
        words = np.frombuffer(self._words, np.uint64)
        order = np.argsort(known)
        place = np.minimum(np.searchsorted(known, queries, sorter=order), len(known) - 1)
        return np.where(known[order[place]] == queries, words[order[place]], queries)


def _short(text: str) -> str:
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"
