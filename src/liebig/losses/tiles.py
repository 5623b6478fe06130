"""The expensive part of every contrastive loss: the log-sum-exp of all scores of a row, without the whole matrix.

A block of rows is scored against all candidates at once, which gives its log-sum-exp. The gradient of the weighted sum
is added up in the same pass and the same buffer, and only scaled in the backward pass. Cost: three matrix products,
nothing is recomputed. Memory: one tile of scores and one gradient per vector.

M rows, N candidates, D width, X excluded entries.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

TILE = 1 << 24
"""Scores held at once: 64 MiB in float32."""

OWN, TIED = -1, -2
"""`best` of a row whose own score beats every candidate, and of one where two candidates share the highest score."""


class LogSumExp(NamedTuple):
    """The weighted sum (with gradient), and without gradient: each row's log-sum-exp and best candidate."""

    weighted: Tensor
    rows: Tensor
    best: Tensor


def log_sum_exp(
    queries: Tensor,
    candidates: Tensor,
    weights: Tensor,
    *,
    own: Tensor | None = None,
    exclude: Tensor | None = None,
    tile: int = TILE,
) -> LogSumExp:
    """Σᵢ weightsᵢ · log Σⱼ exp(qᵢ·cⱼ), j over candidates, then one `own` score a row.

    `exclude` (X × 2: row, candidate) names entries that do not count; keep it on the host to avoid a wait.
    """
    assert weights.shape == queries.shape[:1], "one weight a query"
    if exclude is not None:
        exclude = exclude[torch.argsort(exclude[:, 0], stable=True)]
    return LogSumExp(*_LogSumExp.apply(queries, candidates, weights, own, exclude, tile))


def exact(x: Tensor) -> Tensor:
    """In the precision losses are computed in: float32, or float64 where it came so."""
    return x if x.dtype == torch.float64 else x.float()


class _LogSumExp(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        queries: Tensor,
        candidates: Tensor,
        weights: Tensor,
        own: Tensor | None,
        exclude: Tensor | None,
        tile: int,
    ) -> tuple[Tensor, Tensor, Tensor]:
        with torch.autocast(queries.device.type, enabled=False):
            q, w = exact(queries), exact(weights)
            needed = [ctx.needs_input_grad[i] for i in (0, 1, 3)]
            sums = _Sums(q, exact(candidates), w, None if own is None else exact(own), exclude, needed)
            for start, end in sums.blocks(tile):
                sums.add(start, end)
        ctx.gradients = sums.gradients
        ctx.dtypes = [None if x is None else x.dtype for x in (queries, candidates, own)]
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(sums.lse, sums.best)
        # A row of weight 0 counts nothing, even where all its candidates are excluded.
        return torch.where(w == 0, 0.0, w * sums.lse).sum(), sums.lse, sums.best

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Any, ...]:
        assert ctx.gradients is not None, "differentiated a second time"
        grads = [
            None if g is None or grad is None else g.mul_(grad).to(dtype)
            for g, dtype in zip(ctx.gradients, ctx.dtypes)
        ]
        ctx.gradients = None
        return grads[0], grads[1], None, grads[2], None, None


class _Sums:
    """The running state of one pass over blocks of rows."""

    def __init__(
        self,
        queries: Tensor,
        candidates: Tensor,
        weights: Tensor,
        own: Tensor | None,
        exclude: Tensor | None,
        needed: list[bool],
    ) -> None:
        self.queries, self.candidates, self.weights = queries, candidates, weights
        self.own, self.exclude = own, exclude
        self.lse = queries.new_empty(len(queries))
        self.best = torch.empty(len(queries), dtype=torch.long, device=queries.device)
        self.gradients = [
            torch.zeros_like(x) if want and x is not None else None
            for want, x in zip(needed, (queries, candidates, own))
        ]

    def blocks(self, tile: int) -> list[tuple[int, int]]:
        """Row ranges whose scores fill at most one tile; also finds where each range's exclusions are."""
        rows = max(1, tile // max(1, len(self.candidates)))
        starts = list(range(0, len(self.queries), rows))
        if self.exclude is not None:
            edges = torch.tensor([*starts, len(self.queries)], device=self.exclude.device)
            places = torch.searchsorted(self.exclude[:, 0].contiguous(), edges).tolist()
            self.places = dict(zip(starts, pairwise(places)))
            self.exclude = self.exclude.to(self.queries.device, non_blocking=True)
        return [(a, min(a + rows, len(self.queries))) for a in starts]

    def add(self, start: int, end: int) -> None:
        """Score rows start … end-1 and add up everything they give."""
        q = self.queries[start:end]
        scores = self._scores(q, start)
        top, best = _top(scores)
        own = None if self.own is None else self.own[start:end]
        if own is not None:
            best = torch.where(own > top, OWN, best)
            top = torch.maximum(top, own)
        top = torch.where(top.isinf(), 0.0, top)
        scores.sub_(top[:, None]).exp_()
        sums = scores.sum(dim=1)
        mine = None if own is None else torch.exp(own - top)
        sums = sums if mine is None else sums + mine
        self.lse[start:end] = top + sums.log()
        self.best[start:end] = best
        if any(g is not None for g in self.gradients):
            factor = torch.where(sums == 0, 0.0, self.weights[start:end] / sums)
            self._differentiate(start, end, scores.mul_(factor[:, None]), q)
            if mine is not None and self.gradients[2] is not None:
                self.gradients[2][start:end] = mine * factor

    def _scores(self, q: Tensor, start: int) -> Tensor:
        scores = q @ self.candidates.T
        if self.exclude is not None:
            a, b = self.places[start]
            scores[self.exclude[a:b, 0] - start, self.exclude[a:b, 1]] = -torch.inf
        return scores

    def _differentiate(self, start: int, end: int, shares: Tensor, q: Tensor) -> None:
        """`shares` holds weight × softmax; its products with both sides are the gradients."""
        if self.gradients[0] is not None:
            self.gradients[0][start:end].addmm_(shares, self.candidates)
        if self.gradients[1] is not None:
            self.gradients[1].addmm_(shares.T, q)


def _top(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Each row's highest score, and whose it is or `TIED`; looks for a second one in place, without a copy."""
    top, best = scores.max(dim=1)
    scores.scatter_(1, best[:, None], -torch.inf)
    tied = scores.amax(dim=1) == top
    scores.scatter_(1, best[:, None], top[:, None])
    return top, torch.where(tied, TIED, best)
