"""Bag-of-words prediction: the words of a passage are predicted from its CLS vector alone.

The vector goes through the tied masked-LM head, and the loss is the cross entropy to the uniform distribution over the
passage's distinct words, special tokens left out, averaged over passages. What a retriever compares then has to say
which words a text has. Used alone (`objective.kind = "bow"`), or as a term of Condenser, coCondenser and CoT-MAE
(`objective.bow = 0.2`). Cost: the vocabulary once for each passage, which is next to nothing.
Recipe: `recipes/smoke/bow.toml`. Docs: `docs/methods/bag-of-words.md`. Tests: `tests/methods/test_pretrain_bow.py`.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from liebig import losses
from liebig.methods.base import Method, MethodStart, PretrainRecipe, Saved, Shape
from liebig.methods.shapes import plain_text, text_of
from liebig.model.backbone import Backbone
from liebig.model.pooling import cls as first_states
from liebig.text.tokenizer import Tokenizer
from liebig.train.batch import Batch, Side
from liebig.train.objective import Represented

BOW = "bow"


class BagOfWords(Method):
    """The loss alone, on text without masks."""

    class Config(Method.Config):
        """The words of a text are predicted from its vector."""

        kind: Literal["bow"] = "bow"
        pairs: ClassVar[bool] = False
        singles: ClassVar[bool] = True

        @property
        def negatives(self) -> Literal["none"]:
            return "none"

        @property
        def masks(self) -> bool:
            return True

        def shape(self, tokenizer: Tokenizer) -> Shape:
            return plain_text

    config: Config

    def __init__(self, config: Config, backbone: Backbone, special: NDArray[np.bool_]) -> None:
        super().__init__()
        self.config = config
        self.backbone = backbone
        self.words = WordsTerm(special)

    @classmethod
    def build(cls, recipe: PretrainRecipe, backbone: Backbone, start: MethodStart) -> BagOfWords:
        assert isinstance(recipe.objective, BagOfWords.Config)
        return cls(recipe.objective, backbone, start.tokenizer.special)

    def counts(self, batch: Batch) -> dict[str, int]:
        return {BOW: len(text_of(batch).packed)}

    def represent(self, chunk: Batch) -> Represented:
        side = text_of(chunk)
        return Represented(terms={BOW: self.words(self.backbone, self.backbone(side.packed).last, side)})

    def saved(self) -> Saved:
        return Saved("cls")


class WordsTerm(nn.Module):
    """The loss as a term; `special` marks the special tokens of the vocabulary."""

    special: Tensor

    def __init__(self, special: NDArray[np.bool_]) -> None:
        super().__init__()
        self.register_buffer("special", torch.tensor(special), persistent=False)

    def forward(self, backbone: Backbone, late_TD: Tensor, side: Side) -> Tensor:
        """The summed loss of a side's passages; of masked text the words before masking."""
        word_T = side.packed.tokens
        if side.targets is not None and side.labels is not None:
            word_T = word_T.index_copy(0, side.targets, side.labels)
        logits_BV = backbone.mlm_logits(first_states(late_TD, side.packed))
        return losses.bag_of_words(logits_BV, side.packed.sequence, word_T, ~self.special[word_T])


class WithBagOfWords(Method.Config):
    """The field of methods that can add the term."""

    bow: float = Field(
        default=0.0, ge=0, description="Weight of bag-of-words prediction from CLS; 0 disables it."
    )

    def words_term(self, special: NDArray[np.bool_] | None) -> WordsTerm | None:
        """The term, if it has a weight; `special` marks the special tokens of the vocabulary."""
        if not self.bow:
            return None
        assert special is not None, "a bag of words leaves special tokens out"
        return WordsTerm(special)
