"""The table that bench/all.py writes: rows of a run replace older ones, others stay."""

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def benchmarks(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    return importlib.import_module("all")


def test_every_benchmark_of_the_table_is_there_and_ends_with_a_ratio(benchmarks):
    for benchmark in benchmarks.BENCHMARKS:
        assert "ratio: " in (ROOT / "bench" / f"{benchmark.name}.py").read_text(encoding="utf-8")


def test_rows_of_a_run_replace_older_ones_and_others_stay(benchmarks):
    first, second = benchmarks.BENCHMARKS[:2]
    table = benchmarks.with_rows("", [benchmarks.row(b, 1.5) for b in (second, first)])
    again = benchmarks.with_rows(table, [benchmarks.row(second, 9.25)])
    rows = [line for line in again.splitlines() if line.startswith("| `")]
    assert rows == [benchmarks.row(first, 1.5), benchmarks.row(second, 9.25)]


def test_a_run_keeps_the_rows_of_machines_of_another_kind(benchmarks, monkeypatch):
    first = benchmarks.BENCHMARKS[0]
    monkeypatch.setattr(benchmarks, "machine", lambda gpu: "x86_64 avx2")
    intel = benchmarks.row(first, 1.5)
    monkeypatch.setattr(benchmarks, "machine", lambda gpu: "aarch64 asimddp")
    both = benchmarks.with_rows(benchmarks.with_rows("", [intel]), [benchmarks.row(first, 2.5)])
    assert both.splitlines()[2:] == [benchmarks.row(first, 2.5), intel]


def test_a_table_takes_the_place_of_the_last_one_on_its_page(benchmarks, tmp_path):
    page = importlib.import_module("page")
    file = tmp_path / "page.md"
    file.write_text("before\n<!-- written by x.py -->\nold\n<!-- end of what x.py wrote -->\nafter\n")
    page.write_table(file, "x.py", "new")
    assert page.read_table(file, "x.py") == "new"
    assert file.read_text().startswith("before\n")
    assert file.read_text().endswith("after\n")
    assert "old" not in file.read_text()


def test_a_missing_folder_or_package_is_named(benchmarks):
    benchmark = benchmarks.Benchmark("bm25", "--data DATA/wiki", 1.0, ("no_such_package",), "")
    assert benchmark.missing({"DATA": None, "MODEL": None}) == "needs --data"
    assert benchmark.missing({"DATA": Path("x"), "MODEL": None}) == "needs the package no_such_package"
    assert benchmark.words({"DATA": Path("x"), "MODEL": None})[-1] == "x/wiki"


def test_a_missing_gpu_is_named_and_so_is_a_peer_that_is_not_installed(benchmarks, monkeypatch):
    monkeypatch.setattr(benchmarks, "has_gpu", lambda: False)
    assert benchmarks.Benchmark("x", "", 1.0, (), "", gpu=True).missing({}) == "needs a CUDA device"
    both = benchmarks.Benchmark("x", "", 1.0, (), "as it comes", beside=("no_such_package", "numpy"))
    peer = benchmarks.row(both, 2.0).split("|")[2]
    assert peer.startswith(" numpy ")
    assert peer.endswith("; as it comes; no_such_package was not installed ")
