from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from liebig.vectors.topk import topk


def full(queries: np.ndarray, passages: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Everything sorted by score, then by number."""
    scores = queries @ passages.T
    order = np.lexsort((np.broadcast_to(np.arange(len(passages)), scores.shape), -scores), axis=1)[:, :k]
    return np.take_along_axis(scores, order, 1), order


def small_integers(n: int, width: int, seed: int) -> np.ndarray:
    """Vectors whose scores are exact and tie often."""
    return np.random.default_rng(seed).integers(-2, 3, (n, width)).astype(np.float32)


@pytest.mark.parametrize("tile", [1, 7, 64, 1000])
@pytest.mark.parametrize("k", [1, 10, 300, 2000])
def test_tiled_top_k_is_the_full_sort_with_ties_to_the_lower_number(tile: int, k: int) -> None:
    queries, passages = small_integers(11, 4, 0), small_integers(500, 4, 1)
    scores, numbers = topk(queries, passages, k, tile_queries=4, tile_passages=tile)
    expected_scores, expected = full(queries, passages, k)
    assert np.array_equal(numbers, expected)
    assert np.array_equal(scores, expected_scores)


def test_equal_passages_come_in_order_whatever_the_tiles() -> None:
    passages = np.zeros((100, 3), np.float32)
    for tile in (3, 40, 200):
        assert topk(passages[:1], passages, 7, tile_passages=tile)[1].tolist() == [list(range(7))]


def test_random_vectors_agree_with_a_full_sort() -> None:
    random = np.random.default_rng(3)
    queries, passages = (
        random.normal(size=(20, 32)).astype(np.float32),
        random.normal(size=(900, 32)).astype(np.float32),
    )
    scores, numbers = topk(queries, passages, 25, tile_queries=7, tile_passages=100)
    expected_scores, expected = full(queries, passages, 25)
    assert np.array_equal(numbers, expected)
    assert np.allclose(scores, expected_scores, atol=1e-5)


def test_memory_mapped_half_precision_passages_are_read_as_they_are(tmp_path: Path) -> None:
    passages = small_integers(300, 6, 4)
    np.save(tmp_path / "vectors.npy", passages.astype(np.float16))
    mapped = np.load(tmp_path / "vectors.npy", mmap_mode="r")
    queries = torch.from_numpy(small_integers(3, 6, 5))
    assert np.array_equal(
        topk(queries, mapped, 9, tile_passages=50)[1], full(queries.numpy(), passages, 9)[1]
    )


def test_no_queries_and_no_passages_give_empty_answers() -> None:
    some, none = small_integers(5, 3, 6), np.empty((0, 3), np.float32)
    assert topk(none, some, 3)[1].shape == (0, 3)
    assert topk(some, none, 3)[1].shape == (5, 0)
