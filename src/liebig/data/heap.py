"""A heap of the k best, inside compiled loops: the worst is on top, and of equal scores the higher number is worse.

`scores` and `numbers` are two rows of one ranking; `size` of their places are taken. Cost: log k steps an entry.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Longs = NDArray[np.int64]


@numba.njit(cache=True, nogil=True, inline="always")
def worse(score_a: float, number_a: int, score_b: float, number_b: int) -> bool:
    """Whether a ranks behind b."""
    return score_a < score_b or (score_a == score_b and number_a > number_b)


@numba.njit(cache=True, nogil=True)
def push(scores: Floats, numbers: Longs, size: int, score: float, number: int) -> None:
    """Put one more into a place that is free."""
    place = size
    while place > 0:
        parent = (place - 1) >> 1
        if not worse(score, number, scores[parent], numbers[parent]):
            break
        scores[place], numbers[place] = scores[parent], numbers[parent]
        place = parent
    scores[place], numbers[place] = score, number


@numba.njit(cache=True, nogil=True)
def replace(scores: Floats, numbers: Longs, size: int, score: float, number: int) -> None:
    """Put a better one in the place of the worst."""
    place = 0
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and worse(scores[child + 1], numbers[child + 1], scores[child], numbers[child]):
            child += 1
        if not worse(scores[child], numbers[child], score, number):
            break
        scores[place], numbers[place] = scores[child], numbers[child]
        place = child
    scores[place], numbers[place] = score, number


@numba.njit(cache=True, nogil=True)
def sort(scores: Floats, numbers: Longs, size: int) -> None:
    """The heap, best first."""
    while size > 1:
        size -= 1
        score, number = scores[size], numbers[size]
        scores[size], numbers[size] = scores[0], numbers[0]
        replace(scores, numbers, size, score, number)


@numba.njit(cache=True, nogil=True, fastmath={"nnan", "nsz", "reassoc"})
def highest(block: Floats) -> np.float32:
    """The highest of some scores; compiled to vector instructions."""
    best = block[0]
    for i in range(len(block)):
        best = max(best, block[i])
    return best
