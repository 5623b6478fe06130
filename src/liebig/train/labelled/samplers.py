"""Which examples meet in a batch: at random, in the order of the file, or as a schedule says.

A sampler gives the examples of a step as a function of the step alone. Each example comes once an epoch; those left
over make a last, smaller batch where every process gets one, and else join the batch before it. Cost: one permutation
an epoch, 8 bytes an example.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from liebig import rng

Longs = NDArray[np.int64]
Order = Callable[[int], Longs]
"""The examples of an epoch, batch after batch."""


def steps_of(n: int, batch: int, processes: int = 1) -> int:
    """Batches in an epoch; a rest too small to share, or of one example, which has no others, makes none of its own."""
    whole, rest = divmod(n, batch)
    return whole + (rest >= max(2, processes)) if whole else 1


@dataclass(frozen=True)
class Sampler:
    """`order(epoch)` cut into batches, the last of which takes all that is left.

    `begin(epoch)` is called before an epoch where an order has to be made, `close()` when no other will come.
    """

    order: Order
    n: int
    batch: int
    steps: int
    begin: Callable[[int], None] | None = field(default=None)
    close: Callable[[], None] = field(default=lambda: None)

    def __call__(self, step: int) -> Longs:
        epoch, place = divmod(step, self.steps)
        end = self.n if place == self.steps - 1 else (place + 1) * self.batch
        return self.order(epoch)[place * self.batch : end]

    def epoch(self, step: int) -> int:
        return step // self.steps


def random_batches(n: int, batch: int, seed: int, processes: int = 1) -> Sampler:
    """A new order every epoch, a function of seed and epoch."""

    @lru_cache(maxsize=2)
    def order(epoch: int) -> Longs:
        return np.argsort(rng.uniform(rng.key(seed, epoch, 11), np.arange(n)), kind="stable")

    return Sampler(order, n, batch, steps_of(n, batch, processes))


def sequential_batches(n: int, batch: int, processes: int = 1) -> Sampler:
    """The order of the file, every epoch: the second baseline of the ABS paper."""
    fixed = np.arange(n)
    return Sampler(lambda epoch: fixed, n, batch, steps_of(n, batch, processes))
