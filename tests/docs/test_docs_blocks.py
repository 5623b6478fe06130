"""Every code block of README and docs says its language, and does what it says."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
from latex2mathml.converter import convert
from typer.testing import CliRunner

from liebig import encoders
from liebig.cli import make_app
from tests.worlds.docs import make_world
from tests.worlds.docs_pages import LANGUAGES, ROOT, Block, blocks, name_of, pages, shortened
from tests.worlds.models import small_encoder

PAGES = [path for path in pages() if blocks(path)]
ELSEWHERE = ("make ", "git clone ", "pip install ", "cd ", ". .venv", "torchrun ")  # understood, not run


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """Stands for every model that pages name, and for the bundled encoder."""
    return small_encoder(tmp_path_factory.mktemp("models") / "encoder", layers=4)


def expanded(text: str, folder: Path) -> list[str]:
    """The words of a command as the shell makes them."""
    script = f"printf '%s\\0' {text}"
    done = subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, check=True)
    return done.stdout.decode().split("\0")[:-1]


def understood(words: list[str]) -> None:
    """Parse a command line as far as its options go, without running it."""
    command: Any = typer.main.get_command(make_app())
    rest = list(words)
    if " ".join(rest[:2]) in command.list_commands(None):  # such as `mcp install`, beside `mcp`
        rest[:2] = [" ".join(rest[:2])]
    while hasattr(command, "commands"):
        below = command.get_command(None, rest[0])
        assert below is not None, f"liebig {shlex.join(words)}: there is no command {rest[0]}"
        command, rest = below, rest[1:]
    command.make_context("liebig", rest)


def run_liebig(words: list[str], given: bytes | None = None) -> str:
    result = CliRunner().invoke(make_app(), words, input=given)
    if result.exit_code != 0:
        raise AssertionError(f"liebig {shlex.join(words)}\n{result.output}\n{result.exception!r}")
    return result.stdout


def run_command(line: str, folder: Path) -> None:
    """Run one line of a block: liebig in this process, everything else in a shell."""
    before, pipe, after = line.rpartition("| liebig ")
    if line.startswith("liebig run recipes/") or line.startswith(ELSEWHERE):
        check_command(line, folder)
    elif pipe:
        done = subprocess.run(["bash", "-c", before], cwd=folder, capture_output=True, check=True)
        run_liebig(expanded(after, folder), done.stdout)
    elif line.startswith("liebig ") and re.search(r" [|<] ", line):
        run_in_shell(line, folder)
    elif line.startswith("liebig "):
        run_liebig(expanded(line.removeprefix("liebig "), folder))
    else:
        subprocess.run(["bash", "-c", line], cwd=folder, capture_output=True, check=True)


def run_in_shell(line: str, folder: Path) -> None:
    """Run a line that reads a file or feeds another program; without jq on this machine, what comes before it."""
    command, _, rest = line.removeprefix("liebig ").partition(" | ")
    command, _, file = command.partition(" < ")
    out = run_liebig(expanded(command, folder), (folder / file).read_bytes() if file else b"")
    assert out.strip(), line
    if rest and (not rest.startswith("jq ") or shutil.which("jq")):
        script = f"set -eo pipefail; {rest}"
        done = subprocess.run(
            ["bash", "-c", script], input=out, cwd=folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        assert done.stdout.strip(), line


def check_command(line: str, folder: Path) -> None:
    """What can be said of a line that is not run: its command, options, recipe, target or extra exist."""
    if line.startswith("make "):
        targets = (ROOT / "Makefile").read_text(encoding="utf-8")
        assert all(re.search(rf"^{target}:", targets, re.MULTILINE) for target in line.split()[1:2]), line
    for extra in re.findall(r"liebig\[([\w,]+)\]", line):
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        assert set(extra.split(",")) <= set(project["optional-dependencies"]), line
    found = re.search(r"(?:^|-m )liebig (.*)", line)
    if found and not line.startswith("pip"):
        understood(expanded(found[1].partition(" | ")[0], folder))


def run_block(block: Block, folder: Path) -> None:
    text = shortened(block.text)
    if block.language == "bash":
        for line in Block(block.page, block.line, "bash", "", text).commands:
            (run_command if block.is_run else check_command)(line, folder)
    elif block.language == "python" and block.is_run:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(text, block.place, "exec"), {"__name__": "__main__"})
    elif block.language == "toml":
        tomllib.loads(text)
    elif block.language == "json":
        json.loads(text)
    elif block.language == "jsonl":
        assert all(json.loads(line) for line in text.splitlines())
    elif block.language == "math":
        assert "<mtext>\\" not in convert(text)  # how an unknown command comes out
    if block.title:
        (folder / block.title).write_text(text, encoding="utf-8")


def test_there_are_pages_with_blocks():
    assert len(PAGES) > 10


@pytest.mark.parametrize("path", [path for path in pages() if path.name != "README.md"], ids=name_of)
def test_every_block_says_its_language_and_why_it_is_not_run(path):
    wrong = [block.place for block in blocks(path) if block.language not in LANGUAGES]
    assert wrong == [], f"say one of {sorted(LANGUAGES)} behind the backticks"
    silent = [block.place for block in blocks(path) if block.not_run is not None and len(block.not_run) < 5]
    assert silent == [], "say why the block is not run"
    assert "not run here" not in path.read_text(encoding="utf-8"), "mark blocks with <!-- not run: WHY -->"


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_every_block_of_a_page_does_what_it_says(path, model, small_model, tmp_path, monkeypatch):
    if "--to onnx" in path.read_text(encoding="utf-8"):
        model = small_model  # its one layer is traced for other tests too
    make_world(tmp_path, model)

    def folder(name: str = encoders.DEFAULT) -> Path:
        assert name.removeprefix(encoders.PREFIX) in encoders.names()
        return model

    monkeypatch.setattr(encoders, "folder", folder)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for block in blocks(path):
        try:
            run_block(block, tmp_path)
        except BaseException as error:
            raise AssertionError(f"{block.place}: {error}") from error


def test_a_stage_that_is_not_run_is_held_to_its_options(tmp_path):
    check_command("liebig encode runs/collection --model runs/model --out runs/vectors", tmp_path)
    with pytest.raises(Exception, match="--modell"):
        check_command("liebig encode runs/collection --modell runs/model", tmp_path)
    with pytest.raises(AssertionError, match="no command"):
        check_command("torchrun -m liebig encoed runs/collection", tmp_path)
