"""Write what is generated from the code: docs/cli.md, the tables of docs/formats.md, the forms of `--help`, the JSON
schemas of the recipes.

`make docs` runs it. The pages are tracked, and a test fails if they are out of date. docs/schema/ is not tracked;
editors can complete and check recipes with it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import typer
from typer.core import TyperGroup

from liebig import stage_command
from liebig.base import config
from liebig.cli import make_app
from liebig.commands import BUILT_IN as COMMANDS
from liebig.formats import BUILT_IN, formats
from liebig.formats.base import Format
from liebig.formats.parsers import KINDS
from liebig.stage_command import FORMS, Form
from liebig.stages import STAGES

HERE = Path(__file__).parent
HEAD = """# The command line

This page has what all commands share, and then the `--help` of each, written by `make docs`.

Results go to standard output; progress, warnings and errors go to standard error. `--quiet` prints results and errors
only; `--verbose` adds remarks of every stage, warnings of other libraries, and the traceback of an error. Both may
stand before or behind the command's name. [`--json`](json.md) prints results for programs.

| exit code | meaning |
| --- | --- |
| 0 | done |
| 1 | `liebig doctor`: a check failed; any other command: a bug, with a traceback |
| 2 | an error you can fix; one sentence says what, where and how |
| 130 | interrupted by Ctrl-C; the same command resumes |

`liebig --install-completion` teaches bash, zsh, fish or PowerShell to complete commands and options;
`liebig --show-completion` prints what it would install.
"""


def cli_page() -> str:
    """The help of every command, as plain text in code blocks."""
    root = typer.main.get_command(make_app())
    return HEAD + "".join(_pages("liebig", root))


def _pages(name: str, command: Any) -> list[str]:
    """The help of a command and of its subcommands."""
    parts = [f"\n## {name}\n\n" if " " in name else "\n", _block(name, command)]
    context = typer.Context(command)
    for below in sorted(command.list_commands(context)) if isinstance(command, TyperGroup) else ():
        parts += _pages(f"{name} {below}", command.get_command(context, below))
    return parts


def _block(name: str, command: Any) -> str:
    context = command.make_context(
        name, [], resilient_parsing=True, terminal_width=100, max_content_width=100
    )
    lines = (line.rstrip() for line in command.get_help(context).splitlines())
    return "```text\n" + "\n".join(lines) + "\n```\n"


def formats_page() -> str:
    """docs/formats.md with its tables of formats and kinds of files made anew."""
    page = (HERE / "formats.md").read_text(encoding="utf-8")
    own = [formats()[name] for name in BUILT_IN]
    read = ["| name | contents and fields | recognised by | example |", "| --- | --- | --- | --- |"]
    read += [f"| `{f.name}` | {f.about}: {f.fields} | {f.reason} | {_example(f)} |" for f in own if f.read]
    written = ["| name | files |", "| --- | --- |"]
    written += [f"| `{f.name}` | {f.files} |" for f in own if f.files]
    kinds = ["| suffixes | what becomes of it |", "| --- | --- |"]
    kinds += [f"| {', '.join(f'`{suffix}`' for suffix in k.suffixes)} | {k.about} |" for k in KINDS.values()]
    for mark, table in (("kinds", kinds), ("read", read), ("written", written)):
        head, _, rest = page.partition(f"<!-- {mark} -->\n")
        _, end, tail = rest.partition(f"<!-- end {mark} -->")
        assert end, f"docs/formats.md has the marks of the table of formats that are {mark}"
        page = f"{head}<!-- {mark} -->\n\n" + "\n".join(table) + f"\n\n{end}{tail}"
    return page


def _example(format: Format) -> str:
    """The first line of a sample that says something, or the names of the files of a folder."""
    if len(format.sample) != 1:
        return ", ".join(f"`{name}`" for name in format.sample)
    [(name, text)] = format.sample.items()
    line = next(line for line in text.split("\n") if len(line) > 1).replace("\t", " ⇥ ").replace("|", "\\|")
    return f"`{name}`: `{line if len(line) <= 100 else line[:95] + '…'}`"


def pages() -> dict[Path, str]:
    """The tracked pages, and the stored forms of stages, a line each."""
    stored = HERE.parent / "src" / "liebig" / "commands" / FORMS
    made = [Form.of(command.load().STAGE) for command in COMMANDS if command.stage]
    lines = ",\n".join(json.dumps(form.model_dump(), ensure_ascii=False) for form in made)
    with patch.object(stage_command, "stored_forms", lambda: {form.name: form for form in made}):
        return {HERE / "cli.md": cli_page(), HERE / "formats.md": formats_page(), stored: f"[\n{lines}\n]\n"}


def schemas() -> dict[Path, str]:
    """The JSON schema of every stage."""
    return {
        HERE / "schema" / f"{name.replace(' ', '-')}.json": config.schema(stage.config)
        for name, stage in STAGES.items()
    }


if __name__ == "__main__":
    for path, text in {**pages(), **schemas()}.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
