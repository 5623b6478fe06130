"""What a set of vectors looks like: near its partners, spread over the sphere, or collapsed.

Alignment and uniformity are those of Wang and Isola (2020); spread is Contriever's `stdq`, scaled so that 1 is
as spread out as random directions and 0 is one point. Cost: one pass; uniformity takes at most 512 rows.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

from liebig.losses.tiles import exact


@torch.no_grad()
def alignment(a: Tensor, b: Tensor, weights: Tensor | None = None) -> Tensor:
    """Mean squared distance of partners on the unit sphere; 0 is identical, 2 unrelated."""
    distance = (normalize(exact(a), dim=1) - normalize(exact(b), dim=1)).square().sum(dim=1)
    return distance.mean() if weights is None else (weights * distance).sum()


@torch.no_grad()
def uniformity(vectors: Tensor, rows: int = 512) -> Tensor:
    """log mean exp(−2 d²) over pairs on the unit sphere; 0 is one point, about −4 well spread. Less is better."""
    x = normalize(exact(vectors[:rows]), dim=1)
    if len(x) < 2:
        return x.new_zeros(())
    return torch.pdist(x).square().mul(-2).exp().mean().log()


@torch.no_grad()
def spread(vectors: Tensor) -> Tensor:
    """Standard deviation of the unit vectors' coordinates × √D: 1 for random directions, 0 for one point."""
    x = normalize(exact(vectors), dim=1)
    return x.std(dim=0, correction=0).mean() * x.shape[1] ** 0.5
