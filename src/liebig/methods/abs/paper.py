"""Adaptive batch scheduling as the paper writes it (3.2), to be held against ours (`schedule.py`).

A batch starts at random. Of its members the k that add least may leave (Eq. 3), of the others the one that adds most
comes (Eq. 4), and the swap that leads to the hardest batch is made while hardness rises. k = 1 is the paper's greedy.
Its beam search has k = 3 and one state: it looks at k additions of each removal, of which the first is always the best
of them, so one is enough. Then only those come that are in the lists of a member: the 100 passages nearest to its
query and the 100 queries nearest to its passage, of all pairs, once an epoch. Removals are the easiest, as in the
paper's text; its code takes the hardest. Cost: k + 1 matrix-vector products over what is left a swap, no table.

N pairs, B pairs of a batch.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from liebig.methods.abs.hardness import Similarity, hardness
from liebig.methods.abs.schedule import Pool, Schedule
from liebig.methods.abs.swaps import SLACK, rises


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
                best, found = after, torch.cat((rest, come[None]))
        if not rises(value, best, SLACK):
            return members
        members = found


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
