"""The static tables of stages and commands are held to the modules behind it, and a default is written in one place."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import liebig
from liebig.base.config import Config
from liebig.base.pipeline import Stage
from liebig.cli import make_app
from liebig.commands import BUILT_IN, GROUPS, PANELS

ROOT = Path(liebig.__file__).parent
CONFIGURED = ("builder", "commands", "evaluation", "indexes", "methods", "queries", "stages", "train")
FREE = {"say", "name", "seed", "k"}  # words that mean another thing in every signature


@pytest.mark.parametrize("folder", ["commands", "stages"])
def test_every_module_of_the_folder_is_one_line_of_its_table(folder):
    modules = sorted(f"liebig.{folder}.{path.stem}" for path in (ROOT / folder).glob("[a-z]*.py"))
    assert sorted(c.module for c in BUILT_IN if c.module.split(".")[1] == folder) == modules
    assert {c.stage for c in BUILT_IN if c.module.split(".")[1] == folder} == {folder == "stages"}


@pytest.mark.parametrize("command", BUILT_IN, ids=lambda command: command.name)
def test_a_module_is_what_the_table_says(command):
    module = command.load()
    assert hasattr(module, "STAGE") == command.stage
    assert hasattr(module, "command") != command.stage
    if command.stage:
        assert isinstance(module.STAGE, Stage)
        assert module.STAGE.name == command.name
        assert module.STAGE.example.startswith(f"liebig {command.name} ")


def test_names_help_and_panels_are_those_of_the_command_line():
    assert list(dict.fromkeys(command.panel for command in BUILT_IN)) == list(PANELS)
    assert len({command.name for command in BUILT_IN}) == len(BUILT_IN)
    names = {c.name for c in BUILT_IN}
    assert {first for name in names if (first := name.partition(" ")[0]) not in names} == set(GROUPS)
    assert [c.name for c in BUILT_IN if not c.help.endswith(".") or len(c.help) > 120] == []


HEAVY = {
    "torch",
    "transformers",
    "numpy",
    "numba",
    "scipy",
    "pydantic",
    "orjson",
    "safetensors",
    "tokenizers",
}


def loaded(*commands: str) -> list[set[str]]:
    """The modules that a process has loaded after `liebig COMMAND`, for commands that it runs one after another."""
    code = (
        f"import sys\nfrom liebig.cli import main\nfor command in {commands!r}:\n"
        "    sys.argv = ['liebig', *command.split()]\n"
        "    try:\n        main()\n    except SystemExit as end:\n        assert not end.code\n"
        "    print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert all(f"liebig {command}".partition(" -")[0] in done.stdout for command in commands)
    return [set(line.split()) for line in done.stderr.splitlines()]


def test_a_list_of_commands_needs_only_the_tables():
    table, group = loaded("--help", "queries --help")
    assert table & HEAVY == set()
    assert group & HEAVY <= {"pydantic"}  # typer reads the word `queries` with it


def test_the_help_of_no_command_needs_torch():
    commands = [command.name for command in BUILT_IN]
    modules = loaded(*(f"{command} --help" for command in commands))
    heavy = {"torch", "transformers", "sentence_transformers"}
    assert not next((name for name, after in zip(commands, modules, strict=True) if after & heavy), None)


@pytest.mark.parametrize("words", [["pretrain"], ["queries", "train"], ["evaluate"]], ids=" ".join)
def test_help_from_a_stored_form_is_that_of_the_module(words):
    shown = CliRunner().invoke(make_app(), [*words, "--help"]).output
    command = typer.main.get_command(make_app())
    context = typer.Context(command, info_name="liebig")
    for word in words:
        command = command.get_command(context, word)
        context = typer.Context(command, info_name=word, parent=context)
    assert shown.split() == command.get_help(context).split()  # whatever the width


def test_the_version_needs_no_help_pages():
    (modules,) = loaded("--version")
    assert modules & {*HEAVY, "rich"} == set()


def config_defaults(module: Any) -> dict[str, Any]:
    """The fields that configs of a module give a default other than None, True and False."""
    classes = [value for value in vars(module).values() if inspect.isclass(value)]
    nested = [inner for outer in classes for inner in vars(outer).values() if inspect.isclass(inner)]
    configs = [
        value
        for value in classes + nested
        if value.__module__ == module.__name__ and issubclass(value, Config) and value is not Config
    ]
    return {
        name: field.default
        for config in configs
        for name, field in config.model_fields.items()
        if isinstance(field.default, int | float | str) and not isinstance(field.default, bool)
    }


def literal_defaults(path: Path) -> Iterator[tuple[str, str, Any]]:
    """Function, parameter and value of every default that is written out in a signature."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.FunctionDef):
            continue
        plain = node.args.posonlyargs + node.args.args
        pairs = [
            *zip(reversed(plain), reversed(node.args.defaults)),
            *zip(node.args.kwonlyargs, node.args.kw_defaults),
        ]
        for argument, default in pairs:
            if isinstance(default, ast.Constant) and not isinstance(default.value, bool | None):
                yield node.name, argument.arg, default.value


def test_a_default_of_a_config_is_not_written_again_in_a_signature():
    """A function that takes a field's value takes it from the config, or names the constant that both use."""
    twice = []
    for path in sorted(path for folder in CONFIGURED for path in (ROOT / folder).rglob("[a-z]*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        fields = config_defaults(import_module(".".join(("liebig", *parts))))
        twice += [
            f"{'/'.join(parts)}.py: {function}({name}={value!r})"
            for function, name, value in literal_defaults(path)
            if name in fields and name not in FREE
        ]
    assert twice == []
