"""Whole-word masked language modelling: the control in every comparison, and how a base encoder is made.

Every sequence of a batch is masked text; the loss is the mean cross entropy over its masked tokens. One pass,
no pairs. Cost: the encoder on every token and the vocabulary at the masked ones.
"""

from __future__ import annotations

from liebig.model.backbone import Backbone
from liebig.pretrain.masked import MaskedObjective, Reduction, text_of
from liebig.train.batch import Batch
from liebig.train.objective import Represented


class MaskedLM(MaskedObjective):
    """BERT's objective with whole words; Condenser, Eq. 3."""

    def __init__(self, backbone: Backbone, reduction: Reduction = "mean") -> None:
        super().__init__(backbone, {"mlm": 1.0}, reduction)

    def counts(self, batch: Batch) -> dict[str, int]:
        return self.masked_counts("mlm", text_of(batch))

    def represent(self, chunk: Batch) -> Represented:
        side = text_of(chunk)
        return Represented(terms=self.masked_terms("mlm", self.backbone(side.packed).last, side))
