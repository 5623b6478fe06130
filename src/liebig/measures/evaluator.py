"""The values of a run: measures × queries, from blocks of hits that may be thrown away one after the other.

`Evaluator` takes blocks of whole queries and keeps one row of values per judged query, so memory grows with the number
of judged queries and not with the hits. Queries the run does not have count with 0, as with trec_eval's -c. Measured
by bench/measures.py; the first call in a fresh environment compiles the kernels, later ones load them from a cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numba
import numpy as np
from numpy.typing import NDArray

from liebig.base.errors import DataError
from liebig.base.progress import counted
from liebig.base.records import Judgement
from liebig.measures import Measure
from liebig.measures.ranking import (
    CODES,
    Bytes,
    Hits,
    Longs,
    Specs,
    Table,
    by_written_rank,
    find_duplicate,
    find_judged,
    hash_all,
    hash_rows,
    own_hit,
    sort_hits,
    unpack,
    value,
)
from liebig.ragged import Strings, offsets_of


@dataclass(frozen=True, eq=False, slots=True)
class RunBlock:
    """Several queries with all their hits, as flat arrays; ranks are those written in the run, from 1.

    Ids are ranges of one byte array: a block of a run file shares the file's bytes, a block made from passage numbers
    shares the packed ids of the collection.
    """

    queries: tuple[bytes, ...]
    hits: Hits

    def passages(self, query: int) -> list[str]:
        """The ids found for the block's query, in the order of the run."""
        hits = self.hits
        rows = range(int(hits.segments[query]), int(hits.segments[query + 1]))
        return [unpack(hits.data, int(hits.starts[i]), int(hits.ends[i])) for i in rows]


def block_from_mapping(run: Mapping[str, Mapping[str, float]]) -> RunBlock:
    """A run as {query: {passage: score}}; the given rank is the place in the mapping."""
    segments = offsets_of([len(hits) for hits in run.values()])
    ids = Strings.pack(passage for hits in run.values() for passage in hits).utf8
    scores = np.fromiter((score for hits in run.values() for score in hits.values()), dtype=np.float64)
    hits = Hits(
        segments, ids.values, ids.offsets[:-1], ids.offsets[1:], as_float32(scores), _places(segments)
    )
    return RunBlock(tuple(query.encode() for query in run), hits)


def block_from_matrix(
    queries: Sequence[str],
    ids: Sequence[str],
    passages_QK: NDArray[np.integer],
    scores_QK: NDArray[np.floating],
) -> RunBlock:
    """A run as the output of a top-k search: numbers of passages (negative: no hit) and scores, best first."""
    names = Strings.pack(ids).utf8
    kept = passages_QK >= 0
    segments = offsets_of(kept.sum(axis=1))
    numbers = passages_QK[kept]
    scores = as_float32(scores_QK[kept])
    starts, ends = names.offsets[numbers], names.offsets[numbers + 1]
    hits = Hits(segments, names.values, starts, ends, scores, _places(segments))
    return RunBlock(tuple(query.encode() for query in queries), hits)


def regroup(blocks: Sequence[RunBlock]) -> RunBlock:
    """One block in which the hits of a query lie together, from blocks in which they may not; order is kept."""
    order = {
        query: i
        for i, query in enumerate(dict.fromkeys(query for block in blocks for query in block.queries))
    }
    owner = np.concatenate(
        [
            np.repeat([order[query] for query in block.queries], np.diff(block.hits.segments))
            for block in blocks
        ]
    )
    shift = np.cumsum([0] + [block.hits.data.size for block in blocks])
    rows = np.argsort(owner, kind="stable")
    data = np.concatenate([block.hits.data for block in blocks])
    data.setflags(write=False)
    hits = Hits(
        segments=offsets_of(np.bincount(owner, minlength=len(order))),
        data=data,
        starts=np.concatenate([block.hits.starts + at for block, at in zip(blocks, shift)])[rows],
        ends=np.concatenate([block.hits.ends + at for block, at in zip(blocks, shift)])[rows],
        scores=np.concatenate([block.hits.scores for block in blocks])[rows],
        ranks=np.concatenate([block.hits.ranks for block in blocks])[rows],
    )
    return RunBlock(tuple(order), hits)


def as_float32(scores: NDArray[np.floating]) -> NDArray[np.float32]:
    """Scores as trec_eval holds them; what is too large for float32 becomes infinite there too."""
    if np.isnan(scores).any():
        raise DataError("a score of the run is not a number", fix="score every passage with a finite number")
    with np.errstate(over="ignore"):
        return scores.astype(np.float32)


def _places(segments: Longs) -> NDArray[np.int32]:
    places = np.arange(1, segments[-1] + 1) - np.repeat(segments[:-1], np.diff(segments))
    return places.astype(np.int32)


