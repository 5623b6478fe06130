"""Learning from a teacher's scores: KL(teacher‖student) over a query's group or the whole batch, margin-MSE.

coCondenser's Eq. 16 is written the other way round, which is infinite wherever the teacher gives zero; this is
the direction its code computes. Cost: the group's scores; over the whole batch one tiled log-sum-exp.

n queries, g members of a group, N candidates, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

from liebig.losses.contrastive import Similarity
from liebig.losses.tiles import TILE, exact, log_sum_exp


def kl(
    student: Tensor,
    teacher: Tensor,
    *,
    mask: Tensor | None = None,
    temperature: float = 1.0,
    teacher_temperature: float = 1.0,
    total: int | None = None,
) -> Tensor:
    """Mean over queries of KL(teacher‖student), both softmaxes over the query's own group (n × g scores).

    `mask` is true for members that exist; a group has at least one.
    """
    t = _teacher(teacher, mask, teacher_temperature)
    scores = _masked(exact(student) / temperature, mask)
    log_s = torch.where(t > 0, scores.log_softmax(dim=1), 0.0)
    return (torch.xlogy(t, t) - t * log_s).sum() / (len(t) if total is None else total)


def kl_batch(
    queries: Tensor,
    candidates: Tensor,
    members: Tensor,
    teacher: Tensor,
    *,
    mask: Tensor | None = None,
    temperature: float = 1.0,
    teacher_temperature: float = 1.0,
    similarity: Similarity = "dot",
    exclude: Tensor | None = None,
    total: int | None = None,
    tile: int = TILE,
) -> Tensor:
    """As `kl`, with the student's softmax over all candidates of the batch; the teacher is 0 outside the group.

    `members`: n × g, the candidate each teacher score belongs to.
    """
    q, c = exact(queries), exact(candidates)
    if similarity == "cosine":
        q, c = normalize(q, dim=1), normalize(c, dim=1)
    q = q / temperature
    t = _teacher(teacher, mask, teacher_temperature).to(q.dtype)
    weights = q.new_full((len(q),), 1 / (len(q) if total is None else total))
    columns = members.to(q.device) if mask is None else torch.where(mask, members, 0).to(q.device)
    scores = (q[:, None] * c[columns]).sum(dim=2)
    found = log_sum_exp(q, c, weights, exclude=exclude, tile=tile)
    return found.weighted + (weights[:, None] * (torch.xlogy(t, t) - t * scores)).sum()


def margin_mse(
    positive: Tensor,
    negative: Tensor,
    teacher_positive: Tensor,
    teacher_negative: Tensor,
    *,
    total: int | None = None,
) -> Tensor:
    """Mean squared error of the student's margin (positive − negative) against the teacher's."""
    error = (exact(positive) - exact(negative)) - (exact(teacher_positive) - exact(teacher_negative))
    return error.square().sum() / (error.numel() if total is None else total)


def _teacher(scores: Tensor, mask: Tensor | None, temperature: float) -> Tensor:
    return _masked(exact(scores) / temperature, mask).softmax(dim=1)


def _masked(scores: Tensor, mask: Tensor | None) -> Tensor:
    return scores if mask is None else scores.masked_fill(~mask, -torch.inf)
