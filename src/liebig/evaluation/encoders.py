"""A model as the system under evaluation: encode, search exactly, compare; with the engine of `liebig encode`.

Passages are encoded a window at a time and searched at once, so memory holds some windows of vectors and the best k of
each query, whatever the size of the collection. To evaluate many systems over one large collection, `liebig encode` and
`liebig retrieve` keep the vectors instead. What ranks and compares takes vectors, or a function from texts to vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import compress, pairwise
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from liebig.base.errors import DataError
from liebig.base.machine import chosen
from liebig.base.progress import Progress
from liebig.base.records import Group, Passage, Query, ScoredPair, Title, Tuple
from liebig.evaluation.scoring import Bootstrap, ScoredTask, score_candidates, score_pairs, score_triplets
from liebig.evaluation.tasks import Task
from liebig.formats.output import write_lines
from liebig.formats.trec import decreasing, query_lines
from liebig.measures import Measure
from liebig.measures.evaluator import RunBlock, block_from_mapping, block_from_matrix
from liebig.measures.ranking import sort_hits
from liebig.measures.similarity import cosine, triplet_accuracy
from liebig.model.settings import Precision
from liebig.search.embed import Embedder
from liebig.search.token_windows import TextItem
from liebig.search.window_vectors import WindowVectors
from liebig.text.layout import Record, Role
from liebig.vectors.ranked import Ranked, merge
from liebig.vectors.topk import topk

Distance = Literal["euclidean", "cosine"]
Search = Callable[
    [NDArray[np.float32], NDArray[np.float32], int], tuple[NDArray[np.float32], NDArray[np.int64]]
]
ROWS = 65_536  # vectors searched at once: enough that merging costs little beside the product


class Embed(Protocol):
    """Vectors of records or texts, in the role of queries, of passages, or of neither."""

    def __call__(self, texts: Sequence[Record], role: Role | None) -> NDArray[np.float32]: ...


def search_all(
    queries: Sequence[str],
    vectors_QD: NDArray[np.float32],
    windows: Iterable[tuple[list[str], NDArray[np.float32]]],
    search: Search,
    depth: int,
) -> RunBlock:
    """The best passages of every query by exact search, over windows of passages' ids and vectors."""
    ids: list[str] = []
    best = Ranked.nothing(len(queries), depth)
    for names, vectors_ND in windows:
        scores, numbers = search(vectors_QD, vectors_ND, depth)
        best = merge([best, Ranked(scores, numbers + len(ids))], depth)
        ids += names
    return block_from_matrix(list(queries), ids, best.numbers, best.scores)


def _joined(windows: Iterable[WindowVectors]) -> Iterator[tuple[list[str], NDArray[np.float32]]]:
    """Windows put together until there are ROWS vectors."""
    ids: list[str] = []
    parts: list[NDArray[np.float32]] = []
    for window in windows:
        ids += window.ids
        parts.append(window.vectors)
        if len(ids) >= ROWS:
            yield ids, np.concatenate(parts)
            ids, parts = [], []
    if ids:
        yield ids, np.concatenate(parts)


def rank_candidates(
    embed: Embed, groups: Sequence[Group], queries: Sequence[Query], passages: Iterable[Passage]
) -> RunBlock:
    """Each query's own candidates (positives and negatives), scored and ranked among themselves (the ABS protocol)."""
    names = {name for group in groups for name in (*group.positives, *group.negatives)}
    kept = [passage for passage in passages if passage.id in names]
    number = {passage.id: i for i, passage in enumerate(kept)}
    vectors = embed(kept, "passage")
    of_query = dict(zip((query.id for query in queries), embed(queries, "query")))
    return block_from_mapping(
        {
            group.query: {
                name: float(of_query[group.query] @ vectors[number[name]])
                for name in dict.fromkeys((*group.positives, *group.negatives))
                if name in number
            }
            for group in groups
        }
    )


def pair_similarities(embed: Embed, pairs: Sequence[ScoredPair]) -> NDArray[np.float64]:
    """Cosine of the two texts of each pair."""
    return cosine(embed([pair.a for pair in pairs], None), embed([pair.b for pair in pairs], None))


def triplet_values(embed: Embed, triplets: Sequence[Tuple], distance: Distance) -> NDArray[np.float64]:
    """Per triplet: 1 where the positive is nearer to the anchor than the first negative."""
    anchors = embed([triplet.anchor for triplet in triplets], None)
    positives = embed([triplet.positive for triplet in triplets], None)
    negatives = embed([triplet.negatives[0] for triplet in triplets], None)
    if distance == "cosine":
        return triplet_accuracy(-cosine(anchors, positives), -cosine(anchors, negatives))
    return triplet_accuracy(
        np.linalg.norm(anchors - positives, axis=1), np.linalg.norm(anchors - negatives, axis=1)
    )


