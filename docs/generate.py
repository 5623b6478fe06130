"""Write the pages that are made from the code: docs/cli.md and the JSON schemas of the recipes.

`make docs` runs it; a test fails when what it would write differs from what is checked in.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from liebig.base import config
from liebig.cli import make_app
from liebig.commands import STAGES

HERE = Path(__file__).parent
HEAD = """# The command line

This page is the `--help` of every command, written by `make docs`.
"""


def cli_page() -> str:
    """The help of every command, as plain text in code blocks."""
    root = typer.main.get_command(make_app(markup=None))
    return HEAD + "".join(_pages("liebig", root))


def _pages(name: str, command: Any) -> list[str]:
    """A command's help and that of the commands below it."""
    made = [f"\n## {name}\n\n" if " " in name else "\n", _block(name, command)]
    for below in sorted(command.list_commands(None)) if isinstance(command, TyperGroup) else ():
        made += _pages(f"{name} {below}", command.get_command(None, below))
    return made


def _block(name: str, command: Any) -> str:
    context = command.make_context(
        name, [], resilient_parsing=True, terminal_width=100, max_content_width=100
    )
    lines = (line.rstrip() for line in command.get_help(context).splitlines())
    return "```text\n" + "\n".join(lines) + "\n```\n"


def pages() -> dict[Path, str]:
    """Every generated file and its contents."""
    made = {HERE / "cli.md": cli_page()}
    for name, stage in STAGES.items():
        made[HERE / "schema" / f"{name.replace(' ', '-')}.json"] = config.schema(stage.config)
    return made


if __name__ == "__main__":
    for path, text in pages().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
