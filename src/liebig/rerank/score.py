"""Scores of cross-encoders: a run reranked to a depth, and groups with a teacher's scores for soft labels.

Several models are averaged. Queries stream: only one query's texts are in memory at a time. Hits below the depth keep
their order, under the last scored one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from liebig.data.trec import by_query
from liebig.records import Group, Hit, Passage, Query
from liebig.rerank.cross import CrossEncoder
from liebig.train.labelled.texts import Shape, Title

Scorer = Callable[[Query, Sequence[Passage]], NDArray[np.float32]]


def scorer(models: Sequence[CrossEncoder], title: Title) -> Scorer:
    """The mean of the models' scores of a query's passages."""

    def score(query: Query, passages: Sequence[Passage]) -> NDArray[np.float32]:
        return np.mean([_one(model, query, passages, title) for model in models], axis=0, dtype=np.float32)

    return score


def _one(model: CrossEncoder, query: Query, passages: Sequence[Passage], title: Title) -> NDArray[np.float32]:
    shape = Shape(model.tokenizer, model.length, title=title, bare=True)
    asked = shape.rows([shape.text(query)]) * len(passages)
    return model.scores(asked, shape.rows([shape.text(passage) for passage in passages]))


def rerank(
    hits: Iterable[Hit],
    depth: int,
    score: Scorer,
    query_of: Callable[[str], Query],
    passage_of: Callable[[str], Passage],
) -> Iterator[Hit]:
    """The hits of each query (which lie together), the first `depth` in the order of their new scores."""
    for found in by_query(hits):
        name, ranked = found[0].query, sorted(found, key=lambda hit: hit.rank)
        top, below = ranked[:depth], ranked[depth:]
        values = score(query_of(name), [passage_of(hit.passage) for hit in top])
        order = np.argsort(-values, kind="stable")
        scored = [(top[i].passage, float(values[i])) for i in order]
        floor = scored[-1][1]
        scored += [(hit.passage, floor - place) for place, hit in enumerate(below, 1)]
        yield from (Hit(name, passage, s, rank) for rank, (passage, s) in enumerate(scored, 1))


def soft_labels(
    groups: Iterable[Group],
    score: Scorer,
    query_of: Callable[[str], Query],
    passage_of: Callable[[str], Passage],
) -> Iterator[Group]:
    """Groups with the scores of all their passages."""
    for group in groups:
        ids = (*group.positives, *group.negatives)
        values = score(query_of(group.query), [passage_of(i) for i in ids]).tolist()
        cut = len(group.positives)
        yield replace(group, positive_scores=tuple(values[:cut]), negative_scores=tuple(values[cut:]))
