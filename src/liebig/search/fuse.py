"""Two systems into one ranking: by reciprocal ranks, or by scores made comparable; weights found on a dev split.

Reciprocal rank fusion (Cormack et al. 2009) sums weight / (60 + rank). Weighted fusion brings the scores of a query
to [0, 1] (min-max) or to mean 0 and deviation 1, and sums them; a passage that a system did not find gets its lowest.
Equal results keep the order of the first system. Cost: one pass over the hits; tuning: one per weight tried.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from liebig.records import Query
from liebig.search.systems import Found, System

Norm = Literal["minmax", "zscore"]
Fuse = Callable[[Sequence[Found]], Found]
DAMPING = 60
DEPTH = 100  # passages of each system that are fused at the least
WEIGHTS = tuple(step / 20 for step in range(21))  # tried on a dev split


def reciprocal_rank(
    lists: Sequence[Found], weights: Sequence[float] | None = None, damping: float = DAMPING
) -> Found:
    """Sum of weight / (damping + rank), ranks from 1."""
    total: dict[str, float] = {}
    for weight, hits in zip(weights or [1.0] * len(lists), lists):
        for rank, (id, _) in enumerate(hits, 1):
            total[id] = total.get(id, 0.0) + weight / (damping + rank)
    return _ordered(total)


def weighted(lists: Sequence[Found], weights: Sequence[float], norm: Norm = "minmax") -> Found:
    """Weighted sum of normalised scores."""
    total: dict[str, float] = dict.fromkeys((id for hits in lists for id, _ in hits), 0.0)
    for weight, hits in zip(weights, lists):
        if not hits:
            continue
        scores, lowest = _normalised([score for _, score in hits], norm)
        mine = dict(zip((id for id, _ in hits), scores))
        for id in total:
            total[id] += weight * float(mine.get(id, lowest))
    return _ordered(total)


def _normalised(scores: Sequence[float], norm: Norm) -> tuple[list[float], float]:
    """Scores made comparable, and that of what was not found: never above what was."""
    values = np.array(scores, np.float64)
    if norm == "zscore":
        spread = values.std()
        values = (values - values.mean()) / (spread if spread > 0 else 1.0)
        return list(values), float(values.min()) if spread > 0 else -1.0
    spread = values.max() - values.min()
    return list((values - values.min()) / spread if spread > 0 else np.ones(len(values))), 0.0


def _ordered(total: dict[str, float]) -> Found:
    return sorted(total.items(), key=lambda pair: -pair[1])


class Hybrid(System):
    """Several systems asked at once, their answers fused; each is asked for DEPTH passages at the least."""

    def __init__(self, systems: Sequence[System], fuse: Fuse) -> None:
        self.name, self.systems, self._fuse = "hybrid", systems, fuse

    def search(self, queries: Sequence[Query], k: int) -> list[Found]:
        return self.search_all(queries, k)[-1]

    def search_all(self, queries: Sequence[Query], k: int) -> list[list[Found]]:
        """What each system found, and last what they found together."""
        asked = [system.search(queries, max(k, DEPTH)) for system in self.systems]
        fused = [self._fuse(lists)[:k] for lists in zip(*asked)]
        return [*([found[:k] for found in answers] for answers in asked), fused]


@dataclass(frozen=True)
class Tuned:
    """The weight of the first of two systems (the other has the rest) that did best, and the value of every weight."""

    weight: float
    value: float
    tried: tuple[tuple[float, float], ...]


def best_weight(tried: Sequence[tuple[float, float]]) -> Tuned:
    """Of weights and their values the best; of equal values the weight nearest to a half."""
    weight, value = max(tried, key=lambda pair: (pair[1], -abs(pair[0] - 0.5)))
    return Tuned(weight, value, tuple(tried))


def weighted_by(weight: float, norm: Norm) -> Fuse:
    """Weighted fusion of two systems."""
    return partial(weighted, weights=(weight, 1 - weight), norm=norm)


def ranks_by(weight: float, damping: float = DAMPING) -> Fuse:
    """Reciprocal rank fusion of two systems with a weight."""
    return partial(reciprocal_rank, weights=(weight, 1 - weight), damping=damping)
