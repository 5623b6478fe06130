"""One behaviour for every kind of index: exact, FAISS and Milvus find the same, and folders are safe."""

import numpy as np
import pytest

from liebig.base import machine, workspace
from liebig.base.errors import CorruptError, DataError, RecipeError
from liebig.indexes import open_index
from liebig.indexes.exact import ExactIndex
from liebig.indexes.faiss import FaissIndex, suggest
from liebig.indexes.recall import RecallGoal, draw, measure, tune
from liebig.stages.index import IndexConfig, run
from liebig.vectors import Vectors, write_shard, write_summary
from tests.worlds.processes import SERVER

WIDTH = 16


def vectors(n, seed=1):
    return np.random.default_rng(seed).standard_normal((n, WIDTH)).astype(np.float32)


def names(n, first=0):
    return [f"v{i}" for i in range(first, first + n)]


def folder_of(path, ids, rows, kind="fp32", per_shard=70):
    """A folder of vectors, as encoding writes it."""
    with workspace.stage(path, kind="encode", recipe={}, inputs={}, resume=False) as folder:
        shards = []
        for start in range(0, len(ids), per_shard):
            shards.append(f"{len(shards):05d}")
            end = start + per_shard
            write_shard(folder.path / "shards" / shards[-1], ids[start:end], rows[start:end], kind)
        write_summary(folder.path, kind, WIDTH, shards, {"model": "m"}, len(ids))
    return path


def index_of(out, **values):
    config = IndexConfig.model_validate(values)
    with workspace.stage(out, kind="index", recipe={}, inputs={}, resume=False) as folder:
        run(config, folder)
    return open_index(out)


def found(index, queries, k=20):
    ranked = index.search(queries, k)
    return [[index.id(number) for number, _ in ranked.row(q)] for q in range(len(queries))]


KINDS = {
    "exact": {"kind": "exact"},
    "faiss": {"kind": "faiss", "factory": "IVF4,Flat", "recall": 1.0, "sample": 50},
    "hnsw": {"kind": "faiss", "factory": "HNSW16", "recall": 1.0, "sample": 50},
}
kinds = pytest.mark.parametrize("kind", KINDS)


@kinds
def test_every_kind_finds_what_the_exact_one_finds(tmp_path, kind):
    source = folder_of(tmp_path / "vectors", names(200), vectors(200))
    queries = vectors(6, seed=2)
    index = index_of(tmp_path / "ix", vectors=source, index=KINDS[kind])
    wanted = open_index(source)
    assert found(index, queries) == found(wanted, queries)
    np.testing.assert_allclose(index.search(queries, 9).scores, wanted.search(queries, 9).scores, rtol=1e-5)
    assert len(index) == 200
    assert index.about == {"model": "m"}


@kinds
def test_adding_and_deleting_equals_an_index_of_what_is_left(tmp_path, kind):
    rows, new = vectors(150), vectors(30, seed=3)
    base = folder_of(tmp_path / "a", names(150), rows)
    more = folder_of(tmp_path / "b", ["v3", *names(29, 500)], new)
    (tmp_path / "gone").write_text("v5\nv6\nnever\n")
    index_of(tmp_path / "old", vectors=base, index=KINDS[kind])
    index = index_of(tmp_path / "new", vectors=more, base=tmp_path / "old", delete=tmp_path / "gone")
    left = [i for i in range(150) if i not in (3, 5, 6)]
    ids = [f"v{i}" for i in left] + ["v3", *names(29, 500)]
    wanted = open_index(folder_of(tmp_path / "c", ids, np.concatenate([rows[left], new])))
    queries = vectors(6, seed=2)
    assert found(index, queries, 40) == found(wanted, queries, 40)
    assert len(index) == len(wanted)
    assert index.find("v5") is None
    assert found(open_index(tmp_path / "old"), rows[5:6], 1) == [["v5"]]


@kinds
def test_saved_then_opened_equals_the_original(tmp_path, kind):
    index_of(tmp_path / "ix", vectors=folder_of(tmp_path / "v", names(90), vectors(90)), index=KINDS[kind])
    queries = vectors(4, seed=2)
    one, two = open_index(tmp_path / "ix"), open_index(tmp_path / "ix")
    one.add(["z"], queries[:1] * 100)
    with workspace.stage(tmp_path / "again", kind="index", recipe={}, inputs={}) as folder:
        one.save(folder.path)
    assert found(one, queries) == found(open_index(tmp_path / "again"), queries)
    assert found(one, queries)[0][0] == "z"
    assert "z" not in found(two, queries, 90)[0]


