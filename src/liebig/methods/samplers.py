"""Which examples meet in a batch, and which of their positives and negatives a query meets in an epoch.

A sampler gives the examples of a step as a function of the step alone. Each example comes once per epoch; those left
over make a last, smaller batch if every process gets one, and otherwise join the batch before it. `RandomBatching` and
`SequentialBatching` are here, adaptive batch scheduling is in `abs/`; the table is in `finetuning.py`.

Positives and negatives follow Tevatron v1's rule, with no state: the positive is number (hash + epoch) of the query's
positives, the hash being example + seed. Negatives are shuffled once per example with that hash, and each epoch takes
the next window of the circle; where there are fewer than wanted they are drawn with replacement (Tevatron draws these
from a global generator, here they follow from seed, example and epoch).

Cost: one permutation per epoch, 8 bytes per example; 20 µs for the choice from 30 negatives.
"""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from liebig.base import rng
from liebig.base.config import Config
from liebig.methods.labelled import Examples
from liebig.model.encoder import Encoder
from liebig.ragged import Ragged
from liebig.train.distributed import World
from liebig.train.loop import LoopConfig

Longs = NDArray[np.int64]
CHOICE, HARD, DRAW = 0, 1, 2  # random streams of an example


def pick_positives(
    count: int, example: int, epoch: int, seed: int, most: int = 1, rotate: bool = True
) -> list[int]:
    """Places of the positives shown this epoch, `most` of `count` at the most, the rotation's first."""
    first = (example + seed + epoch) % count if rotate else 0
    return [(first + i) % count for i in range(min(most, count))]


def pick_negatives(
    count: int, example: int, epoch: int, seed: int, negatives: int, rotate: bool = True
) -> list[int]:
    """Places of the negatives shown this epoch, `negatives` of them where there are any at all."""
    if not negatives or not count:
        return []
    if count < negatives:
        draws = rng.below(rng.key(seed, epoch, example, CHOICE), np.arange(negatives), count)
        return [int(i) for i in draws]
    places = list(range(count))
    if rotate:
        random.Random(example + seed).shuffle(places)
        start = epoch * negatives % count
        places = (places * 2)[start : start + negatives]
    return places[:negatives]


def mix_in_random(
    chosen: Sequence[int], hard: float, example: int, epoch: int, seed: int, negatives: int, pool: range
) -> list[int]:
    """Numbers of passages: each chosen one with the chance `hard`, else a random one of `pool` (Contriever, A).

    Without enough chosen ones the rest is random too, if `hard` is less than 1.
    """
    if hard >= 1.0:
        return list(chosen)
    keep = rng.uniform(rng.key(seed, epoch, example, HARD), np.arange(negatives)) < hard
    drawn = rng.below(rng.key(seed, epoch, example, DRAW), np.arange(negatives), len(pool))
    return [int(chosen[i]) if i < len(chosen) and keep[i] else pool[int(drawn[i])] for i in range(negatives)]


@dataclass(frozen=True)
class GroupChoice:
    """How many positives and negatives a query brings, and how they change from epoch to epoch."""

    negatives: int = 7
    positives: int = 1
    rotate: bool = True
    hard: float = 1.0
    seed: int = 0
    pool: int = 0  # passages of the collection, of which random negatives are drawn

    def group(self, examples: Examples, example: int, epoch: int) -> PassageGroup:
        """The passages of an example at this visit, positives first."""
        mine, other = examples.positives[example], examples.negatives[example]
        kept = pick_positives(len(mine), example, epoch, self.seed, self.positives, self.rotate)
        places = pick_negatives(len(other), example, epoch, self.seed, self.negatives, self.rotate)
        drawn = mix_in_random(
            other[places].tolist(),
            self.hard,
            example,
            epoch,
            self.seed,
            self.negatives,
            range(len(examples.passages), len(examples.passages) + self.pool),
        )
        scores = None
        if examples.scores is not None and self.hard >= 1.0:
            scores = examples.teacher(example)[[*kept, *(len(mine) + p for p in places)]]
        return PassageGroup(np.array([*mine[kept].tolist(), *drawn], np.int64), len(kept), scores)


@dataclass(frozen=True)
class PassageGroup:
    """Numbers of passages, how many of them (the first) are positives, and a teacher's scores."""

    passages: Longs
    positives: int
    scores: NDArray[np.float32] | None


Order = Callable[[int], Longs]
"""The examples of an epoch, batch after batch."""


def steps_of(n: int, batch: int, processes: int = 1) -> int:
    """Batches in an epoch; a rest too small to share, or of one example, which has no others, makes none of its own."""
    whole, rest = divmod(n, batch)
    return whole + (rest >= max(2, processes)) if whole else 1


@dataclass(frozen=True)
class Sampler:
    """`order(epoch)` cut into batches, the last of which takes all that is left.

    `begin(epoch)` is called before an epoch where an order has to be made.
    """

    order: Order
    n: int
    batch: int
    steps: int
    begin: Callable[[int], None] | None = field(default=None)

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


class Towers(Protocol):
    """A retriever in training, as far as batching and evaluation look at it."""

    def tower(self, side: str) -> Encoder:
        """The encoder of a side."""

    def scores(self, query: NDArray[np.float32], passages: NDArray[np.float32]) -> NDArray[np.floating]:
        """How a query's vector ranks passages, given one vector per row."""


@dataclass(frozen=True)
class LabelledRun:
    """What a way of batching may look at when it decides which labelled queries meet; files go into `folder`."""

    retriever: Towers
    examples: Examples
    queries: Ragged
    passages: Ragged
    folder: Path


class Batching(Config):
    """Which examples meet in a batch: the table `[batching]` of a recipe."""

    kind: str
    compares: ClassVar[bool]
    """Whether examples are compared with each other, which is pointless if the loss looks at each one alone."""

    @abstractmethod
    def sampler(self, n: int, loop: LoopConfig, world: World, labelled: LabelledRun | None) -> Sampler:
        """The batches of n examples; `labelled` is None where they are not queries with passages."""


class RandomBatching(Batching):
    """A new random order every epoch."""

    kind: Literal["random"] = Field(default="random", description="New random order in every epoch")
    compares: ClassVar[bool] = False

    def sampler(self, n: int, loop: LoopConfig, world: World, labelled: LabelledRun | None) -> Sampler:
        return random_batches(n, loop.batch, loop.seed, world.size)


class SequentialBatching(Batching):
    """The order of the file, every epoch."""

    kind: Literal["sequential"] = Field(default="sequential", description="Order of the file")
    compares: ClassVar[bool] = False

    def sampler(self, n: int, loop: LoopConfig, world: World, labelled: LabelledRun | None) -> Sampler:
        return sequential_batches(n, loop.batch, world.size)
