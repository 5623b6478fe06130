"""Retrievers: two towers (or one) whose vectors of queries and passages meet in a loss over the whole batch.

`represent` encodes queries and passages, in one row where the towers are one; `contrast` hands all vectors and the
batch's marks to the losses of the recipe, each with a weight, at each of the Matryoshka widths. InfoNCE (coCondenser,
Eq. 14; Condenser, Eq. 12) is here, losses from a teacher are in `distill.py`. Cost: the encoder on both sides, one more
pass without gradient when a batch is cut into chunks, and the loss's three matrix products.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from liebig import losses
from liebig.finetune.batches import EXCLUDE, TARGETS, pairs
from liebig.losses.contrastive import Similarity
from liebig.model.encoder import Encoder
from liebig.train.batch import Batch, joined, unweave, weave, woven
from liebig.train.distributed import World
from liebig.train.objective import Contrast, Objective, Represented

SIDES = ("query", "passage")


@dataclass(frozen=True)
class Meeting:
    """What a loss may look at: this process's queries, all passages, the batch's marks, queries over all processes."""

    queries: Tensor
    passages: Tensor
    batch: Batch
    total: int

    def cut(self, width: int | None) -> Meeting:
        """The same with vectors of their first `width` numbers."""
        if width is None:
            return self
        return Meeting(self.queries[:, :width], self.passages[:, :width], self.batch, self.total)

    def targets(self) -> Tensor:
        """The positive of each query, or entries (query, passage) where one has several."""
        found = self.batch.extras[TARGETS]
        if found.shape[1] == 1:
            return found[:, 0]
        several = self.batch.on_host(TARGETS)
        assert several is not None
        return pairs(several)

    def exclude(self) -> Tensor | None:
        """Entries (query, passage) that must not count."""
        found = self.batch.on_host(EXCLUDE)
        return None if found is None or not found.shape[1] else pairs(found)


class Loss(Protocol):
    """A loss of vectors that meet: this process's share of the mean, and of the metrics."""

    def __call__(self, meeting: Meeting) -> Contrast: ...


@dataclass(frozen=True)
class InfoNCE:
    """−log softmax of each positive among all passages of the batch."""

    temperature: float = 1.0
    similarity: Similarity = "dot"

    def __call__(self, meeting: Meeting) -> Contrast:
        found = losses.info_nce(
            meeting.queries,
            meeting.passages,
            meeting.targets(),
            temperature=self.temperature,
            similarity=self.similarity,
            exclude=meeting.exclude(),
            total=meeting.total,
        )
        return Contrast(found.loss, {"accuracy": found.accuracy, "alignment": found.alignment})


class Retriever(Objective):
    """A query tower and a passage tower, one and the same where they are tied."""

    def __init__(
        self,
        query: Encoder,
        passage: Encoder | None = None,
        *,
        loss: Sequence[tuple[float, Loss]] = ((1.0, InfoNCE()),),
        widths: Sequence[int] = (),
    ) -> None:
        super().__init__()
        self.towers = nn.ModuleDict(
            {"query": query} if passage is None else {"query": query, "passage": passage}
        )
        self.loss = tuple(loss)
        self.widths: tuple[int | None, ...] = tuple(widths) or (None,)

    def tower(self, side: str) -> Encoder:
        """The encoder of a side."""
        found = self.towers[side] if side in self.towers else self.towers["query"]
        assert isinstance(found, Encoder), "a tower is an encoder"
        return found

    def represent(self, chunk: Batch) -> Represented:
        if len(self.towers) == 1:
            return Represented(woven(chunk, self.tower("query")(joined(chunk, SIDES)), SIDES))
        return Represented(weave(chunk, {name: self.tower(name)(chunk.sides[name].packed) for name in SIDES}))

    def contrast(self, vectors: Tensor, constants: Tensor | None, batch: Batch, world: World) -> Contrast:
        sides = unweave(batch, vectors, SIDES)
        passages = world.gather(sides["passage"])
        total = int(world.total(torch.tensor(batch.n)))
        meeting = Meeting(sides["query"], passages.rows, batch, total)
        return weighted(self.loss, self.widths, meeting)

    def compile(self, *args: Any, **kwargs: Any) -> None:
        for tower in self.towers.values():
            assert isinstance(tower, Encoder), "a tower is an encoder"
            tower.backbone.compile(*args, **kwargs)


def weighted(loss: Sequence[tuple[float, Loss]], widths: Sequence[int | None], meeting: Meeting) -> Contrast:
    """The weighted sum of losses, averaged over the widths (Matryoshka); metrics are those of the first width."""
    value = meeting.queries.new_zeros(())
    metrics: dict[str, Tensor] = {}
    for width in widths:
        for weight, one in loss:
            found = one(meeting.cut(width))
            value = value + found.loss * (weight / len(widths))
            metrics = {**found.metrics, **metrics}
    return Contrast(value, metrics)
