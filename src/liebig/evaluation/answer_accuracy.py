"""Top-k answer accuracy of a run: for each question, the rank of the first passage that contains an answer.

Passages are read once and only those that were found are kept, as tokens; matching is DPR's. The rank is the place by
score as trec_eval sorts, so a tie cannot be won by the order of lines. Cost: about 20 µs per passage found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from liebig.base.errors import DataError
from liebig.base.records import Passage, Query
from liebig.evaluation.runs import of_run
from liebig.measures.answers import (
    accuracy_at,
    first_match,
    join,
    normalise,
    pattern_matcher,
    token_matcher,
    with_title,
)
from liebig.measures.evaluator import Block, Scores, Ungrouped, found_twice
from liebig.measures.names import Measure
from liebig.measures.ranking import sort_hits

Ranked = dict[str, list[str]]


@dataclass(frozen=True, slots=True)
class FirstHits:
    """The first hits of a query, best first, and the ranks after which a hit of the same score follows."""

    ids: list[str]
    tied: frozenset[int]


def found_in(run: Path, depth: int, wanted: Iterable[str] | None = None) -> dict[str, FirstHits]:
    """The first hits of each query of a run file, or of each wanted one; its lines may lie apart."""
    return of_run(run, lambda blocks: _found(blocks, depth, wanted))[0]


def ranked_in(run: Path, depth: int, wanted: Iterable[str] | None = None) -> Ranked:
    """Their ids alone."""
    return {query: found.ids for query, found in found_in(run, depth, wanted).items()}


def _found(blocks: Iterable[Block], depth: int, wanted: Iterable[str] | None) -> dict[str, FirstHits]:
    asked, result = None if wanted is None else set(wanted), dict[str, FirstHits]()
    for block in blocks:
        for i, raw in enumerate(block.queries):
            query = _text(raw)
            if query in result:
                raise Ungrouped()
            if asked is None or query in asked:
                result[query] = _of_query(block, i, query, depth)
    return result


def _of_query(block: Block, i: int, query: str, depth: int) -> FirstHits:
    hits = block.hits
    rows = sort_hits(hits, np.arange(hits.segments[i], hits.segments[i + 1]))[: depth + 1]
    ids = [_text(hits.data[hits.starts[row] : hits.ends[row]].tobytes()) for row in rows[:depth]]
    if len(set(ids)) < len(ids):
        raise found_twice(next(name for name in ids if ids.count(name) > 1), query)
    scores = hits.scores[rows]
    return FirstHits(ids, frozenset((np.flatnonzero(scores[:-1] == scores[1:]) + 1).tolist()))


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise DataError(
            f"the id {raw.decode(errors='backslashreplace')!r} is not UTF-8 text",
            fix="convert the file, e.g. with iconv -f latin1 -t utf-8",
        ) from None


def texts_of(
    ranked: Ranked, passages: Iterable[Passage], prepare: Callable[[str], str], titles: bool
) -> dict[str, str]:
    """The prepared texts of all passages that were found."""
    found = {name for ids in ranked.values() for name in ids}
    texts = {
        passage.id: prepare(with_title(passage.title, passage.text) if titles else passage.text)
        for passage in passages
        if passage.id in found
    }
    if missing := found - texts.keys():
        raise DataError(
            f"{len(missing)} passages of the run are not in the collection, for example {min(missing)!r}",
            fix="name the collection that the run was searched in, with passages=DIR where the questions lie elsewhere",
        )
    return texts


def match_ranks(
    ranked: Ranked, queries: Mapping[str, Query], passages: Iterable[Passage], *, patterns: bool, titles: bool
) -> NDArray[np.int64]:
    """The rank of the first passage with an answer, question by question; 0 for none."""
    matcher, prepare = (pattern_matcher, normalise) if patterns else (token_matcher, join)
    texts = texts_of(ranked, passages, prepare, titles)
    return np.array(
        [
            first_match((texts[name] for name in ranked.get(query.id, ())), matcher(query.answers))
            for query in queries.values()
        ],
        dtype=np.int64,
    )


def answer_scores(
    ranks: NDArray[np.int64],
    found: Mapping[str, FirstHits],
    queries: Sequence[str],
    measures: Sequence[Measure],
) -> Scores:
    """The ranks as values of `Answer@k`."""
    values = np.stack([accuracy_at(ranks, measure.cut or 0) for measure in measures], axis=1)
    none = FirstHits([], frozenset())
    tied = [[measure.cut in found.get(query, none).tied for measure in measures] for query in queries]
    return Scores(
        measures=tuple(measures),
        queries=tuple(queries),
        values=values,
        tied=np.array(tied, dtype=np.bool_).reshape(values.shape),
        hits=np.array([len(found.get(query, none).ids) for query in queries], dtype=np.int64),
        missing=np.array([query not in found for query in queries], dtype=np.bool_),
        found_self=np.zeros(len(queries), dtype=np.bool_),
    )
