"""Improving one batch by swaps inside a table of T: greedy one by one, several at once, and beam search.

The member that adds least leaves and the pair that adds most comes (ABS paper, Eq. 3–4), as long as hardness rises.
What every pair adds is kept up to date, so a swap is one addition of two rows of the table. On a GPU, which is slow to
start each step, several are swapped at once, then fewer.

Beam search keeps k states. From each it tries the k easiest members (the released code takes the hardest, which stops
it early) and for each of them the k pairs that add most without it; of all swaps that raise hardness the k best that
lead to different batches are the next states. Batches are told apart by the exclusive or of their members' random
numbers. Cost: k² M additions per state and step.

On a CPU greedy swaps need no table (`climb`): a swap needs two rows of T among the candidates, which are computed when
needed. Which pairs are candidates is decided on vectors of one byte per number (`glance`): a quarter of the memory to
read, and an error far below what tells candidates from others; everything that counts is computed from the vectors
themselves. Cost: one pass over the bytes of what is left per batch, and 2 M dot products per swap.

N pairs, M pairs of the table or candidates, k states; a row is (q | p), and T[a, b] the product of a's row with b's,
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

from liebig.base import rng

Bools = NDArray[np.bool_]
Doubles = NDArray[np.float64]
Longs = NDArray[np.int64]


def beam(
    table: NDArray[np.float32], inside: Bools, sums: Doubles, value: float, k: int, slack: float
) -> tuple[Bools, list[float]]:
    """The hardest batch found, and the hardness of the states that led to it, the given one first."""
    marks = (rng.uniform(rng.key(31), np.arange(len(inside))) * 2.0**62).astype(np.uint64)
    insides, sums_kM, values = inside[None].copy(), sums[None].copy(), np.full(1, value)
    hashes, histories = [0], [[value]]
    best, best_history = inside, [value]
    total, swaps = np.empty(k * k * k), np.empty((k * k * k, 3), np.int64)
    while histories:
        count = _proposals(table, insides, sums_kM, values, k, slack, total, swaps)
        chosen: dict[int, int] = {}  # the mark of a batch, and the first proposal that leads to it
        for i in np.argsort(-total[:count], kind="stable").tolist():
            s, out, come = swaps[i].tolist()
            chosen.setdefault(hashes[s] ^ int(marks[out]) ^ int(marks[come]), i)
            if len(chosen) == k:
                break
        places = list(chosen.values())
        hashes, values = list(chosen), total[places]
        insides, sums_kM = _swapped(table, insides, sums_kM, swaps[places])
        histories = [[*histories[swaps[i, 0]], float(total[i])] for i in places]
        if histories and values[0] > best_history[-1]:
            best, best_history = insides[0], histories[0]
    return best, best_history


@numba.njit(cache=True, nogil=True)
def _best(values: Doubles, inside: Bools, allowed: bool, places: Longs) -> int:
    """Fill `places` with the places of the largest values inside (or outside), largest first; returns how many."""
    n, k = 0, len(places)
    for i in range(values.size):
        if inside[i] == allowed and (n < k or values[i] > values[places[n - 1]]):
            place = n if n < k else k - 1
            n = min(n + 1, k)
            while place > 0 and values[i] > values[places[place - 1]]:
                places[place] = places[place - 1]
                place -= 1
            places[place] = i
    return n


@numba.njit(cache=True, nogil=True)
def _proposals(
    table: NDArray[np.float32],
    insides: Bools,
    sums: Doubles,
    values: Doubles,
    k: int,
    slack: float,
    total: Doubles,
    swaps: Longs,
) -> int:
    """Up to k × k swaps of each state that raise hardness: what it becomes; its state, who leaves and who comes.

    Loops are written out and memory is given: to compile slices, lists and sorting takes many seconds.
    """
    m, n = insides.shape[1], 0
    adds, outs, comes = np.empty(m), np.empty(k, np.int64), np.empty(k, np.int64)
    for s in range(len(values)):
        for i in range(m):
            adds[i] = -sums[s, i]
        for leaving in range(_best(adds, insides[s], True, outs)):
            out = outs[leaving]
            for i in range(m):
                adds[i] = sums[s, i] - table[out, i]
            for coming in range(_best(adds, insides[s], False, comes)):
                come = comes[coming]
                rise = adds[come] - sums[s, out]
                if rise > slack * (1.0 + abs(values[s])):
                    total[n] = values[s] + rise
                    swaps[n, 0], swaps[n, 1], swaps[n, 2] = s, out, come
                    n += 1
    return n


@numba.njit(cache=True, nogil=True)
def _swapped(
    table: NDArray[np.float32], insides: Bools, sums: Doubles, swaps: Longs
) -> tuple[Bools, Doubles]:
    """The states that some proposals lead to."""
    n, m = len(swaps), insides.shape[1]
    insides_nM, sums_nM = np.empty((n, m), np.bool_), np.empty((n, m))
    for i in range(n):
        s, out, come = swaps[i, 0], swaps[i, 1], swaps[i, 2]
        for j in range(m):
            insides_nM[i, j] = insides[s, j]
            sums_nM[i, j] = sums[s, j] + table[come, j] - table[out, j]
        insides_nM[i, out], insides_nM[i, come] = False, True
    return insides_nM, sums_nM


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

    def hardest(self, out: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The k pairs that add most to the batch without `out` (Eq. 4), and how much."""
        adds = self.sums - self.table[out].sum(dim=0)
        best = adds.masked_fill_(self.inside, -torch.inf).topk(k)
        return best.values, best.indices

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
        swapped = state.swapped(out, state.hardest(out, many)[1])
        if swapped.better_than(state, SLACK * many):
            state = swapped
        elif many <= fewest:
            break
        else:
            many = max(fewest, many // 4)
    return state


def beam_search(state: State, best: State, k: int = 3) -> State:
    """Beam search of width k; the best state of all is returned, `best` (greedy's) among them."""
    device, inside = state.table.device, state.inside.cpu().numpy()
    sums = state.sums.double().cpu().numpy()
    places, history = beam(state.table.cpu().numpy(), inside, sums, state.value, k, SLACK)
    members = torch.from_numpy(places).to(device)
    made = State(state.table, members, state.table[members].sum(dim=0), history[-1], history)
    return made if made.better_than(best) else best


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
