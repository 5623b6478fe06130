"""Counter-based random numbers: numba = numpy, bijections are bijections, draws are uniform."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from liebig.base.rng import below, integers, key, mix, permute, uniform

COUNTERS = np.arange(2000)


@njit
def _draws(k, counters, n):
    mixed = np.empty(len(counters), np.uint64)
    floats = np.empty(len(counters), np.float64)
    ints = np.empty(len(counters), np.int64)
    for i, c in enumerate(counters):
        mixed[i], floats[i], ints[i] = mix(k, c), uniform(k, c), below(k, c, n)
    return mixed, floats, ints


@njit
def _permuted(n, k):
    out = np.empty(n, np.int64)
    for i in range(n):
        out[i] = permute(i, n, k)
    return out


@pytest.mark.parametrize("n", [1, 2, 10, 2**31 + 5, 2**40, 2**62])
def test_a_kernel_draws_what_numpy_draws(n):
    k = key(7, 3)
    mixed, floats, ints = _draws(k, COUNTERS, n)
    assert np.array_equal(mixed, mix(k, COUNTERS))
    assert np.array_equal(floats, uniform(k, COUNTERS))
    assert np.array_equal(ints, below(k, COUNTERS, n))
    assert ints.min() >= 0
    assert ints.max() < n


def test_one_number_is_mixed_as_many_are():
    numbers = [0, 1, -1, 5, 2**31, 2**63 - 1, -(2**63)]
    for a in numbers:
        mixed = mix(np.full(len(numbers), a), np.array(numbers))
        for kind in (int, np.int64):
            assert [mix(kind(a), kind(b)) for b in numbers] == mixed.tolist()
    assert mix(2**64 - 1, np.uint64(2**64 - 1)) == mix(-1, -1)
    assert isinstance(mix(1, 2), np.uint64)


@pytest.mark.parametrize("n", [*range(1, 40), 100, 1000, 1023, 1024, 1025, 9973])
def test_permute_is_a_bijection_and_the_kernel_equals_numpy(n):
    k = key(1, n)
    order = permute(np.arange(n), n, k)
    assert np.array_equal(np.sort(order), np.arange(n))
    assert np.array_equal(order, _permuted(n, k))


def test_permute_stays_inside_a_huge_range():
    n = 10**12 + 39
    order = permute(np.arange(10_000), n, key(0))
    assert len(np.unique(order)) == 10_000
    assert order.min() >= 0
    assert order.max() < n
    assert order.mean() == pytest.approx(n / 2, rel=0.03)


def test_draws_do_not_depend_on_how_many_are_made_at_once():
    k = key(5)
    for whole, one in (
        (uniform(k, COUNTERS), lambda c: uniform(k, c)),
        (integers(k, COUNTERS, 100), lambda c: int(below(k, c, 100))),
        (permute(COUNTERS, 2000, k), lambda c: int(permute(int(c), 2000, k))),
    ):
        assert [one(c) for c in COUNTERS[:50]] == list(whole[:50])


def test_keys_are_pinned_so_that_old_runs_resume():
    assert int(mix(0, 0)) == 0xE220A8397B1DCDAF, "the first number of SplitMix64 from state 0"
    assert int(key(42, 1, 2)) == int(mix(mix(mix(42, 0), 1), 2))


def test_keys_of_different_parts_differ():
    keys = {
        int(key(*parts)) for parts in [(0,), (1,), (0, 0), (0, 1), (1, 0), (0, 0, 0), (0, 1, 0), (0, 0, 1)]
    }
    assert len(keys) == 8


def test_negative_numbers_are_accepted_everywhere():
    assert int(mix(-1, -1)) == int(mix(2**64 - 1, 2**64 - 1)) == int(mix(np.int64(-1), np.int64(-1)))


def test_uniform_and_below_fill_their_range_evenly():
    counters = np.arange(200_000)
    for bins in (
        np.bincount((uniform(key(1), counters) * 100).astype(int), minlength=100),
        np.bincount(below(key(2), counters, 100), minlength=100),
        np.bincount(below(mix(key(3), counters), 0, 100), minlength=100),
    ):
        chi2 = ((bins - 2000) ** 2 / 2000).sum()
        assert 50 < chi2 < 160, "99 degrees of freedom"


def test_neighbouring_counters_and_keys_are_uncorrelated():
    counters = np.arange(100_000)
    along = uniform(key(1), counters)
    across = uniform(mix(key(1), counters), 0)
    for x in (along, across):
        assert abs(np.corrcoef(x[1:], x[:-1])[0, 1]) < 0.015
    assert abs(np.corrcoef(along, across)[0, 1]) < 0.015


@pytest.mark.parametrize("n", [2, 3, 5, 12])
def test_every_place_is_equally_likely_for_every_index(n):
    shuffles = np.array([_permuted(n, key(9, k)) for k in range(1500)])  # equal to numpy's, by the test above
    for i in range(n):
        bins = np.bincount(shuffles[:, i], minlength=n)
        chi2 = ((bins - 1500 / n) ** 2 / (1500 / n)).sum()
        assert chi2 < n + 6 * np.sqrt(2 * n)


def test_neighbours_are_torn_apart_by_a_shuffle():
    order = permute(np.arange(50_000), 50_000, key(4))
    assert abs(np.corrcoef(order[1:], order[:-1])[0, 1]) < 0.02
    assert abs(np.corrcoef(order, np.arange(50_000))[0, 1]) < 0.02