@dataclass(frozen=True, eq=False)
class Judgements:
    """Grades of passages by query: the ids of the queries, and their judgements as arrays.

    The judgements of a query are adjacent and sorted by the hash of the passage id; a hit is looked up by binary
    search, then compared byte by byte.
    """

    queries: tuple[str, ...]
    table: Table

    def __len__(self) -> int:
        return len(self.queries)

    @cached_property
    def index(self) -> dict[bytes, int]:
        """Row of a query by its id in UTF-8."""
        return {query.encode(): i for i, query in enumerate(self.queries)}

    def grades(self, query: str) -> dict[str, int]:
        """Grades of one query by passage id; empty for a query that is not judged."""
        row = self.index.get(query.encode())
        if row is None:
            return {}
        table = self.table
        rows = range(int(table.first[row]), int(table.first[row + 1]))
        return {
            unpack(table.data, int(table.starts[i]), int(table.ends[i])): int(table.grades[i]) for i in rows
        }


def judgements_from_records(judgements: Iterable[Judgement]) -> Judgements:
    """Judgements of any order; one given twice must have the same grade both times."""
    grades: dict[str, dict[str, int]] = {}
    for judgement in judgements:
        of_query = grades.setdefault(judgement.query, {})
        if of_query.setdefault(judgement.passage, judgement.relevance) != judgement.relevance:
            raise DataError(
                f"passage {judgement.passage!r} of query {judgement.query!r} is judged {of_query[judgement.passage]} "
                f"and {judgement.relevance}",
                fix="keep one of the two judgements",
            )
    return judgements_from_mapping(grades)


def judgements_from_mapping(grades: Mapping[str, Mapping[str, int]]) -> Judgements:
    """Judgements as {query: {passage: grade}}."""
    counts = np.array([len(of_query) for of_query in grades.values()], dtype=np.int64)
    ids = Strings.pack(passage for of_query in grades.values() for passage in of_query).utf8
    starts, ends = ids.offsets[:-1], ids.offsets[1:]
    flat = np.fromiter((grade for of_query in grades.values() for grade in of_query.values()), dtype=np.int32)
    hashes = hash_all(ids.values, starts, ends)
    owner = np.repeat(np.arange(counts.size), counts)
    order = np.lexsort((hashes, owner))
    table = Table(
        first=offsets_of(counts),
        data=ids.values,
        starts=starts[order],
        ends=ends[order],
        hashes=hashes[order],
        grades=flat[order],
        pool=flat[np.lexsort((-flat.astype(np.int64), owner))],
    )
    return Judgements(tuple(grades), table)


@dataclass(frozen=True, eq=False)
class Scores:
    """Values per query (rows, all judged queries) and measure (columns).

    `tied` marks a value that depends on how a tie across the cut is broken, `missing` a judged query without hits in
    the run (its values are 0), `found_self` a query whose own id is among its hits.
    """

    measures: tuple[Measure, ...]
    queries: tuple[str, ...]
    values: NDArray[np.float64]
    tied: NDArray[np.bool_]
    hits: NDArray[np.int64]
    missing: NDArray[np.bool_]
    found_self: NDArray[np.bool_]
    unjudged_queries: int = 0
    excluded_self: bool = False

    def of(self, measure: Measure) -> NDArray[np.float64]:
        """The values of one measure."""
        return self.values[:, self.measures.index(measure)]

    def only(self, measures: Sequence[Measure]) -> Scores:
        """The same for some of the measures."""
        columns = [self.measures.index(measure) for measure in measures]
        return replace(
            self, measures=tuple(measures), values=self.values[:, columns], tied=self.tied[:, columns]
        )

    def means(self) -> dict[str, float]:
        """Mean over all judged queries, by the name of the measure."""
        n = max(len(self.queries), 1)
        return {
            str(measure): float(total / n) for measure, total in zip(self.measures, self.values.sum(axis=0))
        }

    def remarks(self) -> str:
        """`6980 queries, 3 missing, tied across the cut: 2 (nDCG@10), 0 (R@1000)`."""
        cut = [i for i, measure in enumerate(self.measures) if measure.cut and measure.order == "score"]
        ties = ", ".join(f"{int(self.tied[:, i].sum())} ({self.measures[i]})" for i in cut)
        parts = [counted(len(self.queries), "queries"), f"{int(self.missing.sum())} missing"]
        parts += [f"tied across the cut: {ties}"] if ties else []
        parts += (
            [f"{self.unjudged_queries} queries of the run are not judged"] if self.unjudged_queries else []
        )
        return ", ".join(parts)


class Ungrouped(DataError):
    """The hits of a query come in two places, which streaming cannot take."""

    def __init__(self) -> None:
        super().__init__(
            "the hits of a query do not lie together in the run", fix="sort the run by its first column"
        )