@kinds
def test_every_damaged_file_is_a_corrupt_error_and_a_rebuild_needs_no_opening(tmp_path, kind):
    source = folder_of(tmp_path / "v", names(60), vectors(60))
    index_of(tmp_path / "ix", vectors=source, index=KINDS[kind])
    files = [p for p in (tmp_path / "ix").rglob("*") if p.is_file() and p.stat().st_size]
    for file in files:
        if file.name == "manifest.json" or file.stat().st_nlink > 1:
            continue
        good = file.read_bytes()
        for bad in (good[: len(good) // 2], good[:-1] + bytes([good[-1] ^ 4])):
            file.write_bytes(bad)
            with pytest.raises(CorruptError):
                open_index(tmp_path / "ix")
    assert len(index_of(tmp_path / "ix", vectors=source, index=KINDS[kind])) == 60


def test_a_damaged_shard_is_a_corrupt_error(tmp_path):
    source = folder_of(tmp_path / "v", names(60), vectors(60))
    file = source / "shards" / "00000" / "vectors.npy"
    file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises(CorruptError):
        open_index(source)


def test_types_are_converted_shard_by_shard(tmp_path):
    source = folder_of(tmp_path / "v", names(150), vectors(150))
    index = index_of(tmp_path / "ix", vectors=source, index={"kind": "exact", "type": "int8"})
    direct = open_index(folder_of(tmp_path / "w", names(150), vectors(150), "int8"))
    queries = vectors(3, seed=2)
    assert np.array_equal(index.search(queries, 30).scores, direct.search(queries, 30).scores)
    more = folder_of(tmp_path / "m", names(20, 900), vectors(20, seed=5), "fp16")
    assert len(index_of(tmp_path / "iy", vectors=more, base=tmp_path / "ix")) == 170


@pytest.mark.skipif(
    machine.WINDOWS, reason="Windows copies them, so that a file that is open can be replaced"
)
def test_shards_are_linked_not_copied(tmp_path):
    source = folder_of(tmp_path / "v", names(60), vectors(60))
    index_of(tmp_path / "ix", vectors=source)
    name = "shards/00000/vectors.npy"
    assert (tmp_path / "ix" / name).samefile(source / name)


def test_recall_is_measured_and_effort_raised_until_it_is_reached():
    exact = ExactIndex("fp32", WIDTH)
    exact.add(names(3000), vectors(3000))
    index = FaissIndex.train(exact, "IVF64,Flat")
    sample = draw(exact.shards, 10, 100)
    lines = []
    tune(index, sample, RecallGoal(10, 0.9), lines.append)
    assert index.recall.measured == pytest.approx(measure(index, sample), abs=1e-6)
    assert index.recall.measured >= 0.9
    assert len(lines) == np.log2(index.setting.effort) + 1 > 1
    assert "recall@10" in lines[0]
    index.set_effort(index.setting.effort // 2)
    assert measure(index, sample) < 0.9
    tune(index, sample, RecallGoal(10, 1.0), lines.append)
    assert measure(index, sample) == 1.0


def test_recall_does_not_count_a_vector_as_its_own_neighbour():
    exact = ExactIndex("fp32", 2)
    exact.add(["a", "b", "c", "d"], np.array([[1, 0], [0.9, 0.1], [0, 1], [0.1, 0.9]], np.float32))
    sample = draw(exact.shards, 1, 4)
    assert sample.truth.numbers.ravel().tolist() == [1, 0, 3, 2]
    assert measure(exact, sample) == 1.0
    half = ExactIndex("fp32", 2)
    half.add(["a", "b", "c", "d"], np.array([[1, 0], [0.9, 0.1], [0, 0], [0, 0]], np.float32))
    assert measure(half, sample) == 0.5


def test_recall_of_an_older_index_is_wanted_as_before(tmp_path):
    source = folder_of(tmp_path / "v", names(400), vectors(400))
    wish = {"kind": "faiss", "factory": "IVF16,Flat", "recall": 0.8, "recall_at": 5, "sample": 40}
    index_of(tmp_path / "a", vectors=source, index=wish)
    more = folder_of(tmp_path / "m", names(50, 900), vectors(50, seed=5))
    index = index_of(tmp_path / "b", vectors=more, base=tmp_path / "a")
    assert (index.recall.k, index.recall.wanted) == (5, 0.8)
    assert index.recall.measured >= 0.8
    fixed = index_of(tmp_path / "c", vectors=source, index={**wish, "effort": 3})
    assert (fixed.setting.effort, fixed.recall.wanted) == (3, 0.0)
    again = index_of(tmp_path / "d", vectors=more, base=tmp_path / "c")
    assert again.setting.effort == 3


@pytest.mark.parametrize("index", [{"kind": "faiss"}, {"kind": "exact", "type": "int8"}])
def test_an_index_that_is_added_to_stays_what_it_is(tmp_path, index):
    index_of(tmp_path / "a", vectors=folder_of(tmp_path / "v", names(9), vectors(9)))
    more = folder_of(tmp_path / "m", names(5, 900), vectors(5, seed=5))
    with pytest.raises(RecipeError, match="base is of kind exact, and its settings are kept"):
        index_of(tmp_path / "b", vectors=more, base=tmp_path / "a", index=index)
    assert len(index_of(tmp_path / "c", vectors=more, base=tmp_path / "a", index={"kind": "exact"})) == 14


def test_compressed_vectors_are_scored_exactly(tmp_path):
    exact = ExactIndex("fp32", WIDTH)
    exact.add(names(2000), vectors(2000))
    index = FaissIndex.train(exact, "IVF8,PQ4x4", rescore=50)
    queries = vectors(5, seed=2)
    got, wanted = index.search(queries, 5), exact.search(queries, 5)
    assert set(got.scores.ravel().tolist()) <= set(exact.search(queries, 2000).scores.ravel().tolist())
    assert (got.numbers[:, 0] == wanted.numbers[:, 0]).mean() >= 0.6


def test_a_factory_that_faiss_does_not_know_is_a_recipe_error():
    with pytest.raises(RecipeError, match=r"width 16: could not parse .* \"IVF4096,PQ16\""):
        FaissIndex.train(ExactIndex("fp32", WIDTH), "NOPE12")


def test_structures_are_suggested_by_size():
    assert suggest(10_000, 768) == "Flat"
    assert suggest(1_000_000, 768) == "IVF4096,Flat"
    assert suggest(21_000_000, 768) == "IVF16384,PQ64"


def test_a_wrong_width_is_said_when_adding(tmp_path):
    index_of(tmp_path / "ix", vectors=folder_of(tmp_path / "v", names(9), vectors(9)))
    with pytest.raises(DataError, match="width"):
        open_index(tmp_path / "ix").add(["x"], np.zeros((1, 3), np.float32))


def test_two_processes_that_take_half_the_shards_equal_one(tmp_path):
    source = folder_of(tmp_path / "v", names(300), vectors(300))
    queries = vectors(8, seed=2)
    with SERVER.Pool(2) as pool:
        parts = pool.starmap(search_part, [(source, queries, [0, 2, 4]), (source, queries, [1, 3])])
    from liebig.vectors.ranked import merge

    both, whole = merge(parts, 25), open_index(source).search(queries, 25)
    assert np.array_equal(both.numbers, whole.numbers)
    assert np.array_equal(both.scores, whole.scores)


def search_part(source, queries, parts):
    from liebig.indexes.exact_cpu import search

    return search(queries, Vectors.open(source).shards, 25, parts=parts)


def narrow(n, seed=1):
    """Vectors in a narrow cone and of several lengths, as those of models that are asked by products."""
    lengths = 1 + 0.1 * np.random.default_rng(seed).standard_normal((n, 1))
    return (vectors(n, seed) + 3) * lengths.astype(np.float32)


def test_a_graph_finds_the_largest_products_of_vectors_of_several_lengths():
    exact = ExactIndex("fp32", WIDTH)
    exact.add(names(1500), narrow(1500))
    index = FaissIndex.train(exact, "HNSW16")
    tune(index, draw(exact.shards, 50, 100), RecallGoal(50, 0.95), lambda line: None)
    assert index.recall.measured >= 0.95
    assert index.setting.effort <= 256


def test_more_lists_than_vectors_is_a_recipe_error():
    exact = ExactIndex("fp32", WIDTH)
    exact.add(names(20), vectors(20))
    with pytest.raises(RecipeError, match="cannot train 'IVF64,Flat' on 20 vectors"):
        FaissIndex.train(exact, "IVF64,Flat")


def test_ids_to_delete_that_are_no_text_name_the_line(tmp_path):
    index_of(tmp_path / "ix", vectors=folder_of(tmp_path / "v", names(9), vectors(9)))
    (tmp_path / "gone").write_bytes(b"v1\n\x81\x82\n")
    with pytest.raises(DataError, match="line 2"):
        index_of(tmp_path / "iy", base=tmp_path / "ix", delete=tmp_path / "gone")


@pytest.mark.parametrize("factory", ["PQ4", "IVF4,PQ4", "OPQ4,IVF4,PQ4"])
def test_codes_are_not_ordered_for_a_search_that_is_never_made(factory):
    import faiss

    from liebig.indexes.faiss import _make

    structure = _make(WIDTH, factory)
    inner = faiss.try_extract_index_ivf(structure) or structure
    assert not faiss.downcast_index(inner).do_polysemous_training
