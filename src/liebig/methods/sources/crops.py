"""Two crops of a window (Contriever); windows are shifted anew every epoch."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

import numpy as np
from pydantic import Field

from liebig.base import rng
from liebig.base.errors import DataError, RecipeError
from liebig.methods.base import PretrainRecipe, unset
from liebig.methods.sources.base import StoreSource, Views, check_order
from liebig.methods.sources.document_table import DocumentTable, document_at, holder
from liebig.methods.sources.token_rows import (
    ExampleSource,
    Ints,
    SpecialTokens,
    TokenRow,
    example_keys,
    packed,
)
from liebig.store import TokenStore
from liebig.text.views import two_crops

WINDOW = 256
SHIFT = 1 << 33  # the counter of a document's shift, above those of examples


class CropSource:
    """Pairs of crops, each a share of the window from U(ratio); the sequences of example i are 2i and 2i+1.

    Documents of one token are left out (`skipped` counts them).
    """

    class Config(Views, StoreSource):
        """Two random crops of a window (Contriever)."""

        kind: Literal["crops"] = "crops"
        window: int = Field(
            default=WINDOW, ge=4, description="Number of tokens of the window that both crops come from."
        )
        shortest: float | None = Field(
            default=None,
            gt=0,
            le=1,
            description="Smallest crop, as a share of the window [default: the preset].",
        )
        longest: float = Field(default=0.5, gt=0, le=1, description="Largest crop, as a share of the window.")
        across: bool = Field(
            default=False, description="Let windows cross document boundaries, as in the released code."
        )
        symmetric: ClassVar[bool] = True

        def resolve(self, recipe: PretrainRecipe) -> Self:
            defaults = recipe.objective.crop_defaults(recipe.preset)
            # Where the recipe's largest crop is smaller than the default smallest one, all crops have one size.
            shortest = min(defaults["shortest"], self.longest)
            return self.model_copy(update=unset(self, defaults | {"shortest": shortest}))

        def check(self, recipe: PretrainRecipe) -> None:
            check_order(self.kind, self.shortest, self.longest)

        def open_store(self, store: TokenStore, limit: int) -> ExampleSource:
            longest = int(self.window * self.longest)
            if longest > limit:
                special = store.tokenizer.template
                around = len(special.before) + len(special.after)
                raise RecipeError(
                    f"crops of up to {longest} tokens do not fit into max_length = {limit + around}",
                    fix=f"set max_length = {longest + around}, or a smaller source.window",
                )
            ratio = (self.shortest or 0.0, self.longest)
            return CropSource(store, self.window, ratio=ratio, across=self.across)

    def __init__(
        self,
        store: TokenStore,
        window: int = WINDOW,
        *,
        ratio: tuple[float, float] = (0.05, 0.5),
        across: bool = False,
    ) -> None:
        self.store, self.window, self.ratio, self.across = store, window, ratio, across
        self._frame = SpecialTokens.of(store.tokenizer)
        self._table = None if across else DocumentTable(store, 2, window)
        self.skipped = 0 if self._table is None else self._table.skipped
        if len(self) == 0:
            raise DataError(
                f"no window of {window} tokens can be cut", file=store.path, fix="use a smaller one"
            )

    def __len__(self) -> int:
        if self._table is None:
            return max(len(self.store.tokens) // self.window - 1, 0)
        return len(self._table)

    def draw(self, examples: Ints, epoch: int, seed: int) -> TokenRow:
        """One row with the two crops of each example."""
        keys = example_keys(examples, epoch, seed)
        begin, end = self._windows(examples, rng.key(seed, epoch))
        spans = two_crops(begin, end, keys, *self.ratio).reshape(-1, 1, 2)
        return packed(self.store.tokens, spans, self._frame, np.repeat(np.arange(len(examples)), 2), keys)

    def _windows(self, examples: Ints, key: np.uint64) -> tuple[Ints, Ints]:
        """Begin and end in tokens of each example's window in this epoch."""
        if self._table is None:
            begin = examples * self.window + rng.below(key, SHIFT, self.window)
            return begin, begin + self.window
        places = self._table.find(examples)
        starts, ends = self.store.token_ranges(places.documents)
        slack = (ends - starts) % self.window * (ends - starts >= self.window)
        begin = starts + places.windows * self.window + rng.below(key, SHIFT + places.documents, slack + 1)
        return begin, np.minimum(begin + self.window, ends)

    def documents(self, examples: Ints, epoch: int, seed: int) -> Ints:
        """Of windows that cross documents, the one in which the window begins when it is not shifted."""
        if self._table is None:
            return document_at(self.store, holder(self.store.sentences, examples * self.window))
        return self._table.find(examples).documents
