"""Exact search equals brute force, ties included, whatever the type, tiles, shards and threads."""

from pathlib import Path

import numpy as np
import pytest

from liebig.base import npy
from liebig.base.errors import CorruptError, DataError, ResourceError
from liebig.base.machine import WINDOWS
from liebig.indexes import exact_cpu as exact
from liebig.indexes.exact import ExactIndex
from liebig.vectors import Shard, ranked, without, write_shard
from liebig.vectors.quantise import encode, table

TYPES = ["fp32", "fp16", "int8"]
rng = np.random.default_rng(0)


def error_bound(kind, queries, vectors):
    """The most a score may differ from that of the vectors before rounding, Q x N; see the table of quantise.py."""
    ones_Q1 = np.abs(queries).sum(1, dtype=np.float64)[:, None]
    norms = (
        np.linalg.norm(queries, axis=1)[:, None].astype(np.float64) * np.linalg.norm(vectors, axis=1)[None, :]
    )
    if kind == "fp16":
        return norms * 2.0**-11 + ones_Q1 * 2.0**-25 + norms * 2.0**-22
    if kind == "int8":
        return ones_Q1 * (np.abs(vectors).max(1) / 254)[None, :] * (1 + 2.0**-20) + norms * 2.0**-22
    assert kind == "fp32"
    return norms * 2.0**-23


