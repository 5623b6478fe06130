"""Improving one batch by swaps inside a table of T: greedy one by one, or several at once.

The member that adds least leaves and the pair that adds most comes (ABS paper, Eq. 3–4), as long as hardness rises.
What every pair adds is kept up to date, so a swap is one addition of two rows of the table. On a GPU, which is slow to
start each step, several are swapped at once, then fewer.

On a CPU greedy swaps need no table (`climb`): a swap needs two rows of T among the candidates, which are computed when
needed. Which pairs are candidates is decided on vectors of one byte per number (`glance`): a quarter of the memory to
read, and an error far below what tells candidates from others; everything that counts is computed from the vectors
themselves. Cost: one pass over the bytes of what is left per batch, and 2 M dot products per swap.

N pairs, M pairs of the table or candidates; a row is (q | p), and T[a, b] the product of a's row with b's,
halves exchanged.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Longs = NDArray[np.int64]


SLACK = 1e-6
"""What hardness must rise by with a swap, as a share of it: less is rounding."""
FINEST = 128
"""Several at once are never fewer than this part of the batch."""
STEPS = 100
"""Steps of several at once in one table; candidates are then chosen again."""


@dataclass
class State:
    """A batch inside a table of T (M × M): who is in it, what each pair adds to it, and its hardness."""

    table: Tensor
    inside: Tensor  # M, bool
    sums: Tensor  # M: Σ over members j of T[a, j]
    value: float
    history: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, table: Tensor, inside: Tensor) -> State:
        sums = table[inside].sum(dim=0)
        value = _value(sums, inside)
        return cls(table, inside, sums, value, [value])

    def swapped(self, out: Tensor, come: Tensor) -> State:
        """The state with some members replaced."""
        sums = self.sums + self.table[come].sum(dim=0) - self.table[out].sum(dim=0)
        inside = self.inside.clone()
        inside[out], inside[come] = False, True
        value = _value(sums, inside)
        return State(self.table, inside, sums, value, [*self.history, value])

    def easiest(self, k: int) -> Tensor:
        """The k members that add least: removing them maximises what is left (Eq. 3)."""
        return self.sums.masked_fill(~self.inside, torch.inf).topk(k, largest=False).indices

    def hardest(self, out: Tensor, k: int) -> Tensor:
        """The k pairs that add most to the batch without `out` (Eq. 4)."""
        adds = self.sums - self.table[out].sum(dim=0)
        return adds.masked_fill_(self.inside, -torch.inf).topk(k).indices

    def better_than(self, other: State, share: float = SLACK) -> bool:
        return rises(other.value, self.value, share)


def rises(before: float, after: float, share: float) -> bool:
    """Has hardness risen by more than this share?"""
    return after > before + share * (1.0 + abs(before))


def _value(sums: Tensor, inside: Tensor) -> float:
    return float(sums.double() @ inside.double()) / 2


def one_by_one(state: State) -> State:
    """The paper's greedy as it stands; a swap costs M additions."""
    inside, sums = state.inside.numpy().copy(), state.sums.double().numpy().copy()
    history = _swaps(state.table.numpy(), inside, sums, state.value, SLACK)
    if not len(history):
        return state
    kept = torch.from_numpy(sums).to(state.sums.dtype)
    return State(state.table, torch.from_numpy(inside), kept, history[-1], [*state.history, *history])


@numba.njit(cache=True, nogil=True)
def _swaps(
    table: NDArray[np.float32],
    inside: NDArray[np.bool_],
    sums: NDArray[np.float64],
    value: float,
    slack: float,
) -> list[float]:
    """Swap in place; returns the hardness after every swap."""
    history = [value]
    while True:
        out, come = -1, -1
        for i in range(inside.size):
            if inside[i] and (out < 0 or sums[i] < sums[out]):
                out = i
        best = -np.inf
        for i in range(inside.size):
            if not inside[i] and sums[i] - table[out, i] > best:
                best, come = sums[i] - table[out, i], i
        rise = best - sums[out]
        if come < 0 or rise <= slack * (1.0 + abs(value)):
            return history[1:]
        inside[out], inside[come] = False, True
        for i in range(inside.size):
            sums[i] += table[come, i] - table[out, i]
        value += rise
        history.append(value)


def several_at_once(state: State) -> State:
    """A quarter of the batch at once, then fewer: few steps for a device that is slow to start each."""
    members = int(state.inside.sum())
    free = len(state.inside) - members
    many, fewest = max(1, min(members // 4, free)), max(1, members // FINEST)
    for _ in range(STEPS if free else 0):
        out = state.easiest(many)
        swapped = state.swapped(out, state.hardest(out, many))
        if swapped.better_than(state, SLACK * many):
            state = swapped
        elif many <= fewest:
            break
        else:
            many = max(fewest, many // 4)
    return state


Floats = NDArray[np.float32]
LOOSE: dict[str, Any] = {"cache": True, "nogil": True, "fastmath": {"reassoc", "contract"}}


def coarse(own: Floats) -> tuple[NDArray[np.int8], Floats]:
    """One byte per number and one scale per row."""
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
        _row(own, twin, np.int64(out), other, leaves)  # a plain -1 would be a type of its own
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
