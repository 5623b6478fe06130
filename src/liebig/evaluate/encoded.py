"""Evaluating an encoder: encode, search exactly, and compare; everything takes a function from texts to vectors.

Passages are encoded a window at a time and searched at once, so memory holds one window of vectors and the best k of
each query, whatever the collection's size. For many systems over one large collection, `liebig encode` and `search`
keep the vectors instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from liebig.data.ranked import Ranked, merge
from liebig.measures.blocks import Block, from_mapping, from_matrix
from liebig.measures.similarity import cosine, triplet_accuracy
from liebig.records import Group, Passage, Query, ScoredPair, Tuple
from liebig.text.layout import Record

Role = Literal["query", "passage", ""]
Distance = Literal["euclidean", "cosine"]
Search = Callable[
    [NDArray[np.float32], NDArray[np.float32], int], tuple[NDArray[np.float32], NDArray[np.int64]]
]
WINDOW = 65_536


class Embed(Protocol):
    """Vectors of records or texts, in the role of queries, of passages, or of neither."""

    def __call__(self, texts: Sequence[Record], role: Role) -> NDArray[np.float32]: ...


def search_all(
    embed: Embed,
    search: Search,
    queries: Sequence[Query],
    passages: Iterable[Passage],
    depth: int,
    window: int = WINDOW,
) -> Block:
    """The best passages of every query, by exact search."""
    vectors_QD = embed(queries, "query")
    ids: list[str] = []
    best = Ranked.nothing(len(queries), depth)
    for part in _windows(passages, window):
        scores, numbers = search(vectors_QD, embed(part, "passage"), depth)
        best = merge([best, Ranked(scores, numbers + len(ids))], depth)
        ids += [passage.id for passage in part]
    return from_matrix([query.id for query in queries], ids, best.numbers, best.scores)


def _windows(passages: Iterable[Passage], size: int) -> Iterator[list[Passage]]:
    rest = iter(passages)
    while part := list(islice(rest, size)):
        yield part


def rank_candidates(
    embed: Embed, groups: Sequence[Group], queries: Sequence[Query], passages: Iterable[Passage]
) -> Block:
    """Each query's own candidates (positives and negatives), scored and ranked among themselves (the ABS protocol)."""
    wanted = {name for group in groups for name in (*group.positives, *group.negatives)}
    kept = [passage for passage in passages if passage.id in wanted]
    number = {passage.id: i for i, passage in enumerate(kept)}
    vectors = embed(kept, "passage")
    asked = dict(zip((query.id for query in queries), embed(queries, "query")))
    return from_mapping(
        {
            group.query: {
                name: float(asked[group.query] @ vectors[number[name]])
                for name in dict.fromkeys((*group.positives, *group.negatives))
                if name in number
            }
            for group in groups
        }
    )


def pair_similarities(embed: Embed, pairs: Sequence[ScoredPair]) -> NDArray[np.float64]:
    """Cosine of the two texts of each pair."""
    return cosine(embed([pair.a for pair in pairs], ""), embed([pair.b for pair in pairs], ""))


def triplet_values(embed: Embed, triplets: Sequence[Tuple], distance: Distance) -> NDArray[np.float64]:
    """Per triplet: 1 where the positive is nearer to the anchor than the first negative."""
    anchors = embed([triplet.anchor for triplet in triplets], "")
    positives = embed([triplet.positive for triplet in triplets], "")
    negatives = embed([triplet.negatives[0] for triplet in triplets], "")
    if distance == "cosine":
        return triplet_accuracy(-cosine(anchors, positives), -cosine(anchors, negatives))
    return triplet_accuracy(
        np.linalg.norm(anchors - positives, axis=1), np.linalg.norm(anchors - negatives, axis=1)
    )
