"""Condenser: masked language modelling that has to go through one vector.

The head sees the late CLS state and the early states of all other tokens, so whatever the late layers know about
the text reaches the masked tokens through CLS alone (Eq. 6–9); the late layers' own MLM keeps them a language
model (Eq. 10–11). The head is kept for the next stage of pre-training and dropped for use.
`bow` adds bag-of-words prediction from CLS (`bow.py`).
Cost: `n_head_layers` more layers than MLM, and the vocabulary twice at masked positions.
Recipe: `recipes/condenser.toml`. Docs: `docs/methods/condenser.md`. Tests: `tests/methods/test_pretrain_condenser.py`.

T packed tokens, B sequences, D width.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from liebig.base.errors import RecipeError
from liebig.methods.base import MethodStart, PretrainRecipe, Saved
from liebig.methods.bow import BOW, WithBagOfWords
from liebig.methods.mlm import MaskedMethod, MaskedTextConfig, check_splits
from liebig.methods.shapes import text_of
from liebig.model.backbone import Backbone, Hidden
from liebig.model.packed import Packed
from liebig.train.batch import Batch, Side
from liebig.train.objective import Represented

HEAD, LATE = "head", "late"


class CondenserHead(nn.Module):
    """Condenser, Eq. 8: head layers over [late CLS; early states of the other tokens].

    The layers are fresh ones of the backbone's own class; the masked-LM head behind them is the backbone's.
    """

    def __init__(self, backbone: Backbone, layers: int = 2) -> None:
        super().__init__()
        self.layers = backbone.new_layers(layers)

    def describe(self) -> dict[str, Any]:
        return {"kind": "condenser", "layers": len(self.layers)}

    def forward(self, backbone: Backbone, late_TD: Tensor, early_TD: Tensor, packed: Packed) -> Tensor:
        """States for the shared masked-LM head, T x D."""
        late_BD = late_TD.index_select(0, packed.firsts)
        x_TD = replace_first(early_TD, late_BD, packed)
        return backbone.finish(backbone.run_layers(list(self.layers), x_TD, packed))


def replace_first(x_TD: Tensor, first_BD: Tensor, packed: Packed) -> Tensor:
    """The row with the first token's state of every sequence replaced."""
    return x_TD.index_copy(0, packed.firsts, first_BD.to(x_TD.dtype))


class Condenser(MaskedMethod):
    """The Condenser head over a backbone's early tokens and late CLS."""

    class Config(MaskedTextConfig, WithBagOfWords):
        """Masked language modelling through the Condenser head."""

        kind: Literal["condenser"] = "condenser"
        skip_from: int | None = Field(
            default=None, ge=1, description="Last of the early layers [default: half of the layers]."
        )
        n_head_layers: int = Field(default=2, ge=1, description="Number of layers of the head.")
        late_mlm: bool = Field(
            default=True, description="Predict the masked tokens from the late layers too."
        )
        pairs: ClassVar[bool] = False
        singles: ClassVar[bool] = True

        @property
        def negatives(self) -> Literal["none", "batch", "queue"]:
            return "none"

    config: Config
    head_classes = {"condenser": CondenserHead}

    def __init__(
        self,
        config: Config,
        backbone: Backbone,
        head: CondenserHead | None = None,
        *,
        special: NDArray[np.bool_] | None = None,
        mlm_weight: float = 1.0,
    ) -> None:
        terms = {HEAD: mlm_weight} | ({LATE: mlm_weight} if config.late_mlm else {})
        super().__init__(config, backbone, terms)
        check_splits(backbone, "the Condenser head")
        self.skip_from = early_layer(backbone, config.skip_from)
        self.has_trained_head = head is not None
        self.head = CondenserHead(backbone, config.n_head_layers) if head is None else head
        self.words = config.words_term(special)
        if self.words is not None:
            self.weights = {**self.weights, BOW: config.bow}

    @classmethod
    def build(cls, recipe: PretrainRecipe, backbone: Backbone, start: MethodStart) -> Condenser:
        """With the head of the starting folder, or a fresh one."""
        config = recipe.objective
        assert isinstance(config, Condenser.Config)
        head = start.heads.get("condenser")
        if not isinstance(head, CondenserHead):
            return cls(config, backbone, special=start.tokenizer.special)
        if len(head.layers) != config.n_head_layers:
            raise RecipeError(
                f"the starting folder has a Condenser head of {len(head.layers)} layers, the recipe asks for "
                f"{config.n_head_layers}",
                fix=f"set objective.n_head_layers = {len(head.layers)}",
            )
        return cls(config, backbone, head, special=start.tokenizer.special)

    def counts(self, batch: Batch) -> dict[str, int]:
        side = text_of(batch)
        late = self.masked_counts(LATE, side) if self.config.late_mlm else {}
        words = {} if self.words is None else {BOW: len(side.packed)}
        return self.masked_counts(HEAD, side) | late | words

    def represent(self, chunk: Batch) -> Represented:
        side = text_of(chunk)
        return Represented(terms=self.text_terms(self.hidden(side.packed), side))

    def hidden(self, packed: Packed) -> Hidden:
        """Late states, and the early ones the head reads."""
        hidden: Hidden = self.backbone(packed, (self.skip_from,))
        return hidden

    def text_terms(self, hidden: Hidden, side: Side) -> dict[str, Tensor]:
        """The head's masked-LM loss (Eq. 9), the late layers' own (Eq. 10), and the bag of words."""
        head_TD = self.head(self.backbone, hidden.last, hidden.layers[self.skip_from], side.packed)
        terms = self.masked_terms(HEAD, head_TD, side)
        if self.config.late_mlm:
            terms |= self.masked_terms(LATE, hidden.last, side)
        if self.words is not None:
            terms[BOW] = self.words(self.backbone, hidden.last, side)
        return terms

    def saved(self) -> Saved:
        return Saved("cls", heads={"condenser": self.head})


def early_layer(backbone: Backbone, layer: int | None) -> int:
    """The last early layer: half of the layers unless said otherwise; a late one must be left."""
    if backbone.n_layers < 2:
        raise RecipeError(
            "a model with one layer cannot be split into early and late layers",
            fix="use at least two layers, or mlm",
        )
    layer = backbone.n_layers // 2 if layer is None else layer
    if not 1 <= layer < backbone.n_layers:
        raise RecipeError(
            f"skip_from = {layer} leaves no early or no late layers of {backbone.n_layers}",
            fix=f"use 1 to {backbone.n_layers - 1}",
        )
    return layer
