"""What an approximate index misses, measured on the user's own vectors, and the effort that a recall takes.

A sample of query vectors (or of the vectors themselves, which then do not count as their own neighbours) is answered
exactly and by the index. Recall@k is the share of the k best that the index finds; of equal scores any is right. Tuning
doubles the effort until the recall is reached. Cost: one exact search of the sample, and one search per effort.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Protocol

import numpy as np
from pydantic import Field, NonNegativeInt, PositiveInt

from liebig.base.progress import counted
from liebig.indexes import exact_cpu
from liebig.vectors import Longs, Shard, starts, vectors_at
from liebig.vectors.quantise import Floats
from liebig.vectors.ranked import Ranked

Share = Annotated[float, Field(ge=0, le=1)]

ROUNDING = 1e-6  # relative; a library that scores by itself sums in another order


@dataclass(frozen=True)
class Recall:
    """Recall@k wanted (0: the effort was given instead) and measured, on that many queries."""

    k: PositiveInt
    wanted: Share
    measured: Share
    queries: NonNegativeInt


@dataclass(frozen=True)
class RecallGoal:
    """Recall@k to reach, measured with `sample` queries; or an effort to use whatever its recall."""

    k: int = 100
    recall: float = 0.95
    sample: int = 1000
    effort: int | None = None


@dataclass(frozen=True)
class Sample:
    """Queries, their exact k best, and the number each query itself has in the index (-1: it is none of them)."""

    queries: Floats
    truth: Ranked
    own: Longs
    k: int


def draw(shards: Sequence[Shard], k: int, count: int, seed: int = 0, queries: Floats | None = None) -> Sample:
    """Queries to measure with; without any of the user's, vectors of the shards."""
    random = np.random.Generator(np.random.Philox(seed))
    if queries is not None:
        chosen = np.sort(random.permutation(len(queries))[:count])
        own, sample = np.full(len(chosen), -1, np.int64), np.ascontiguousarray(queries[chosen], np.float32)
    else:
        there = np.concatenate(
            [np.zeros(0, np.int64), *(_there(s, a) for s, a in zip(shards, starts(shards)))]
        )
        own = np.sort(random.permutation(there)[:count])
        sample = vectors_at(shards, own, shards[0].vectors.codes.shape[1])
    return Sample(sample, _without_own(exact_cpu.search(sample, shards, k + 1), own, k), own, k)


def _there(shard: Shard, first: int) -> Longs:
    return first + np.setdiff1d(np.arange(len(shard)), shard.deleted)


def _without_own(ranked: Ranked, own: Longs, k: int) -> Ranked:
    """The k best others: a query's own vector is moved behind all of them."""
    mine = ranked.numbers == own[:, None]
    order = np.argsort(mine, axis=1, kind="stable")[:, :k]
    return Ranked(np.take_along_axis(ranked.scores, order, 1), np.take_along_axis(ranked.numbers, order, 1))


class Searched(Protocol):
    """What is asked of an index (`base.Index`)."""

    kind: ClassVar[str]
    recall: Recall | None

    @property
    def knob(self) -> str | None: ...
    @property
    def most_effort(self) -> int: ...
    def set_effort(self, effort: int) -> None: ...
    def search(self, queries: Floats, k: int) -> Ranked: ...


def measure(index: Searched, sample: Sample) -> float:
    """Share of the exact k best that the index finds, averaged over the sample."""
    if len(sample.queries) == 0:
        return 1.0
    ranked = _without_own(index.search(sample.queries, sample.k + 1), sample.own, sample.k)
    there = (sample.truth.numbers >= 0).sum(1)
    last = np.where(sample.truth.numbers >= 0, sample.truth.scores, np.inf).min(1)
    last = last - ROUNDING * np.abs(last)
    right = ((ranked.scores >= last[:, None]) & (ranked.numbers >= 0)).sum(1)
    return float(np.mean(np.minimum(right, there) / np.maximum(there, 1)))


def tune(index: Searched, sample: Sample, goal: RecallGoal, say: Callable[[str], None]) -> None:
    """Set the least effort (a power of two) that reaches the recall, or the largest there is; or the effort given."""
    effort = goal.effort or (1 if index.knob == "nprobe" else 16)
    while True:
        if index.knob is not None:
            index.set_effort(effort)
        value = measure(index, sample)
        knob = f"{index.knob} {effort}, " if index.knob else ""
        say(f"{index.kind}: {knob}recall@{sample.k} {value:.4f} on {counted(len(sample.queries), 'queries')}")
        done = value >= goal.recall or index.knob is None or effort >= index.most_effort
        if done or goal.effort is not None:
            break
        effort = min(2 * effort, index.most_effort)
    if value < goal.recall and goal.effort is None:
        say(f"recall {goal.recall} was not reached: set a larger rescore, or use a finer structure")
    target = 0.0 if goal.effort is not None else goal.recall
    index.recall = Recall(sample.k, target, round(value, 6), len(sample.queries))
