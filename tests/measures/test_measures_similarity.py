"""Correlations equal scipy's; triplets count only where the positive is strictly nearer."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from liebig.measures.similarity import cosine, pearson, ranks, spearman, triplet_accuracy


@pytest.mark.parametrize("levels", [3, 50, 10**6])
def test_correlations_equal_scipys_with_and_without_ties(levels: int) -> None:
    rng = np.random.default_rng(levels)
    x, y = rng.integers(0, levels, 300), rng.normal(size=300).round(1)
    assert spearman(x, y) == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-12)
    assert pearson(x, y) == pytest.approx(stats.pearsonr(x, y).statistic, abs=1e-12)
    assert (ranks(y) == stats.rankdata(y)).all()


def test_a_constant_has_no_correlation() -> None:
    assert math.isnan(pearson(np.ones(5), np.arange(5)))
    assert math.isnan(spearman(np.arange(5), np.full(5, 0.1)))


def test_a_triplet_counts_where_the_positive_is_strictly_nearer() -> None:
    assert triplet_accuracy(np.array([0.1, 0.5, 0.5]), np.array([0.2, 0.5, 0.4])).tolist() == [1, 0, 0]


def test_cosine_of_rows_and_of_zero() -> None:
    a = np.array([[1.0, 0.0], [3.0, 4.0], [0.0, 0.0]])
    b = np.array([[2.0, 0.0], [4.0, -3.0], [1.0, 1.0]])
    assert cosine(a, b).tolist() == [1.0, 0.0, 0.0]
