"""Scores of cross-encoders: a run reranked to a depth, and groups with a teacher's scores for soft labels.

Several models are averaged. Queries stream, a few at a time, so memory does not grow with the run. Hits below the
depth keep their order, under the last scored one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from liebig.data.trec import by_query
from liebig.records import Group, Hit, Passage, Query, Title
from liebig.rerank.cross import CrossEncoder

Asked = tuple[Query, Sequence[Passage]]
Scorer = Callable[[Sequence[Asked]], list[NDArray[np.float32]]]
T = TypeVar("T")
AT_ONCE = 64
"""Queries scored together, so that rows are full."""


def scorer(models: Sequence[CrossEncoder], title: Title | None = None) -> Scorer:
    """The mean of the models' scores of each query's passages; titles as each model was trained, unless given."""

    def score(asked: Sequence[Asked]) -> list[NDArray[np.float32]]:
        flat = np.mean([_flat(model, asked, title) for model in models], axis=0, dtype=np.float32)
        return np.split(flat, np.cumsum([len(passages) for _, passages in asked])[:-1])

    return score


def _flat(model: CrossEncoder, asked: Sequence[Asked], title: Title | None) -> NDArray[np.float32]:
    """Scores of all pairs, query after query."""
    query_layout, passage_layout = model.layouts(title)
    queries = query_layout.lists([query for query, _ in asked])
    passages = passage_layout.lists([passage for _, some in asked for passage in some])
    return model.scores([ids for ids, (_, some) in zip(queries, asked) for _ in some], passages)


def rerank(
    hits: Iterable[Hit],
    depth: int,
    score: Scorer,
    query_of: Callable[[str], Query],
    passage_of: Callable[[str], Passage],
) -> Iterator[Hit]:
    """The hits of each query (which lie together), the first `depth` in the order of their new scores."""
    ranked = (sorted(found, key=lambda hit: hit.rank) for found in by_query(hits))
    for some in _batched(ranked):
        asked = [(query_of(r[0].query), [passage_of(hit.passage) for hit in r[:depth]]) for r in some]
        for found, values in zip(some, score(asked)):
            yield from _reordered(found, values)


def _reordered(ranked: Sequence[Hit], values: NDArray[np.float32]) -> Iterator[Hit]:
    """The first hits by their new scores; the others keep their order below them."""
    scored = [(ranked[i].passage, float(values[i])) for i in np.argsort(-values, kind="stable")]
    floor = scored[-1][1]
    scored += [(hit.passage, floor - place) for place, hit in enumerate(ranked[len(values) :], 1)]
    for rank, (passage, value) in enumerate(scored, 1):
        yield Hit(ranked[0].query, passage, value, rank)


def soft_labels(
    groups: Iterable[Group],
    score: Scorer,
    query_of: Callable[[str], Query],
    passage_of: Callable[[str], Passage],
) -> Iterator[Group]:
    """Groups with the scores of all their passages."""
    for some in _batched(groups):
        asked = [(query_of(g.query), [passage_of(i) for i in (*g.positives, *g.negatives)]) for g in some]
        for group, found in zip(some, score(asked)):
            values, cut = found.tolist(), len(group.positives)
            yield replace(group, positive_scores=tuple(values[:cut]), negative_scores=tuple(values[cut:]))


def _batched(items: Iterable[T]) -> Iterator[list[T]]:
    stream = iter(items)
    while some := list(islice(stream, AT_ONCE)):
        yield some
