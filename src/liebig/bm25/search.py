"""BM25 over segments: verified when opened, searched as if they were one index.

Document frequencies and the average length are summed over all segments when needed, so k1 and b can be changed at
search time. Equal scores are ordered by insertion. A word of a query is looked up in one table, which has its idf and
its term number in each segment; from the second time on, the scores that the term gives to its passages are cached,
because questions share their words. Cost of a query: a pass over the postings of its terms and over one float per
passage, in the processor's cache. Memory: 9 bytes per passage, the terms, and at most 128 MB of cached scores;
everything else is memory-mapped.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, ConfigDict, Field

from liebig.base import workspace
from liebig.base.errors import DataError
from liebig.base.json_file import FileModel, Nonnegative, read_json
from liebig.base.records import Passage
from liebig.bm25 import kernels
from liebig.bm25.analysis import AUTO, Analyzer, MixedAnalyzer, known_language
from liebig.bm25.index import Segment
from liebig.bm25.kernels import Doubles, Flags, Floats, Longs
from liebig.vectors.ranked import Ranked, merge, stack

FORMAT = 1
SUMMARY = "bm25.json"
CHUNK = 64  # queries that a thread gets at once
CACHED_WORDS = 1 << 20  # distinct words cached before the cache is cleared
CACHED_SCORES = 1 << 25  # term scores cached, 4 bytes each
MOST_NORMS = 1 << 12  # distinct norms of a segment up to which tables are used


@dataclass(frozen=True)
class SegmentTerms:
    """Query terms in one segment: their numbers (-1: absent), what is cached (see `kernels.search`), and the cache."""

    numbers: Longs
    cached: Longs
    scores: Floats


@dataclass(frozen=True)
class QueryTerms:
    """The terms of some queries, one query after the other; `ends` are the ends of the queries."""

    ends: Longs
    idf: Floats
    segments: list[SegmentTerms]


class Norms:
    """k1 * (1 - b + b * length / average) of every passage; infinite for deleted ones, whose scores so become 0.

    Lengths repeat, so there are few distinct norms: `codes` are their numbers, for tables. Both are empty if there are
    too many to be useful.
    """

    def __init__(self, values: Doubles) -> None:
        self.values = values
        ordered = np.sort(values)  # np.unique would import numpy.ma, which a cold search does not need
        distinct = ordered[np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]]
        self.distinct = distinct if len(distinct) <= MOST_NORMS else distinct[:0]
        kind = np.uint8 if len(self.distinct) <= 256 else np.uint16
        self.codes = np.searchsorted(self.distinct, values if len(self.distinct) else values[:0]).astype(kind)


class SegmentCache:
    """The numbers and cached scores of query terms in one segment."""

    def __init__(self, segment: Segment, norms: Norms, size: int) -> None:
        self.segment, self._norms, self._size = segment, norms, size
        self.numbers, self.cached = array("q"), array("q")
        self._scores, self._used = np.zeros(0, np.float32), 0

    def add(self, term: str) -> int:
        """Add a term; returns the number of passages that have it."""
        number = self.segment.terms.get(term, -1)
        self.numbers.append(number)
        self.cached.append(-1)
        if number < 0:
            return 0
        self.segment.check(number, number + 1)
        return self.segment.frequency(number)

    def keep(self, place: int, idf: float) -> None:
        """Cache the scores of a term, if there is room."""
        number = self.numbers[place]
        if number < 0:
            return
        postings = slice(self.segment.starts[number], self.segment.starts[number + 1])
        docs, tf = self.segment.docs[postings], self.segment.tf[postings]
        table = kernels.TABLE_ROWS * len(self._norms.distinct)
        if (scores := self._take(len(docs), self._size // 4 * 3)) is not None:
            self.cached[place] = self._used - len(docs)
            kernels.score_term(idf, docs, tf, self._norms.values, scores)
        elif 0 < table < len(docs) and (scores := self._take(table, self._size)) is not None:
            self.cached[place] = -2 - (self._used - table)
            kernels.fill_table(idf, self._norms.distinct, scores)

    def _take(self, count: int, limit: int) -> Floats | None:
        """Room for that many scores, if no more than `limit` are then used; what is left is for tables."""
        used = self._used + count
        if used > limit:
            return None
        if used > len(self._scores):  # grows by doubling; searches under way keep the array they were given
            size = min(self._size, max(2 * len(self._scores), used))
            self._scores = np.concatenate([self._scores, np.zeros(size - len(self._scores), np.float32)])
        scores, self._used = self._scores[self._used : used], used
        return scores

    def terms(self, places: Longs) -> SegmentTerms:
        numbers, cached = (np.frombuffer(row, np.int64)[places] for row in (self.numbers, self.cached))
        return SegmentTerms(numbers, cached, self._scores)


WORDS = 1 << 18  # words whose terms are remembered


class TermTable(dict[str, tuple[int, ...]]):
    """Word -> the places of its terms in the arrays; none for a stop word and for a word that no passage has.

    A word has several terms where accents or languages differ. They stand for one word: its idf is that of the
    passages that have any of them, so that a rare spelling or language does not make it rare.
    """

    def __init__(self, analyzer: Analyzer, segments: Sequence[Segment], norms: Sequence[Norms]) -> None:
        super().__init__()
        self._analyzer = analyzer
        self._documents = sum(len(segment) - len(segment.deleted) for segment in segments)
        size = CACHED_SCORES // max(1, len(segments))
        self._segments = [SegmentCache(segment, norm, size) for segment, norm in zip(segments, norms)]
        self._places: dict[tuple[str, ...], tuple[int, ...]] = {}
        self._idf, self._seen = array("f"), array("b")

    def terms(self, queries: Sequence[str]) -> QueryTerms:
        """The terms of some queries, without those that no passage has."""
        if len(self) > CACHED_WORDS:
            self.clear()
        listed: list[int] = []
        ends = []
        for query in queries:
            for word in self._analyzer.query_words(query):
                listed += self[word]
            ends.append(len(listed))
        places = np.array(listed, np.int64)
        self._cache_repeated(places)
        idf = np.frombuffer(self._idf, np.float32)[places]
        return QueryTerms(np.array(ends, np.int64), idf, [cache.terms(places) for cache in self._segments])

    def _cache_repeated(self, places: Longs) -> None:
        """Cache the scores of terms that occur for the second time; occurrences are counted up to 2."""
        for place, count in sorted(Counter(places.tolist()).items()):
            before = self._seen[place]
            if before < 2:
                self._seen[place] = min(2, before + count)
                if self._seen[place] == 2:
                    for cache in self._segments:
                        cache.keep(place, self._idf[place])

    def __missing__(self, word: str) -> tuple[int, ...]:
        tables = [cache.segment.terms for cache in self._segments]
        terms = tuple(t for t in self._analyzer.variants(word) if any(t in table for table in tables))
        if terms not in self._places:
            self._places[terms] = self._add(terms)
        if terms and len(self) < WORDS:  # clients choose the words, so what is remembered has a bound
            self[word] = self._places[terms]
        return self._places[terms]

    def _add(self, terms: tuple[str, ...]) -> tuple[int, ...]:
        counts = [sum(cache.add(term) for cache in self._segments) for term in terms]
        frequency = min(sum(counts), self._documents)
        idf = math.log(1 + (self._documents - frequency + 0.5) / (frequency + 0.5)) if frequency else 0.0
        first = len(self._idf)
        self._idf.extend([idf] * len(terms))
        self._seen.extend([0] * len(terms))
        return tuple(first + place for place, count in enumerate(counts) if count)


@dataclass(frozen=True)
class BM25Settings:
    """How texts become terms, the weight of a term in each field, and BM25's two parameters."""

    __pydantic_config__ = ConfigDict(extra="forbid")
    language: Annotated[str, AfterValidator(known_language)] = "english"
    stop_words: bool = True
    title_weight: Nonnegative = 1.0
    body_weight: Nonnegative = 1.0
    k1: Nonnegative = 0.9
    b: Annotated[float, Field(ge=0, le=1)] = 0.4
    fold: bool = False  # as in bm25s; `liebig bm25` and builds fold
    languages: tuple[
        Annotated[str, AfterValidator(known_language)], ...
    ] = ()  # of the passages, if language is AUTO

    @property
    def analyzer(self) -> Analyzer:
        if self.language == AUTO:
            return MixedAnalyzer(AUTO, self.stop_words, self.fold, languages=self.languages)
        return Analyzer(self.language, self.stop_words, self.fold)

    @property
    def weights(self) -> Doubles:
        return np.array([self.title_weight, self.body_weight])


