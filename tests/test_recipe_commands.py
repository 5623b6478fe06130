"""Every command in a recipe's comments plans, and the smoke forms, those that say --out runs/smoke-…, really run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from liebig import pipeline
from liebig.cli import make_app
from liebig.pretrain import plan as plans
from liebig.stages import STAGES

ROOT = Path(__file__).parents[1]
RECIPES = sorted((ROOT / "recipes").rglob("*.toml"))
STARTS = ("liebig ", "python ")
SMOKE = "--out runs/smoke-"
OVERRIDE = re.compile(r"stages\.[\w.-]+=")


def comments(path: Path) -> list[str]:
    """The whole-line comments of a recipe, a line that ends in a backslash joined with the next."""
    lines = [line.removeprefix("#").strip() for line in path.read_text().splitlines() if line.startswith("#")]
    return "\n".join(lines).replace("\\\n", "").splitlines()


def commands(path: Path) -> list[str]:
    return [line for line in comments(path) if line.startswith(STARTS)]


ALL = [(path.relative_to(ROOT).as_posix(), command) for path in RECIPES for command in commands(path)]


def planned(command: str, out: Path) -> list[pipeline.Planned]:
    """The stages of `liebig run RECIPE OVERRIDES`."""
    _, kind, recipe, *rest = shlex.split(command)
    assert kind == "run", f"a recipe's comments run recipes: {command}"
    assert (ROOT / recipe).is_file(), f"there is no {recipe}: {command}"
    overrides = [word for word in rest if "=" in word and not word.startswith("--")]
    return pipeline.plan(STAGES, ROOT / recipe, overrides, out)


def test_a_command_of_a_comment_plans(monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(plans, "matrix_rate", lambda device: 1e14)
    app = make_app()
    for recipe, command in ALL:
        if command.startswith("liebig "):
            result = CliRunner().invoke(app, [*shlex.split(command)[1:], "--plan"])
            assert result.exit_code == 0, f"{recipe}\n{command}\n{result.output}"


@pytest.mark.parametrize("command", [c for _, c in ALL if c.startswith("python ")])
def test_a_script_of_a_comment_is_there(command):
    assert (ROOT / command.split()[1]).is_file()


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: str(path.relative_to(ROOT)))
def test_an_override_stands_in_a_command(path):
    """So that every override of a comment is tried here."""
    loose = [line for line in comments(path) if OVERRIDE.search(line) and not line.startswith(STARTS)]
    assert not loose


@pytest.mark.parametrize(
    ("recipe", "command"), [(r, c) for r, c in ALL if SMOKE in c], ids=lambda value: value.partition(" ")[0]
)
def test_a_smoke_form_runs(recipe, command, tmp_path_factory, monkeypatch):
    """Into one folder, so that the stages that two smoke forms share are run once."""
    monkeypatch.chdir(ROOT)
    out = tmp_path_factory.getbasetemp() / "smoke-forms"
    pipeline.run(planned(command, out), lambda said: None)
