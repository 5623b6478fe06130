"""Training a cross-encoder: the softmax of a query's positive over its own group, negatives rotating by epoch.

Each query is judged with its own passages, so a step is plain accumulation over chunks and needs no second pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from liebig import losses
from liebig.measures.blocks import from_mapping
from liebig.measures.engine import evaluate
from liebig.measures.judgements import Judgements
from liebig.measures.names import Measure
from liebig.rerank.cross import CrossEncoder
from liebig.train.batch import Batch, Side
from liebig.train.distributed import World
from liebig.train.labelled import rotation
from liebig.train.labelled.examples import Examples
from liebig.train.labelled.samplers import Sampler
from liebig.train.labelled.texts import Texts
from liebig.train.objective import Objective, Represented

Longs = NDArray[np.int64]


class Reranker(Objective):
    """Grouped softmax cross entropy; the first passage of a group is the positive."""

    def __init__(self, model: CrossEncoder) -> None:
        super().__init__()
        self.model = model

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"rerank": batch.n}

    def represent(self, chunk: Batch) -> Represented:
        side = chunk.sides["pair"]
        scores, owner = self.model(side.packed), side.owner
        sizes = torch.bincount(owner, minlength=chunk.n)
        place = torch.arange(len(owner), device=owner.device) - (sizes.cumsum(0) - sizes)[owner]
        shape = (chunk.n, int(sizes.max()))
        table = scores.new_zeros(shape).index_put((owner, place), scores)
        mask = torch.zeros(shape, dtype=torch.bool, device=owner.device)
        mask[owner, place] = True
        return Represented(None, {"rerank": losses.grouped(table, mask=mask, total=1)})

    def compile(self, *args: Any, **kwargs: Any) -> None:
        self.model.backbone.compile(*args, **kwargs)


@dataclass(frozen=True)
class Maker:
    """This process's share of the batch of a step: each query with a positive and its negatives."""

    model: CrossEncoder
    examples: Examples
    queries: Texts
    passages: Texts
    sampler: Sampler
    negatives: int
    seed: int
    world: World

    def __call__(self, step: int) -> Batch:
        chosen, epoch = self.sampler(step), self.sampler.epoch(step)
        first, last = self.world.share(len(chosen)) if self.world.size > 1 else (0, len(chosen))
        groups = [self._group(int(i), epoch) for i in chosen[first:last]]
        asked = self.queries.sequences(chosen[first:last])
        pairs = [(q, p) for q, group in zip(asked, groups) for p in self.passages.sequences(group)]
        owner = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
        return Batch({"pair": Side(self.model.pack(pairs), torch.from_numpy(owner))}, len(groups))

    def _group(self, example: int, epoch: int) -> list[int]:
        mine, others = self.examples.positives[example], self.examples.negatives[example]
        (kept,) = rotation.positives(len(mine), example, epoch, self.seed)
        places = rotation.negatives(len(others), example, epoch, self.seed, self.negatives)
        return [int(mine[kept]), *others[places].tolist()]


@dataclass(frozen=True)
class Dev:
    """The groups of a split, ranked by the model."""

    examples: Examples
    queries: Texts
    passages: Texts
    judgements: Judgements
    measures: Sequence[Measure]

    def __call__(self, objective: Objective) -> dict[str, float]:
        assert isinstance(objective, Reranker), "a reranker is evaluated"
        run = {}
        for i, query in enumerate(self.examples.queries):
            group = np.concatenate((self.examples.positives[i], self.examples.negatives[i]))
            asked = self.queries.sequences([i]) * len(group)
            scores = objective.model.scores(asked, self.passages.sequences(group))
            run[query] = {self.examples.passages[p]: float(s) for p, s in zip(group, scores)}
        return evaluate([from_mapping(run)], self.judgements, self.measures).means()
