"""A search without numba: the numpy version of every kernel on its way gives what the compiled one gives."""

import subprocess
import sys

import numpy as np
import pytest

from liebig import ragged
from liebig.base import compiled
from liebig.base.errors import MissingDependency
from liebig.base.machine import AVX_VNNI, DOT, VNNI
from liebig.bm25 import kernels, search
from liebig.collection import lookup
from liebig.indexes import exact_cpu
from liebig.ragged import Ragged, Strings
from liebig.vectors import ranked
from tests.bm25.test_bm25 import QUERIES, build, passages
from tests.indexes.test_exact import TYPES, shards, vectors


@pytest.fixture
def without_numba(monkeypatch):
    """Puts the numpy versions where the compiled kernels are, when it is called."""

    def switch():
        for module, names in KERNELS.items():
            for name in names:
                monkeypatch.setattr(module, name, getattr(module, f"_{name.strip('_')}_numpy"))

    return switch


KERNELS = {
    ranked: ["unpack"],
    kernels: ["score_term", "fill_table", "search"],
    exact_cpu: ["scan", "score_pairs", "finish"],
    ragged: ["_copy"],
    lookup: ["hash_rows"],
}


def same(a, b):
    return np.array_equal(a.numbers, b.numbers) and np.array_equal(a.scores, b.scores)


@pytest.mark.parametrize("window", [1 << 16, 256])
def test_bm25_finds_the_same_to_the_last_digit(tmp_path, monkeypatch, without_numba, window):
    monkeypatch.setattr(kernels, "WINDOW", window)
    monkeypatch.setattr(
        search, "CACHED_SCORES", 3000
    )  # some terms have cached scores, some a table, some neither
    build(tmp_path / "ix", passages(700))
    mask = np.random.default_rng(1).random(700) < 0.5

    def answers():
        index = search.BM25.open(tmp_path / "ix")
        return [index.search(QUERIES, k, mask=m) for k in (1, 7, 700) for m in (None, mask)]

    expected = answers()
    without_numba()
    assert all(same(a, b) for a, b in zip(expected, answers(), strict=True))


@pytest.mark.parametrize("kind", TYPES)
def test_exact_search_finds_the_same(tmp_path, monkeypatch, without_numba, kind):
    monkeypatch.setattr(exact_cpu, "ROWS", 300)  # several tiles
    x, queries = vectors(700), vectors(5, seed=2)
    parts = shards(tmp_path, x, kind, [400, 300])
    some = np.arange(0, 700, 3)

    def answers():
        found = [exact_cpu.search(queries, parts, k, threads=1) for k in (1, 40, 700)]
        return [*found, exact_cpu.search_numbers(queries, parts, 9, some)]

    expected, numbers = answers(), np.array([[3, 699, -1]] * 5)
    scores = exact_cpu.score(queries, numbers, parts)
    without_numba()
    # Both sum in float64 and round once to float32, in different orders: a sum at the edge may round the other way.
    for a, b in zip(expected, answers(), strict=True):
        assert np.array_equal(a.numbers, b.numbers)
        np.testing.assert_allclose(a.scores, b.scores, rtol=2e-7, atol=1e-7)
    np.testing.assert_allclose(exact_cpu.score(queries, numbers, parts), scores, rtol=2e-7, atol=1e-7)


def test_rows_are_put_together_the_same(without_numba):
    rng = np.random.default_rng(0)
    starts = rng.integers(0, 40, (6, 2))
    spans = np.stack([starts, starts + rng.integers(0, 9, (6, 2))], axis=2)
    values = np.arange(60, dtype=np.int32)

    def answers():
        rows = Ragged(values, np.array([0, 0, 7, 60]))
        return [
            ragged.gather(values, spans, (1, 2), (3,)),
            ragged.gather(values, spans),
            rows.wrap((9,), (), 5),
        ]

    expected = answers()
    without_numba()
    for a, b in zip(expected, answers(), strict=True):
        assert a.to_lists() == b.to_lists()


def test_ids_have_the_same_hashes(without_numba):
    rows = Strings.pack(["", "a", "b", "a longer id", "größe", "x" * 300]).utf8
    expected = lookup.hash_rows(rows.values, rows.offsets)
    without_numba()
    assert np.array_equal(lookup.hash_rows(rows.values, rows.offsets), expected)


