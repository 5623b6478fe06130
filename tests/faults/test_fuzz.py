"""The quick part of the fuzzing of `make torture`: a few inputs for every reader."""

from pathlib import Path

from tests.faults import kills
from tests.faults.fuzz import run_batch, targets


def test_no_reader_is_brought_down_by_damaged_input(tmp_path):
    wrong = [
        line
        for target in targets()
        for line in run_batch(target, 0, 0, tmp_path, tmp_path / "failures", size=4)
    ]
    assert wrong == []


def test_the_recipe_that_is_killed_has_every_stage(tmp_path, monkeypatch):
    monkeypatch.chdir(Path.cwd())  # planning goes to the folder of the recipes
    assert kills.plan(tmp_path)
