"""Losses of scored pairs, triplets and small groups: each example is scored by itself.

Cost: linear in the rows.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cosine_similarity, cross_entropy

from liebig.losses.tiles import exact


def cosine_mse(a: Tensor, b: Tensor, scores: Tensor, *, total: int | None = None) -> Tensor:
    """(cos(a, b) − score)², the regression sentence-transformers uses for STS (Condenser 4.2)."""
    error = cosine_similarity(exact(a), exact(b), dim=1) - exact(scores)
    return error.square().sum() / (len(a) if total is None else total)


def triplet(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    margin: float = 5.0,
    distance: Literal["euclidean", "cosine"] = "euclidean",
    total: int | None = None,
) -> Tensor:
    """max(0, d(anchor, positive) − d(anchor, negative) + margin); margin 5 as sentence-transformers."""
    a, p, n = exact(anchor), exact(positive), exact(negative)
    if distance == "euclidean":
        near, far = (a - p).norm(dim=1), (a - n).norm(dim=1)
    else:
        near, far = 1 - cosine_similarity(a, p, dim=1), 1 - cosine_similarity(a, n, dim=1)
    return (near - far + margin).clamp(min=0).sum() / (len(a) if total is None else total)


def grouped(scores: Tensor, *, mask: Tensor | None = None, total: int | None = None) -> Tensor:
    """Softmax cross entropy over each group's scores (n × g); the first member is the positive (rerankers)."""
    full = exact(scores)
    if mask is not None:
        full = full.masked_fill(~mask, -torch.inf)
    first = torch.zeros(len(full), dtype=torch.long, device=full.device)
    return cross_entropy(full, first, reduction="sum") / (len(full) if total is None else total)


def binary(scores: Tensor, labels: Tensor, *, total: int | None = None) -> Tensor:
    """Binary cross entropy of logits and labels of 0 and 1: each pair by itself, so that σ(score) is a probability."""
    full = exact(scores)
    summed = binary_cross_entropy_with_logits(full, labels.to(full.dtype), reduction="sum")
    return summed / (len(full) if total is None else total)