def vectors(n, width=48, seed=1):
    """Clustered vectors, a fifth of them copies of others."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, width)).astype(np.float32)
    copies = rng.integers(0, n, n // 5)
    x[rng.integers(0, n, n // 5)] = x[copies]
    return x


def shards(path, x, kind, sizes):
    found, start = [], 0
    for i, size in enumerate(sizes):
        ids = [f"v{j}" for j in range(start, start + size)]
        write_shard(path / str(i), ids, x[start : start + size], kind)
        found.append(Shard.open(path / str(i), kind, x.shape[1]))
        start += size
    return found


def brute(queries, stored, k, live=None):
    """float64 products over the stored numbers, rounded once; ties by number."""
    scores = (queries.astype(np.float64) @ stored.astype(np.float64).T).astype(np.float32)
    if live is not None:
        scores[:, ~live] = -np.inf
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, order, 1), order


def stored(x, kind):
    """The numbers that the codes stand for; int8 is multiplied out as the search does it."""
    return encode(x, kind).decode()


@pytest.mark.parametrize("kind", TYPES)
def test_results_equal_brute_force_with_ties(tmp_path, kind):
    x, queries = vectors(700), vectors(13, seed=2)
    found = exact.search(queries, shards(tmp_path, x, kind, [700]), 40)
    coded = encode(x, kind)
    if kind == "int8":
        products = queries.astype(np.float64) @ coded.codes.astype(np.float64).T
        scores = (products * coded.scales.astype(np.float64)).astype(np.float32)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :40]
        scores = np.take_along_axis(scores, order, 1)
    else:
        scores, order = brute(queries, coded.decode(), 40)
    assert np.array_equal(found.numbers, order)
    assert np.array_equal(found.scores, scores)


@pytest.mark.parametrize("kind", ["fp32", "fp16", "int8"])
def test_the_error_of_a_type_is_as_stated(tmp_path, kind):
    x, queries = vectors(300) * 3, vectors(9, seed=2)
    found = exact.search(queries, shards(tmp_path, x, kind, [300]), 300)
    true = queries.astype(np.float64) @ x.astype(np.float64).T
    got = np.empty_like(true)
    np.put_along_axis(got, found.numbers, found.scores.astype(np.float64), 1)
    error = np.abs(got - true)
    assert (error <= error_bound(kind, queries, x)).all()
    assert kind == "fp32" or error.max() > 0


@pytest.mark.parametrize("kind", TYPES)
def test_sharded_equals_whole_to_the_last_digit(tmp_path, kind):
    x, queries = vectors(600, 96), vectors(7, 96, seed=2)
    whole = exact.search(queries, shards(tmp_path / "a", x, kind, [600]), 50)
    cut = exact.search(queries, shards(tmp_path / "b", x, kind, [1, 250, 0, 49, 300]), 50, threads=3)
    assert np.array_equal(whole.numbers, cut.numbers)
    assert np.array_equal(whole.scores, cut.scores)


def test_tiles_and_single_queries_change_nothing(tmp_path, monkeypatch):
    x, queries = vectors(3000), vectors(20, seed=2)
    parts = shards(tmp_path, x, "fp32", [3000])
    whole = exact.search(queries, parts, 30)
    monkeypatch.setattr(exact, "TILE", 1)
    monkeypatch.setattr(exact, "QUERIES", 3)
    small = exact.search(queries, parts, 30)
    assert np.array_equal(whole.numbers, small.numbers)
    assert np.array_equal(whole.scores, small.scores)


@pytest.mark.parametrize("kind", TYPES)
def test_vectors_kept_in_memory_change_nothing(tmp_path, kind, monkeypatch):
    x, queries = vectors(200), vectors(7, seed=2)
    found = {}
    for kept in (0, exact.KEPT):
        parts = shards(tmp_path / str(kept), x, kind, [90, 110])
        monkeypatch.setattr(exact, "KEPT", kept)
        found[kept] = [exact.search(queries, parts, 9) for _ in range(2)]
        assert all(("decoded" in vars(part.vectors)) == (kept > 0) for part in parts)
    for hits in (*found[0], *found[exact.KEPT]):
        np.testing.assert_array_equal(hits.scores, found[0][0].scores)
        np.testing.assert_array_equal(hits.numbers, found[0][0].numbers)


def test_many_equal_vectors_come_in_their_order(tmp_path):
    x = np.repeat(vectors(1, 64), 5000, axis=0)
    found = exact.search(vectors(3, 64, seed=2), shards(tmp_path, x, "fp32", [4999, 1]), 100)
    assert (found.numbers == np.arange(100)).all()


def test_deleted_vectors_are_not_found(tmp_path):
    x, queries = vectors(200), vectors(5, seed=2)
    live = rng.random(200) > 0.3
    (shard,) = shards(tmp_path, x, "fp32", [200])
    gone = without([shard], np.flatnonzero(~live))[0]
    found = exact.search(queries, [gone], 200)
    scores, order = brute(queries, x, int(live.sum()), live)
    assert np.array_equal(found.numbers[:, : live.sum()], order)
    assert np.array_equal(found.scores[:, : live.sum()], scores)
    assert (found.numbers[:, live.sum() :] == -1).all()


@pytest.mark.parametrize("kind", TYPES)
def test_given_numbers_are_ranked_as_among_all(tmp_path, kind, monkeypatch):
    monkeypatch.setattr(exact, "GATHERED", 16)
    x, queries = vectors(200), vectors(5, seed=2)
    live, chosen = rng.random(200) > 0.3, rng.random(200) > 0.6
    several = without(shards(tmp_path, x, kind, [80, 0, 119, 1]), np.flatnonzero(~live))
    found = exact.search_numbers(queries, several, 70, np.flatnonzero(chosen))
    everything = exact.search(queries, several, 200)
    for q in range(5):
        expected = [hit for hit in everything.row(q) if chosen[hit[0]]][:70]
        assert found.row(q) == expected
    nothing = exact.search_numbers(queries, several, 3, np.zeros(0, np.int64))
    assert (nothing.numbers == -1).all()


def test_more_wanted_than_there_are_leaves_places_empty(tmp_path):
    found = exact.search(vectors(2), shards(tmp_path, vectors(3), "fp32", [3]), 5)
    assert found.numbers.shape == (2, 5)
    assert (found.numbers[:, 3:] == -1).all()
    assert [len(found.row(q)) for q in (0, 1)] == [3, 3]


def test_a_wrong_width_is_said(tmp_path):
    with pytest.raises(DataError, match="width 16, the vectors 48"):
        exact.search(vectors(1, 16), shards(tmp_path, vectors(3), "fp32", [3]), 5)


def test_not_a_number_is_refused(tmp_path):
    bad = vectors(3)
    bad[1, 2] = np.nan
    with pytest.raises(DataError, match="NaN"):
        write_shard(tmp_path / "s", ["a", "b", "c"], bad, "fp16")


def test_the_table_of_fp16_casts_no_signalling_nan():
    """Their cast is an invalid operation: aarch64 warns, x86-64 passes them on."""
    codes = np.arange(1 << 16, dtype=np.uint16)
    with np.errstate(invalid="raise"):
        values = table.__wrapped__("fp16")
    nan = np.isnan(codes.view(np.float16))
    assert np.array_equal(values[~nan].astype(np.float16).view(np.uint16), codes[~nan])
    assert np.isnan(values[nan]).all()
    assert (values[nan].view(np.uint32) & 1 << 22).all(), "the bit that makes a NaN a quiet one"


def test_a_vector_of_zeros_is_stored_in_every_type(tmp_path):
    for kind in TYPES[:3]:
        assert not encode(np.zeros((2, 8), np.float32), kind).decode().any()


def test_an_id_is_that_of_its_shard_also_after_more_were_added():
    index, ids = ExactIndex("fp32", 2), []
    for shard in range(4):
        new = [f"s{shard}-{row}" for row in range(shard + 1)]
        index.add(new, np.ones((len(new), 2), np.float32))
        ids += new
        assert [index.id(number) for number in range(len(ids))] == ids


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts open files")
@pytest.mark.skipif(WINDOWS, reason="Windows has no such limit, and a map holds its file open")
def test_shards_hold_no_file_open(tmp_path):
    """A process may have 1,024 open files; an index of 12 million vectors has more shards' files than that."""
    x = vectors(40, width=8)
    several = shards(tmp_path, x, "int8", [1] * 40)
    resource = pytest.importorskip("resource")
    before = len(list(Path("/proc/self/fd").iterdir()))
    again = [Shard.open(shard.path, "int8", 8) for shard in several]
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before + 8, hard))
    try:
        again += [Shard.open(shard.path, "int8", 8) for shard in several]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert np.array_equal(exact.search(x, again[40:], 9).numbers, exact.search(x, several, 9).numbers)


