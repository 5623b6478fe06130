"""Whole-word masked language modelling: the control in every comparison, and how a base encoder is made.

Every sequence of a batch is masked text; the loss is the mean cross entropy over its masked tokens. One pass, no pairs.
Only masked positions reach the vocabulary. Cost: the encoder on every token, the vocabulary at the masked ones, and
20 ns a token for masking. Recipe: `recipes/mlm.toml`. Tests: `tests/methods/test_pretrain_mlm.py`.

`MaskedMethod` is what all methods with masked-LM terms share. A term is a sum; the step divides it by the masked tokens
of the whole batch ("mean", as all released code has it) or by its spans ("sum", coCondenser's Eq. 5 and 7 literally).

M masked positions, D width, T packed tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from liebig.base import rng
from liebig.base.errors import RecipeError
from liebig.methods.base import Method, Pooling, Saved, Shape
from liebig.methods.shapes import examples, text_of
from liebig.methods.sources.token_rows import TokenRow
from liebig.model.backbone import Backbone
from liebig.model.packed import Packed
from liebig.text.masking import mask_words
from liebig.text.tokenizer import Tokenizer
from liebig.train.batch import Batch, Side
from liebig.train.objective import Represented


@dataclass(frozen=True)
class Masker:
    """What masking has to know of a tokenizer."""

    continues: NDArray[np.bool_]
    special: NDArray[np.bool_]
    mask: int
    vocab_size: int

    @classmethod
    def of(cls, tokenizer: Tokenizer, whole_words: bool = True) -> Masker:
        """For whole words, or for single pieces."""
        continues = tokenizer.continues if whole_words else np.zeros_like(tokenizer.continues)
        return cls(continues, tokenizer.special, tokenizer.mask, tokenizer.vocab_size)

    def side(self, row: TokenRow, rate: float, stream: int = 0) -> Side:
        """The row with a share of its tokens masked; another stream masks the same text differently."""
        keys = np.asarray(rng.mix(row.keys, stream), np.uint64)
        masked = mask_words(row.tokens, keys, self.continues, self.special, self.mask, self.vocab_size, rate)
        return Side(
            Packed.from_ragged(masked.tokens),
            torch.from_numpy(row.owner),
            torch.from_numpy(masked.targets),
            torch.from_numpy(masked.labels),
        )


@dataclass(frozen=True)
class MaskedText:
    """The shape of methods that mask every sequence."""

    masker: Masker
    rate: float

    def __call__(self, row: TokenRow) -> Batch:
        return Batch({"text": self.masker.side(row, self.rate)}, examples(row))


class MaskedMethod(Method):
    """A method with masked-LM terms; accuracies are terms of weight 0."""

    class Config(Method.Config):
        """What masked-LM methods share."""

        whole_words: bool = Field(default=True, description="Mask whole words rather than single pieces.")
        mlm_reduction: Literal["mean", "sum"] = Field(
            default="mean",
            description="Mean over masked tokens, or (Eq. 5 literally) sums averaged over spans.",
        )

        @property
        def masks(self) -> bool:
            return True

    def __init__(self, config: Config, backbone: Backbone, terms: Mapping[str, float]) -> None:
        super().__init__()
        self.config = config
        self.backbone = backbone
        self.reduction = config.mlm_reduction
        self.weights = {**terms, **{accuracy_of(name): 0.0 for name in terms}}

    def masked_counts(self, name: str, side: Side) -> dict[str, int]:
        """The divisors of one term: masked tokens, or spans."""
        assert side.targets is not None, "the side has no masked positions"
        tokens = len(side.targets)
        return {name: tokens if self.reduction == "mean" else len(side.packed), accuracy_of(name): tokens}

    def masked_terms(self, name: str, states_TD: Tensor, side: Side) -> dict[str, Tensor]:
        """Summed cross entropy of the side's masked positions, and how many were predicted correctly."""
        assert side.targets is not None, "the side has no masked positions"
        assert side.labels is not None, "the side has no labels"
        result = self.backbone.mlm_loss(states_TD.index_select(0, side.targets), side.labels)
        return {name: result.loss, accuracy_of(name): result.correct}

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """The backbone runs the layers of heads and decoders too, so it is all there is to compile."""
        self.backbone.compile(*args, **kwargs)


class MaskedTextConfig(MaskedMethod.Config):
    """What methods that mask every sequence at one rate share."""

    mask_rate: float = Field(default=0.15, gt=0.0, lt=1.0, description="Share of tokens masked.")

    def shape(self, tokenizer: Tokenizer) -> Shape:
        return MaskedText(Masker.of(tokenizer, self.whole_words), self.mask_rate)


class MaskedLM(MaskedMethod):
    """BERT's objective with whole words; Condenser, Eq. 3."""

    class Config(MaskedTextConfig):
        """Masked language modelling alone."""

        kind: Literal["mlm"] = "mlm"
        pooling: Pooling = Field(default="mean", description="Pooling written into the model folder.")
        pairs: ClassVar[bool] = False
        singles: ClassVar[bool] = True

        @property
        def negatives(self) -> Literal["none"]:
            return "none"

    config: Config

    def __init__(self, config: Config, backbone: Backbone) -> None:
        super().__init__(config, backbone, {"mlm": 1.0})

    def counts(self, batch: Batch) -> dict[str, int]:
        return self.masked_counts("mlm", text_of(batch))

    def represent(self, chunk: Batch) -> Represented:
        side = text_of(chunk)
        return Represented(terms=self.masked_terms("mlm", self.backbone(side.packed).last, side))

    def saved(self) -> Saved:
        return Saved(self.config.pooling)


def accuracy_of(name: str) -> str:
    """The name of a term's accuracy in the log."""
    return f"{name}_accuracy"


def check_splits(backbone: Backbone, objective: str) -> None:
    """Objectives with early layers or a decoder need embeddings and layers that can be run apart."""
    if not backbone.packed:
        raise RecipeError(
            f"the family {backbone.family!r} cannot be run layer by layer, which {objective} needs",
            fix="start from BERT, RoBERTa, DistilBERT, ELECTRA or ModernBERT, or use mlm, simclr or moco",
        )
