"""All sources of a recipe: the table of them, mixtures, and their shares of the training.

Several stores and the members of a mixture end in one flat list of sources with shares; a batch, or each of its
examples, comes from one of them. Without weights they count by size to the power of a coefficient: 1 gives every
example the same chance, 0 every source. A teacher's texts, the one source with vectors, are in `teacher.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

import numpy as np
from numba import njit
from numpy.typing import NDArray
from pydantic import Field

from liebig.base import rng
from liebig.base.config import Config as Recipe
from liebig.base.errors import DataError, RecipeError
from liebig.methods.base import PairSourceConfig, PretrainRecipe, SingleSource
from liebig.methods.held_out import hold_out
from liebig.methods.sources.batches import Batches, StepBatches, share
from liebig.methods.sources.blocks import BlockSource, ClozeSource
from liebig.methods.sources.crops import CropSource
from liebig.methods.sources.pairs import PairSource, QuerySource
from liebig.methods.sources.spans import SpanSource
from liebig.methods.sources.token_rows import ExampleSource, Ints, TokenRow, joined
from liebig.methods.teacher import TextSource
from liebig.store import TokenStore
from liebig.text.tokenizer import Tokenizer

MIX = 2  # the random stream of the draw between sources
STRIDE = 1 << 16

SourceConfigs = (
    BlockSource.Config
    | SpanSource.Config
    | CropSource.Config
    | ClozeSource.Config
    | PairSource.Config
    | QuerySource.Config
    | TextSource.Config
)


class MixturePart(Recipe):
    """One source of a mixture."""

    source: SourceConfigs = Field(description="The source.", discriminator="kind")
    weight: float | None = Field(
        default=None, gt=0, description="Relative probability of the source [default: size^coefficient]."
    )


class MixedBatches:
    """Batches from several sources, each drawn with its probability.

    `per="batch"` draws a source for every batch, `per="example"` for every example. Each source goes through its
    own epochs at its own pace: how far it has come by a step is counted from the same draws.
    """

    class Config(PairSourceConfig):
        """Several sources, each drawn with its probability."""

        kind: Literal["mixture"] = "mixture"
        parts: tuple[MixturePart, ...] = Field(description="The sources.", min_length=2)

        @property
        def members(self) -> tuple[SingleSource, ...]:
            return tuple(part.source for part in self.parts)

        @property
        def weights(self) -> tuple[float | None, ...]:
            return tuple(part.weight for part in self.parts)

        def resolve(self, recipe: PretrainRecipe) -> Self:
            parts = [part.model_copy(update={"source": part.source.resolve(recipe)}) for part in self.parts]
            return self.model_copy(update={"parts": tuple(parts)})

    def __init__(
        self,
        sources: Sequence[ExampleSource],
        probabilities: Sequence[float],
        size: int,
        seed: int,
        per: Literal["batch", "example"] = "batch",
    ) -> None:
        total = sum(probabilities)
        if len(probabilities) != len(sources) or min(probabilities) < 0 or total <= 0:
            raise DataError(f"{list(probabilities)} are not probabilities of {len(sources)} sources")
        # Seeds of their own, so that two sources over one store do not draw alike.
        self._each = [
            Batches(source, size, int(rng.key(seed, MIX, i) >> np.uint64(1)))
            for i, source in enumerate(sources)
        ]
        self._bounds = np.cumsum(np.array(probabilities, np.float64) / total)
        self._key = rng.key(seed, MIX)
        self._marks: tuple[tuple[int, NDArray[np.int64]], ...] = ((0, np.zeros(len(sources), np.int64)),)
        self.sources, self.size, self.seed, self.per = tuple(sources), size, seed, per

    def __call__(self, step: int, rank: int = 0, world: int = 1) -> TokenRow:
        """The batch of a step."""
        if self.per == "batch":
            source = int(self._draws(step, step + 1)[0])
            return self._each[source](int(self._before(step)[source]), rank, world)
        drawn = self._draws(step * self.size, (step + 1) * self.size)
        begin, end = share(self.size, rank, world)
        before = self._before(step * self.size) + np.bincount(drawn[:begin], minlength=len(self.sources))
        return self._gather(drawn[begin:end], before)

    def _draws(self, begin: int, end: int) -> Ints:
        """The source of each unit (batch or example) in this range."""
        return np.asarray(_sources(self._key, begin, end, self._bounds))

    def _before(self, unit: int) -> NDArray[np.int64]:
        """How often each source was drawn before this unit, counted on from the nearest mark.

        Marks are kept apart by `STRIDE`, so that several threads a few steps apart share them.
        """
        mark = unit - unit % STRIDE
        known, counts = max((m for m in self._marks if m[0] <= mark), key=lambda m: m[0])
        if known < mark:
            counts = counts + _tally(self._key, known, mark, self._bounds)
            self._marks = (self._marks[0], *self._marks[1:][-3:], (mark, counts))
        return np.asarray(counts + _tally(self._key, mark, unit, self._bounds))

    def _gather(self, drawn: Ints, before: Ints) -> TokenRow:
        """The examples that `drawn` names, each the next one of its source."""
        rows, owners = [], []
        for number, each in enumerate(self._each):
            owner = np.flatnonzero(drawn == number)
            place = before[number] + np.arange(len(owner))
            epochs = place // len(each.source)
            for epoch in np.unique(epochs):
                here = epochs == epoch
                examples = each.ordered(place[here], int(epoch))
                rows.append(each.source.draw(examples, int(epoch), each.seed))
                owners.append(owner[here])
        return joined(rows, owners)


@njit(nogil=True, cache=True)
def _source(key: Any, unit: Any, bounds: Any) -> Any:
    return min(np.searchsorted(bounds, rng.uniform(key, unit), side="right"), len(bounds) - 1)


@njit(nogil=True, cache=True)
def _sources(key: Any, begin: Any, end: Any, bounds: Any) -> Any:
    out = np.empty(end - begin, np.int64)
    for unit in range(begin, end):
        out[unit - begin] = _source(key, unit, bounds)
    return out


@njit(nogil=True, cache=True)
def _tally(key: Any, begin: Any, end: Any, bounds: Any) -> Any:
    counts = np.zeros(len(bounds), np.int64)
    for unit in range(begin, end):
        counts[_source(key, unit, bounds)] += 1
    return counts


AnySource = Annotated[SourceConfigs | MixedBatches.Config, Field(discriminator="kind")]
SAMPLE = 512


@dataclass(frozen=True)
class Weighted:
    """A source and its share of the training."""

    source: ExampleSource
    share: float
    name: str
    skipped: int = 0


def build(config: PretrainRecipe, stores: Sequence[TokenStore], tokenizer: Tokenizer) -> list[Weighted]:
    """All sources of a resolved recipe; shares add up to 1."""
    opened = [_open(member, config, stores, tokenizer) for member in config.source.members]
    sizes = [sum(len(w.source) for w in member) for member in opened]
    outer = shares(config.source.weights, sizes, config.coefficient)
    return [
        Weighted(w.source, w.share * share, w.name, w.skipped)
        for member, share in zip(opened, outer)
        for w in member
    ]


def _open(
    member: SingleSource, config: PretrainRecipe, stores: Sequence[TokenStore], tokenizer: Tokenizer
) -> list[Weighted]:
    """One source of the recipe over all it reads, with its noise, in the order the method reads."""
    opened = member.open(config, stores, tokenizer)
    given = [store.weight for store in config.stores] if member.reads_store else [None]
    inner = shares(given, [len(source) for _, source in opened], config.coefficient)
    return [
        Weighted(
            config.objective.arrange(member.wrap(source, tokenizer), member.symmetric),
            share,
            f"{member.kind} of {name}",
            getattr(source, "skipped", 0),
        )
        for (name, source), share in zip(opened, inner)
    ]


def shares(given: Sequence[float | None], sizes: Sequence[int], coefficient: float) -> list[float]:
    """Shares that add up to 1: the weights given, or size^coefficient."""
    known = [weight for weight in given if weight is not None]
    if known and len(known) != len(given):
        raise RecipeError(
            "some have a weight and others do not", fix="give a weight to all of them, or to none"
        )
    weights = np.array(known if known else np.array(sizes, np.float64) ** coefficient, np.float64)
    return [float(share) for share in weights / weights.sum()]


def divide(sources: Sequence[Weighted], share: float) -> tuple[list[Weighted], list[Weighted]]:
    """What is trained on, and what is held out."""
    kept, held = [], []
    for one in sources:
        train, rest = hold_out(one.source, share)
        kept.append(Weighted(train, one.share, one.name, one.skipped))
        if rest is not None:
            held.append(Weighted(rest, one.share, one.name))
    return kept, held


def tokens_per_example(sources: Sequence[Weighted]) -> float:
    """Mean tokens of an example, special ones included, measured on a sample from all over each source."""
    total = 0.0
    for one in sources:
        sample = np.linspace(0, len(one.source) - 1, min(SAMPLE, len(one.source))).astype(np.int64)
        total += one.share * len(one.source.draw(sample, 0, 0).tokens.values) / len(sample)
    return total


def batches(
    sources: Sequence[Weighted], size: int, seed: int, per: Literal["batch", "example"]
) -> StepBatches:
    if len(sources) == 1:
        return Batches(sources[0].source, size, seed)
    return MixedBatches([w.source for w in sources], [w.share for w in sources], size, seed, per)


def epoch_steps(sources: Sequence[Weighted], size: int) -> int:
    """Steps in which as many examples are seen as there are."""
    return max(1, sum(len(w.source) for w in sources) // size)
