"""Which positive and which negatives a query meets in an epoch: Tevatron v1's rule, with no state.

The positive is number (hash + epoch) of the query's positives, the hash being example + seed. Negatives are shuffled
once per example with that hash, and each epoch takes the next window of the circle; where there are fewer than
wanted they are drawn with replacement (Tevatron draws these from a global generator, here they follow from seed,
example and epoch). Cost: 20 µs an example with 30 negatives.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from liebig import rng

Longs = NDArray[np.int64]
CHOICE, HARD, DRAW = 0, 1, 2  # numbered streams of an example's own key


def positives(
    count: int, example: int, epoch: int, seed: int, most: int = 1, rotate: bool = True
) -> list[int]:
    """Places of the positives shown this epoch, `most` of `count` at the most, the rotation's first."""
    first = (example + seed + epoch) % count if rotate else 0
    return [(first + i) % count for i in range(min(most, count))]


def negatives(count: int, example: int, epoch: int, seed: int, wanted: int, rotate: bool = True) -> list[int]:
    """Places of the negatives shown this epoch, `wanted` of them where there are any at all."""
    if not wanted or not count:
        return []
    if count < wanted:
        draws = rng.below(rng.key(seed, epoch, example, CHOICE), np.arange(wanted), count)
        return [int(i) for i in draws]
    places = list(range(count))
    if rotate:
        random.Random(example + seed).shuffle(places)
        start = epoch * wanted % count
        places = (places * 2)[start : start + wanted]
    return places[:wanted]


def softened(
    chosen: Sequence[int], hard: float, example: int, epoch: int, seed: int, wanted: int, pool: range
) -> list[int]:
    """Numbers of passages: each chosen one with the chance `hard`, else a random one of `pool` (Contriever, A).

    Without enough chosen ones the rest is random too, if `hard` is less than 1.
    """
    if hard >= 1.0:
        return list(chosen)
    keep = rng.uniform(rng.key(seed, epoch, example, HARD), np.arange(wanted)) < hard
    drawn = rng.below(rng.key(seed, epoch, example, DRAW), np.arange(wanted), len(pool))
    return [int(chosen[i]) if i < len(chosen) and keep[i] else pool[int(drawn[i])] for i in range(wanted)]
