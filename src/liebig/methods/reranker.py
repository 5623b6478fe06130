"""Training of a cross-encoder, and its use: reranking a run, and scoring groups for distillation.

The model is `CrossEncoder` in `model/cross_encoder.py`. Two objectives: `Reranker` compares the passages of a group,
`PointwiseReranker` judges every pair by itself, which makes the sigmoid of a score a probability. `RerankBatches` draws
groups, `GroupRanking` evaluates while training. The command is `stages/rerank_train.py`, the page docs/reranking.md.
Cost: the backbone on the tokens of every pair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from liebig import losses
from liebig.base.records import Group, Hit, Passage, Query, Title
from liebig.formats.trec import by_query
from liebig.measures import Measure
from liebig.measures.evaluator import Judgements, block_from_mapping, evaluate
from liebig.methods.labelled import Examples
from liebig.methods.samplers import GroupChoice, Sampler
from liebig.model.cross_encoder import IDENTITY, SIGMOID, CrossEncoder
from liebig.ragged import Ragged
from liebig.train.batch import Batch, Side
from liebig.train.distributed import World
from liebig.train.objective import Objective, Represented


class Reranker(Objective):
    """Softmax cross entropy of each query's positive over its own group; the first passage of a group is the positive.

    Each query is judged with its own passages, so a step is plain accumulation over chunks and needs no second pass.
    Scores rank the passages of one query; their size means nothing by itself.
    """

    activation: ClassVar[str] = IDENTITY

    def __init__(self, model: CrossEncoder) -> None:
        super().__init__()
        self.model = model

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"rerank": batch.n}

    def represent(self, chunk: Batch) -> Represented:
        side = chunk.sides["pair"]
        scores, owner = self.model(side.packed), side.owner
        place = places(owner, chunk.n)
        shape = (chunk.n, int(place.max()) + 1)
        table = scores.new_zeros(shape).index_put((owner, place), scores)
        mask = torch.zeros(shape, dtype=torch.bool, device=owner.device)
        mask[owner, place] = True
        return Represented(None, {"rerank": losses.grouped(table, mask=mask, total=1)})

    def compile(self, *args: Any, **kwargs: Any) -> None:
        self.model.backbone.compile(*args, **kwargs)


class PointwiseReranker(Reranker):
    """Binary cross entropy of every pair: 1 for a query with its positive, 0 with a negative.

    The sigmoid of a score is the probability that a passage is relevant, so that thresholds on it (RocketQA, section
    3.2) mean the same for every query.
    """

    activation = SIGMOID

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"rerank": len(batch.sides["pair"].owner)}

    def represent(self, chunk: Batch) -> Represented:
        side = chunk.sides["pair"]
        labels = places(side.owner, chunk.n) == 0
        return Represented(None, {"rerank": losses.binary(self.model(side.packed), labels, total=1)})


def places(owner: Tensor, queries: int) -> Tensor:
    """The place of each pair in the group of its query, whose pairs lie together; 0 is the positive's."""
    sizes = torch.bincount(owner, minlength=queries)
    return torch.arange(len(owner), device=owner.device) - (sizes.cumsum(0) - sizes)[owner]


OBJECTIVES: dict[str, type[Reranker]] = {"group": Reranker, "pointwise": PointwiseReranker}


@dataclass(frozen=True)
class RerankBatches:
    """This process's share of the batch of a step: each query with a positive and its negatives."""

    model: CrossEncoder
    examples: Examples
    queries: Ragged
    passages: Ragged
    sampler: Sampler
    choice: GroupChoice
    world: World

    def __call__(self, step: int) -> Batch:
        chosen, epoch = self.sampler(step), self.sampler.epoch(step)
        first, last = self.world.share(len(chosen)) if self.world.size > 1 else (0, len(chosen))
        groups = [self.choice.group(self.examples, int(i), epoch).passages for i in chosen[first:last]]
        queries = self.queries.take(chosen[first:last]).to_lists()
        pairs = [(q, p) for q, group in zip(queries, groups) for p in self.passages.take(group).to_lists()]
        owner = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
        return Batch({"pair": Side(self.model.pack(pairs), torch.from_numpy(owner))}, len(groups))


