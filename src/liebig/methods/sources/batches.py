"""Batches as a pure function of (seed, step).

The order of an epoch is a bijection computed index by index, so no list of examples exists; what an example looks
like is drawn from its own key. Resuming at a step or dividing a batch over processes therefore cannot change it.
Every batch is full; the few examples left over at the end of an epoch wait for the next order.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numba import njit

from liebig.base import rng
from liebig.base.errors import DataError
from liebig.methods.sources.token_rows import ExampleSource, Ints, TokenRow

ORDER = 1  # the random stream; `mixture.py` has number 2


class StepBatches(Protocol):
    """Anything that gives the batch of a step, whole or the part of one process."""

    size: int

    def __call__(self, step: int, rank: int = 0, world: int = 1) -> TokenRow:
        """The batch of a step."""


def share(size: int, rank: int, world: int) -> tuple[int, int]:
    """The examples of a global batch that process `rank` of `world` takes: begin and end."""
    return size * rank // world, size * (rank + 1) // world


class Batches:
    """Batches of `size` examples of one source, epoch after epoch."""

    def __init__(self, source: ExampleSource, size: int, seed: int) -> None:
        if len(source) < size:
            raise DataError(
                f"a batch of {size:,} examples is larger than the data: {len(source):,} examples",
                fix="use a smaller batch or more documents",
            )
        self.source, self.size, self.seed = source, size, seed
        self.steps_per_epoch = len(source) // size

    def examples(self, step: int, rank: int = 0, world: int = 1) -> Ints:
        """Which examples are in the batch of a step, in their order."""
        begin, end = share(self.size, rank, world)
        epoch, place = divmod(step, self.steps_per_epoch)
        return self.ordered(place * self.size + np.arange(begin, end), epoch)

    def ordered(self, places: Ints, epoch: int) -> Ints:
        """The examples at these places of an epoch's order."""
        n = len(self.source)
        return np.asarray(_permuted(places % n, n, rng.key(self.seed, ORDER, epoch)))

    def __call__(self, step: int, rank: int = 0, world: int = 1) -> TokenRow:
        """The batch of a step."""
        return self.source.draw(self.examples(step, rank, world), step // self.steps_per_epoch, self.seed)


@njit(nogil=True, cache=True)
def _permuted(places: Any, n: Any, key: Any) -> Any:
    out = np.empty(len(places), np.int64)
    for i in range(len(places)):
        out[i] = rng.permute(places[i], n, key)
    return out
