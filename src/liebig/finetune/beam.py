"""Beam search for a harder batch: several states are kept, each tries several removals and additions.

From every state the k easiest members and for each of them the k pairs that add most without it; of all swaps that
raise hardness the k best that lead to different batches are the next states. Batches are told apart by the exclusive or
of their members' random numbers. Cost: k² M additions a state and step.

M pairs of the table, k states.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from liebig import rng

Bools = NDArray[np.bool_]
Doubles = NDArray[np.float64]
Longs = NDArray[np.int64]


def beam(
    table: NDArray[np.float32], inside: Bools, sums: Doubles, value: float, k: int, slack: float
) -> tuple[Bools, list[float]]:
    """The hardest batch found, and the hardness of the states that led to it, the given one first."""
    marks = (rng.uniform(rng.key(31), np.arange(len(inside))) * 2.0**62).astype(np.uint64)
    found, history = _search(table, inside, sums, value, k, slack, marks)
    return found, list(history)


@numba.njit(cache=True, nogil=True)
def _best(values: Doubles, allowed: Bools, k: int) -> Longs:
    """The places of the k largest values that are allowed, largest first."""
    found, n = np.empty(k, np.int64), 0
    for i in range(values.size):
        if allowed[i] and (n < k or values[i] > values[found[n - 1]]):
            place = n if n < k else k - 1
            n = min(n + 1, k)
            while place > 0 and values[i] > values[found[place - 1]]:
                found[place] = found[place - 1]
                place -= 1
            found[place] = i
    return found[:n]


@numba.njit(cache=True, nogil=True)
def _swaps(
    table: NDArray[np.float32], inside: Bools, sums: Doubles, value: float, k: int, slack: float
) -> tuple[Doubles, Longs, Longs]:
    """Up to k × k swaps of a state that raise hardness: what it becomes, who leaves and who comes."""
    values, outs, comes, n = np.empty(k * k), np.empty(k * k, np.int64), np.empty(k * k, np.int64), 0
    for out in _best(-sums, inside, k):
        adds = sums - table[out]
        for come in _best(adds, ~inside, k):
            rise = adds[come] - sums[out]
            if rise > slack * (1.0 + abs(value)):
                values[n], outs[n], comes[n] = value + rise, out, come
                n += 1
    return values[:n], outs[:n], comes[:n]


@numba.njit(cache=True, nogil=True)
def _proposals(
    table: NDArray[np.float32], insides: Bools, sums: Doubles, values: Doubles, k: int, slack: float
) -> tuple[Doubles, Longs]:
    """The swaps of all states, best first: what each leads to; its state, who leaves and who comes."""
    most, n = len(values) * k * k, 0
    total, which = np.empty(most), np.empty((most, 3), np.int64)
    for s in range(len(values)):
        found, outs, comes = _swaps(table, insides[s], sums[s], values[s], k, slack)
        for i in range(found.size):
            total[n], which[n, 0], which[n, 1], which[n, 2] = found[i], s, outs[i], comes[i]
            n += 1
    order = np.argsort(-total[:n], kind="mergesort")
    return total[order], which[order]


@numba.njit(cache=True, nogil=True)
def _search(
    table: NDArray[np.float32],
    inside: Bools,
    sums: Doubles,
    value: float,
    k: int,
    slack: float,
    marks: NDArray[np.uint64],
) -> tuple[Bools, list[float]]:
    m = inside.size
    insides, sums_kM = inside.copy().reshape(1, m), sums.copy().reshape(1, m)
    values, hashes, histories = np.full(1, value), np.zeros(1, np.uint64), [[value]]
    best, best_inside, best_history = value, inside.copy(), [value]
    while len(values):
        total, which = _proposals(table, insides, sums_kM, values, k, slack)
        next_insides, next_sums = np.empty((k, m), np.bool_), np.empty((k, m))
        next_values, next_hashes, next_histories, n = np.empty(k), np.zeros(k, np.uint64), histories[:0], 0
        for i in range(len(total)):
            s, out, come = which[i]
            mark = hashes[s] ^ marks[out] ^ marks[come]
            if n < k and not (next_hashes[:n] == mark).any():
                next_insides[n], next_sums[n] = insides[s], sums_kM[s] + table[come] - table[out]
                next_insides[n, out], next_insides[n, come] = False, True
                next_values[n], next_hashes[n] = total[i], mark
                next_histories.append(histories[s] + [total[i]])
                n += 1
        insides, sums_kM, values, hashes = next_insides[:n], next_sums[:n], next_values[:n], next_hashes[:n]
        histories = next_histories
        if n and values[0] > best:
            best, best_inside, best_history = values[0], insides[0].copy(), histories[0]
    return best_inside, best_history
