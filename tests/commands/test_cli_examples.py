"""Every example of the help and every command of the README says something the command line understands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from liebig.base import pipeline
from liebig.cli import make_app
from liebig.stage_command import Form
from liebig.stages import STAGES

ROOT = Path(__file__).parents[2]
FOLDERS = (
    "merge",
    "push",
    "build",
    "update",
    "export",
    "doctor",
    "plan",
    "serve",
    "mcp",
    "label",
    "ask",
    "check",
)  # they need a folder that is there


def help_examples() -> list[str]:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    found = re.findall(r"Example:\n\n((?:      .+\n)+)", page)
    return [" ".join(example.split()) for example in found]


def readme_commands() -> list[str]:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```bash\n(.*?)^```", readme, re.DOTALL | re.MULTILINE)
    lines = [line.split("  #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line.startswith("liebig ")]


@pytest.mark.parametrize("example", [*help_examples(), *readme_commands()])
def test_an_example_is_understood(example, tmp_path, monkeypatch):
    understood = []
    monkeypatch.setattr(pipeline, "run_stage", lambda stage, config, *rest: understood.append(config))
    monkeypatch.setattr(
        Form, "check_inputs", lambda form, config: None
    )  # the folders of examples do not exist
    monkeypatch.setattr(pipeline, "run", lambda planned, *rest: understood.extend(planned))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    (tmp_path / "recipe.toml").write_text("")
    words = shlex.split(example)[1:]
    if words[0] in FOLDERS:
        root = typer.main.get_command(make_app())
        if " ".join(words[:2]) in root.list_commands(None):
            words[:2] = [" ".join(words[:2])]
        root.get_command(None, words[0]).make_context("liebig", words[1:])
    elif words[0] not in ("demo", "search"):
        result = CliRunner().invoke(make_app(), words)
        left_to_the_recipe = "recipe.toml" in words and " is missing" in result.output
        assert result.exit_code == 0 or left_to_the_recipe, result.output
        assert understood or words[0] in ("show", "reproduce", "push") or left_to_the_recipe


def test_every_stage_has_an_example_that_is_its_own():
    examples = help_examples()
    for stage in STAGES.values():
        assert any(example.startswith(f"liebig {stage.name} ") for example in examples), stage.name


def test_the_readme_shows_how_to_build_and_how_to_ask():
    verbs = [command.split()[1] for command in readme_commands()]
    assert verbs == ["build", "search", "serve", "mcp"]


def test_the_map_of_the_source_lists_every_folder_and_names_files_that_exist():
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    source = ROOT / "src" / "liebig"
    folders = [path.parent.name for path in source.glob("*/__init__.py")]
    assert [name for name in folders if f"\n  {name}/ " not in page] == []
    questions = page.partition("## Where do I look?")[2].partition("## The source")[0]
    named = re.findall(r"`([a-z_0-9]+/[a-z_0-9/]+\.py)`", questions)
    assert len(named) > 10
    assert [name for name in named if not (source / name).is_file()] == []
