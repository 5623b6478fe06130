"""The shape of a vector space: alignment, uniformity, isotropy, hubness, effective dimension.

Functions on arrays of vectors, N × D; those over all pairs work in tiles, so N = 50,000 needs 0.1 GB and not 20. Each
cites what it measures. None of them replaces a retrieval measure: they say how a space fails, not how well it searches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]
TILE = 2048


@dataclass(frozen=True, slots=True)
class Hubness:
    """How unevenly passages are found: skewness of the k-occurrence, share never found, largest share of finds."""

    skewness: float
    never: float
    largest: float


def unit(vectors_ND: Floats) -> NDArray[np.float64]:
    """Vectors of length 1; zero vectors stay zero."""
    vectors = np.asarray(vectors_ND, dtype=np.float64)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)


def alignment(a_ND: Floats, b_ND: Floats, alpha: float = 2.0) -> float:
    """Mean distance of positive pairs on the sphere, to the power alpha (Wang and Isola 2020). Lower is nearer."""
    distances = np.linalg.norm(unit(a_ND) - unit(b_ND), axis=1)
    return float(np.mean(distances**alpha))


def uniformity(vectors_ND: Floats, t: float = 2.0) -> float:
    """log of the mean of exp(-t · squared distance) over all pairs on the sphere (Wang and Isola 2020).

    Lower is more even.
    """
    x = unit(vectors_ND)
    assert len(x) > 1
    total = sum(float(np.exp(2 * t * (tile - 1)).sum()) for tile in _upper_tiles(x))
    return float(np.log(total / (len(x) * (len(x) - 1) / 2)))


def mean_cosine(vectors_ND: Floats) -> float:
    """Mean cosine of all pairs (Ethayarajh 2019): 0 for directions spread evenly, near 1 for a narrow cone."""
    x = unit(vectors_ND)
    n = len(x)
    together = x.sum(axis=0)
    return float((together @ together - np.einsum("nd,nd->", x, x)) / (n * (n - 1)))


def isotropy(vectors_ND: Floats) -> float:
    """Least over largest partition function along the principal directions (Mu and Viswanath 2018): 1 is isotropic."""
    x = unit(vectors_ND)
    _, directions = np.linalg.eigh(x.T @ x)
    totals = np.exp(x @ directions).sum(axis=0)
    negative = np.exp(-(x @ directions)).sum(axis=0)
    both = np.concatenate([totals, negative])
    return float(both.min() / both.max())


def spectrum(vectors_ND: Floats) -> NDArray[np.float64]:
    """Share of the variance along each principal direction, descending."""
    x = np.asarray(vectors_ND, dtype=np.float64)
    x = x - x.mean(axis=0)
    values = np.clip(np.linalg.eigvalsh(x.T @ x)[::-1], 0, None)
    return values / values.sum() if values.sum() > 0 else values


def participation_ratio(shares: NDArray[np.float64]) -> float:
    """Effective dimension as (sum)^2 / sum of squares of the variances."""
    return float(shares.sum() ** 2 / (shares**2).sum()) if shares.sum() > 0 else 0.0


def effective_rank(shares: NDArray[np.float64]) -> float:
    """Effective dimension as exp of the spectrum's entropy (Roy and Vetterli 2007)."""
    kept = shares[shares > 0]
    return float(np.exp(-(kept * np.log(kept)).sum())) if kept.size else 0.0


def k_occurrence(neighbours_QK: NDArray[np.integer], passages: int) -> NDArray[np.int64]:
    """How often each passage is among the k found (Radovanović et al. 2010)."""
    return np.bincount(neighbours_QK[neighbours_QK >= 0], minlength=passages).astype(np.int64)


def hubness(counts: NDArray[np.integer]) -> Hubness:
    """The skewness of the k-occurrence, and its two ends."""
    values = counts.astype(np.float64)
    deviation = values.std()
    skewness = float(np.mean((values - values.mean()) ** 3) / deviation**3) if deviation > 0 else 0.0
    return Hubness(skewness, float(np.mean(values == 0)), float(values.max() / max(values.sum(), 1)))


def _upper_tiles(x_ND: NDArray[np.float64]) -> Iterator[NDArray[np.float64]]:
    """Cosines of all pairs i < j, a tile at a time."""
    for a in range(0, len(x_ND), TILE):
        for b in range(a, len(x_ND), TILE):
            tile = x_ND[a : a + TILE] @ x_ND[b : b + TILE].T
            yield tile[np.triu_indices(len(tile), 1)] if a == b else tile
