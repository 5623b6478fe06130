"""The table that bench/all.py writes: rows of a run replace older ones, others stay."""

import importlib.util
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def all_benchmarks():
    spec = importlib.util.spec_from_file_location("bench_all", ROOT / "bench" / "all.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["bench_all"] = module
    spec.loader.exec_module(module)
    return module


def test_every_benchmark_of_the_table_is_there_and_ends_with_a_ratio():
    for benchmark in all_benchmarks().BENCHMARKS:
        assert "ratio: " in (ROOT / "bench" / f"{benchmark.name}.py").read_text(encoding="utf-8")


def test_rows_of_a_run_replace_older_ones_and_others_stay():
    module = all_benchmarks()
    first, second = module.BENCHMARKS[:2]
    page = f"before\n{module.BEGIN}\n{module.END}\nafter\n"
    page = module.with_rows(page, {b.command: module.row(b, 1.5) for b in (second, first)})
    again = module.with_rows(page, {second.command: module.row(second, 9.25)})
    rows = [line for line in again.splitlines() if line.startswith("| `")]
    assert rows == [module.row(first, 1.5), module.row(second, 9.25)]
    assert again.startswith("before\n")
    assert again.endswith("after\n")


def test_a_missing_folder_or_package_is_named():
    module = all_benchmarks()
    benchmark = module.Benchmark("bm25", "--data DATA/wiki", 1.0, ("no_such_package",), "")
    assert benchmark.missing({"DATA": None, "MODEL": None}) == "needs --data"
    assert benchmark.missing({"DATA": Path("x"), "MODEL": None}) == "needs the package no_such_package"
    assert benchmark.words({"DATA": Path("x"), "MODEL": None})[-1] == "x/wiki"
