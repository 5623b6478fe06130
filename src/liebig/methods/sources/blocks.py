"""Blocks of whole sentences, and the inverse cloze task on them.

Sentences are added to a block while it stays within its target (Condenser's data). `BlockSource` has one sequence per
example, the block; `ClozeSource` two, a sentence of a block and the rest of it. Cost: one pass over the sentences at
the start, then under 1 us per example.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

import numpy as np
from numba import njit
from pydantic import Field

from liebig.base import rng
from liebig.base.errors import DataError
from liebig.base.rng import below, mix, uniform
from liebig.methods.base import PretrainRecipe, unset
from liebig.methods.sources.base import SHORT, StoreSource, Views, check_order
from liebig.methods.sources.document_table import Levels, document_at, first_sentence
from liebig.methods.sources.token_rows import (
    ExampleSource,
    Ints,
    SpecialTokens,
    TokenRow,
    example_keys,
    packed,
)
from liebig.store import TokenStore
from liebig.text.views import cloze_sentence, cloze_span, truncate

STRETCH = 256
KEEP = 0.1  # how often the sentence stays in its block (Lee et al. 2019)
SHORTEST_SPAN = 0.10  # of inverse cloze by spans, as a share of the block


class BlockSource:
    """One sequence an example: a block of at most `limit` tokens, the special ones not counted.

    A sentence longer than the limit is a block of its own, of which a random window is drawn at each visit. `least`
    leaves out blocks of fewer sentences.
    """

    class Config(StoreSource):
        """Blocks of whole sentences, one sequence per example (Condenser's data)."""

        kind: Literal["blocks"] = "blocks"
        short: float = Field(
            default=SHORT, ge=0, lt=1, description="Share of blocks with a shorter target length."
        )
        symmetric: ClassVar[bool] = False

        def check(self, recipe: PretrainRecipe) -> None:
            if recipe.objective.pairs:
                raise ValueError(
                    f"{recipe.objective.kind} needs pairs, and a block is one text: "
                    "use spans, crops, cloze, pairs or queries"
                )

        def open_store(self, store: TokenStore, limit: int) -> ExampleSource:
            return BlockSource(store, limit, short=self.short)

    def __init__(self, store: TokenStore, limit: int, *, short: float = SHORT, least: int = 1) -> None:
        self.store, self.limit, self.short, self.least = store, limit, short, least
        self._key = rng.key(0)  # of short targets
        self._levels, self._frame = Levels.of(store), SpecialTokens.of(store.tokenizer)
        self._starts, counts, self.tokens = _survey_blocks(self._levels, self._key, limit, short, least)
        self._ends = np.cumsum(counts)
        if len(self) == 0:
            raise DataError(
                f"no block of at least {least} sentences and at most {limit} tokens can be cut",
                file=store.path,
            )

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def per_batch(self, tokens: int) -> int:
        """How many blocks make a batch of about this many tokens, special ones included."""
        mean = self.tokens / len(self) + len(self._frame.before) + len(self._frame.after)
        return max(1, round(tokens / mean))

    def blocks(self, examples: Ints) -> Ints:
        """First sentence, and one past the last, of each example's block."""
        return _find_block(
            self._levels, self._key, self._starts, self._ends, examples, self.limit, self.short, self.least
        )

    def draw(self, examples: Ints, epoch: int, seed: int) -> TokenRow:
        """One row with the block of each example."""
        keys = example_keys(examples, epoch, seed)
        bounds = self.store.sentences[self.blocks(examples)]
        spans = np.stack(truncate(bounds[:, 0], bounds[:, 1], keys, self.limit), axis=1)[:, None]
        return packed(self.store.tokens, spans, self._frame, np.arange(len(examples)), keys)

    def documents(self, examples: Ints, epoch: int, seed: int) -> Ints:
        return document_at(self.store, self.blocks(examples)[:, 0])


class ClozeSource:
    """The inverse cloze task: a sentence of a block (sequence 2i), and the block without it (2i+1).

    With probability `keep` the sentence stays in the block as well (10 % in ICT's paper, Lee et al. 2019). With
    `ratio` the query is a span of that share of the block's tokens instead of a sentence, as Contriever has it.
    """

    class Config(Views, StoreSource):
        """A sentence of a block and the rest of it (inverse cloze)."""

        kind: Literal["cloze"] = "cloze"
        keep: float = Field(
            default=KEEP, ge=0, le=1, description="Probability that the sentence also stays in the block."
        )
        shortest: float | None = Field(
            default=None,
            gt=0,
            le=1,
            description="Smallest span, as a share of the block; with `longest`, takes a span instead of a sentence.",
        )
        longest: float | None = Field(
            default=None, gt=0, le=1, description="Largest span, as a share of the block."
        )
        short: float = Field(
            default=SHORT, ge=0, lt=1, description="Share of blocks with a shorter target length."
        )
        symmetric: ClassVar[bool] = False

        def resolve(self, recipe: PretrainRecipe) -> Self:
            shortest = None if self.longest is None else min(SHORTEST_SPAN, self.longest)
            return self.model_copy(update=unset(self, {"shortest": shortest, "delete": 0.0}))

        def check(self, recipe: PretrainRecipe) -> None:
            if self.shortest is not None and self.longest is None:
                raise ValueError("shortest needs longest: give both, or neither for whole sentences")
            check_order(self.kind, self.shortest, self.longest)

        def open_store(self, store: TokenStore, limit: int) -> ExampleSource:
            ratio = None if self.longest is None else (self.shortest or 0.0, self.longest)
            return ClozeSource(store, limit, keep=self.keep, ratio=ratio, short=self.short)

    def __init__(
        self,
        store: TokenStore,
        limit: int,
        *,
        keep: float = KEEP,
        ratio: tuple[float, float] | None = None,
        short: float = SHORT,
    ) -> None:
        self._blocks = BlockSource(store, limit, short=short, least=2)
        self.store, self.limit, self.keep, self.ratio = store, limit, keep, ratio
        self._frame = SpecialTokens.of(store.tokenizer)

    def __len__(self) -> int:
        return len(self._blocks)

    def draw(self, examples: Ints, epoch: int, seed: int) -> TokenRow:
        """One row with the query and the rest of each example's block."""
        keys = example_keys(examples, epoch, seed)
        blocks, sentences = self._blocks.blocks(examples), self.store.sentences
        if self.ratio is None:
            parts = cloze_sentence(sentences, blocks[:, 0], blocks[:, 1], keys, self.keep, self.limit)
        else:
            bounds = sentences[blocks]
            parts = cloze_span(bounds[:, 0], bounds[:, 1], keys, *self.ratio, self.keep, self.limit)
        spans = parts[:, [0, 0, 1, 2]].reshape(-1, 2, 2)
        spans[::2, 1] = 0
        return packed(self.store.tokens, spans, self._frame, np.repeat(np.arange(len(examples)), 2), keys)

    def documents(self, examples: Ints, epoch: int, seed: int) -> Ints:
        return document_at(self.store, self._blocks.blocks(examples)[:, 0])


@njit(nogil=True, cache=True)
def _block_end(sentences: Any, begin: Any, last: Any, target: Any) -> Any:
    """One past the last sentence of the block that begins at `begin`."""
    end = begin + 1
    while end < last and sentences[end + 1] - sentences[begin] <= target:
        end += 1
    return end


@njit(nogil=True, cache=True)
def _target(key: Any, begin: Any, limit: Any, short: Any) -> Any:
    """The target of the block that begins at this sentence."""
    own = mix(key, begin)
    return 1 + below(own, 1, limit) if uniform(own, 0) < short else limit


@njit(nogil=True, cache=True)
def _next_block(levels: Any, key: Any, begin: Any, stop: Any, document: Any, limit: Any, short: Any) -> Any:
    """The end of the block at `begin`, and the document it lies in; a block ends with its document and stretch."""
    while first_sentence(levels, document + 1) <= begin:
        document += 1
    last = min(stop, first_sentence(levels, document + 1))
    return _block_end(levels.sentences, begin, last, _target(key, begin, limit, short)), document


@njit(nogil=True, cache=True)
def _survey_blocks(levels: Any, key: Any, limit: Any, short: Any, least: Any) -> Any:
    """For every stretch the document it begins in and the number of its blocks; and the tokens in all of them."""
    total = len(levels.sentences) - 1
    stretches = (total + STRETCH - 1) // STRETCH
    starts, counts, tokens = np.empty(stretches, np.int64), np.zeros(stretches, np.int64), 0
    document = 0
    for stretch in range(stretches):
        begin, stop = stretch * STRETCH, min((stretch + 1) * STRETCH, total)
        while first_sentence(levels, document + 1) <= begin:
            document += 1
        starts[stretch] = document
        while begin < stop:
            end, document = _next_block(levels, key, begin, stop, document, limit, short)
            if end - begin >= least:
                counts[stretch] += 1
                tokens += min(levels.sentences[end] - levels.sentences[begin], limit)
            begin = end
    return starts, counts, tokens


@njit(nogil=True, cache=True)
def _find_block(
    levels: Any, key: Any, starts: Any, ends: Any, examples: Any, limit: Any, short: Any, least: Any
) -> Any:
    out = np.empty((len(examples), 2), np.int64)
    total = len(levels.sentences) - 1
    for i in range(len(examples)):
        stretch = np.searchsorted(ends, examples[i], side="right")
        left = examples[i] - (ends[stretch - 1] if stretch > 0 else 0)
        begin, stop = stretch * STRETCH, min((stretch + 1) * STRETCH, total)
        document = starts[stretch]
        while True:
            end, document = _next_block(levels, key, begin, stop, document, limit, short)
            if end - begin >= least:
                if left == 0:
                    break
                left -= 1
            begin = end
        out[i, 0], out[i, 1] = begin, end
    return out
