"""What sources share: the table `[source]` of those over token stores, and changes made to every view."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from liebig.base import rng
from liebig.methods.base import PretrainRecipe, SingleSource, unset
from liebig.methods.sources.token_rows import ExampleSource, TokenRow, documents_of
from liebig.store import TokenStore
from liebig.text.masking import delete_tokens, hide_tokens, replace_tokens
from liebig.text.tokenizer import Tokenizer

SHORT = 0.1  # share of blocks and spans with a shorter target length, as in the papers' data


class StoreSource(SingleSource):
    """What sources over token stores share."""

    reads_store: ClassVar[bool] = True

    @abstractmethod
    def open_store(self, store: TokenStore, limit: int) -> ExampleSource:
        """The source over one store; `limit` is the longest sequence without its special tokens."""

    def open(
        self, recipe: PretrainRecipe, stores: Sequence[TokenStore], tokenizer: Tokenizer
    ) -> list[tuple[str, ExampleSource]]:
        limit = recipe.room(tokenizer)
        return [(store.path.name, self.open_store(store, limit)) for store in stores]


class Views(SingleSource):
    """Changes made to every view after it was drawn, token by token (Contriever 3.1.2)."""

    delete: float | None = Field(
        default=None, ge=0, lt=1, description="Probability that a token is deleted [default: the preset]."
    )
    replace: float = Field(
        default=0.0, ge=0, lt=1, description="Probability that a token is replaced by a random one."
    )
    mask: float = Field(
        default=0.0, ge=0, lt=1, description="Probability that a token is replaced by the mask token."
    )

    def resolve(self, recipe: PretrainRecipe) -> Self:
        return self.model_copy(update=unset(self, {"delete": 0.0}))

    def wrap(self, source: ExampleSource, tokenizer: Tokenizer) -> ExampleSource:
        if not (self.delete or self.replace or self.mask):
            return source
        return Noisy(source, tokenizer, self.delete or 0.0, self.replace, self.mask)


@dataclass(frozen=True)
class Noisy:
    """A source whose sequences lose, swap or hide tokens at random."""

    source: ExampleSource
    tokenizer: Tokenizer
    delete: float = 0.0
    replace: float = 0.0
    mask: float = 0.0

    def __len__(self) -> int:
        return len(self.source)

    def draw(self, examples: NDArray[np.int64], epoch: int, seed: int) -> TokenRow:
        """The inner source's row, changed token by token under each sequence's key."""
        row = self.source.draw(examples, epoch, seed)
        tokens, special = row.tokens, self.tokenizer.special
        if self.delete:
            tokens = delete_tokens(tokens, row.keys, special, self.delete)
        if self.replace:
            tokens = replace_tokens(tokens, _other(row, 1), special, self.replace)
        if self.mask:
            tokens = hide_tokens(tokens, _other(row, 2), special, self.mask, self.tokenizer.mask)
        return TokenRow(tokens, row.owner, row.keys)

    def documents(self, examples: NDArray[np.int64], epoch: int, seed: int) -> NDArray[np.int64]:
        return documents_of(self.source, examples, epoch, seed)


def _other(row: TokenRow, stream: int) -> NDArray[np.uint64]:
    """Keys of their own, so that deletion and replacement hit independently."""
    return np.asarray(rng.mix(row.keys, stream), np.uint64)


def check_order(kind: str, shortest: float | None, longest: float | None) -> None:
    """The smallest share is not above the largest."""
    if shortest is not None and longest is not None and shortest > longest:
        raise ValueError(f"{kind}: shortest = {shortest:g} is more than longest = {longest:g}")
