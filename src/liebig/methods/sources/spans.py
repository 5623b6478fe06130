"""Two spans of a document (coCondenser, CoT-MAE), drawn by `text/views.py`."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from liebig.base.errors import DataError
from liebig.methods.base import DOCUMENT, PretrainRecipe
from liebig.methods.sources.base import SHORT, StoreSource
from liebig.methods.sources.document_table import DocumentTable
from liebig.methods.sources.token_rows import (
    ExampleSource,
    Ints,
    SpecialTokens,
    TokenRow,
    example_keys,
    packed,
)
from liebig.store import TokenStore
from liebig.text.views import Kind, two_sentence_spans

CHOICE: Kind = "random"


class SpanSource:
    """Pairs of spans; the sequences of example i are 2i and 2i+1.

    `limit` counts tokens without the special ones. With probability `short` a span's limit is drawn from
    1..limit instead (10 % in the papers' data). A document of at most `limit` tokens has not two spans: it is
    skipped (`skipped` counts them), or with `once` gives the one span it is, so that `owner` shows it once.
    """

    class Config(StoreSource):
        """Two spans of a document (coCondenser, CoT-MAE)."""

        kind: Literal["spans"] = "spans"
        choice: Kind = Field(
            default=CHOICE,
            description="Position of the second span; mixed chooses one of nearby, overlap and window.",
        )
        short: float = Field(
            default=SHORT, ge=0, lt=1, description="Share of spans with a shorter target length."
        )
        single: Literal["skip", "once"] = Field(
            default="skip", description="Skip a document with only one span, or use its span once on its own."
        )
        symmetric: ClassVar[bool] = True

        def check(self, recipe: PretrainRecipe) -> None:
            if self.single == "skip":
                return
            if not recipe.objective.singles:
                raise ValueError(f"{recipe.objective.kind} needs both spans: use single = 'skip'")
            if DOCUMENT in recipe.objective.extras:
                raise ValueError(
                    "spans of one document are never negatives of each other: distinct_documents has no effect, leave "
                    "it out"
                )

        def open_store(self, store: TokenStore, limit: int) -> ExampleSource:
            return SpanSource(store, limit, kind=self.choice, short=self.short, once=self.single == "once")

    def __init__(
        self, store: TokenStore, limit: int, *, kind: Kind = CHOICE, short: float = SHORT, once: bool = False
    ) -> None:
        self.store, self.limit, self.kind, self.short = store, limit, kind, short
        self.once = once
        self._frame = SpecialTokens.of(store.tokenizer)
        self._table = DocumentTable(store, 1 if once else limit + 1)
        self.skipped = self._table.skipped
        if len(self) == 0:
            raise DataError(
                f"no document has two spans of at most {limit} tokens",
                file=store.path,
                fix="take shorter spans (max_length), or for masked terms alone use such documents once "
                "(source.single = 'once')",
            )

    def __len__(self) -> int:
        return len(self._table)

    def draw(self, examples: Ints, epoch: int, seed: int) -> TokenRow:
        """One row with the spans of each example."""
        keys = example_keys(examples, epoch, seed)
        first, last = self.store.sentence_ranges(self._table.find(examples).documents)
        starts, ends = self.store.sentences[first], self.store.sentences[last]
        double = ends - starts > self.limit
        spans = np.stack((starts, ends, starts, ends), axis=1).reshape(-1, 2, 2)
        spans[double] = two_sentence_spans(
            self.store.sentences, first[double], last[double], keys[double], self.limit, self.kind, self.short
        )
        kept = np.stack((np.ones_like(double), double), axis=1).ravel()
        owner = np.repeat(np.arange(len(examples)), 2)[kept]
        return packed(self.store.tokens, spans.reshape(-1, 1, 2)[kept], self._frame, owner, keys)

    def documents(self, examples: Ints, epoch: int, seed: int) -> Ints:
        return self._table.find(examples).documents
