"""coCondenser: Condenser, and the two spans of a document find each other among all spans of the batch.

Every span is masked and goes through the Condenser; the late CLS vectors of all 2n spans contrast with each other
(Eq. 6), the diagonal left out. The loss is their mean plus the masked-LM terms (Eq. 7). The batch is run in
chunks with cached gradients (Eq. 8–12, `train/step.py`), so its size is not bounded by memory.
Cost: Condenser, and one more pass over the backbone without gradient when there is more than one chunk.
"""

from __future__ import annotations

import torch
from torch import Tensor

from liebig import losses
from liebig.base.errors import RecipeError
from liebig.losses.contrastive import Similarity
from liebig.methods.condenser import Condenser
from liebig.methods.mlm import Reduction, text_of
from liebig.model.backbone import Backbone
from liebig.model.encoder import cls
from liebig.model.heads import CondenserHead
from liebig.train.batch import Batch
from liebig.train.distributed import World
from liebig.train.objective import Contrast, Represented

# Who may not be a negative: other vectors that come from the same document.
#
# A batch carries the number of each example's document. On request, candidates of a row's own document
# other than its partner are left out of the contrast. Cost: one small gather and a sort of 8-byte numbers.

DOCUMENT = "document"


def same_text(batch: Batch, targets: Tensor, rows_per_example: int, world: World) -> Tensor:
    """Entries (row, candidate) of one document, without each row's own target; on the host."""
    found = batch.on_host(DOCUMENT)
    if found is None:
        raise RecipeError(
            "the pair source does not say which document its texts come from",
            fix="set distinct_documents = false, or use spans, crops, cloze or queries with documents",
        )
    own = torch.repeat_interleave(found, rows_per_example)
    everything = own if world.size == 1 else world.gather(own.to(world.device)).rows.cpu()
    return losses.false_negatives(own, everything, targets.cpu())


class CoCondenser(Condenser):
    """Condenser with the span-level contrast; `mlm=False` is the contrastive loss alone (Table 4)."""

    def __init__(
        self,
        backbone: Backbone,
        head: CondenserHead,
        *,
        skip_from: int | None = None,
        late_mlm: bool = True,
        reduction: Reduction = "mean",
        mlm: bool = True,
        mlm_weight: float = 1.0,
        temperature: float = 1.0,
        similarity: Similarity = "dot",
        distinct_documents: bool = False,
        singles: bool = False,
    ) -> None:
        super().__init__(
            backbone, head, skip_from=skip_from, late_mlm=late_mlm, reduction=reduction, mlm_weight=mlm_weight
        )
        self.mlm = mlm
        self.temperature = temperature
        self.similarity: Similarity = similarity
        self.distinct_documents = distinct_documents
        self.singles = singles  # some examples have one span, which is asked for its masked tokens only

    def counts(self, batch: Batch) -> dict[str, int]:
        return super().counts(batch) if self.mlm else {}

    def represent(self, chunk: Batch) -> Represented:
        side = text_of(chunk)
        hidden = self.hidden(side.packed)
        terms = self.mlm_terms(hidden, side) if self.mlm else {}
        return Represented(cls(hidden.last, side.packed), terms)

    def vectors(self, chunk: Batch) -> Tensor:
        side = text_of(chunk)
        return cls(self.backbone(side.packed).last, side.packed)

    def contrast(self, vectors: Tensor, constants: Tensor | None, batch: Batch, world: World) -> Contrast:
        if self.singles:
            vectors = vectors[has_partner(text_of(batch).owner)]
        everything, start = world.gather(vectors)
        if self.distinct_documents:
            found = self._distinct(vectors, everything, start, batch, world)
        else:
            found = losses.cocondenser(
                vectors, everything, start, temperature=self.temperature, similarity=self.similarity
            )
        return Contrast(found.loss, {"partner_accuracy": found.accuracy, "alignment": found.alignment})

    def _distinct(
        self, vectors: Tensor, everything: Tensor, start: int, batch: Batch, world: World
    ) -> losses.Scored:
        """Eq. 6 without candidates of a span's own document, itself among them, other than its partner."""
        partners = torch.arange(start, start + len(vectors)) ^ 1
        return losses.info_nce(
            vectors,
            everything,
            partners,
            temperature=self.temperature,
            similarity=self.similarity,
            exclude=same_text(batch, partners, 2, world),
            total=len(everything),
        )


def has_partner(owner_B: Tensor) -> Tensor:
    """Which sequences are not the only one of their example."""
    like = owner_B[1:] == owner_B[:-1]
    edge = like.new_zeros(1)
    return torch.cat((like, edge)) | torch.cat((edge, like))
