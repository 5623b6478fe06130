"""coCondenser: Condenser, and the two spans of a document find each other among all spans of the batch.

Every span is masked and goes through the Condenser; the late CLS vectors of all 2n spans contrast with each other
(Eq. 6), the diagonal left out. The loss is their mean plus the masked-LM terms (Eq. 7). The batch is run in
chunks with cached gradients (Eq. 8–12, `train/step.py`), so its size is not bounded by memory.
Cost: Condenser, and one more pass over the backbone without gradient when there is more than one chunk.
Recipe: `recipes/cocondenser-msmarco.toml`. Docs: `docs/methods/cocondenser.md`.
Tests: `tests/methods/test_pretrain_condenser.py`.
"""

from __future__ import annotations

from typing import ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from liebig import losses
from liebig.base.errors import RecipeError
from liebig.losses.contrastive import Similarity
from liebig.methods.base import DOCUMENT, Preset, PretrainRecipe, Saved, unset
from liebig.methods.condenser import Condenser, CondenserHead
from liebig.methods.shapes import text_of
from liebig.model.backbone import Backbone
from liebig.model.pooling import cls as first_states
from liebig.train.batch import Batch
from liebig.train.distributed import World
from liebig.train.objective import Contrast, Represented

MLM_WEIGHT: dict[Preset, float] = {"paper": 1.0, "reference": 2.0}
"""The released cached step counts its masked-LM terms twice."""
NO_HEAD = (
    "WARNING: the starting model has no Condenser head, so a fresh one is made. coCondenser starts from a Condenser "
    "with its head; a random head can harm the backbone. Start from a folder that the objective condenser wrote."
)


class CoCondenser(Condenser):
    """Condenser with the span-level contrast; `mlm = false` is the contrastive loss alone (Table 4)."""

    class Config(Condenser.Config):
        """Condenser, and the spans of a document find each other in the batch."""

        kind: Literal["cocondenser"] = "cocondenser"  # type: ignore[assignment]  # the parent's is "condenser"
        mlm: bool = Field(
            default=True,
            description="Use the masked-LM terms; without them, the contrastive loss alone (the paper's ablation).",
        )
        mlm_weight: float | None = Field(
            default=None, ge=0, description="Weight of the masked-LM terms [default: the preset]."
        )
        temperature: float = Field(default=1.0, gt=0, description="Temperature: scores are divided by it.")
        similarity: Similarity = Field(default="dot", description="Dot product or cosine.")
        distinct_documents: bool = Field(
            default=False, description="Never use texts of the same document as negatives of each other."
        )
        pairs: ClassVar[bool] = True
        # A document of one span is used for its masked tokens only.
        singles: ClassVar[bool] = True

        @property
        def negatives(self) -> Literal["batch"]:
            return "batch"

        @property
        def masks(self) -> bool:
            return self.mlm

        @property
        def extras(self) -> frozenset[str]:
            return frozenset({DOCUMENT} if self.distinct_documents else ())

        def resolve(self, recipe: PretrainRecipe) -> Self:
            weight = {"mlm_weight": MLM_WEIGHT[recipe.preset]} if self.mlm else {}
            return self.model_copy(update=unset(self, weight))

        def check(self, recipe: PretrainRecipe) -> None:
            if not self.mlm and self.mlm_weight is not None:
                raise ValueError("mlm_weight has no effect with mlm = false: leave it out")
            if not self.mlm and self.bow:
                raise ValueError(
                    "bow has no effect with mlm = false, the contrastive loss alone: leave it out"
                )

    config: Config

    def __init__(
        self,
        config: Config,
        backbone: Backbone,
        head: CondenserHead | None = None,
        *,
        special: NDArray[np.bool_] | None = None,
    ) -> None:
        weight = 1.0 if config.mlm_weight is None else config.mlm_weight
        super().__init__(config, backbone, head, special=special, mlm_weight=weight)

    def counts(self, batch: Batch) -> dict[str, int]:
        return super().counts(batch) if self.config.mlm else {}

    def represent(self, chunk: Batch) -> Represented:
        side = text_of(chunk)
        hidden = self.hidden(side.packed)
        terms = self.text_terms(hidden, side) if self.config.mlm else {}
        return Represented(first_states(hidden.last, side.packed), terms)

    def vectors(self, chunk: Batch) -> Tensor:
        side = text_of(chunk)
        return first_states(self.backbone(side.packed).last, side.packed)

    def contrast(self, vectors: Tensor, constants: Tensor | None, batch: Batch, world: World) -> Contrast:
        """Eq. 6; spans of documents that have only one take no part."""
        if len(vectors) != 2 * batch.n:
            vectors = vectors[has_partner(text_of(batch).owner)]
        everything, start = world.gather(vectors)
        temperature, similarity = self.config.temperature, self.config.similarity
        if self.config.distinct_documents:
            # Candidates of a span's own document, itself among them, are left out, its partner apart.
            partners = torch.arange(start, start + len(vectors)) ^ 1
            scored = losses.info_nce(
                vectors,
                everything,
                partners,
                temperature=temperature,
                similarity=similarity,
                exclude=same_document(batch, partners, 2, world),
                total=len(everything),
            )
        else:
            scored = losses.cocondenser(
                vectors, everything, start, temperature=temperature, similarity=similarity
            )
        return Contrast(scored.loss, {"partner_accuracy": scored.accuracy, "alignment": scored.alignment})

    def saved(self) -> Saved:
        # Without masked terms nothing trains the head: a fresh one is not kept, or a later run would take it for one
        # that a Condenser has trained.
        kept = self.config.mlm or self.has_trained_head
        return Saved("cls", self.config.similarity, heads={"condenser": self.head} if kept else {})

    def warnings(self) -> list[str]:
        return [NO_HEAD] if self.config.mlm and not self.has_trained_head else []


def has_partner(owner_B: Tensor) -> Tensor:
    """Which sequences are not the only one of their example."""
    like = owner_B[1:] == owner_B[:-1]
    edge = like.new_zeros(1)
    return torch.cat((like, edge)) | torch.cat((edge, like))


def same_document(batch: Batch, targets: Tensor, rows_per_example: int, world: World) -> Tensor:
    """Entries (row, candidate) of one document, without each row's own target; on the host.

    A batch carries the number of each example's document. Cost: a small gather and a sort of 8-byte numbers.
    """
    documents = batch.on_host(DOCUMENT)
    if documents is None:
        raise RecipeError(
            "the pair source does not say which document its texts come from",
            fix="set distinct_documents = false, or use spans, crops, cloze or queries with documents",
        )
    own = torch.repeat_interleave(documents, rows_per_example)
    everything = own if world.size == 1 else world.gather(own.to(world.device)).rows.cpu()
    return losses.false_negatives(own, everything, targets.cpu())
