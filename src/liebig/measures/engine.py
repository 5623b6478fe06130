"""The values of a run: measures × queries, from blocks of hits that may be thrown away one after the other.

`Evaluator` takes blocks of whole queries and keeps one row of values per judged query, so memory grows with the number
of judged queries and not with the hits. Queries the run does not have count with 0, as with trec_eval's -c. Measured
by bench/measures.py; the first call in a fresh environment compiles the kernels, later ones load them from a cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numba
import numpy as np
from numpy.typing import NDArray

from liebig.errors import DataError
from liebig.measures.arrays import Bytes, Hits, Longs, Specs, Table
from liebig.measures.blocks import Block
from liebig.measures.formulas import CODES, value
from liebig.measures.judgements import Judgements
from liebig.measures.names import Measure
from liebig.measures.ranking import (
    by_written_rank,
    find_duplicate,
    find_judged,
    hash_rows,
    own_hit,
    sort_hits,
)
from liebig.measures.scores import Scores
from liebig.measures.strings import unpack


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

    def add(self, block: Block) -> None:
        """Take whole queries; a query may come only once."""
        if self._specs.given.any() and block.hits.ranks.size and block.hits.ranks.min() < 1:
            raise DataError(
                "a rank of the run is not a number of at least 1", fix="use measures with order=score"
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

    def _rows(self, block: Block) -> Longs:
        index = self.judgements.index
        rows = np.array([index.get(query, -1) for query in block.queries], dtype=np.int64)
        judged = rows[rows >= 0]
        if self._seen[judged].any() or np.unique(judged).size < judged.size:
            raise Ungrouped()
        self._seen[judged] = True
        self._unjudged_queries += rows.size - judged.size
        return rows


def evaluate(
    blocks: Iterable[Block],
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


def _duplicate(block: Block, hit: int) -> DataError:
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
        if exclude_self and mine >= 0:
            ranked = ranked[ranked != mine]
        ranked = sort_hits(hits, ranked)
        hashes = hash_rows(hits, ranked)
        bad = find_duplicate(hits, ranked, hashes)
        if bad >= 0:
            return bad
        found = find_judged(hits, ranked, hashes, table, query)
        if exclude_self and mine >= 0:
            found.written[:] -= found.written > hits.ranks[mine]
        counts[query] = ranked.size
        pool = table.pool[table.first[query] : table.first[query + 1]]
        as_written = by_written_rank(found)
        for m in range(specs.codes.size):
            code, cut, rel = specs.codes[m], specs.cuts[m], specs.rels[m]
            if specs.given[m]:
                values[query, m] = value(
                    code, cut, rel, as_written.written, as_written.grades, pool, ranked.size
                )
            else:
                values[query, m] = value(code, cut, rel, found.places, found.grades, pool, ranked.size)
                tied[query, m] = (
                    0 < cut < ranked.size and hits.scores[ranked[cut - 1]] == hits.scores[ranked[cut]]
                )
    return -1