class BM25File(FileModel, extra="forbid"):
    """`bm25.json`."""

    format: Literal[1]
    settings: BM25Settings
    segments: tuple[Annotated[str, Field(pattern="^[0-9]+$")], ...]


class TermStatistics(ABC):
    """How frequent terms are among the passages of an index, wherever its postings are."""

    settings: BM25Settings
    average: float  # of the passages' weighted lengths

    @abstractmethod
    def __len__(self) -> int:
        """The number of passages."""

    @abstractmethod
    def frequency(self, *terms: str) -> int:
        """How many passages have a term, or one of those that stand for a word (`Analyzer.variants`)."""

    @abstractmethod
    def of_best(self, question: str, k: int, words: Iterable[tuple[str, ...]]) -> set[tuple[str, ...]]:
        """Those of some words, each given by its terms, that the k best passages of a question have."""

    @abstractmethod
    def info(self) -> dict[str, Any]:
        """A summary of the index for people."""

    def idf(self, *terms: str) -> float:
        """BM25's weight of a term, or of a word's terms; that of one that no passage has is the highest."""
        return self.weight(self.frequency(*terms))

    def weight(self, frequency: int) -> float:
        """The idf of what that many passages have."""
        return math.log(1 + (len(self) - frequency + 0.5) / (frequency + 0.5))


