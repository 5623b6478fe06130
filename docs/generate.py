"""Write the pages that are generated from the code: docs/cli.md and the JSON schemas of the recipes.

`make docs` runs it. docs/cli.md is tracked, and a test fails if it is out of date. docs/schema/ is not tracked; editors
can complete and check recipes with it.
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
    """The help of a command and of its subcommands."""
    parts = [f"\n## {name}\n\n" if " " in name else "\n", _block(name, command)]
    for below in sorted(command.list_commands(None)) if isinstance(command, TyperGroup) else ():
        parts += _pages(f"{name} {below}", command.get_command(None, below))
    return parts


def _block(name: str, command: Any) -> str:
    context = command.make_context(
        name, [], resilient_parsing=True, terminal_width=100, max_content_width=100
    )
    lines = (line.rstrip() for line in command.get_help(context).splitlines())
    return "```text\n" + "\n".join(lines) + "\n```\n"


def schemas() -> dict[Path, str]:
    """The JSON schema of every stage."""
    return {
        HERE / "schema" / f"{name.replace(' ', '-')}.json": config.schema(stage.config)
        for name, stage in STAGES.items()
    }


if __name__ == "__main__":
    for path, text in {HERE / "cli.md": cli_page(), **schemas()}.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
