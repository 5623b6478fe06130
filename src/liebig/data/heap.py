"""A heap of the k best, inside compiled loops: the worst is on top, and of equal scores the higher number is worse.

Score and number are one 64-bit key that orders as they do: the score's bits, made to rise with it, above the number's,
turned round. So an entry is compared by one instruction. Numbers are below 2^32. Cost: log k steps an entry.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Longs = NDArray[np.int64]
Keys = NDArray[np.uint64]
_SIGN = np.uint32(0x80000000)
_ALL = np.uint32(0xFFFFFFFF)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


@numba.njit(cache=True, nogil=True, inline="always")
def key(score: float, number: int) -> np.uint64:
    """Higher for a better entry; score is no NaN."""
    bits = np.float32(score + np.float32(0)).view(np.uint32)  # adding zero makes -0.0 the same as 0.0
    rising = bits ^ _ALL if bits & _SIGN else bits | _SIGN
    return (np.uint64(rising) << _HALF) | (_LOW - np.uint64(number))


@numba.njit(cache=True, nogil=True, inline="always")
def score_of(entry: np.uint64) -> np.float32:
    """The score of a key."""
    rising = np.uint32(entry >> _HALF)
    bits = np.uint32(rising ^ _SIGN if rising & _SIGN else rising ^ _ALL)
    return bits.view(np.float32)


@numba.njit(cache=True, nogil=True, inline="always")
def number_of(entry: np.uint64) -> np.int64:
    """The number of a key."""
    return np.int64(_LOW - (entry & _LOW))


@numba.njit(cache=True, nogil=True)
def push(keys: Keys, size: int, entry: np.uint64) -> None:
    """Put one more into a place that is free."""
    place = size
    while place > 0:
        parent = (place - 1) >> 1
        if keys[parent] <= entry:
            break
        keys[place] = keys[parent]
        place = parent
    keys[place] = entry


@numba.njit(cache=True, nogil=True)
def replace(keys: Keys, size: int, entry: np.uint64) -> None:
    """Put a better one in the place of the worst."""
    place, child = 0, 1
    while child < size:
        if child + 1 < size and keys[child + 1] < keys[child]:
            child += 1
        if keys[child] >= entry:
            break
        keys[place] = keys[child]
        place, child = child, 2 * child + 1
    keys[place] = entry


@numba.njit(cache=True, nogil=True)
def unpack(keys: Keys, size: int, scores: Floats, numbers: Longs) -> None:
    """Scores and numbers, best first; places that nothing was found for say so."""
    ordered = np.sort(keys[:size])
    for place in range(size):
        entry = ordered[size - 1 - place]
        scores[place], numbers[place] = score_of(entry), number_of(entry)
    scores[size:] = -np.inf
    numbers[size:] = -1


@numba.njit(cache=True, nogil=True)
def highest(bits: NDArray[np.int32]) -> np.float32:
    """The highest of some scores, given as their bits: compilers make vector code of whole numbers only."""
    best = np.int32(-0x80000000)
    for i in range(len(bits)):
        rising = np.int32(bits[i] ^ ((bits[i] >> 31) & 0x7FFFFFFF))
        best = max(best, rising)
    return np.int32(best ^ ((best >> 31) & 0x7FFFFFFF)).view(np.float32)
