"""Adaptive batch scheduling (ABS paper, 3.2): batches whose passages are hard for each other's queries.

A batch begins with a random pair and those nearest to it, and is improved by swaps: the member that adds least leaves,
the pair that adds most comes (Eq. 3–4), as long as hardness rises. Sums over the batch are kept up to date, so a swap
is one addition of two columns; on a GPU several are tried at once, then fewer, at last one. Only the `candidates` pairs
nearest to the batch are looked at, chosen again until nothing changes. Beam search keeps several states instead, and
tries several removals (the easiest) and additions of each. Finished batches leave the pool, so later ones are easier.
Cost: a few matrix–vector products over what is left, and one candidates × candidates product, a batch.

N pairs, B pairs of a batch, M candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from liebig import rng
from liebig.finetune.hardness import Similarity, hardness

Longs = NDArray[np.int64]
SHRINK = 0.7
"""The pool is copied together when less than this share of it is left."""
NEAREST, LEAST = 4, 256
"""Candidates where nothing is said: so many times the batch, and no fewer than this."""
ALL = 4096
"""Candidates looked at in one turn where all are; the nearest of all that is left come first."""
SLACK = 1e-6
"""What hardness must rise by, as a share of it: less is rounding."""
ENOUGH = 1e-3
"""Candidates are chosen again while hardness rose by more than this share."""


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
        value = float(sums[inside].double().sum()) / 2
        return cls(table, inside, sums, value, [value])

    def swapped(self, out: Tensor, come: Tensor) -> State:
        """The state with some members replaced."""
        sums = self.sums + self.table[come].sum(dim=0) - self.table[out].sum(dim=0)
        inside = self.inside.clone()
        inside[out], inside[come] = False, True
        value = float(sums[inside].double().sum()) / 2
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
        return self.value > other.value + share * (1.0 + abs(other.value))


Improve = Callable[[State], State]


def greedy(state: State) -> State:
    """Swaps until none raises hardness (Eq. 3–4): one by one on a CPU, several at once on a GPU."""
    return one_by_one(state) if state.table.device.type == "cpu" else several_at_once(state)


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
    """A quarter of the batch at once, then fewer, at last one: few steps for a device that is slow to start each."""
    members = int(state.inside.sum())
    free = len(state.inside) - members
    many = max(1, min(members // 4, free))
    while many and free:
        out = state.easiest(many)
        found = state.swapped(out, state.hardest(out, many)[1])
        if found.better_than(state):
            state = found
        else:
            many = 0 if many == 1 else max(1, many // 4)
    return state


def beam(state: State, k: int = 3) -> State:
    """k removals × k additions of each of k states; the k best of those that rise are kept.

    The best state of all is returned, greedy's among them.
    """
    best, states = greedy(state), [state]
    free = len(state.inside) - int(state.inside.sum())
    while states and free:
        found: dict[bytes, State] = {}
        for one in states:
            for child in _children(one, min(k, int(one.inside.sum())), min(k, free), k):
                found.setdefault(child.inside.cpu().numpy().tobytes(), child)
        states = sorted(found.values(), key=lambda s: -s.value)[:k]
        if states and states[0].better_than(best):
            best = states[0]
    return best


def _children(state: State, removals: int, additions: int, kept: int) -> Iterator[State]:
    """The best states one swap away that are harder."""
    out = state.easiest(removals)
    found = [state.hardest(one, additions) for one in out.split(1)]
    rise = torch.stack([adds for adds, _ in found]) - state.sums[out][:, None]
    for place in rise.flatten().topk(min(kept, rise.numel())).indices.tolist():
        r, a = divmod(place, additions)
        child = state.swapped(out[r : r + 1], found[r][1][a : a + 1])
        if child.better_than(state):
            yield child


@dataclass(frozen=True)
class Schedule:
    """Batches in the order they were made, the pairs left over, and the hardness of each batch."""

    batches: list[Longs]
    rest: Longs
    hardness: list[float]

    @property
    def total(self) -> float:
        return float(sum(self.hardness))

    def order(self, how: Literal["shuffled", "hard-first"], seed: int) -> Longs:
        """All pairs, batch after batch; those left over last, so that they make a batch of their own."""
        places = np.arange(len(self.batches))
        if how == "shuffled":
            places = np.argsort(rng.uniform(rng.key(seed, 13), places), kind="stable")
        else:
            places = np.argsort(-np.array(self.hardness), kind="stable")
        return np.concatenate([*(self.batches[i] for i in places), self.rest]).astype(np.int64)


def schedule(
    similarity: Similarity,
    batch: int,
    *,
    seed: int = 0,
    candidates: int | Literal["auto", "all"] = "auto",
    improve: Improve = greedy,
    advance: Callable[[int], None] = lambda n: None,
) -> Schedule:
    """Every pair in one batch; a function of the similarities and the seed."""
    pool = _Pool(similarity, seed)
    width = {"auto": max(NEAREST * batch, LEAST), "all": ALL}.get(str(candidates), candidates)
    batches, values = [], []
    for _ in range(len(similarity) // batch):
        members, value = _one(pool, batch, int(width), improve)
        batches.append(pool.names[members].cpu().numpy())
        values.append(value)
        pool.remove(members)
        advance(1)
    return Schedule(batches, pool.left(), values)


class _Pool:
    """What is left: a similarity that shrinks, names of its rows, and who is still there."""

    def __init__(self, similarity: Similarity, seed: int) -> None:
        n = len(similarity)
        self.similarity = similarity
        self.names = torch.arange(n, device=similarity.device)
        self.there = torch.ones(n, dtype=torch.bool, device=similarity.device)
        self.left_count = n
        ranks = np.argsort(rng.uniform(rng.key(seed, 17), np.arange(n)), kind="stable")
        self.rank = torch.empty(n, dtype=torch.long)
        self.rank[torch.from_numpy(ranks)] = torch.arange(n)
        self.rank = self.rank.to(similarity.device)

    def first(self) -> Tensor:
        """The next pair of the random order, as a row."""
        return self.rank.masked_fill(~self.there, torch.iinfo(torch.long).max).argmin()[None]

    def nearest(self, adds: Tensor, members: Tensor, k: int) -> Tensor:
        """Rows of the k pairs outside the batch that would add most to it."""
        outside = adds.masked_fill(~self.there, -torch.inf)
        outside[members] = -torch.inf
        return outside.topk(min(k, self.left_count - len(members))).indices

    def remove(self, members: Tensor) -> None:
        self.there[members] = False
        self.left_count -= len(members)
        if 0 < self.left_count < SHRINK * len(self.there):
            rows = self.there.nonzero()[:, 0]
            self.similarity = self.similarity.take(rows)
            self.names, self.rank = self.names[rows], self.rank[rows]
            self.there = torch.ones(len(rows), dtype=torch.bool, device=rows.device)

    def left(self) -> Longs:
        found: Longs = self.names[self.there].cpu().numpy()
        return found


def _one(pool: _Pool, batch: int, width: int, improve: Improve) -> tuple[Tensor, float]:
    """The next batch as rows of the pool, and its hardness."""
    seed = pool.first()
    near = pool.nearest(pool.similarity.toward(seed), seed, batch - 1) if batch > 1 else seed[:0]
    members = torch.cat((seed, near))
    adds = pool.similarity.toward(members)
    while True:
        rows = torch.cat((members, pool.nearest(adds, members, width)))
        inside = torch.arange(len(rows), device=rows.device) < batch
        before = State.of(pool.similarity.block(rows), inside)
        after = improve(before)
        members = rows[after.inside]
        if not after.better_than(before, ENOUGH):
            return members, hardness(pool.similarity, members)
        adds = pool.similarity.toward(members)
