"""The way of the GPU, held on a CPU against the way of the CPU."""

import sys
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from liebig.indexes import exact_cpu as exact, exact_gpu as gpu
from liebig.indexes.exact_gpu import DeviceBlock, Resident, Scorer
from liebig.vectors import Shard, without


def vectors(n, width=32, seed=1):
    return np.random.default_rng(seed).standard_normal((n, width)).astype(np.float32)


def same(a, b):
    assert np.array_equal(a.numbers, b.numbers)
    assert np.array_equal(a.scores, b.scores)


@pytest.mark.parametrize("kind", ["fp32", "fp16", "int8"])
@pytest.mark.parametrize("count", [7, 1000, 5003])
def test_results_equal_those_of_the_cpu(kind, count):
    ids = [f"v{i}" for i in range(count)]
    x = vectors(count)
    shards = [Shard.in_memory(ids[:400], x[:400], kind), Shard.in_memory(ids[400:], x[400:], kind)]
    queries = vectors(5, seed=2) * 10
    same(Resident(shards, 32, "cpu").search(queries, 20), exact.search(queries, shards, 20))


def test_deleted_vectors_are_not_found_and_one_query_is_enough():
    shards = without(
        [Shard.in_memory([str(i) for i in range(3000)], vectors(3000), "fp16")], np.arange(0, 3000, 2)
    )
    found = Resident(shards, 32, "cpu").search(vectors(1, seed=2), 30)
    same(found, exact.search(vectors(1, seed=2), shards, 30))
    assert (found.numbers % 2 == 1).all()


def test_near_ties_everywhere_are_still_exact():
    x = np.repeat(vectors(1), 4000, axis=0) + np.float32(1e-4) * vectors(4000)
    for kind in ("fp16", "fp32"):
        shards = [Shard.in_memory([str(i) for i in range(4000)], x, kind)]
        same(
            Resident(shards, 32, "cpu").search(vectors(3, seed=2), 25),
            exact.search(vectors(3, seed=2), shards, 25),
        )


def test_vectors_that_do_not_fit_pass_through_in_blocks(monkeypatch):
    monkeypatch.setattr(gpu, "_room", lambda device: 700 * 32 * 2)
    shards = [
        Shard.in_memory([f"{s}-{i}" for i in range(999)], vectors(999, seed=s), "fp16") for s in range(3)
    ]
    same(
        Resident(shards, 32, "cpu").search(vectors(4, seed=9), 15),
        exact.search(vectors(4, seed=9), shards, 15),
    )


def test_the_best_groups_of_groups_hold_the_best_groups():
    best = torch.from_numpy(vectors(3, 5003)).half()
    highest, places = gpu.best_groups(best, 20)
    assert torch.equal(highest, best.topk(20, dim=1).values)
    assert torch.equal(best.gather(1, places), highest)


@pytest.mark.gpu
@pytest.mark.parametrize("queries", [1, 2, 20, 40, 300])
def test_deleted_vectors_are_not_found_on_a_gpu(queries):
    shards = without(
        [Shard.in_memory([str(i) for i in range(9001)], vectors(9001, 96), "fp16")], np.arange(0, 9001, 2)
    )
    x = vectors(queries, 96, seed=4)
    same(Resident(shards, 96, "cuda").search(x, 30), exact.search(x, shards, 30))


@pytest.mark.gpu
def test_results_on_a_gpu_equal_those_of_the_cpu():
    shards = [Shard.in_memory([str(i) for i in range(50_000)], vectors(50_000, 64), "fp16")]
    queries = vectors(50, 64, seed=3)
    found, wanted = Resident(shards, 64, "cuda").search(queries, 100), exact.search(queries, shards, 100)
    assert np.array_equal(found.numbers, wanted.numbers)


def test_a_block_of_its_own_needs_no_shards():
    x = torch.from_numpy(vectors(500)).half()
    queries = vectors(2, seed=2)
    found = Scorer(
        DeviceBlock(0, x, torch.zeros(0, dtype=torch.int64)), queries, float(x.norm(dim=1).max())
    ).search(10)
    true = (queries.astype(np.float64) @ x.double().numpy().T).astype(np.float32)
    assert np.array_equal(found.numbers, np.argsort(-true, axis=1, kind="stable")[:, :10])


def test_the_kernel_is_launched_on_the_device_of_the_vectors(monkeypatch):
    """Triton launches on the current device, which need not be the one that holds them (cuda:1)."""
    inside = []

    @contextmanager
    def device_of(x):
        inside.append(x)
        yield
        inside.clear()

    def group_maxima(queries, vectors, alive, group):
        assert inside
        assert inside[0] is vectors
        return queries

    monkeypatch.setattr(torch.cuda, "device_of", device_of)
    monkeypatch.setitem(
        sys.modules, "liebig.model.kernels.group_maxima", SimpleNamespace(group_maxima=group_maxima)
    )
    scorer = Scorer.__new__(Scorer)
    scorer._device, scorer._rough_QD = torch.device("cuda:1"), torch.zeros(2, 4)
    scorer._block = SimpleNamespace(vectors_ND=torch.zeros(3, 4), deleted=())
    assert scorer._group_maxima() is scorer._rough_QD
