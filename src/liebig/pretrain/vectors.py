"""A teacher's vectors, learnt: the student's vector of a text comes near the teacher's, and texts relate alike.

The student's pooled states go through a projection to the teacher's width and are scaled to length 1. The first
term is the squared distance to the teacher's vector, text by text. The second, where it has a weight, holds the
similarities of all texts of the batch to each other against the teacher's. Cost: the encoder on every token; for
the second term one more pass without gradient when the batch is cut into chunks, and the matrix of similarities.

n texts of a batch, D width of the vectors.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from liebig import losses
from liebig.model.backbone import Backbone
from liebig.model.encoder import Dense
from liebig.model.pooling import pool
from liebig.train.batch import Batch
from liebig.train.distributed import World
from liebig.train.objective import Contrast, Objective, Represented

TEACHER = "teacher"


class TaughtVectors(Objective):
    """Distance to the teacher's vectors, and KL of the texts' similarities where `similarity_weight` is not 0."""

    def __init__(
        self,
        backbone: Backbone,
        dense: Dense | None,
        *,
        pooling: str = "mean",
        similarity_weight: float = 0.0,
        temperature: float = 0.05,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.dense = dense
        self.pooling = pooling
        self.temperature = temperature
        self.weights = {"distance": 1.0, "cosine": 0.0, "contrast": similarity_weight}

    @property
    def contrastive(self) -> bool:
        """Texts meet only in the second term."""
        return self.weights["contrast"] > 0

    def counts(self, batch: Batch) -> dict[str, int]:
        texts = len(batch.sides["text"].packed)
        return {"distance": texts, "cosine": texts}

    def represent(self, chunk: Batch) -> Represented:
        vectors_nD = self.vectors(chunk)
        cosine_n = (vectors_nD * taught(chunk, vectors_nD)).sum(dim=1)
        return Represented(vectors_nD, {"distance": (2 - 2 * cosine_n).sum(), "cosine": cosine_n.sum()})

    def vectors(self, chunk: Batch) -> Tensor:
        packed = chunk.sides["text"].packed
        x_nD = pool(self.backbone(packed).last, packed, self.pooling)
        with torch.autocast(x_nD.device.type, enabled=False):
            return normalize(x_nD if self.dense is None else self.dense(x_nD), dim=1)

    def contrast(self, vectors: Tensor, constants: Tensor | None, batch: Batch, world: World) -> Contrast:
        teacher = taught(batch, vectors)
        everyone, teachers = world.gather(vectors), world.gather(teacher).rows
        places = torch.arange(everyone.start, everyone.start + len(vectors))
        loss = losses.kl_similarities(
            vectors, everyone.rows, teacher, teachers, places, temperature=self.temperature
        )
        with torch.no_grad():
            found = losses.info_nce(vectors.detach(), teachers, places, total=len(teachers))
        return Contrast(loss, {"partner_accuracy": found.accuracy})

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """The projection is one product on a row a text: the backbone is all there is to compile."""
        self.backbone.compile(*args, **kwargs)


def taught(batch: Batch, like: Tensor) -> Tensor:
    """The teacher's vectors of a batch, of length 1."""
    return normalize(batch.extras[TEACHER].to(like.dtype).flatten(0, -2), dim=1)
