"""Adaptive batch scheduling (ABS paper, 3.2): batches whose passages are hard for each other's queries.

A batch is improved by swaps (`swaps.py`) as long as its hardness rises. Only the `candidates` pairs nearest to the
batch are considered, and they are chosen again until nothing changes. A batch starts from pairs that are hard for each
other, so that it needs few swaps: the pairs that the last batch would have taken next, or the first of them and its
nearest neighbours; the harder result is kept. Finished batches leave the pool, so later ones are easier.
The paper's own algorithm is `written`, at the end.
Cost: a few passes over the remaining pairs per batch; on a GPU also one candidates × candidates product each.

N pairs, B pairs of a batch, M candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from liebig.base import rng
from liebig.methods.abs.hardness import Similarity, VectorSimilarity, hardness
from liebig.methods.abs.swaps import SLACK, State, climb, one_by_one, rises, several_at_once

Longs = NDArray[np.int64]
SHRINK = 0.7
"""The pool is copied together when less than this share of it is left."""
NEAREST, LEAST = 2, 128
"""Candidates where nothing is said: so many times the batch, and no fewer than this."""
ALL = 4096
"""Candidates looked at in one turn where all are; the nearest of all that is left come first."""
ENOUGH = 1e-3
"""Candidates are chosen again while hardness rose by more than this share."""


@dataclass(frozen=True)
class ImprovedBatch:
    """A batch after swaps, as rows, and its hardness before and after each of them."""

    members: Tensor
    history: list[float]


Order = Literal["shuffled", "hard-first", "made"]


def greedy(similarity: Similarity, rows: Tensor, batch: int) -> ImprovedBatch:
    """Swaps until none raises hardness (Eq. 3–4): one by one on a CPU, several at once on a GPU.

    `rows` are the batch first, then its candidates.
    """
    if isinstance(similarity, VectorSimilarity) and similarity.device.type == "cpu":
        inside = np.arange(len(rows)) < batch
        history = climb(similarity.own[rows].numpy(), similarity.twin[rows].numpy(), inside, SLACK)
        return ImprovedBatch(rows[torch.from_numpy(inside)], list(history))
    swaps = one_by_one if similarity.device.type == "cpu" else several_at_once
    return in_table(similarity, rows, batch, swaps)


def in_table(
    similarity: Similarity, rows: Tensor, batch: int, swaps: Callable[[State], State]
) -> ImprovedBatch:
    """Swaps with T among the candidates at hand."""
    inside = torch.arange(len(rows), device=rows.device) < batch
    after = swaps(State.of(similarity.block(rows), inside))
    return ImprovedBatch(rows[after.inside], after.history)


@dataclass(frozen=True)
class Schedule:
    """Batches in the order they were made, the pairs left over, and the hardness of each batch."""

    batches: list[Longs]
    rest: Longs
    hardness: list[float]

    @property
    def total(self) -> float:
        return float(sum(self.hardness))

    def order(self, how: Order, seed: int) -> Longs:
        """All pairs, batch after batch; those left over last, so that they make a batch of their own."""
        places = np.arange(len(self.batches))
        if how == "shuffled":
            places = np.argsort(rng.uniform(rng.key(seed, 13), places), kind="stable")
        elif how == "hard-first":
            places = np.argsort(-np.array(self.hardness), kind="stable")
        return np.concatenate([*(self.batches[i] for i in places), self.rest]).astype(np.int64)


def schedule(
    similarity: Similarity,
    batch: int,
    *,
    seed: int = 0,
    candidates: int | Literal["auto", "all"] = "auto",
    advance: Callable[[int], None] = lambda n: None,
) -> Schedule:
    """Every pair in one batch; a function of the similarities and the seed."""
    pool = Pool(similarity, seed)
    width = {"auto": max(NEAREST * batch, LEAST), "all": ALL}.get(str(candidates), candidates)
    batches, values = [], []
    for _ in range(len(similarity) // batch):
        members, value = _one(pool, pool.starts(batch), int(width))
        batches.append(pool.names[members].cpu().numpy())
        values.append(value)
        pool.remove(members)
        advance(1)
    return Schedule(batches, pool.left(), values)


class Scheduler(Protocol):
    """A way to schedule an epoch."""

    def __call__(
        self, similarity: Similarity, batch: int, *, seed: int, advance: Callable[[int], None]
    ) -> Schedule: ...


class Pool:
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
        self.rows = torch.arange(n, device=similarity.device)  # by name; of those that are there
        self.adds: Tensor | None = None  # what each pair would have added to the last batch

    def random(self, batch: int) -> Tensor:
        """A random batch of those that are there."""
        there = self.rank.masked_fill(~self.there, torch.iinfo(torch.long).max)
        return there.topk(batch, largest=False).indices

    def starts(self, batch: int) -> list[Tensor]:
        """Two batches to begin with: those the last one would have taken next, and the first of them with its nearest.

        At random where there was none, or none is near to it.
        """
        following = self.random(batch)
        if self.adds is not None:
            left = self.adds.masked_fill(~self.there, -torch.inf)
            near = left.topk(batch).indices
            if float(left[near[0]]) > 0:
                following = near
        first = following[:1]
        around = torch.cat((first, self.look(first, batch - 1))) if batch > 1 else first
        return [around] if batch == 1 else [around, following]

    def look(self, members: Tensor, k: int) -> Tensor:
        """Rows of the k pairs outside the batch that would add most to it."""
        self.adds = self.similarity.glance(members, self.there)
        self.adds[members] = -torch.inf
        return self.adds.topk(min(k, self.left_count - len(members))).indices

    def remove(self, members: Tensor) -> None:
        self.there[members] = False
        self.left_count -= len(members)
        if 0 < self.left_count < SHRINK * len(self.there):
            rows = self.there.nonzero()[:, 0]
            self.similarity = self.similarity.take(rows)
            self.names, self.rank = self.names[rows], self.rank[rows]
            self.rows[self.names] = torch.arange(len(rows), device=rows.device)
            self.adds = None if self.adds is None else self.adds[rows]
            self.there = torch.ones(len(rows), dtype=torch.bool, device=rows.device)

    def left(self) -> Longs:
        names: Longs = self.names[self.there].cpu().numpy()
        return names


def _one(pool: Pool, starts: Sequence[Tensor], width: int) -> tuple[Tensor, float]:
    """The next batch as rows of the pool, and its hardness: the hardest that a start leads to."""
    trials = []
    for start in starts:
        members, value = _risen(pool, start, len(start), width)
        trials.append((value, members, pool.adds))
    _, members, pool.adds = max(trials, key=lambda one: one[0])
    return members, hardness(pool.similarity, members)


def _risen(pool: Pool, members: Tensor, batch: int, width: int) -> tuple[Tensor, float]:
    """Swaps among the nearest candidates, chosen again until nothing changes."""
    while True:
        rows = torch.cat((members, pool.look(members, width)))
        improved = greedy(pool.similarity, rows, batch)
        members = improved.members
        if not rises(improved.history[0], improved.history[-1], ENOUGH):
            return members, improved.history[-1]


# Adaptive batch scheduling as the paper writes it (3.2), to compare ours with.
#
# A batch starts at random. Of its members the k that add least may leave (Eq. 3), of the others the one that adds
# most comes (Eq. 4), and the swap that leads to the hardest batch is made while hardness rises. k = 1 is the paper's
# greedy. Its beam search has k = 3 and one state: it looks at k additions of each removal, of which the first is
# always the best of them, so one is enough. Then only those come that are in the lists of a member: the 100 passages
# nearest to its query and the 100 queries nearest to its passage, of all pairs, once an epoch. Removals are the
# easiest, as in the paper's text; its code takes the hardest. Cost: k + 1 matrix-vector products over what is left a
# swap, no table.
#
# N pairs, B pairs of a batch.


def written(
    similarity: Similarity,
    batch: int,
    *,
    k: int = 1,
    lists: int | None = None,
    seed: int = 0,
    advance: Callable[[int], None] = lambda n: None,
) -> Schedule:
    """Every pair in one batch, by swaps of all that is left or of what is in the lists of `lists` each."""
    pool = Pool(similarity, seed)
    near = None if lists is None else similarity.nearest(lists)
    batches, values = [], []
    for _ in range(len(similarity) // batch):
        members = _swapped(pool, pool.random(batch), k, near)
        batches.append(pool.names[members].cpu().numpy())
        values.append(hardness(pool.similarity, members))
        pool.remove(members)
        advance(1)
    return Schedule(batches, pool.left(), values)


def _swapped(pool: Pool, members: Tensor, k: int, near: Tensor | None) -> Tensor:
    """The best of k swaps after the other, while hardness rises."""
    while True:
        adds = pool.similarity.toward(members)[members]
        value = float(adds.double().sum()) / 2
        allowed = _allowed(pool, members, near)
        best = value
        for out in adds.topk(min(k, len(members)), largest=False).indices.tolist():
            rest = torch.cat((members[:out], members[out + 1 :]))
            gain, come = pool.similarity.toward(rest).masked_fill(~allowed, -torch.inf).max(dim=0)
            after = value - float(adds[out]) + float(gain)
            if after > best:
                best, swapped = after, torch.cat((rest, come[None]))
        if not rises(value, best, SLACK):
            return members
        members = swapped


def _allowed(pool: Pool, members: Tensor, near: Tensor | None) -> Tensor:
    """Who may come: all that is left, or who is in the members' lists; these are moot where they could name all."""
    allowed = pool.there.clone()
    if near is not None and pool.left_count > len(members) * near.shape[1]:
        allowed.zero_()
        names = near[pool.names[members]].flatten()
        rows = pool.rows[names]
        still = (rows < len(pool.names)) & (pool.names[rows.clamp(max=len(pool.names) - 1)] == names)
        allowed[rows[still]] = True
        allowed &= pool.there
    allowed[members] = False
    return allowed