class BM25(TermStatistics):
    """An open index: `search` returns numbers of passages, `id` and `passage` what they stand for.

    index = BM25.open("runs/bm25")
    hits = index.search(["who discovered penicillin"], k=10)
    numbers, scores = hits.row(0)
    print(index.passage(numbers[0]).text)
    """

    def __init__(self, settings: BM25Settings, segments: Sequence[Segment]) -> None:
        self.settings, self.segments = settings, tuple(segments)
        self.starts = np.cumsum([0, *(len(segment) for segment in segments)])
        self._lock = Lock()

    @classmethod
    def open(
        cls, path: str | Path, *, k1: float | None = None, b: float | None = None, hashes: bool = True
    ) -> BM25:
        """Open an index after checking its files against its manifest; k1 and b override the saved ones."""
        path = Path(path)
        manifest = workspace.verify(path, hashes=hashes)
        if SUMMARY not in manifest.outputs:
            raise DataError("the folder is not a BM25 index", file=path, fix="build one with liebig bm25")
        summary = read_json(path / SUMMARY, BM25File, fix="run liebig bm25 again")
        saved = summary.settings
        settings = replace(saved, k1=saved.k1 if k1 is None else k1, b=saved.b if b is None else b)
        return cls(settings, list(open_segments(path, summary.segments)))

    def __len__(self) -> int:
        return sum(len(segment) - len(segment.deleted) for segment in self.segments)

    def info(self) -> dict[str, Any]:
        return {
            "kind": "bm25",
            "passages": len(self),
            "deleted": sum(len(segment.deleted) for segment in self.segments),
            "segments": len(self.segments),
            "postings": sum(len(segment.docs) for segment in self.segments),
            **asdict(self.settings),
        }

    def search(self, queries: Sequence[str], k: int, threads: int = 1, mask: Flags | None = None) -> Ranked:
        """The k best passages of each query, among those that share a term with it; `mask` says which may be given."""
        chunks = [queries[i : i + CHUNK] for i in range(0, len(queries), CHUNK)]
        if not chunks or not self.segments:
            return Ranked.nothing(len(queries), k)
        prepared = (self._prepare(chunk) for chunk in chunks)
        if threads == 1:
            return stack([self._search(item, k, mask) for item in prepared])
        with ThreadPoolExecutor(threads) as pool:
            return stack(list(pool.map(lambda item: self._search(item, k, mask), prepared)))

    def frequency(self, *terms: str) -> int:
        numbers = ((segment, segment.terms.get(term)) for segment in self.segments for term in terms)
        count = sum(segment.frequency(number) for segment, number in numbers if number is not None)
        return min(count, len(self))

    def of_best(self, question: str, k: int, words: Iterable[tuple[str, ...]]) -> set[tuple[str, ...]]:
        numbers = [number for number, _ in self.search([question], k).row(0)]
        return {terms for terms in words if any(self.contains(number, *terms) for number in numbers)}

    def contains(self, number: int, *terms: str) -> bool:
        """Whether a passage, by its number, has one of some terms."""
        segment, local = self._locate(number)
        for place in (segment.terms[term] for term in terms if term in segment.terms):
            docs = segment.docs[segment.starts[place] : segment.starts[place + 1]]
            at = int(np.searchsorted(docs, local))
            if at < len(docs) and int(docs[at]) == local:
                return True
        return False

    def id(self, number: int) -> str:
        """The id of a passage, by its number."""
        segment, local = self._locate(number)
        return segment.ids[local]

    def find(self, id: str) -> int | None:
        """The number of a passage, by its id; None if it is absent or deleted."""
        for start, segment in zip(self.starts.tolist(), self.segments):
            local = segment.ids.find(id)
            if local is not None and segment.live[local]:
                return int(start + local)
        return None

    def passage(self, number: int) -> Passage:
        """A passage with title and text, by its number."""
        segment, local = self._locate(number)
        if segment.texts is None or segment.titles is None:
            raise DataError("the index was built without texts", file=segment.path, fix="index with --texts")
        return Passage(segment.ids[local], segment.texts[local], segment.titles[local])

    def _locate(self, number: int) -> tuple[Segment, int]:
        place = int(np.searchsorted(self.starts, number, side="right")) - 1
        return self.segments[place], number - int(self.starts[place])

    def _prepare(self, queries: Sequence[str]) -> QueryTerms:
        with self._lock:
            return self._table.terms(queries)

    @cached_property
    def _table(self) -> TermTable:
        return TermTable(self.settings.analyzer, self.segments, self._norms)

    def _search(self, terms: QueryTerms, k: int, mask: Flags | None) -> Ranked:
        parts = []
        for start, segment, norms, local in zip(self.starts, self.segments, self._norms, terms.segments):
            k_here = min(k, max(len(segment), 1))
            hits = Ranked.nothing(len(terms.ends), k_here)
            live = np.zeros(0, bool) if mask is None else mask[start : start + len(segment)]
            sums = np.zeros(max(1, min(len(segment), kernels.WINDOW)), np.float32)
            kernels.search(
                local.numbers, terms.idf, local.cached, terms.ends, segment.starts, segment.docs, segment.tf,
                norms.values, norms.codes, len(norms.distinct), live, local.scores, sums, sums.view(np.int32),
                hits.scores, hits.numbers,
            )  # fmt: skip
            hits.numbers[hits.numbers >= 0] += start
            parts.append(hits)
        return merge(parts, k)

    @cached_property
    def average(self) -> float:  # type: ignore[override]  # computed when it is first asked for
        """The mean of the passages' weighted lengths."""
        total = float(_weighted(sum(segment.totals for segment in self.segments), self.settings.weights))
        return total / len(self) if total else 1.0

    def norms(self, segment: Segment, average: float) -> Doubles:
        """What BM25 adds to a term's frequency, by passage, for a mean length."""
        weights, k1, b = self.settings.weights, self.settings.k1, self.settings.b
        norms: Doubles = k1 * ((1 - b) + b * _weighted(segment.lengths.T, weights) / average)
        norms[segment.deleted] = np.inf
        return norms

    @cached_property
    def _norms(self) -> list[Norms]:
        return [Norms(self.norms(segment, self.average)) for segment in self.segments]


def _weighted(lengths: Any, weights: Doubles) -> Any:
    """The weighted sum of field lengths, field by field, so that rounding is the same for one passage and for many."""
    return weights[0] * lengths[0] + weights[1] * lengths[1]


def open_segments(path: Path, names: Sequence[str]) -> Iterator[Segment]:
    """The segments of an index folder, with their deletions."""
    for name in names:
        deleted = path / "deleted" / f"{name}.npy"
        yield Segment.open(path / "segments" / name, deleted if deleted.is_file() else None)