class ModelScorer:
    """A model on a device, and how deep it searches."""

    def __init__(
        self,
        path: Path,
        device: str,
        depth: int,
        *,
        title: Title | None = None,
        max_length: int | None = None,
        query_length: int | None = None,
        precision: Precision = "fp32",
    ) -> None:
        """`title` and lengths are the model's own where not given; `precision` is that of passages to search."""
        self.device = torch.device(chosen(None if device == "auto" else device))
        self.embedder = Embedder.load(
            path, self.device, title=title, max_length=max_length, query_length=query_length
        )
        self.encoder, self.depth = self.embedder.encoder, depth
        self.passages = self.embedder
        if precision != "fp32":
            self.passages = Embedder(self.encoder, precision=precision, folder=self.embedder.folder)

    def embed(self, texts: Sequence[Record], role: Role | None) -> NDArray[np.float32]:
        """Vectors, of length 1 where the model is compared by cosine."""
        return self.embedder.vectors(texts, role)

    def search(self, task: Task, exclude_self: bool) -> RunBlock:
        """The hits of the task's queries, `as_written`; one more where a query's own id will be taken out."""
        queries = list(task.queries.values())
        with Progress(f"{task.label}: encoding and searching", unit="passages") as bar:
            items = (TextItem(passage.id, passage) for passage in task.passages())
            block = search_all(
                [query.id for query in queries],
                self.embed(queries, "query"),
                _joined(self.passages.stream(items, "passage", bar.advance)),
                partial(topk, device=self.device),
                self.depth + exclude_self,
            )
        return as_written(block)

    def score(
        self, task: Task, measures: Sequence[Measure], distance: Distance, how: Bootstrap
    ) -> ScoredTask:
        """Pairs, triplets or candidates, which need no search."""
        if task.kind == "pairs":
            return score_pairs(task, pair_similarities(self.embed, task.pairs), measures, how)
        if task.kind == "triplets":
            return score_triplets(task, triplet_values(self.embed, task.triplets, distance), measures, how)
        queries = [_query(task, group.query) for group in task.groups]
        block = rank_candidates(self.embed, task.groups, queries, task.passages())
        return score_candidates(task, block, measures, how)

    @staticmethod
    def write_run(block: RunBlock, path: Path) -> None:
        """The hits as a TREC run; the block is one `as_written`."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_lines(path, ("\n".join(query_lines(*ranked)) for ranked in by_query(block)))


def _query(task: Task, query: str) -> Query:
    if query not in task.queries:
        raise DataError(
            f"the text of query {query!r} is missing", file=task.path, fix="give a collection that has it"
        )
    return task.queries[query]


def as_written(block: RunBlock) -> RunBlock:
    """The block that a run's file gives back: no query without hits, trec_eval's order, scores that decrease."""
    hits, segments = block.hits, np.unique(block.hits.segments)
    rows = [sort_hits(hits, np.arange(first, last)) for first, last in pairwise(segments)]
    order = np.concatenate([np.arange(0), *rows])
    scores = [decreasing(hits.scores[mine].astype(np.float64)) for mine in rows]
    ranks = [np.arange(1, len(mine) + 1, dtype=np.int32) for mine in rows]
    written = hits._replace(
        segments=segments,
        starts=hits.starts[order],
        ends=hits.ends[order],
        scores=np.concatenate([np.empty(0), *scores]).astype(np.float32),
        ranks=np.concatenate([hits.ranks[:0], *ranks]),
    )
    return RunBlock(tuple(compress(block.queries, np.diff(hits.segments).tolist())), written)


def by_query(block: RunBlock) -> Iterator[tuple[str, list[str], NDArray[np.float64]]]:
    """Each query with the ids and scores of its hits; a passage that many queries found is decoded once."""
    hits, ids = block.hits, block.hits.data.tobytes()
    _, first, number = np.unique(hits.starts, return_index=True, return_inverse=True)
    spans = zip(hits.starts[first].tolist(), hits.ends[first].tolist())
    names = np.array([ids[start:end].decode() for start, end in spans], object)
    for query, (begin, end) in zip(block.queries, pairwise(hits.segments)):
        yield query.decode(), names[number[begin:end]].tolist(), hits.scores[begin:end].astype(np.float64)
