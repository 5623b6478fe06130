"""The compiled part of exact search: from a tile of rough scores to the k best, scored exactly.

A matrix product gives rough scores, whose last digits depend on where a vector stands in its tile. What can be among
the k best by them is scored again, number by number in float64 and always in the same order, so that a score depends
on query and vector alone: shards, tiles, threads and processes cannot change a result, and equal vectors tie.

Q queries, C vectors of a tile, D width, K wanted.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numba.extending import overload
from numpy.typing import NDArray

from liebig.data import heap

Floats = NDArray[np.float32]
Longs = NDArray[np.int64]
Keys = NDArray[np.uint64]
BLOCK = 128
FAST = {"reassoc", "contract", "nsz", "nnan", "ninf"}


@numba.njit(cache=True, nogil=True)
def scan(
    rough_QC: Floats, slack_Q: Floats, first: int, live_C: NDArray[np.bool_], queries_QD: Floats, codes_C: Any,
    table: Floats, scales_C: Floats, limits_QK: Keys, sizes_Q: Longs, best_QK: Keys, found_Q: Longs,
) -> None:  # fmt: skip
    """Take a tile into the best of every query; `first` is the number of the tile's first vector.

    `limits_QK` and `best_QK` are heaps of the K best rough and exact scores so far. A rough score is off by `slack_Q`
    at most, so what is among the K best exactly is no more than twice that below the K-th best rough score.
    """
    candidates = np.empty(rough_QC.shape[1], np.int64)
    for q in range(len(rough_QC)):
        n = _candidates(rough_QC[q], slack_Q[q], live_C, limits_QK[q], sizes_Q, q, candidates)
        limit = _limit(limits_QK[q], sizes_Q[q], slack_Q[q])
        for i in range(n):
            c = candidates[i]
            if rough_QC[q, c] >= limit:
                score = _exact(queries_QD[q], codes_C, c, table, scales_C)
                _keep(best_QK[q], found_Q, q, heap.key(score, first + c))


@numba.njit(cache=True, nogil=True)
def _candidates(
    rough_C: Floats, slack: float, live_C: NDArray[np.bool_], limits_K: Keys, sizes_Q: Longs,
    q: int, candidates: Longs,
) -> int:  # fmt: skip
    """Columns that may be among the best, by the limit as it was when they were met."""
    n, k = 0, len(limits_K)
    limit, bits = _limit(limits_K, sizes_Q[q], slack), rough_C.view(np.int32)
    for start in range(0, len(rough_C), BLOCK):
        block = rough_C[start : start + BLOCK]
        if heap.highest(bits[start : start + BLOCK]) < limit:
            continue
        for i in range(len(block)):
            if block[i] >= limit and (len(live_C) == 0 or live_C[start + i]):
                candidates[n] = start + i
                n += 1
                entry = heap.key(block[i], 0)
                if sizes_Q[q] < k:
                    heap.push(limits_K, sizes_Q[q], entry)
                    sizes_Q[q] += 1
                elif entry > limits_K[0]:
                    heap.replace(limits_K, k, entry)
                limit = _limit(limits_K, sizes_Q[q], slack)
    return n


@numba.njit(cache=True, nogil=True)
def _limit(limits_K: Keys, size: int, slack: float) -> float:
    if size < len(limits_K):
        return -np.inf
    return np.float64(heap.score_of(limits_K[0])) - 2 * np.float64(slack)


@numba.njit(cache=True, nogil=True)
def _keep(best_K: Keys, found_Q: Longs, q: int, entry: np.uint64) -> None:
    if found_Q[q] < len(best_K):
        heap.push(best_K, found_Q[q], entry)
        found_Q[q] += 1
    elif entry > best_K[0]:
        heap.replace(best_K, len(best_K), entry)


@numba.njit(cache=True, nogil=True)
def score_pairs(
    queries_QD: Floats, places: Longs, rows: Longs, codes_C: Any, table: Floats, scales_C: Floats, scores_QM: Floats
) -> None:  # fmt: skip
    """Exact scores of chosen rows; `places` are their query and column among the scores."""
    for i in range(len(rows)):
        q, m = places[i]
        scores_QM[q, m] = _exact(queries_QD[q], codes_C, rows[i], table, scales_C)


@numba.njit(cache=True, nogil=True)
def finish(best_QK: Keys, found_Q: Longs, scores_QK: Floats, numbers_QK: Longs) -> None:
    """The heaps as rankings."""
    for q in range(len(found_Q)):
        heap.unpack(best_QK[q], found_Q[q], scores_QK[q], numbers_QK[q])


@numba.njit(cache=True, nogil=True)
def _exact(query_D: Floats, codes_C: Any, c: int, table: Floats, scales_C: Floats) -> np.float32:
    score = _dot(query_D, codes_C[c], table)
    return np.float32(score * np.float64(scales_C[c]) if len(scales_C) else score)


def _dot(query_D: Floats, codes: Any, table: Floats) -> float:
    """The product of a query and a stored vector, in float64."""
    raise AssertionError("only called from compiled code")


@overload(_dot, jit_options={"fastmath": FAST, "nogil": True})
def _dot_compiled(query_D: Any, codes: Any, table: Any) -> Any:
    if isinstance(codes.dtype, numba.types.Float):
        return _dot_plain
    return _dot_bits if table.ndim == 2 else _dot_table


def _dot_plain(query_D: Any, codes: Any, table: Any) -> Any:
    total = np.float64(0)
    for i in range(len(query_D)):
        total += np.float64(query_D[i]) * np.float64(codes[i])
    return total


def _dot_table(query_D: Any, codes: Any, table: Any) -> Any:
    total = np.float64(0)
    for i in range(len(query_D)):
        total += np.float64(query_D[i]) * np.float64(table[codes[i]])
    return total


def _dot_bits(query_D: Any, codes: Any, table: Any) -> Any:
    total = np.float64(0)
    for i in range(len(codes)):
        for bit in range(8):
            total += np.float64(query_D[8 * i + bit]) * np.float64(table[codes[i], bit])
    return total
