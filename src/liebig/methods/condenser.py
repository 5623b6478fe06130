"""Condenser: masked language modelling that has to go through one vector.

The head sees the late CLS state and the early states of all other tokens, so whatever the late layers know about
the text reaches the masked tokens through CLS alone (Eq. 6–9); the late layers' own MLM keeps them a language
model (Eq. 10–11). The head is kept for the next stage of pre-training and dropped for use.
Cost: `n_head_layers` more layers than MLM, and the vocabulary twice at masked positions.

T packed tokens, D width.
"""

from __future__ import annotations

from torch import Tensor

from liebig.base.errors import RecipeError
from liebig.methods.mlm import MaskedObjective, Reduction, text_of
from liebig.model.backbone import Backbone, Hidden
from liebig.model.heads import CondenserHead
from liebig.model.packed import Packed
from liebig.train.batch import Batch, Side
from liebig.train.objective import Represented

HEAD, LATE = "head", "late"


class Condenser(MaskedObjective):
    """The Condenser head over a backbone's early tokens and late CLS."""

    def __init__(
        self,
        backbone: Backbone,
        head: CondenserHead,
        *,
        skip_from: int | None = None,
        late_mlm: bool = True,
        reduction: Reduction = "mean",
        mlm_weight: float = 1.0,
    ) -> None:
        super().__init__(backbone, {HEAD: mlm_weight} | ({LATE: mlm_weight} if late_mlm else {}), reduction)
        self.head = head
        self.skip_from = early_layer(backbone, skip_from)
        self.late_mlm = late_mlm

    def counts(self, batch: Batch) -> dict[str, int]:
        side = text_of(batch)
        late = self.masked_counts(LATE, side) if self.late_mlm else {}
        return self.masked_counts(HEAD, side) | late

    def represent(self, chunk: Batch) -> Represented:
        side = text_of(chunk)
        return Represented(terms=self.mlm_terms(self.hidden(side.packed), side))

    def hidden(self, packed: Packed) -> Hidden:
        """Late states, and the early ones the head reads."""
        hidden: Hidden = self.backbone(packed, (self.skip_from,))
        return hidden

    def mlm_terms(self, hidden: Hidden, side: Side) -> dict[str, Tensor]:
        """The head's masked-LM loss (Eq. 9), and the late layers' own (Eq. 10)."""
        head_TD = self.head(self.backbone, hidden.last, hidden.layers[self.skip_from], side.packed)
        terms = self.masked_terms(HEAD, head_TD, side)
        return terms | self.masked_terms(LATE, hidden.last, side) if self.late_mlm else terms


def early_layer(backbone: Backbone, wanted: int | None) -> int:
    """The last early layer: half of the layers unless said otherwise; a late one must be left."""
    if backbone.n_layers < 2:
        raise RecipeError(
            "a model of one layer has no early and late layers", fix="use two layers at least, or mlm"
        )
    layer = backbone.n_layers // 2 if wanted is None else wanted
    if not 1 <= layer < backbone.n_layers:
        raise RecipeError(
            f"skip_from = {layer} leaves no early or no late layer of {backbone.n_layers}",
            fix=f"use 1 to {backbone.n_layers - 1}",
        )
    return layer
