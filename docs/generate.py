"""Write what is generated from the code: docs/cli.md, reproduce.md, data.md, the tables of docs/formats.md, the forms
of `--help`, the JSON schemas of the recipes.

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
from liebig.evaluation.data_sets import data_sets
from liebig.evaluation.tables import markdown, published
from liebig.formats import BUILT_IN, formats
from liebig.formats.base import Format
from liebig.formats.parsers import KINDS
from liebig.reproduce import paper_rows, slug
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

REPRODUCE = """# Reproduce the papers

**Nobody has run any of this at the papers' full size with Liebig yet.** The tests hold every loss to its formula and
run these rows with two steps on invented texts. What the methods did with small encoders is in `experiments/`.

```bash
liebig reproduce                                  # all tables, figures and rows
liebig reproduce cocondenser/table-5 --plan       # data that is missing, stages, GPU hours and cost
```

<!-- not run: it needs the papers' data -->
```bash
liebig reproduce cocondenser/table-5              # runs it, and prints the paper's figures beside yours
```

A name may stop at the paper or go on to a row (`contriever/table-4/ict`). Stages that rows share run once, and the same
command resumes. `data/` holds [the data sets](data.md). A pre-trained model such as `data/condenser` is made by its
own run if it is not there, so a published checkpoint can take its place (`liebig import`). `STAGE.KEY=VALUE` changes a
stage of all runs; `--smoke` does everything in two steps. Where a value is written `4¦8`, the paper searches for it:
all are run.

An empty *run* means that the row's figures are another system's. Reasons stand where a row cannot be run.
"""
DATA = """# Data for the papers

Each set is a folder below `data/` (`liebig reproduce --data` names another). `liebig doctor data/NAME` compares
files, hashes and counts with what sources state; *unknown* means that none does. A hash is that of the file as it is
downloaded, and compared if the file was kept in the folder or beside it. The papers state neither Wikipedia's date nor
CCNet's snapshot.

| folder | what | where from | texts | queries by split | md5 |
| --- | --- | --- | ---: | --- | --- |
"""


def reproduce_page() -> str:
    """Every table and figure: what makes each row, beside the printed figures."""
    rows, parts = paper_rows(), [REPRODUCE]
    for paper, about in published()["papers"].items():
        parts.append(f"\n## {about['title']} ({about['authors']}, {about['year']})\n")
        for table in (table for table in published()["tables"] if table["paper"] == paper):
            mine = [
                r
                for r in rows
                if r.paper == paper and r.table == table["table"] and r.columns == tuple(table["columns"])
            ]
            note = f" {table['note']}" if "note" in table else ""
            parts.append(f"\n**{table['table']}**: {table['what']}.{note}\n")
            head = ["row", "run", *(column.replace("beir/", "") for column in table["columns"])]
            lines = [
                [
                    r.name,
                    "; ".join(f"`{run.replace('|', '¦')}`" for run in r.runs) or r.reason,
                    *map(str, r.printed),
                ]
                for r in mine
            ]
            parts.append(
                f"\n`liebig reproduce {paper}/{slug(table['table'])}`\n\n{markdown(head, lines)}"
                if lines
                else ""
            )
    shared = [[f"`{name}`", f"`{run.replace('|', '¦')}`"] for name, run in published()["specs"].items()]
    parts.append(f"\n## What rows share\n\n{markdown(['name', 'run'], shared)}")
    return "".join(parts)


def data_page() -> str:
    """Where each data set comes from, and what is known of it."""
    lines = []
    for folder, one in data_sets().items():
        texts = "unknown" if one.estimated or not one.texts else f"{one.texts:,}"
        splits = ", ".join(f"{split} {count:,}" for split, count in one.splits.items()) or (
            "" if one.files else "unknown"
        )
        hashes = ", ".join(f"{name} `{md5}`" for name, md5 in one.md5.items()) or "unknown"
        lines.append(
            f"| `{folder}` | {one.title} | {one.get} | {'' if one.files else texts} | {splits} | {hashes} |\n"
        )
    return DATA + "".join(lines)


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
        papers = {HERE / "reproduce.md": reproduce_page(), HERE / "data.md": data_page()}
        return {
            HERE / "cli.md": cli_page(),
            HERE / "formats.md": formats_page(),
            **papers,
            stored: f"[\n{lines}\n]\n",
        }


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
