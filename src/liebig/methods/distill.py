"""Distillation: a retriever learns a teacher's scores in the groups file, by KL over batch or group or by margin-MSE.

KL(teacher‖student); coCondenser's Eq. 16 is written the other way, which is infinite where the teacher gives zero.
The teacher's softmax runs over the query's own group; the student's over all passages of the batch, as Tevatron v1,
or over the group. Any teacher works: `liebig rerank score` writes such scores, and so can any other program.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self

from pydantic import Field
from torch import Tensor
from torch.nn.functional import normalize

from liebig import losses
from liebig.losses.contrastive import Similarity
from liebig.methods.contrastive import InfoNCE, SoftmaxConfig
from liebig.methods.finetune_base import FinetuneRecipe
from liebig.methods.retrieval import MEMBERS, TEACHER, BatchVectors, Loss, RetrievalObjective
from liebig.model.encoder import Encoder
from liebig.train.objective import Contrast


@dataclass(frozen=True)
class SoftLabels:
    """KL from the teacher's distribution over the group to the student's over batch or group."""

    over: Literal["batch", "group"] = "batch"
    temperature: float = 1.0
    teacher_temperature: float = 1.0
    similarity: Similarity = "dot"

    def __call__(self, vectors: BatchVectors) -> Contrast:
        members, teacher = _marks(vectors)
        if self.over == "batch":
            loss = losses.kl_batch(
                vectors.queries,
                vectors.passages,
                members,
                teacher,
                mask=members >= 0,
                temperature=self.temperature,
                teacher_temperature=self.teacher_temperature,
                similarity=self.similarity,
                exclude=_without_own(vectors),
                total=vectors.total,
            )
        else:
            loss = losses.kl(
                group_scores(vectors, self.similarity),
                teacher,
                mask=members >= 0,
                temperature=self.temperature,
                teacher_temperature=self.teacher_temperature,
                total=vectors.total,
            )
        return Contrast(loss, {"kl": loss.detach()})


@dataclass(frozen=True)
class MarginMSE:
    """The student's margin between the first positive and each negative against the teacher's."""

    similarity: Similarity = "dot"

    def __call__(self, vectors: BatchVectors) -> Contrast:
        _, teacher = _marks(vectors)
        scores = group_scores(vectors, self.similarity)
        there = _members(vectors)[:, 1:] >= 0
        rows, places = (x.to(scores.device) for x in there.nonzero(as_tuple=True))
        per_query = there.sum(dim=1).clamp(min=1).to(scores)[rows].sqrt()
        error = losses.margin_mse(
            scores[rows, 0] / per_query,
            scores[rows, places + 1] / per_query,
            teacher[rows, 0] / per_query,
            teacher[rows, places + 1] / per_query,
            total=vectors.total,
        )
        return Contrast(error, {"margin_mse": error.detach()})


def group_scores(vectors: BatchVectors, similarity: Similarity) -> Tensor:
    """Scores of each query with the members of its own group, n × g; places past a group's end hold anything."""
    q, p = vectors.queries, vectors.passages
    if similarity == "cosine":
        q, p = normalize(q, dim=1), normalize(p, dim=1)
    members = vectors.batch.extras[MEMBERS].clamp(min=0).to(q.device)
    return (q[:, None] * p[members]).sum(dim=2)


def _marks(vectors: BatchVectors) -> tuple[Tensor, Tensor]:
    queries, extras = vectors.queries, vectors.batch.extras
    return extras[MEMBERS].to(queries.device), extras[TEACHER].to(queries)


def _members(vectors: BatchVectors) -> Tensor:
    """The same columns in host memory, where reading them does not wait for the device."""
    members = vectors.batch.on_host(MEMBERS)
    assert members is not None, "a batch names the members of its groups"
    return members


def _without_own(vectors: BatchVectors) -> Tensor | None:
    """Entries to exclude that are not of the query's own group: the teacher has an opinion of those."""
    exclude = vectors.exclude()
    if exclude is None:
        return None
    own = _members(vectors)[exclude[:, 0]] == exclude[:, 1, None]
    return exclude[~own.any(dim=1)]


class Distill(RetrievalObjective):
    """A retriever trained on a teacher's scores, with InfoNCE on the labels beside them if the recipe says so."""

    class Config(SoftmaxConfig):
        """Learn a teacher's scores, which the groups file holds."""

        kind: Literal["distill"] = Field(
            default="distill", description="Distillation from a teacher's scores"
        )
        loss: Literal["kl", "margin-mse"] = Field(
            default="kl", description="Loss between student and teacher"
        )
        over: Literal["batch", "group"] = Field(
            default=SoftLabels.over,
            description="Candidates of the student's softmax: the batch, or the query's own group",
        )
        teacher_temperature: float = Field(
            default=SoftLabels.teacher_temperature,
            gt=0,
            description="Temperature of the teacher: its scores are divided by it",
        )
        hard: float = Field(
            default=0.0, ge=0, description="Weight of the additional InfoNCE loss on the labels"
        )

        @property
        def alone(self) -> str | None:
            if self.hard or (self.loss == "kl" and self.over == "batch"):
                return None
            return self.loss if self.loss == "margin-mse" else "the KL divergence over a group"

        def check(self, recipe: FinetuneRecipe) -> None:
            super().check(recipe)
            if recipe.hard < 1.0:
                raise ValueError("random negatives have no teacher score: set hard = 1")

    needs_scores = True

    @classmethod
    def build(cls, config: Config, query: Encoder, passage: Encoder | None) -> Self:
        soft: Loss
        if config.loss == "kl":
            soft = SoftLabels(config.over, config.temperature, config.teacher_temperature, config.similarity)
        else:
            soft = MarginMSE(config.similarity)
        loss: list[tuple[float, Loss]] = [(1.0, soft)]
        if config.hard:
            loss.append((config.hard, InfoNCE(config.temperature, config.similarity)))
        return cls(query, passage, loss=loss, mask=config.mask)