@dataclass(frozen=True)
class GroupRanking:
    """Evaluation while training: the groups of a split, ranked by the model."""

    examples: Examples
    queries: Ragged
    passages: Ragged
    judgements: Judgements
    measures: Sequence[Measure]

    def __call__(self, objective: Objective) -> dict[str, float]:
        assert isinstance(objective, Reranker), "a reranker is evaluated"
        run = {}
        for i, query in enumerate(self.examples.queries):
            group = np.concatenate((self.examples.positives[i], self.examples.negatives[i]))
            queries = [self.queries[i].tolist()] * len(group)
            scores = objective.model.scores(queries, self.passages.take(np.asarray(group)).to_lists())
            run[query] = {self.examples.passages[p]: float(s) for p, s in zip(group, scores)}
        return evaluate([block_from_mapping(run)], self.judgements, self.measures).means()


QueryPassages = tuple[Query, Sequence[Passage]]
Scorer = Callable[[Sequence[QueryPassages]], list[NDArray[np.float32]]]
T = TypeVar("T")
AT_ONCE = 64
"""Queries scored together, so that rows are full and memory does not grow with the run."""


def scorer(models: Sequence[CrossEncoder], title: Title | None = None) -> Scorer:
    """The mean of the models' scores of each query's passages; titles as each model was trained, unless given."""

    def score(groups: Sequence[QueryPassages]) -> list[NDArray[np.float32]]:
        pairs = [(query, passage) for query, passages in groups for passage in passages]
        flat = np.mean([model.score(pairs, title=title) for model in models], axis=0, dtype=np.float32)
        return np.split(flat, np.cumsum([len(passages) for _, passages in groups])[:-1])

    return score


def rerank(
    hits: Iterable[Hit],
    depth: int,
    score: Scorer,
    query_of: Callable[[str], Query],
    passage_of: Callable[[str], Passage],
) -> Iterator[Hit]:
    """The hits of each query (which lie together), the first `depth` in the order of their new scores."""
    ranked = (sorted(ranking, key=lambda hit: hit.rank) for ranking in by_query(hits))
    for some in _batched(ranked):
        texts = [(query_of(r[0].query), [passage_of(hit.passage) for hit in r[:depth]]) for r in some]
        for ranking, values in zip(some, score(texts)):
            scored = reordered([hit.passage for hit in ranking], values)
            for rank, (passage, value) in enumerate(scored, 1):
                yield Hit(ranking[0].query, passage, value, rank)


def reordered(passages: Sequence[str], values: NDArray[np.float32]) -> list[tuple[str, float]]:
    """The first passages by their new scores; the others keep their order, with made-up scores below them."""
    scored = [(passages[i], float(values[i])) for i in np.argsort(-values, kind="stable")]
    floor = scored[-1][1] if scored else 0.0
    return scored + [(passage, floor - place) for place, passage in enumerate(passages[len(values) :], 1)]


def soft_labels(
    groups: Iterable[Group],
    score: Scorer,
    query_of: Callable[[str], Query],
    passage_of: Callable[[str], Passage],
) -> Iterator[Group]:
    """Groups with the scores of all their passages."""
    for some in _batched(groups):
        texts = [(query_of(g.query), [passage_of(i) for i in (*g.positives, *g.negatives)]) for g in some]
        for group, scores in zip(some, score(texts)):
            values, cut = scores.tolist(), len(group.positives)
            yield replace(group, positive_scores=tuple(values[:cut]), negative_scores=tuple(values[cut:]))


def _batched(items: Iterable[T]) -> Iterator[list[T]]:
    stream = iter(items)
    while some := list(islice(stream, AT_ONCE)):
        yield some
