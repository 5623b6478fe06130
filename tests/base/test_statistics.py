"""Statistics: equal to scipy's where it has them, and right in simulation where they claim a rate."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from liebig.base.statistics import (
    bootstrap,
    bootstrap_all,
    bootstrap_groups,
    compare,
    direction,
    effect_size,
    holm,
    over_seeds,
    prediction_powered,
    randomisation_test,
    student_quantile,
)


def reciprocal_ranks(rng: np.random.Generator, n: int) -> np.ndarray:
    """Values as measures give them: in [0, 1], many zeros and ones."""
    return 1 / rng.geometric(0.4, n) * (rng.random(n) < 0.8)


def test_bootstrap_intervals_cover_the_truth_at_their_nominal_rate() -> None:
    rng = np.random.default_rng(0)
    truth = 0.8 * np.sum(0.4 * 0.6 ** np.arange(400) / np.arange(1, 401))
    covered = []
    for trial in range(3000):
        interval = bootstrap(reciprocal_ranks(rng, 150), samples=600, level=0.9, seed=trial)
        covered.append(interval.low <= truth <= interval.high)
    assert np.mean(covered) == pytest.approx(0.9, abs=3 * np.sqrt(0.9 * 0.1 / 3000))


def test_groups_count_alike_and_their_interval_covers_the_truth() -> None:
    rng = np.random.default_rng(3)
    covered = []
    for trial in range(600):
        groups = [rng.random(80), rng.random(20) / 2, rng.random(40) + 1]
        interval = bootstrap_groups(groups, samples=400, level=0.9, seed=trial)
        assert interval.mean == pytest.approx(np.mean([group.mean() for group in groups]))
        covered.append(interval.low <= (0.5 + 0.25 + 1.5) / 3 <= interval.high)
    # Percentile intervals of 20 values are a little too narrow.
    assert np.mean(covered) == pytest.approx(0.9, abs=0.05)
    with pytest.raises(ValueError, match="without a query"):
        bootstrap_groups([np.zeros(3), np.zeros(0)])


def test_randomisation_p_values_are_uniform_under_the_null() -> None:
    rng = np.random.default_rng(1)
    p_values = []
    for trial in range(3000):
        a, b = reciprocal_ranks(rng, 60), reciprocal_ranks(rng, 60)
        p_values.append(randomisation_test(a - b, samples=499, seed=trial))
    assert stats.kstest(p_values, "uniform").pvalue > 0.01
    assert np.mean(np.array(p_values) <= 0.05) == pytest.approx(0.05, abs=3 * np.sqrt(0.05 * 0.95 / 3000))


def test_few_differences_are_tested_exactly() -> None:
    difference = np.array([0.5, 0.25, 0.0, 1.0, -0.125, 0.0, 0.5])
    moved = difference[difference != 0]
    sums = [abs(np.dot(signs, moved)) for signs in itertools.product([-1, 1], repeat=len(moved))]
    exact = np.mean(np.array(sums) >= abs(moved.sum()) - 1e-12)
    assert randomisation_test(difference, samples=32) == exact
    assert randomisation_test(difference, samples=40_000, seed=3) == exact


def test_the_sampled_test_approaches_the_exact_one() -> None:
    difference = np.random.default_rng(5).normal(0.3, 1, 12)
    exact = randomisation_test(difference, samples=2**12)
    assert randomisation_test(difference, samples=4000) == pytest.approx(exact, abs=0.02)


def test_thousands_of_queries_are_sampled() -> None:
    difference = np.random.default_rng(5).normal(0.05, 1, 3000)
    by_t = stats.ttest_1samp(difference, 0).pvalue
    assert randomisation_test(difference, samples=500) == pytest.approx(by_t, abs=0.02)


def test_equal_systems_have_p_1_and_no_effect() -> None:
    same = np.random.default_rng(0).random(50)
    result = compare(same, same, samples=100)
    assert (result.p_randomisation, result.effect) == (1.0, 0.0)
    assert (result.wins, result.ties, result.losses) == (0, 50, 0)


def test_a_sampled_p_is_never_0() -> None:
    assert randomisation_test(np.full(100, 0.5), samples=199) == 1 / 200


@pytest.mark.parametrize("p", [0.1, 0.05, 0.01])
@pytest.mark.parametrize("freedom", [1, 2, 30, 6979])
def test_students_quantiles_equal_scipys(p: float, freedom: int) -> None:
    assert student_quantile(p, freedom) == pytest.approx(stats.t.isf(p / 2, freedom), rel=1e-7)


def test_holm_multiplies_by_what_is_left_and_never_falls() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_holm_keeps_the_rate_of_any_false_alarm() -> None:
    rng = np.random.default_rng(3)
    alarms = [min(holm(list(rng.random(6)))) <= 0.1 for _ in range(2000)]
    assert np.mean(alarms) == pytest.approx(0.1, abs=0.02)


def test_the_effect_is_the_difference_in_standard_deviations() -> None:
    difference = np.array([1.0, 2.0, 3.0])
    assert effect_size(difference) == 2.0
    assert effect_size(np.ones(3)) == 0.0


def test_intervals_of_several_measures_are_those_of_each() -> None:
    rng = np.random.default_rng(8)
    table = rng.random((40, 3))
    alone = [bootstrap(column, samples=500, seed=4) for column in table.T]
    assert bootstrap_all(list(table.T), samples=500, seed=4) == alone


def test_slices_do_not_change_an_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).random(40)
    whole = bootstrap(values, samples=500, seed=4)
    monkeypatch.setattr("liebig.base.statistics.SLICE", 40 * 7)
    assert bootstrap(values, samples=500, seed=4) == whole


def test_an_interval_over_seeds_is_wider_than_one_over_queries() -> None:
    rng = np.random.default_rng(0)
    queries = rng.random(200)
    runs = np.stack([queries + shift for shift in (-0.2, 0.0, 0.2)])
    seeds = over_seeds(runs, samples=2000)
    alone = bootstrap(queries, samples=2000)
    assert seeds.interval.mean == pytest.approx(alone.mean)
    assert seeds.deviation == pytest.approx(0.2)
    assert seeds.interval.high - seeds.interval.low > 1.5 * (alone.high - alone.low)


def test_one_seed_gives_the_interval_over_queries() -> None:
    values = np.random.default_rng(0).random(50)
    seeds = over_seeds(values[None], samples=3000)
    alone = bootstrap(values, samples=3000)
    assert seeds.deviation == 0.0
    assert (seeds.interval.low, seeds.interval.high) == pytest.approx((alone.low, alone.high), abs=0.01)


def test_a_seed_makes_results_repeatable() -> None:
    values = np.random.default_rng(0).normal(size=30)
    assert bootstrap(values, seed=1) == bootstrap(values, seed=1)
    assert randomisation_test(values, seed=1) == randomisation_test(values, seed=1)


@pytest.mark.parametrize(
    ("low", "high", "way"), [(0.1, 0.2, 1), (-0.2, -0.1, -1), (-0.1, 0.1, 0), (0.0, 0.1, 0)]
)
def test_a_difference_goes_one_way_only_if_its_interval_leaves_zero_out(low, high, way):
    assert direction(low, high) == way


def judged_world(rng, people=30, others=300):
    """Values of queries by people, and by a model that follows them and is far too generous."""
    by_people = rng.beta(0.6, 0.8, people + others)
    by_model = np.clip(0.35 + 0.6 * by_people + rng.normal(0, 0.15, by_people.size), 0, 1)
    return by_people[:people], by_model[:people], by_model[people:]


def test_prediction_powered_intervals_cover_and_are_shorter_than_peoples_alone():
    rng = np.random.default_rng(0)
    truth, rounds = 0.6 / 1.4, 2000
    covered = shorter = trusting = 0
    for _ in range(rounds):
        people, same, others = judged_world(rng)
        both = prediction_powered(people, same, others)
        alone = prediction_powered(people, np.zeros_like(people), np.zeros_like(others))
        model = prediction_powered(others, np.zeros_like(others), np.zeros(2))
        covered += both.low <= truth <= both.high
        shorter += both.high - both.low < alone.high - alone.low
        trusting += model.low <= truth <= model.high
    assert 0.935 < covered / rounds < 0.975
    assert shorter / rounds > 0.95
    assert trusting == 0, "the model's values alone are wrong, and an interval of them does not say so"


def test_a_model_that_tells_nothing_or_no_others_leave_the_t_interval_of_people():
    people = np.array([0.1, 0.4, 0.7, 0.2])
    radius = 3.182446305284263 * people.std(ddof=1) / 2  # Student's t with three degrees of freedom
    for same, others in ((np.ones(4), np.ones(9)), (1 - people, 1 - people), (people, np.empty(0))):
        interval = prediction_powered(people, same, others)
        assert np.allclose([interval.mean, interval.low, interval.high], [0.35, 0.35 - radius, 0.35 + radius])


def test_a_model_that_agrees_with_people_counts_for_as_many_questions():
    rng = np.random.default_rng(1)
    values = rng.random(400)
    both = prediction_powered(values[:40], values[:40], values[40:])
    alone = prediction_powered(values[:40], np.zeros(40), np.zeros(360))
    assert (both.high - both.low) / (alone.high - alone.low) < 0.4
    with pytest.raises(ValueError, match="two queries"):
        prediction_powered(values[:1], values[:1], values)
