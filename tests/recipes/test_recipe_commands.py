"""Every command in a recipe's comments plans, and the smoke forms, those on the smoke texts, really run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from liebig import encoders
from liebig.base import pipeline
from liebig.cli import make_app
from liebig.stages import STAGES
from tests.worlds.models import small_encoder

ROOT = Path(__file__).parents[2]
RECIPES = sorted(path for folder in ("recipes", "experiments") for path in (ROOT / folder).rglob("*.toml"))
STARTS = ("liebig ", "python ")
SMOKE = "recipes/smoke/texts"
FEW = 24
OVERRIDE = re.compile(r"stages\.[\w.-]+=")


def comments(path: Path) -> list[str]:
    """The whole-line comments of a recipe, a line that ends in a backslash joined with the next."""
    lines = [line.removeprefix("#").strip() for line in path.read_text().splitlines() if line.startswith("#")]
    return "\n".join(lines).replace("\\\n", "").splitlines()


def commands(path: Path) -> list[str]:
    return [line for line in comments(path) if line.startswith(STARTS)]


ALL = [(path.relative_to(ROOT).as_posix(), command) for path in RECIPES for command in commands(path)]
SMOKE_FORMS = [(recipe, command) for recipe, command in ALL if SMOKE in command]


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


@pytest.fixture(scope="module")
def few_texts(tmp_path_factory) -> Path:
    """The first places of the smoke texts: the same in a tenth of the time."""
    out = tmp_path_factory.mktemp("few-texts")
    (out / "qrels").mkdir()
    for name, rows in {
        "corpus.jsonl": FEW,
        "queries.jsonl": 2 * FEW,
        "qrels/generated.tsv": 2 * FEW + 1,
    }.items():
        lines = (ROOT / SMOKE / name).read_text(encoding="utf-8").splitlines(keepends=True)
        (out / name).write_text("".join(lines[:rows]), encoding="utf-8")
    return out


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    """Stands for the bundled encoder, whose checkpoints take seconds to write and to verify."""
    return small_encoder(tmp_path_factory.mktemp("small") / "model")


@pytest.mark.parametrize(("recipe", "command"), SMOKE_FORMS, ids=[recipe for recipe, _ in SMOKE_FORMS])
def test_a_smoke_form_runs(recipe, command, few_texts, small, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    bundled = encoders.PREFIX + encoders.DEFAULT
    assert bundled in command
    shorter = command.replace(SMOKE, str(few_texts)).replace(bundled, str(small))
    _, _, path, *rest = shlex.split(shorter)
    assert path == recipe
    overrides = [word for word in rest if word.startswith("stages.")]
    planned = pipeline.plan(STAGES, ROOT / path, overrides, tmp_path)
    pipeline.run(planned, lambda said: None)
    assert all(item.up_to_date for item in planned)
