"""Every command in a recipe's comments plans."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from liebig.cli import make_app

ROOT = Path(__file__).parents[2]
RECIPES = sorted(path for folder in ("recipes", "experiments") for path in (ROOT / folder).rglob("*.toml"))
STARTS = ("liebig ", "python ")
OVERRIDE = re.compile(r"stages\.[\w.-]+=")


def comments(path: Path) -> list[str]:
    """The whole-line comments of a recipe, a line that ends in a backslash joined with the next."""
    lines = [line.removeprefix("#").strip() for line in path.read_text().splitlines() if line.startswith("#")]
    return "\n".join(lines).replace("\\\n", "").splitlines()


def commands(path: Path) -> list[str]:
    return [line for line in comments(path) if line.startswith(STARTS)]


ALL = [(path.relative_to(ROOT).as_posix(), command) for path in RECIPES for command in commands(path)]


def test_a_command_of_a_comment_plans(monkeypatch):
    monkeypatch.chdir(ROOT)
    app = make_app()
    for recipe, command in ALL:
        program, name, *_ = shlex.split(command)
        if program == "liebig" and name == "run":
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
