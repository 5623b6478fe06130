"""Sentence similarity: correlation with gold scores (STS) and accuracy on triplets (Ein Dor et al. 2018)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]


def pearson(x: Floats, y: Floats) -> float:
    """Linear correlation; not a number where one side is constant."""
    a, b = _centred(x), _centred(y)
    norm = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / norm if norm > 0 else float("nan")


def spearman(x: Floats, y: Floats) -> float:
    """Pearson of the ranks, equal values sharing the mean of their ranks."""
    return pearson(ranks(x), ranks(y))


def ranks(values: Floats) -> NDArray[np.float64]:
    """Ranks from 1, ascending; equal values share the mean of their ranks."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return ((2 * last - counts + 1) / 2)[inverse]


def triplet_accuracy(to_positive: Floats, to_negative: Floats) -> NDArray[np.float64]:
    """Per triplet: 1 where the positive is strictly nearer than the negative. Takes distances."""
    return (np.asarray(to_positive) < np.asarray(to_negative)).astype(np.float64)


def cosine(a_ND: Floats, b_ND: Floats) -> NDArray[np.float64]:
    """Cosine of each row of one array with the same row of the other; 0 where a vector is zero."""
    a, b = np.asarray(a_ND, dtype=np.float64), np.asarray(b_ND, dtype=np.float64)
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    products = np.einsum("nd,nd->n", a, b)
    return np.divide(products, norms, out=np.zeros_like(products), where=norms > 0)


def _centred(values: Floats) -> NDArray[np.float64]:
    array = np.asarray(values, dtype=np.float64)
    return array - array.mean() if array.size and np.ptp(array) > 0 else np.zeros_like(array)
