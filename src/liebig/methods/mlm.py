"""Whole-word masked language modelling: the control in every comparison, and how a base encoder is made.

Every sequence of a batch is masked text; the loss is the mean cross entropy over its masked tokens. One pass,
no pairs. Cost: the encoder on every token and the vocabulary at the masked ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from torch import Tensor

from liebig.base.errors import RecipeError
from liebig.model.backbone import Backbone
from liebig.train.batch import Batch, Side
from liebig.train.objective import Objective, Represented

# What every masked-language-model objective shares: a loss over masked positions, and its accuracy.
#
# Only masked positions reach the vocabulary. A term is a sum; the step divides it by the masked tokens of
# the whole batch (`"mean"`, as all released code has it) or by its spans (`"sum"`, coCondenser's Eq. 5 and
# 7 read literally).
#
# M masked positions, D width, T packed tokens.

Reduction = Literal["mean", "sum"]


class MaskedObjective(Objective):
    """An objective with masked-LM terms; accuracies are terms of weight 0."""

    def __init__(self, backbone: Backbone, terms: Mapping[str, float], reduction: Reduction = "mean") -> None:
        super().__init__()
        self.backbone = backbone
        self.reduction = reduction
        self.weights = {**terms, **{accuracy_of(name): 0.0 for name in terms}}

    def masked_counts(self, name: str, side: Side) -> dict[str, int]:
        """The divisors of one term: masked tokens, or spans."""
        assert side.targets is not None, "the side has no masked positions"
        tokens = len(side.targets)
        return {
            name: tokens if self.reduction == "mean" else len(side.packed),
            accuracy_of(name): tokens,
        }

    def masked_terms(self, name: str, states_TD: Tensor, side: Side) -> dict[str, Tensor]:
        """Summed cross entropy of the side's masked positions, and how many were guessed."""
        assert side.targets is not None, "the side has no masked positions"
        assert side.labels is not None, "the side has no labels"
        found = self.backbone.mlm_loss(states_TD.index_select(0, side.targets), side.labels)
        return {name: found.loss, accuracy_of(name): found.correct}

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """The backbone runs the layers of heads and decoders too, so it is all there is to compile."""
        self.backbone.compile(*args, **kwargs)


def accuracy_of(name: str) -> str:
    """The name of a term's accuracy in the log."""
    return f"{name}_accuracy"


def text_of(batch: Batch) -> Side:
    """The side of objectives that read one kind of text."""
    return batch.sides["text"]


def check_splits(backbone: Backbone, objective: str) -> None:
    """Objectives with early layers or a decoder need embeddings and layers that can be run apart."""
    if not backbone.kind.splits:
        raise RecipeError(
            f"the family {backbone.family!r} cannot be run layer by layer, which {objective} needs",
            fix="start from BERT, RoBERTa, DistilBERT, ELECTRA or ModernBERT, or use mlm, simclr or moco",
        )


class MaskedLM(MaskedObjective):
    """BERT's objective with whole words; Condenser, Eq. 3."""

    def __init__(self, backbone: Backbone, reduction: Reduction = "mean") -> None:
        super().__init__(backbone, {"mlm": 1.0}, reduction)

    def counts(self, batch: Batch) -> dict[str, int]:
        return self.masked_counts("mlm", text_of(batch))

    def represent(self, chunk: Batch) -> Represented:
        side = text_of(chunk)
        return Represented(terms=self.masked_terms("mlm", self.backbone(side.packed).last, side))