def test_a_kernel_without_a_numpy_version_names_the_extra(monkeypatch):
    monkeypatch.setattr(compiled, "numba", None)
    monkeypatch.setattr(compiled, "_waiting", [])
    monkeypatch.setattr(compiled._Kernels, "compiled", False)
    assert compiled.njit(cache=True, numpy=len)(sum)([7, 8]) == 2
    with pytest.raises(MissingDependency, match=r"pip install .*\[train\]"):
        compiled.njit(cache=True)(sum)([7, 8])


TURN = """
import sys
from liebig.base.machine import prefer_numpy
prefer_numpy()
from concurrent.futures import ThreadPoolExecutor
import numpy as np
from liebig.base import compiled, rng
from liebig.bm25 import kernels
from liebig.vectors import ranked
from liebig.vectors.ranked import unpack

def best():
    keys, numbers = ranked.keys_of(np.float32([.5, 2, 1]), np.arange(3)), np.empty(3, np.int64)
    unpack(np.sort(keys), 3, np.empty(3, np.float32), numbers)
    return numbers.tolist(), compiled.has_numba()

def warm():
    seen.append(best())
    seen.append(other.submit(best).result())
    from numba import njit
    seen.append(bool(njit(lambda: rng.below(1, 2, 100))() == rng.below(1, 2, 100)))

other, seen = ThreadPoolExecutor(1), [best(), "numba" in sys.modules]
compiled.load_numba(warm)
print([*seen, other.submit(best).result(), "numba" in sys.modules])
"""


def test_kernels_that_began_in_numpy_are_compiled_later_by_one_thread_for_all():
    pytest.importorskip("numba")
    done = subprocess.run([sys.executable, "-c", TURN], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    plain, made = ([1, 2, 0], False), ([1, 2, 0], True)
    assert done.stdout.strip() == str([plain, False, made, plain, True, made, True])


EARLY = """
from liebig.base.machine import prefer_numpy
prefer_numpy()
from liebig.base import compiled
from liebig.model.kernels import registers
compiled.load_numba(lambda: None)
print(registers.WAY == compiled.byte_products())
"""


def test_tiles_suit_the_processor_although_they_were_imported_before_kernels_are_compiled():
    """A model that only torch computes imports them with a server's start; of other tiles, products are wrong."""
    pytest.importorskip("numba")
    done = subprocess.run([sys.executable, "-c", EARLY], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.returncode) == ("True", 0), done.stderr


@pytest.mark.parametrize(
    ("flags", "name", "told", "found"),
    [
        (("avx2", VNNI), "icelake-server", None, VNNI),
        (("avx2", AVX_VNNI), "alderlake", None, AVX_VNNI),
        (("avx2", AVX_VNNI, VNNI), "sapphirerapids", None, VNNI),
        (("avx2",), "haswell", None, ""),
        ((DOT,), "neoverse-n1", None, DOT),
        ((DOT,), "generic", None, ""),
        ((DOT,), "neoverse-n1", "cortex-a72", ""),
        ((DOT,), "neoverse-n1", "", ""),
        ((VNNI,), "icelake-server", "generic", ""),
        ((AVX_VNNI,), "alderlake", "generic", ""),
    ],
)
def test_int8_dot_products_are_used_where_numba_compiles_for_them(monkeypatch, flags, name, told, found):
    numba = pytest.importorskip("numba")
    monkeypatch.setattr(compiled, "instructions", lambda: flags)
    monkeypatch.setattr(compiled, "processor", lambda: name)
    monkeypatch.setattr(numba.config, "CPU_NAME", told)
    monkeypatch.setattr(numba.config, "CPU_FEATURES", None)
    assert compiled.byte_products() == found


def test_without_numba_there_are_no_int8_dot_products(monkeypatch):
    monkeypatch.setattr(compiled._Kernels, "compiled", False)
    assert compiled.byte_products() == ""


def test_kernels_are_compiled_again_where_the_vectors_they_are_made_of_change(monkeypatch):
    registers = pytest.importorskip("liebig.model.kernels.registers")

    def stamp():
        return registers.kernel(lambda x: x)._cache._cache_file._source_stamp

    before = stamp()
    assert stamp() == before
    monkeypatch.setattr(registers, "__file__", __file__)
    assert stamp() != before
