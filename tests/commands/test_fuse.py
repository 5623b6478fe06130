"""Runs fused: by hand for ranks and scores, and what a run lacks."""

import pytest

from liebig.base import workspace
from liebig.base.config import parse
from liebig.base.errors import RecipeError
from liebig.stages.fuse import FuseConfig, fused, read, run

ONE = {"q1": [("a", 3.0), ("b", 2.0), ("c", 1.0)], "q2": [("a", 1.0)]}
TWO = {"q1": [("b", 9.0), ("d", 1.0)], "q3": [("z", 5.0)]}


def test_ranks_are_summed_by_hand():
    found = list(fused([ONE, TWO], "reciprocal-rank", (1.0, 1.0), 10))
    first = [(hit.passage, hit.score) for hit in found if hit.query == "q1"]
    assert [p for p, _ in first] == ["b", "a", "d", "c"]
    assert first[0][1] == pytest.approx(1 / 62 + 1 / 61)
    assert [hit.query for hit in found if hit.passage in "az" and hit.query != "q1"] == ["q2", "q3"]


def test_scores_are_brought_to_one_scale_and_weighted():
    found = {h.passage: h.score for h in fused([ONE, TWO], "minmax", (1.0, 3.0), 10) if h.query == "q1"}
    assert found == pytest.approx({"a": 1.0, "b": 0.5 + 3.0, "c": 0.0, "d": 0.0})


def test_a_run_fused_with_itself_keeps_its_order_and_its_depth(tmp_path):
    path = tmp_path / "one.trec"
    path.write_text(
        "".join(f"q{i} Q0 p{(7 * j) % 10} {j + 1} {9 - j} t\n" for i in range(3) for j in range(9))
    )
    config = parse(FuseConfig, {"runs": [str(path), str(path)], "depth": 5})
    with workspace.stage(tmp_path / "out", kind="fuse", recipe={}, inputs={}) as folder:
        run(config, folder)
    found, given = read(tmp_path / "out" / "run.trec"), read(path)
    for query in given:
        assert [p for p, _ in found[query]] == [p for p, _ in given[query]][:5]


def test_weights_of_the_recipe_decide(tmp_path):
    for name, ids in (("one", "ab"), ("two", "ba")):
        rows = (f"q Q0 {id} {rank} {9 - rank} t\n" for rank, id in enumerate(ids, 1))
        (tmp_path / name).write_text("".join(rows))
    for weights, best in (((2.0, 1.0), "a"), ((1.0, 2.0), "b")):
        runs = [str(tmp_path / "one"), str(tmp_path / "two")]
        config = parse(FuseConfig, {"runs": runs, "weights": weights})
        with workspace.stage(tmp_path / best, kind="fuse", recipe={}, inputs={}) as folder:
            run(config, folder)
        assert read(tmp_path / best / "run.trec")["q"][0][0] == best


def test_weights_are_as_many_as_runs(tmp_path):
    with pytest.raises(RecipeError, match="2 runs and 1 weights"):
        parse(FuseConfig, {"runs": ["a", "b"], "weights": [1.0]})