def test_too_many_open_files_get_the_right_advice(tmp_path):
    (shard,) = shards(tmp_path, vectors(3, width=8), "fp32", [3])
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with pytest.raises(ResourceError, match=r"too many files are open.*ulimit -n"):
            npy.load(shard.path / "vectors.npy")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("kind", [np.float64, np.int16, np.uint8])
def test_vectors_of_another_type_than_they_say_are_refused(tmp_path, kind):
    (shard,) = shards(tmp_path, vectors(3, width=8), "fp16", [3])
    npy.save(shard.path / "vectors.npy", np.zeros((3, 8), kind))
    with pytest.raises(CorruptError, match=r"vectors.npy: has numbers of type .*, not float16"):
        Shard.open(shard.path, "fp16", 8)


@pytest.mark.parametrize(
    "header",
    [
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (999999999999, 8), }",
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 8), }",
        b"{'descr': '|O', 'fortran_order': False, 'shape': (3, 8), }",
        b"{'descr': '<f4', 'fortran_order': True, 'shape': (3, 8), }",
        b"{'descr': '<f4', 'shape': (",
        b"(" * 118,
        b"\xff" * 60,
        b"",
    ],
)
def test_a_header_of_nonsense_is_a_corrupt_file(tmp_path, header):
    file = tmp_path / "a.npy"
    file.write_bytes(b"\x93NUMPY\x01\x00\x76\x00" + header.ljust(118, b" ") + bytes(96))
    with pytest.raises(CorruptError, match="cannot be mapped"):
        npy.load(file)
    file.write_bytes(b"\x93NUM")
    with pytest.raises(CorruptError, match="cannot be mapped"):
        npy.load(file)


@pytest.fixture
def bytes_for_all(monkeypatch):
    """Rough scores in int8, on every processor and for any number of queries."""
    pytest.importorskip("numba")
    monkeypatch.setattr(exact, "MANY", 1)
    monkeypatch.setattr(exact, "SCORES", 0)
    monkeypatch.setattr(exact, "byte_products", lambda: "any")


@pytest.mark.usefixtures("bytes_for_all")
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("kind", TYPES)
def test_rough_scores_in_int8_change_nothing(tmp_path, kind, threads, monkeypatch):
    width = 48 if threads == 1 else 40  # of whole vectors of the processor, and not
    x, queries = vectors(2300, width), vectors(29, width, seed=2)
    parts = without(shards(tmp_path, x, kind, [1, 1300, 0, 999]), np.array([0, 5, 700, 2299]))
    found = exact._search_bytes(queries, list(zip(exact.starts(parts), parts)), 40, threads)
    monkeypatch.setattr(exact, "MANY", 1000)
    plain = exact.search(queries, parts, 40)
    assert np.array_equal(found.numbers, plain.numbers)
    assert np.array_equal(found.scores, plain.scores)


@pytest.mark.usefixtures("bytes_for_all")
def test_near_ties_are_told_apart_behind_int8(tmp_path, monkeypatch):
    """Vectors that have the same codes, and differ by less than a code or not at all; some tie in float32."""
    random = np.random.default_rng(3)
    centre = random.standard_normal(48).astype(np.float32)
    x = np.repeat(centre[None], 1500, 0)
    x += random.choice(np.array([0, 1e-7, 1e-6, 1e-4], np.float32), x.shape[:1])[
        :, None
    ] * random.standard_normal(48)
    x[::7] *= -1
    queries = np.concatenate([centre[None], -centre[None], vectors(10, seed=2)])
    parts = shards(tmp_path, x.astype(np.float32), "fp32", [700, 800])
    found = exact.search(queries, parts, 60)
    monkeypatch.setattr(exact, "MANY", 1000)
    plain = exact.search(queries, parts, 60)
    assert np.array_equal(found.numbers, plain.numbers)
    assert np.array_equal(found.scores, plain.scores)