class Evaluator:
    """Takes blocks of hits, gives the values of every measure for every judged query."""

    def __init__(
        self, judgements: Judgements, measures: Sequence[Measure], *, exclude_self: bool = False
    ) -> None:
        assert all(measure.needs == "judgements" for measure in measures)
        self.judgements = judgements
        self.measures = tuple(measures)
        self.exclude_self = exclude_self
        self._specs = _specs(self.measures)
        shape = (len(judgements), len(self.measures))
        self._values = np.zeros(shape)
        self._tied = np.zeros(shape, dtype=np.bool_)
        self._hits = np.zeros(len(judgements), dtype=np.int64)
        self._seen = np.zeros(len(judgements), dtype=np.bool_)
        self._own = np.zeros(len(judgements), dtype=np.bool_)
        self._unjudged_queries = 0

    def add(self, block: RunBlock) -> None:
        """Take whole queries; a query may come only once."""
        if self._specs.given.any() and block.hits.ranks.size and block.hits.ranks.min() < 1:
            raise DataError(
                "a rank of the run is not a whole number of at least 1", fix="use measures with order=score"
            )
        rows = self._rows(block)
        names = np.frombuffer(b"".join(block.queries), dtype=np.uint8)
        ends = np.cumsum([0, *map(len, block.queries)], dtype=np.int64)
        bad = _score_block(
            block.hits, rows, names, ends, self.judgements.table, self._specs, self.exclude_self,
            self._values, self._tied, self._hits, self._own,
        )  # fmt: skip
        if bad >= 0:
            raise _duplicate(block, bad)

    def scores(self) -> Scores:
        """The values of all judged queries so far."""
        return Scores(
            measures=self.measures,
            queries=self.judgements.queries,
            values=self._values.copy(),
            tied=self._tied.copy(),
            hits=self._hits.copy(),
            missing=~self._seen,
            found_self=self._own.copy(),
            unjudged_queries=self._unjudged_queries,
            excluded_self=self.exclude_self,
        )

    def _rows(self, block: RunBlock) -> Longs:
        index = self.judgements.index
        rows = np.array([index.get(query, -1) for query in block.queries], dtype=np.int64)
        judged = rows[rows >= 0]
        if self._seen[judged].any() or np.unique(judged).size < judged.size:
            raise Ungrouped()
        self._seen[judged] = True
        self._unjudged_queries += rows.size - judged.size
        return rows


def evaluate(
    blocks: Iterable[RunBlock],
    judgements: Judgements,
    measures: Sequence[Measure],
    *,
    exclude_self: bool = False,
) -> Scores:
    """The scores of a run given as blocks of whole queries."""
    evaluator = Evaluator(judgements, measures, exclude_self=exclude_self)
    for block in blocks:
        evaluator.add(block)
    return evaluator.scores()


def _specs(measures: Sequence[Measure]) -> Specs:
    return Specs(
        codes=np.array([CODES[measure.kind] for measure in measures], dtype=np.int64),
        cuts=np.array([measure.cut or 0 for measure in measures], dtype=np.int64),
        rels=np.array([measure.rel for measure in measures], dtype=np.int64),
        given=np.array([measure.order == "given" for measure in measures], dtype=np.bool_),
    )


def _duplicate(block: RunBlock, hit: int) -> DataError:
    query = block.queries[int(np.searchsorted(block.hits.segments, hit, side="right")) - 1].decode(
        errors="replace"
    )
    passage = unpack(block.hits.data, int(block.hits.starts[hit]), int(block.hits.ends[hit]))
    return found_twice(passage, query)


def found_twice(passage: str, query: str) -> DataError:
    """A run that has a passage twice for a query, which trec_eval refuses too."""
    return DataError(
        f"passage {passage!r} is found twice for query {query!r}", fix="remove one of the two lines"
    )


@numba.njit(cache=True, nogil=True)
def _score_block(
    hits: Hits, rows: Longs, names: Bytes, ends: Longs, table: Table, specs: Specs, exclude_self: bool,
    values: NDArray[np.float64], tied: NDArray[np.bool_], counts: Longs, own: NDArray[np.bool_],
) -> int:  # fmt: skip
    """Fill the rows of the block's queries; returns a hit whose id its query has twice, or -1."""
    for s in range(rows.size):
        query = rows[s]
        if query < 0:
            continue
        first, last = hits.segments[s], hits.segments[s + 1]
        mine = own_hit(hits, first, last, names[ends[s] : ends[s + 1]])
        own[query] = mine >= 0
        ranked = np.arange(first, last)
        if exclude_self and mine >= 0:  # plain loops: array expressions would take seconds to compile
            for i in range(mine - first, ranked.size - 1):
                ranked[i] = ranked[i + 1]
            ranked = ranked[: ranked.size - 1]
        ranked = sort_hits(hits, ranked)
        hashes = hash_rows(hits, ranked)
        bad = find_duplicate(hits, ranked, hashes)
        if bad >= 0:
            return bad
        judged = find_judged(hits, ranked, hashes, table, query)
        if exclude_self and mine >= 0:
            for i in range(judged.written.size):
                judged.written[i] -= judged.written[i] > hits.ranks[mine]
        counts[query] = ranked.size
        pool = table.pool[table.first[query] : table.first[query + 1]]
        as_written = by_written_rank(judged)
        for m in range(specs.codes.size):
            code, cut, rel = specs.codes[m], specs.cuts[m], specs.rels[m]
            if specs.given[m]:
                values[query, m] = value(
                    code, cut, rel, as_written.written, as_written.grades, pool, ranked.size
                )
            else:
                values[query, m] = value(code, cut, rel, judged.places, judged.grades, pool, ranked.size)
                tied[query, m] = (
                    0 < cut < ranked.size and hits.scores[ranked[cut - 1]] == hits.scores[ranked[cut]]
                )
    return -1
