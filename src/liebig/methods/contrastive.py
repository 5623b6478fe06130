"""Contrastive fine-tuning: InfoNCE of each query's positive among all passages of the batch.

coCondenser's Eq. 14, Condenser's Eq. 12 and the loss of DPR: in-batch, mined and random negatives in one softmax.
Batches and towers are in `retrieval.py`, the loss on tensors in `losses/contrastive.py`. Recipes: `recipes/finetune/`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self

from pydantic import Field

from liebig import losses
from liebig.losses.contrastive import Similarity
from liebig.methods.retrieval import BatchVectors, RetrievalObjective
from liebig.model.encoder import Encoder
from liebig.train.objective import Contrast


@dataclass(frozen=True)
class InfoNCE:
    """−log softmax of each positive among all passages of the batch."""

    temperature: float = 1.0
    similarity: Similarity = "dot"

    def __call__(self, vectors: BatchVectors) -> Contrast:
        result = losses.info_nce(
            vectors.queries,
            vectors.passages,
            vectors.targets(),
            temperature=self.temperature,
            similarity=self.similarity,
            exclude=vectors.exclude(),
            total=vectors.total,
        )
        return Contrast(result.loss, {"accuracy": result.accuracy, "alignment": result.alignment})


class SoftmaxConfig(RetrievalObjective.Config):
    """How vectors become scores and probabilities, for losses over the passages of a batch."""

    temperature: float = Field(
        default=InfoNCE.temperature, gt=0, description="Temperature: scores are divided by it"
    )
    similarity: Literal["dot", "cosine"] = Field(
        default=InfoNCE.similarity, description="Similarity of two vectors"
    )
    mask: bool = Field(
        default=True,
        description="Exclude passages that are judged relevant, or have the positive's text, from the negatives",
    )

    def compared_by(self) -> Similarity:
        return self.similarity


class Contrastive(RetrievalObjective):
    """A retriever trained by InfoNCE on labels."""

    class Config(SoftmaxConfig):
        """InfoNCE: the positive against all other passages of the batch (coCondenser, Eq. 14)."""

        kind: Literal["contrastive"] = Field(default="contrastive", description="InfoNCE over the batch")

        @property
        def alone(self) -> None:
            return None

    @classmethod
    def build(cls, config: Config, query: Encoder, passage: Encoder | None) -> Self:
        loss = InfoNCE(config.temperature, config.similarity)
        return cls(query, passage, loss=[(1.0, loss)], mask=config.mask)