@pytest.mark.usefixtures("bytes_for_all")
def test_int8_gives_up_where_all_vectors_are_alike(tmp_path):
    x, queries = np.repeat(vectors(1, 64), 9000, axis=0), vectors(3, 64, seed=2)
    parts = shards(tmp_path, x, "fp32", [8999, 1])
    assert exact._search_bytes(queries, list(zip(exact.starts(parts), parts)), 100, 1) is None
    assert (exact.search(queries, parts, 100).numbers == np.arange(100)).all()


@pytest.mark.usefixtures("bytes_for_all")
def test_int8_leaves_places_empty_where_there_is_nothing(tmp_path):
    x, queries = vectors(9), np.zeros((7, 48), np.float32)
    found = exact.search(queries, shards(tmp_path, x, "fp32", [9]), 12)
    assert (found.numbers == [*range(9), -1, -1, -1]).all()
    assert np.array_equal(found.scores[0], [0] * 9 + [-np.inf] * 3)


@pytest.mark.usefixtures("bytes_for_all")
def test_the_bounds_of_int8_hold_and_are_close():
    from liebig.indexes.exact_bytes import Search

    x, queries = vectors(64), vectors(12, seed=2)
    search = Search(queries, 64)
    largest = float(np.linalg.norm(x, axis=1).max())
    search.add(0, x, largest, np.zeros(12), np.zeros(0, bool), lambda share: [share(slice(0, 12))])
    lower, upper = (
        np.take_along_axis(ranked.scores_of(entries), np.argsort(ranked.numbers_of(entries), 1), 1)
        for entries in (search._lists.limits, search._lists.entries[:, :64])
    )
    scores = queries.astype(np.float64) @ x.T.astype(np.float64)
    assert (lower < scores).all()
    assert (scores < upper).all()
    # a code is 1/127 of the largest of 48 numbers, and rounding moves a number by a quarter of it on average
    assert (upper - lower < 0.05 * largest * np.linalg.norm(queries, axis=1)[:, None]).all()


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("kind", TYPES)
def test_vectors_kept_in_int8_for_few_queries_change_nothing(tmp_path, kind, threads, monkeypatch):
    pytest.importorskip("numba")
    from liebig.indexes import exact_bytes

    width = 48 if threads == 1 else 40  # of whole vectors of the processor, and not
    x, queries = vectors(2300, width), vectors(5, width, seed=2)
    parts = without(shards(tmp_path, x, kind, [1, 1300, 0, 999]), np.array([0, 5, 700, 2299]))
    index = ExactIndex(kind, width, parts, threads=threads)
    plain = index.search(queries, 40)
    monkeypatch.setattr(exact, "KEPT", 0)
    monkeypatch.setattr(exact, "byte_products", lambda: "any")
    monkeypatch.setattr(exact_bytes, "KEPT", 512)
    for _ in range(2):
        ranked = index.search(queries, 40)
        assert np.array_equal(ranked.numbers, plain.numbers)
        assert np.array_equal(ranked.scores, plain.scores)
    assert len(index._kept) == 1 + 3 + 2
    assert not exact.keeps_bytes(parts, 1 << 31, searches=100), "more than may be kept"
    best = int(plain.numbers[0, 0])
    index.delete([index.id(best)])
    assert best not in index.search(queries, 40).numbers
    index.add(["new"], queries[:1] * 100)
    assert index.id(int(index.search(queries[:1], 1).numbers[0, 0])) == "new"


def test_vectors_beyond_a_cache_are_kept_in_int8_once_many_questions_came(tmp_path, monkeypatch):
    pytest.importorskip("numba")
    monkeypatch.setattr(exact, "byte_products", lambda: "any")
    monkeypatch.setattr(exact, "CACHED", 1000)
    index = ExactIndex("fp16", 48, shards(tmp_path, vectors(300), "fp16", [300]))
    questions = vectors(20, seed=2)
    plain = index.search(questions, 5)
    assert index._kept is None, "many at once"
    for number, question in enumerate(questions):
        assert (index._kept is not None) == (number >= exact.WARM)
        ranked = index.search(question[None], 5)
        assert np.array_equal(ranked.numbers[0], plain.numbers[number])
        assert np.array_equal(ranked.scores[0], plain.scores[number])
