"""Top-k answer accuracy of a run: for each question, the rank of the first passage that contains an answer.

Passages are read once and only those that were found are kept, as tokens; matching is DPR's. The rank is the place
by score as trec_eval sorts, so a tie cannot be won by the order of lines. Cost: about 20 µs per passage found.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from liebig.base.errors import DataError
from liebig.base.records import Passage, Query
from liebig.evaluation.runs import FirstHits
from liebig.measures import Measure
from liebig.measures.answers import accuracy_at, first_match, join, token_matcher
from liebig.measures.evaluator import Scores

Ranked = dict[str, list[str]]


def match_ranks(
    ranked: Ranked, queries: Mapping[str, Query], passages: Iterable[Passage]
) -> NDArray[np.int64]:
    """The rank of the first passage with an answer, question by question; 0 for none."""
    names = {name for ids in ranked.values() for name in ids}
    texts = {passage.id: join(passage.text) for passage in passages if passage.id in names}
    if missing := names - texts.keys():
        raise DataError(
            f"{len(missing)} passages of the run are not in the collection, for example {min(missing)!r}",
            fix="name the collection that the run was searched in, with passages=DIR where the questions lie elsewhere",
        )
    return np.array(
        [
            first_match((texts[name] for name in ranked.get(query.id, ())), token_matcher(query.answers))
            for query in queries.values()
        ],
        dtype=np.int64,
    )


def answer_scores(
    ranks: NDArray[np.int64],
    first_hits: Mapping[str, FirstHits],
    queries: Sequence[str],
    measures: Sequence[Measure],
) -> Scores:
    values = np.stack([accuracy_at(ranks, measure.cut or 0) for measure in measures], axis=1)
    none = FirstHits([], frozenset())
    tied = [[measure.cut in first_hits.get(query, none).tied for measure in measures] for query in queries]
    return Scores(
        measures=tuple(measures),
        queries=tuple(queries),
        values=values,
        tied=np.array(tied, dtype=np.bool_).reshape(values.shape),
        hits=np.array([len(first_hits.get(query, none).ids) for query in queries], dtype=np.int64),
        missing=np.array([query not in first_hits for query in queries], dtype=np.bool_),
        found_self=np.zeros(len(queries), dtype=np.bool_),
    )
