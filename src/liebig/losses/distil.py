"""Learning from a teacher: KL(teacher‖student) over a query's group, the batch, its similarities or rankings;
margin-MSE.

coCondenser's Eq. 16 is written the other way round, which is infinite wherever the teacher gives zero; this is
the direction its code computes. Cost: the group's scores; over the whole batch one tiled log-sum-exp.

n queries, g members of a group, N candidates, D width.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize
from torch.utils.checkpoint import checkpoint

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
    sums = log_sum_exp(q, c, weights, exclude=exclude, tile=tile)
    return sums.weighted + (weights[:, None] * (torch.xlogy(t, t) - t * scores)).sum()


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


def kl_similarities(
    students: Tensor,
    all_students: Tensor,
    teachers: Tensor,
    all_teachers: Tensor,
    places: Tensor,
    *,
    temperature: float = 0.05,
    tile: int = TILE,
) -> Tensor:
    """Mean over texts of KL(teacher‖student), softmaxes over a text's similarities to all others of the batch.

    `students` and `teachers` are this process's rows, at `places` of all rows; a text's similarity to itself is out.
    """
    s, t, places = exact(students), exact(teachers), places.to(students.device)
    everyone, rows = (exact(all_students), exact(all_teachers)), max(1, tile // len(all_students))
    parts = zip(s.split(rows), t.split(rows), places.split(rows))
    return _tiled(((*part, *everyone, temperature) for part in parts), len(all_students))


def kl_rankings(
    students: Tensor,
    teachers: Tensor,
    candidates: Tensor,
    *,
    own: Tensor | None = None,
    temperature: float = 0.05,
    total: int | None = None,
    tile: int = TILE,
) -> Tensor:
    """Mean over texts of KL(teacher‖student), softmaxes over a text's similarities to fixed vectors of the teacher.

    The candidates are not encoded by the student, so ranking a text against thousands costs one matrix product. The
    softmax is sharp: those the teacher has at the top decide. A student whose space is another than that of the
    rankings to learn has candidates of its `own` there, the same ones in the same order.
    """
    s, t, c = exact(students), exact(teachers), exact(candidates)
    own = c if own is None else exact(own)
    rows = max(1, tile // len(c))
    parts = zip(s.split(rows), t.split(rows))
    total = len(students) if total is None else total
    return _tiled(((a, b, None, own, c, temperature) for a, b in parts), total)


def _tiled(parts: Iterable[tuple[Any, ...]], total: int) -> Tensor:
    """Summed KL of all parts over `total`."""
    sums = [checkpoint(_relations, *p, use_reentrant=False, preserve_rng_state=False) for p in parts]
    return torch.stack(sums).sum() / total


def _relations(
    s: Tensor, t: Tensor, places: Tensor | None, all_s: Tensor, all_t: Tensor, temperature: float
) -> Tensor:
    """Summed KL of some rows, each without its own place; its matrices are made again for the gradient."""
    own = torch.zeros(len(s), len(all_s), dtype=torch.bool, device=s.device)
    if places is not None:
        own[torch.arange(len(s), device=s.device), places] = True
    teacher = (t @ all_t.T / temperature).masked_fill(own, -torch.inf).softmax(dim=1)
    student = (s @ all_s.T / temperature).masked_fill(own, -torch.inf).log_softmax(dim=1)
    return (torch.xlogy(teacher, teacher) - teacher * torch.where(own, 0.0, student)).sum()


def _teacher(scores: Tensor, mask: Tensor | None, temperature: float) -> Tensor:
    return _masked(exact(scores) / temperature, mask).softmax(dim=1)


def _masked(scores: Tensor, mask: Tensor | None) -> Tensor:
    return scores if mask is None else scores.masked_fill(~mask, -torch.inf)
