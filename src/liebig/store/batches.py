"""Batches as a pure function of (seed, step).

The order of an epoch is a bijection computed index by index, so no list of examples exists; what an example looks
like is drawn from its own key. Resuming at a step or dividing a batch over processes therefore cannot change it.
Every batch is full; the few examples left over at the end of an epoch wait for the next order. Examples next to each
other can be kept together: then groups of them are what is put in order, cut elsewhere in each epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, Protocol

import numpy as np
from numba import njit
from numpy.typing import NDArray

from liebig.base import rng
from liebig.base.errors import DataError
from liebig.store.pair_sources import (
    BlockSource,
    ClozeSource,
    CropSource,
    Ints,
    Row,
    Source,
    SpanSource,
    joined,
)

__all__ = [
    "Batches", "BlockSource", "ClozeSource", "CropSource", "MixedBatches", "Row", "Source", "SpanSource", "StepBatches",
    "share", "weights",
]  # fmt: skip

ORDER, MIX, SHIFT = 1, 2, 3
STRIDE = 1 << 16


class StepBatches(Protocol):
    """Anything that gives the batch of a step, whole or the part of one process."""

    size: int

    def __call__(self, step: int, rank: int = 0, world: int = 1) -> Row:
        """The batch of a step."""


def share(size: int, rank: int, world: int) -> tuple[int, int]:
    """The examples of a global batch that process `rank` of `world` takes: begin and end."""
    return size * rank // world, size * (rank + 1) // world


class Batches:
    """Batches of `size` examples of one source, epoch after epoch, `together` of them neighbours in the source."""

    def __init__(self, source: Source, size: int, seed: int, together: int = 1) -> None:
        self.used = len(source) // together * together  # examples of an epoch
        if self.used < size:
            groups = f" in groups of {together}" if together > 1 else ""
            raise DataError(
                f"a batch of {size:,} examples is larger than the data: {self.used:,} examples{groups}",
                fix="use a smaller batch or more documents",
            )
        self.source, self.size, self.seed, self.together = source, size, seed, together
        self.steps_per_epoch = self.used // size

    def examples(self, step: int, rank: int = 0, world: int = 1) -> Ints:
        """Which examples are in the batch of a step, in their order."""
        begin, end = share(self.size, rank, world)
        epoch, place = divmod(step, self.steps_per_epoch)
        return self.ordered(place * self.size + np.arange(begin, end), epoch)

    def ordered(self, places: Ints, epoch: int) -> Ints:
        """The examples at these places of an epoch's order."""
        key, shift = rng.key(self.seed, ORDER, epoch), 0
        if self.together > 1:
            shift = int(
                rng.integers(rng.key(self.seed, SHIFT, epoch), np.zeros(1, np.int64), self.together)[0]
            )
        return np.asarray(_permuted(places % self.used, len(self.source), self.together, shift, key))

    def __call__(self, step: int, rank: int = 0, world: int = 1) -> Row:
        """The batch of a step."""
        return self.source.draw(self.examples(step, rank, world), step // self.steps_per_epoch, self.seed)


@njit(nogil=True, cache=True)
def _permuted(places: Any, n: Any, together: Any, shift: Any, key: Any) -> Any:
    out = np.empty(len(places), np.int64)
    for i in range(len(places)):
        group = rng.permute(places[i] // together, n // together, key)
        out[i] = (group * together + places[i] % together + shift) % n
    return out


def weights(sources: Iterable[Source], coefficient: float) -> list[float]:
    """Probabilities in proportion to size^coefficient: 0 gives each source the same, 1 each example."""
    sizes = np.array([len(source) for source in sources], np.float64) ** coefficient
    return [float(p) for p in sizes / sizes.sum()]


class MixedBatches:
    """Batches from several sources, each drawn with its probability.

    `per="batch"` draws a source for every batch, `per="example"` for every example. Each source goes through its
    own epochs at its own pace: how far it has come by a step is counted from the same draws.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        probabilities: Sequence[float],
        size: int,
        seed: int,
        per: Literal["batch", "example"] = "batch",
        together: int = 1,
    ) -> None:
        total = sum(probabilities)
        if len(probabilities) != len(sources) or min(probabilities) < 0 or total <= 0:
            raise DataError(f"{list(probabilities)} are not probabilities of {len(sources)} sources")
        self._each = [Batches(source, size, _seed(seed, i), together) for i, source in enumerate(sources)]
        self._bounds = np.cumsum(np.array(probabilities, np.float64) / total)
        self._key = rng.key(seed, MIX)
        self._marks: tuple[tuple[int, NDArray[np.int64]], ...] = ((0, np.zeros(len(sources), np.int64)),)
        self.sources, self.size, self.seed, self.per = tuple(sources), size, seed, per

    def __call__(self, step: int, rank: int = 0, world: int = 1) -> Row:
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

    def _gather(self, drawn: Ints, before: Ints) -> Row:
        """The examples that `drawn` names, each the next one of its source."""
        rows, owners = [], []
        for number, each in enumerate(self._each):
            owner = np.flatnonzero(drawn == number)
            place = before[number] + np.arange(len(owner))
            for epoch in np.unique(place // each.used):
                here = place // each.used == epoch
                examples = each.ordered(place[here], int(epoch))
                rows.append(each.source.draw(examples, int(epoch), each.seed))
                owners.append(owner[here])
        return joined(rows, owners)


def _seed(seed: int, source: int) -> int:
    """A source's own seed, so that two sources over one store do not draw alike."""
    return int(rng.key(seed, MIX, source) >> np.uint64(1))


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
