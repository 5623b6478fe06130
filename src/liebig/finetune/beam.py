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
    insides, sumses, values, hashes = (
        np.empty((k, m), np.bool_),
        np.empty((k, m)),
        np.empty(k),
        np.zeros(k, np.uint64),
    )
    insides[0], sumses[0], values[0], states = inside, sums, value, 1
    histories = [[value]]
    best, best_inside, best_history = value, inside.copy(), [value]
    while states:
        total, owner = np.empty(k * k * k), np.empty(k * k * k, np.int64)
        outs, comes, n = np.empty(k * k * k, np.int64), np.empty(k * k * k, np.int64), 0
        for s in range(states):
            found, out, come = _swaps(table, insides[s], sumses[s], values[s], k, slack)
            for i in range(found.size):
                total[n], owner[n], outs[n], comes[n] = found[i], s, out[i], come[i]
                n += 1
        order = np.argsort(-total[:n], kind="mergesort")
        new_insides, new_sums = np.empty((k, m), np.bool_), np.empty((k, m))
        new_values, new_hashes, kept = np.empty(k), np.zeros(k, np.uint64), 0
        new_histories = [[value] for _ in range(0)]
        for place in order:
            if kept == k:
                break
            s, out, come = owner[place], outs[place], comes[place]
            mark = hashes[s] ^ marks[out] ^ marks[come]
            if (new_hashes[:kept] == mark).any():
                continue
            new_insides[kept], new_sums[kept] = insides[s], sumses[s] + table[come] - table[out]
            new_insides[kept, out], new_insides[kept, come] = False, True
            new_values[kept], new_hashes[kept] = total[place], mark
            new_histories.append(histories[s] + [total[place]])
            kept += 1
        insides, sumses, values, hashes, histories, states = (
            new_insides,
            new_sums,
            new_values,
            new_hashes,
            new_histories,
            kept,
        )
        if states and values[0] > best:
            best, best_inside, best_history = values[0], insides[0].copy(), histories[0]
    return best_inside, best_history
