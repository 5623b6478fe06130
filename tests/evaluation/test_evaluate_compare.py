"""`liebig compare`: systems side by side, from runs or from evaluations."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from liebig.base.errors import DataError, RecipeError
from liebig.evaluation.comparison import ComparedSystem, beaten, compare_systems, gather, mean_rows
from liebig.evaluation.results import PerQuery
from tests.worlds.evaluation import BAD, GOOD, beir_folder, run_compare, run_evaluate, write_run


@pytest.fixture
def world(tmp_path: Path) -> Path:
    beir_folder(tmp_path / "cities")
    write_run(tmp_path / "good.trec", GOOD)
    write_run(tmp_path / "bad.trec", BAD)
    return tmp_path


def test_runs_and_evaluations_give_the_same_comparison(world: Path) -> None:
    runs = [world / "good.trec", world / "bad.trec"]
    direct = run_compare(world / "direct", runs=runs, qrels=world / "cities", measures=["RR@10"], samples=200)
    folders = [
        run_evaluate(world / f"e{i}", system=run, collections=[world / "cities"], measures=["RR@10"])
        for i, run in enumerate(runs)
    ]
    via = run_compare(world / "via", runs=folders, names=["good", "bad"], samples=200)
    assert json.loads((direct / "compare.json").read_text()) == json.loads((via / "compare.json").read_text())


def test_systems_have_the_names_of_their_evaluations_where_these_differ(world: Path) -> None:
    def systems(*names: str) -> list[str]:
        folders = [
            run_evaluate(
                world / f"{names[0]}-{i}",
                system=world / "good.trec",
                collections=[world / "cities"],
                name=name,
            )
            for i, name in enumerate(names)
        ]
        out = run_compare(world / names[0], runs=folders, samples=100)
        return json.loads((out / "compare.json").read_text())["systems"]

    assert systems("mine", "BM25") == ["mine", "BM25"]
    assert systems("same", "same") == ["same-0", "same-1"]


def test_every_pair_is_compared_or_every_system_with_the_baseline() -> None:
    systems = [ComparedSystem(name, {"RR@10": np.full((1, 4), i / 4)}) for i, name in enumerate("abc")]
    every = compare_systems(systems, 4, baseline=None, samples=100, seed=0)
    against = compare_systems(systems, 4, baseline="b", samples=100, seed=0)
    assert [(pair.a, pair.b) for pair in every.pairs] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert [(pair.a, pair.b) for pair in against.pairs] == [("a", "b"), ("c", "b")]


def test_letters_name_the_systems_that_are_significantly_worse() -> None:
    rng = np.random.default_rng(0)
    base = rng.random((1, 80))
    noise = rng.normal(0, 0.01, (1, 80))
    systems = [
        ComparedSystem("low", {"m": base}),
        ComparedSystem("high", {"m": base + 0.2 + noise}),
        ComparedSystem("twin", {"m": base + noise}),
    ]
    found = compare_systems(systems, 80, baseline=None, samples=999, seed=0)
    assert beaten(found, "m", "high") == ["low", "twin"]
    assert beaten(found, "m", "low") == beaten(found, "m", "twin") == []
    header, rows = mean_rows(found)
    assert header == ["system", "m"]
    assert rows[1][1].endswith("] ac")


def test_runs_of_one_name_are_seeds_of_one_system() -> None:
    rng = np.random.default_rng(1)
    runs = [PerQuery(("q1", "q2"), ("RR@10",), rng.random((2, 1))) for _ in range(3)]
    systems, queries = gather(["a", "a", "b"], runs)
    assert queries == 2
    assert systems[0].values["RR@10"].shape == (2, 2)
    assert (systems[0].mean_over_seeds("RR@10") == (runs[0].of("RR@10") + runs[1].of("RR@10")) / 2).all()


def test_a_run_of_other_queries_is_refused_and_one_of_some_is_noted(
    world: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = write_run(world / "other.trec", {"dev-1": {"p1": 1.0}})
    with pytest.raises(DataError, match=r"other\.trec: the run has none of the queries"):
        run_compare(world / "out", runs=[world / "good.trec", other], qrels=world / "cities")
    run_compare(world / "out", runs=[world / "good.trec", world / "bad.trec"], qrels=world / "cities")
    assert "good.trec: Of 4 queries 1 has no hits in the run" in capsys.readouterr().out


def test_different_queries_cannot_be_compared() -> None:
    with pytest.raises(DataError, match=r"different queries: a on 1 \('q1'\), b on 1 \('q2'\)"):
        gather(
            ["a", "b"],
            [PerQuery(("q1",), ("m",), np.zeros((1, 1))), PerQuery(("q2",), ("m",), np.zeros((1, 1)))],
        )
    with pytest.raises(DataError, match="no measure in common"):
        gather(
            ["a", "b"],
            [PerQuery(("q1",), ("m",), np.zeros((1, 1))), PerQuery(("q1",), ("n",), np.zeros((1, 1)))],
        )


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({"names": ["one"]}, "1 names for 2 runs"),
        ({"names": ["one", "one"]}, "only one system"),
        ({"qrels": None}, "need judgements"),
        ({"baseline": "other"}, "no run is called 'other'"),
    ],
)
def test_what_cannot_be_compared_is_an_error(world: Path, values: dict[str, object], what: str) -> None:
    given = {"runs": [world / "good.trec", world / "bad.trec"], "qrels": world / "cities", **values}
    with pytest.raises(RecipeError, match=what):
        run_compare(world / "out", **given)


def test_two_files_of_one_name_are_two_systems(world: Path) -> None:
    runs = [write_run(world / "a" / "x.trec", GOOD), write_run(world / "b" / "x.trec", BAD)]
    out = run_compare(world / "out", runs=runs, qrels=world / "cities", samples=100)
    assert json.loads((out / "compare.json").read_text())["systems"] == ["x 1", "x 2"]


def test_a_measure_that_was_not_evaluated_cannot_be_shown(world: Path) -> None:
    folders = [
        run_evaluate(
            world / name, system=world / f"{name}.trec", collections=[world / "cities"], measures=["RR@10"]
        )
        for name in ("bad", "good")
    ]
    with pytest.raises(DataError, match="do not all have AP"):
        run_compare(world / "out", runs=folders, measures=["AP"])
