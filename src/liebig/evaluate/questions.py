"""Top-k answer accuracy of a run: for each question, the rank of the first passage that contains an answer.

Passages are read once and only those that were found are kept, as tokens; matching is DPR's. The rank is the place by
score as trec_eval sorts, so a tie cannot be won by the order of lines. Cost: about 20 µs per passage found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from liebig.errors import DataError
from liebig.measures.answers import (
    accuracy_at,
    first_match,
    join,
    normalise,
    pattern_matcher,
    token_matcher,
    with_title,
)
from liebig.measures.blocks import Block
from liebig.measures.names import Measure
from liebig.measures.ranking import sort_hits
from liebig.measures.scores import Scores
from liebig.records import Passage, Query

Ranked = dict[str, list[str]]


def ranked_ids(blocks: Iterable[Block], depth: int, wanted: Iterable[str] | None = None) -> Ranked:
    """The first ids of each query, or of each wanted one, best first."""
    asked = None if wanted is None else set(wanted)
    return {query: ids for block in blocks for query, ids in _of_block(block, depth, asked)}


def _of_block(block: Block, depth: int, asked: set[str] | None) -> Iterator[tuple[str, list[str]]]:
    hits = block.hits
    for i, raw in enumerate(block.queries):
        query = raw.decode()
        if asked is None or query in asked:
            rows = sort_hits(hits, np.arange(hits.segments[i], hits.segments[i + 1]))[:depth]
            yield query, [hits.data[hits.starts[row] : hits.ends[row]].tobytes().decode() for row in rows]


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
            fix="evaluate the run against the collection it was searched in",
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
    ranks: NDArray[np.int64], ranked: Ranked, queries: Sequence[str], measures: Sequence[Measure]
) -> Scores:
    """The ranks as values of `Answer@k`."""
    values = np.stack([accuracy_at(ranks, measure.cut or 0) for measure in measures], axis=1)
    nothing = np.zeros(len(queries), dtype=np.bool_)
    return Scores(
        measures=tuple(measures),
        queries=tuple(queries),
        values=values,
        tied=np.zeros(values.shape, dtype=np.bool_),
        hits=np.array([len(ranked.get(query, ())) for query in queries], dtype=np.int64),
        missing=np.array([query not in ranked for query in queries], dtype=np.bool_),
        found_self=nothing,
    )
