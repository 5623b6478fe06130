"""Improving one batch by swaps inside a table of T: greedy one by one, several at once, and beam search.

The member that adds least leaves and the pair that adds most comes (ABS paper, Eq. 3–4), as long as hardness rises.
What every pair adds is kept up to date, so a swap is one addition of two rows of the table. On a GPU, which is slow to
start each step, several are swapped at once, then fewer. Beam search (`beam.py`) keeps several states, and tries
several removals (the easiest; the released code takes the hardest, which stops it early) and additions of each.

M pairs of the table, the batch among them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from liebig.finetune.beam import beam

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
        found = adds.masked_fill_(self.inside, -torch.inf).topk(k)
        return found.values, found.indices

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
        found = state.swapped(out, state.hardest(out, many)[1])
        if found.better_than(state, SLACK * many):
            state = found
        elif many <= fewest:
            break
        else:
            many = max(fewest, many // 4)
    return state


def beam_search(state: State, best: State, k: int = 3) -> State:
    """Beam search of width k; the best state of all is returned, `best` (greedy's) among them."""
    device, inside = state.table.device, state.inside.cpu().numpy()
    sums = state.sums.double().cpu().numpy()
    found, history = beam(state.table.cpu().numpy(), inside, sums, state.value, k, SLACK)
    members = torch.from_numpy(found).to(device)
    made = State(state.table, members, state.table[members].sum(dim=0), history[-1], history)
    return made if made.better_than(best) else best
