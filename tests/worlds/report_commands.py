"""The commands that a report shows, held against the command line."""

from __future__ import annotations

import html
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from liebig.base import pipeline
from liebig.base.config import Config
from liebig.base.pipeline import Stage
from liebig.cli import make_app


def understood_commands(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of all commands of a page, each of which the command line takes and would run."""
    ran: list[str] = []

    def note(stage: Stage, config: Config, *rest: object) -> None:
        ran.append(stage.name)

    monkeypatch.setattr(pipeline, "run_stage", note)
    monkeypatch.chdir(folder)
    app = make_app()
    shown = [html.unescape(text) for text in re.findall(r"<code>(liebig [^<]*)</code>", page)]
    assert shown
    for command in shown:
        words = shlex.split(command)[1:]
        if "--out" not in words:  # a command that a stage is a part of
            assert CliRunner().invoke(app, [*words, "--help"]).exit_code == 0, command
            continue
        before = len(ran)
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, f"{command}: {result.output}"
        assert len(ran) == before + 1, command
    table = re.findall(r"<td>liebig ([a-z ]+)</td>", page)
    assert all(CliRunner().invoke(app, [*name.split(), "--help"]).exit_code == 0 for name in table)
    return set(ran)
