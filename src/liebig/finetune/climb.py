"""The greedy swaps of adaptive batch scheduling on a CPU, without a table: rows of T are worked out when needed.

A swap needs two rows of T among the candidates, so a batch of a few swaps looks at a small part of what a whole table
holds. Which pairs are candidates at all is decided on vectors of one byte a number: a quarter of the memory to read,
and an error far below what tells candidates from others; all that counts is worked out from the vectors themselves.
Cost: one pass over the bytes of what is left a turn, and 2 M dot products a swap.

N pairs, M candidates; a row is (q | p), and T[a, b] the product of a's row with b's, halves changed.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Longs = NDArray[np.int64]
LOOSE: dict[str, Any] = {"cache": True, "nogil": True, "fastmath": {"reassoc", "contract"}}


def coarse(own: Floats) -> tuple[NDArray[np.int8], Floats]:
    """One byte a number and one scale a row."""
    scale = np.maximum(np.abs(own).max(axis=1, initial=0.0), np.finfo(np.float32).tiny) / 127
    return np.rint(own / scale[:, None]).astype(np.int8), scale.astype(np.float32)


@numba.njit(**LOOSE)
def glance(
    codes: NDArray[np.int8], scale: Floats, own: Floats, members: Longs, there: NDArray[np.bool_], out: Floats
) -> None:
    """What every pair that is there would add to the members, nearly and twins included; −inf for the others."""
    half = own.shape[1] // 2
    whole = np.zeros(own.shape[1], np.float32)
    for b in members:
        for j in range(half):
            whole[j] += own[b, half + j]
            whole[half + j] += own[b, j]
    for i in range(codes.shape[0]):
        if there[i]:
            total = np.float32(0.0)
            for j in range(codes.shape[1]):
                total += np.float32(codes[i, j]) * whole[j]
            out[i] = total * scale[i]
        else:
            out[i] = -np.inf


@numba.njit(**LOOSE)
def without_twins(own: Floats, members: Longs, order: Longs, first: Longs, count: Longs, out: Floats) -> None:
    """Take away what members add to those that share their positive: pairs `order[first : first + count]`."""
    half = own.shape[1] // 2
    for b in members:
        for place in range(first[b], first[b] + count[b]):
            i = order[place]
            total = np.float32(0.0)
            for j in range(half):
                total += own[i, j] * own[b, half + j] + own[i, half + j] * own[b, j]
            out[i] -= total


@numba.njit(**LOOSE)
def _row(own: Floats, twin: Longs, b: int, other: Floats, out: Floats) -> None:
    """T[·, b]: 0 for those that share b's positive."""
    half = own.shape[1] // 2
    for j in range(half):
        other[j], other[half + j] = own[b, half + j], own[b, j]
    for i in range(own.shape[0]):
        total = np.float32(0.0)
        for j in range(own.shape[1]):
            total += own[i, j] * other[j]
        out[i] = total if twin[i] != twin[b] else np.float32(0.0)


@numba.njit(**LOOSE)
def _sums(own: Floats, twin: Longs, inside: NDArray[np.bool_]) -> NDArray[np.float64]:
    """What every pair adds to the batch: one product with the batch's sum, less what twins put into it."""
    half = own.shape[1] // 2
    whole, out = np.zeros(own.shape[1], np.float32), np.zeros(own.shape[0])
    members = np.nonzero(inside)[0]
    for b in members:
        for j in range(half):
            whole[j] += own[b, half + j]
            whole[half + j] += own[b, j]
    for i in range(own.shape[0]):
        total = np.float32(0.0)
        for j in range(own.shape[1]):
            total += own[i, j] * whole[j]
        out[i] = total
        for b in members:
            if twin[b] == twin[i]:
                for j in range(half):
                    out[i] -= own[i, j] * own[b, half + j] + own[i, half + j] * own[b, j]
    return out


@numba.njit(**LOOSE)
def climb(own: Floats, twin: Longs, inside: NDArray[np.bool_], slack: float) -> list[float]:
    """Swap in place until nothing rises; the hardness before the first swap and after every one."""
    m = own.shape[0]
    leaves, joins = np.empty(m, np.float32), np.empty(m, np.float32)
    other = np.empty(own.shape[1], np.float32)
    sums, value = _sums(own, twin, inside), 0.0
    for i in range(m):
        if inside[i]:
            value += sums[i] / 2
    history = [value]
    while True:
        out, come = -1, -1
        for i in range(m):
            if inside[i] and (out < 0 or sums[i] < sums[out]):
                out = i
        _row(own, twin, out, other, leaves)
        best = -np.inf
        for i in range(m):
            if not inside[i] and sums[i] - leaves[i] > best:
                best, come = sums[i] - leaves[i], i
        rise = best - sums[out]
        if come < 0 or rise <= slack * (1.0 + abs(value)):
            return history
        _row(own, twin, come, other, joins)
        inside[out], inside[come] = False, True
        for i in range(m):
            sums[i] += joins[i] - leaves[i]
        value += rise
        history.append(value)
