"""A model folder as the system under evaluation: loads the encoder, and gives the other modules its vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from liebig.base.errors import DataError
from liebig.base.machine import chosen
from liebig.base.progress import Progress
from liebig.base.records import Group, Hit, Passage, Query, ScoredPair, Title, Tuple
from liebig.evaluation.scoring import Bootstrap, Scored, score_candidates, score_pairs, score_triplets
from liebig.evaluation.tasks import Task
from liebig.formats.output import write_lines
from liebig.formats.trec import run_lines
from liebig.measures.evaluator import Block, block_from_mapping, block_from_matrix
from liebig.measures.names import Measure
from liebig.measures.ranking import sort_hits
from liebig.measures.similarity import cosine, triplet_accuracy
from liebig.model.encoder import Encoder
from liebig.text.layout import Record
from liebig.vectors.ranked import Ranked, merge
from liebig.vectors.topk import topk

# Evaluating an encoder: encode, search exactly, and compare; everything takes a function from texts to
# vectors.
#
# Passages are encoded a window at a time and searched at once, so memory holds one window of vectors and
# the best k of each query, whatever the collection's size. For many systems over one large collection,
# `liebig encode` and `search` keep the vectors instead.

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
    return block_from_matrix([query.id for query in queries], ids, best.numbers, best.scores)


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
    return block_from_mapping(
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


PIECE, PIECE_CUDA = 256, 16_384  # passages encoded between two signs of progress


class ModelScorer:
    """An encoder, the device it runs on, and how deep it searches."""

    def __init__(
        self,
        path: Path,
        device: str,
        depth: int,
        *,
        title: Title | None = None,
        max_length: int | None = None,
        query_length: int | None = None,
    ) -> None:
        """`title` and lengths are the model's own where they are not given."""
        self.device = torch.device(chosen(None if device == "auto" else device))
        self.encoder = Encoder.load(path).to(self.device).eval()
        self.encoder.use(title=title, max_length=max_length, query_length=query_length)
        self.depth = depth

    def embed(self, texts: Sequence[Record], role: Role) -> NDArray[np.float32]:
        """Vectors, of length 1 where the model is compared by cosine."""
        unit = self.encoder.similarity == "cosine"
        return self.encoder.encode_texts(texts, prompt=role or None, unit=unit)

    def search(self, task: Task, exclude_self: bool) -> Block:
        """The hits of the task's queries; one more where a query's own id will be taken out."""
        queries = list(task.queries.values())
        with Progress(f"{task.label}: encoding and searching", unit="passages") as bar:
            return search_all(
                self._counted(bar),
                lambda queries_QD, passages_ND, k: topk(queries_QD, passages_ND, k, device=self.device),
                queries,
                task.passages(),
                self.depth + exclude_self,
            )

    def _counted(self, bar: Progress) -> Embed:
        """`embed` that says how far it is with the passages."""
        piece = PIECE if self.device.type == "cpu" else PIECE_CUDA

        def embed(texts: Sequence[Record], role: Role) -> NDArray[np.float32]:
            if role != "passage":
                return self.embed(texts, role)
            parts = []
            for first in range(0, len(texts), piece):
                parts.append(self.embed(texts[first : first + piece], role))
                bar.advance(len(parts[-1]))
            return np.concatenate(parts)

        return embed

    def score(self, task: Task, measures: Sequence[Measure], distance: Distance, how: Bootstrap) -> Scored:
        """Pairs, triplets or candidates, which need no search."""
        if task.kind == "pairs":
            return score_pairs(task, pair_similarities(self.embed, task.pairs), measures, how)
        if task.kind == "triplets":
            return score_triplets(task, triplet_values(self.embed, task.triplets, distance), measures, how)
        queries = [_asked(task, group.query) for group in task.groups]
        block = rank_candidates(self.embed, task.groups, queries, task.passages())
        return score_candidates(task, block, measures, how)

    def write_run(self, block: Block, path: Path) -> None:
        """The hits as a TREC run."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_lines(path, run_lines(hits_of(block)))


def _asked(task: Task, query: str) -> Query:
    if query not in task.queries:
        raise DataError(
            f"the text of query {query!r} is missing", file=task.path, fix="name a collection that has it"
        )
    return task.queries[query]


def hits_of(block: Block) -> Iterator[Hit]:
    """The hits of a block, ranked as trec_eval ranks them."""
    hits = block.hits
    for i, query in enumerate(block.queries):
        rows = sort_hits(hits, np.arange(hits.segments[i], hits.segments[i + 1]))
        for rank, row in enumerate(rows, 1):
            passage = hits.data[hits.starts[row] : hits.ends[row]].tobytes().decode()
            yield Hit(query.decode(), passage, float(hits.scores[row]), rank)
