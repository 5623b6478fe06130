"""Rankings: a heap of the k best for compiled loops, and the arrays of scores and numbers that it fills.

The worst entry is at the top of the heap; of equal scores the higher passage number is worse. Score and number form one
64-bit key with that order (the score's bits, made monotonic, above the inverted bits of the number), so that a single
instruction compares two entries. Numbers are below 2^32. Cost: log k steps per entry; merging rankings sorts k entries
per part and query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from liebig.base.compiled import njit

Floats = NDArray[np.float32]
Longs = NDArray[np.int64]
Keys = NDArray[np.uint64]
_SIGN = np.uint32(0x80000000)
_ALL = np.uint32(0xFFFFFFFF)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


@njit(cache=True, nogil=True, inline="always")
def key(score: float, number: int) -> np.uint64:
    """Higher for a better entry; score is no NaN."""
    bits = np.float32(score + np.float32(0)).view(np.uint32)  # adding zero makes -0.0 the same as 0.0
    rising = bits ^ _ALL if bits & _SIGN else bits | _SIGN
    return (np.uint64(rising) << _HALF) | (_LOW - np.uint64(number))


@njit(cache=True, nogil=True, inline="always")
def score_of(entry: np.uint64) -> np.float32:
    """The score of a key."""
    rising = np.uint32(entry >> _HALF)
    bits = np.uint32(rising ^ _SIGN if rising & _SIGN else rising ^ _ALL)
    return bits.view(np.float32)


@njit(cache=True, nogil=True, inline="always")
def number_of(entry: np.uint64) -> np.int64:
    """The number of a key."""
    return np.int64(_LOW - (entry & _LOW))


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
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


def keys_of(scores: Floats, numbers: Longs | int) -> Keys:
    """`key` of many entries, in numpy."""
    bits = (scores + np.float32(0)).view(np.uint32)
    rising = np.where(bits & _SIGN, ~bits, bits | _SIGN).astype(np.uint64)
    return (rising << _HALF) | (_LOW - np.asarray(numbers).astype(np.uint64))


def scores_of(entries: Keys) -> Floats:
    """`score_of` many keys, in numpy."""
    rising = (entries >> _HALF).astype(np.uint32)
    return np.where(rising & _SIGN, rising ^ _SIGN, ~rising).view(np.float32)


def numbers_of(entries: Keys) -> Longs:
    """`number_of` many keys, in numpy."""
    return (_LOW - (entries & _LOW)).astype(np.int64)


def keep(entries: Keys, k: int) -> Keys:
    """The k best of some keys, worst first, so that they are a heap too; in numpy."""
    kept: Keys = np.sort(np.partition(entries, -k)[-k:] if len(entries) > k else entries)
    return kept


def _unpack_numpy(keys: Keys, size: int, scores: Floats, numbers: Longs) -> None:
    entries = np.sort(keys[:size])[::-1]
    scores[:size], scores[size:] = scores_of(entries), -np.inf
    numbers[:size], numbers[size:] = numbers_of(entries), -1


@njit(cache=True, nogil=True, numpy=_unpack_numpy)
def unpack(keys: Keys, size: int, scores: Floats, numbers: Longs) -> None:
    """Scores and numbers, best first; places that nothing was found for say so. The heap is used up."""
    for place in range(size - 1, -1, -1):  # np.sort would take seconds to compile
        entry = keys[0]
        replace(keys, place, keys[place])
        scores[place], numbers[place] = score_of(entry), number_of(entry)
    scores[size:] = -np.inf
    numbers[size:] = -1


@njit(cache=True, nogil=True)
def highest(bits: NDArray[np.int32]) -> np.float32:
    """The highest of some scores, given as their bits: compilers make vector code of whole numbers only."""
    best = np.int32(-0x80000000)
    for i in range(len(bits)):
        rising = np.int32(bits[i] ^ ((bits[i] >> 31) & 0x7FFFFFFF))
        best = max(best, rising)
    return np.int32(best ^ ((best >> 31) & 0x7FFFFFFF)).view(np.float32)


NONE = -1


@dataclass(frozen=True, slots=True, eq=False)
class Ranked:
    """The k best passages of each query: scores descending, of equal scores the lower number first.

    A row with fewer than k hits is filled with number -1 and score minus infinity.
    """

    scores: NDArray[np.float32]  # Q x k
    numbers: NDArray[np.int64]  # Q x k

    def __len__(self) -> int:
        return len(self.scores)

    def row(self, query: int) -> list[tuple[int, float]]:
        """Number and score of each passage found for one query."""
        numbers, scores = self.numbers[query], self.scores[query]
        count = int((numbers != NONE).sum())
        return list(zip(numbers[:count].tolist(), scores[:count].tolist()))

    @classmethod
    def nothing(cls, queries: int, k: int) -> Ranked:
        """Rows that hold nothing yet."""
        return cls(np.full((queries, k), -np.inf, np.float32), np.full((queries, k), NONE, np.int64))


def merge(parts: Sequence[Ranked], k: int) -> Ranked:
    """The k best of all parts, whose numbers do not overlap; rows always have k places."""
    if len(parts) == 1 and parts[0].scores.shape[1] == k:
        return parts[0]
    parts = [*parts, Ranked.nothing(len(parts[0]), k)]
    scores = np.concatenate([part.scores for part in parts], axis=1)
    numbers = np.concatenate([part.numbers for part in parts], axis=1)
    return best(scores, numbers, k)


def best(scores: NDArray[np.float32], numbers: NDArray[np.int64], k: int) -> Ranked:
    """The k best of at least k scores in any order."""
    order = np.lexsort((numbers, -scores), axis=1)[:, :k]
    return Ranked(np.take_along_axis(scores, order, 1), np.take_along_axis(numbers, order, 1))


def stack(parts: Sequence[Ranked]) -> Ranked:
    """The queries of all parts, one after the other."""
    return Ranked(
        np.concatenate([part.scores for part in parts]), np.concatenate([part.numbers for part in parts])
    )
