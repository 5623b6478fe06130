"""The analyses as functions on arrays: values known by hand or by a plain computation."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from liebig.base.rng import draw
from liebig.stages import analyse_space as space
from liebig.stages.analyse_attention import average, cls_entropy, movement
from liebig.stages.analyse_neighbours import curve, nb_recall


def attention(rows: list[list[float]]) -> np.ndarray:
    """One layer whose heads attend from CLS as given; other rows do not matter."""
    heads = np.array(rows)
    whole = np.zeros((1, len(rows), heads.shape[1], heads.shape[1]))
    whole[0, :, 0] = heads
    return whole


def test_entropy_of_even_attention_is_the_log_of_the_length_and_of_one_token_zero() -> None:
    assert cls_entropy(attention([[0.25] * 4])) == pytest.approx([np.log(4)])
    assert cls_entropy(attention([[0, 1, 0, 0]])) == pytest.approx([0.0])
    assert cls_entropy(attention([[0.25] * 4, [0, 1, 0, 0]])) == pytest.approx([np.log(4) / 2])


def test_a_curve_averages_texts_of_different_length() -> None:
    found = average([attention([[0.5, 0.5]]), attention([[0.25] * 4])])
    assert found.mean == pytest.approx([(np.log(2) + np.log(4)) / 2])
    assert found.relative == pytest.approx([1.0])
    assert found.texts == 2
    assert movement(found, average([attention([[1.0, 0.0]])])) == pytest.approx(found.mean[0])


def test_nb_recall_is_equation_17() -> None:
    first, second = ["a", "b", "c", "d"], ["d", "x", "a", "y"]
    assert nb_recall(first, second, 2, [1, 3, 4]).tolist() == [0, 0, 0.5]
    assert nb_recall(first, second, 3, [1, 4]).tolist() == [1 / 3, 2 / 3]
    assert nb_recall(first, ["a"], 2, [4]).tolist() == [0.5]


def test_nb_recall_of_a_retriever_with_itself_grows_to_1() -> None:
    ranked = {"q": [str(i) for i in range(50)], "r": [str(i) for i in range(50)]}
    values = curve(ranked, ranked, 10, [1, 5, 10, 50])
    assert values.mean(axis=0).tolist() == [0.1, 0.5, 1.0, 1.0]
    assert curve({}, ranked, 10, [50]).tolist() == [[0.0], [0.0]]


@pytest.fixture
def vectors() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(60, 5)) + 0.5


def test_alignment_and_uniformity_equal_their_definitions(
    vectors: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    pairs = list(itertools.combinations(range(60), 2))
    expected = np.log(np.mean([np.exp(-2 * np.sum((x[i] - x[j]) ** 2)) for i, j in pairs]))
    assert space.uniformity(vectors) == pytest.approx(expected)
    monkeypatch.setattr(space, "TILE", 7)
    assert space.uniformity(vectors) == pytest.approx(expected)
    assert space.alignment(vectors, 3 * vectors) == pytest.approx(0)
    assert space.alignment(vectors[:30], vectors[30:]) == pytest.approx(
        np.mean(np.sum((x[:30] - x[30:]) ** 2, axis=1))
    )


def test_mean_cosine_equals_the_mean_over_pairs(vectors: np.ndarray) -> None:
    x = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = [x[i] @ x[j] for i, j in itertools.combinations(range(60), 2)]
    assert space.mean_cosine(vectors) == pytest.approx(np.mean(cosines))


def test_isotropy_is_1_for_a_symmetric_cross_and_less_for_a_cone() -> None:
    cross = np.concatenate([np.eye(4), -np.eye(4)])
    assert space.isotropy(cross) == pytest.approx(1.0)
    assert space.isotropy(cross + 2.0) < 0.5


def test_effective_dimension_counts_the_directions_in_use() -> None:
    flat = np.zeros((100, 10))
    flat[:, :3] = np.random.default_rng(0).normal(size=(100, 3))
    even = space.spectrum(np.concatenate([np.eye(4), -np.eye(4)]))
    assert space.participation_ratio(even) == pytest.approx(4)
    assert space.effective_rank(even) == pytest.approx(4)
    assert 2 < space.participation_ratio(space.spectrum(flat)) <= 3
    assert space.spectrum(flat)[3:] == pytest.approx(np.zeros(7))


def test_hubness_is_the_skewness_of_how_often_passages_are_found() -> None:
    neighbours = np.array([[0, 1], [0, 2], [0, 1], [0, -1]])
    counts = space.k_occurrence(neighbours, 5)
    found = space.hubness(counts)
    assert counts.tolist() == [4, 2, 1, 0, 0]
    assert found.skewness == pytest.approx(stats.skew(counts))
    assert (found.never, found.largest) == (0.4, 4 / 7)


def test_a_draw_is_fair_repeatable_and_in_order() -> None:
    once = draw(range(1000), 100, seed=3)
    assert once == draw(iter(range(1000)), 100, seed=3) == sorted(once)
    assert once != draw(range(1000), 100, seed=4)
    assert draw(range(3), 10, seed=0) == [0, 1, 2]
    counts = np.zeros(20)
    for seed in range(2000):
        counts[draw(range(20), 5, seed)] += 1
    assert counts / 2000 == pytest.approx(np.full(20, 0.25), abs=0.04)
