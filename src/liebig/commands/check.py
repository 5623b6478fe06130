"""`liebig check`: which system of a retriever answers best, without building it again (`builder/recheck.py`)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from liebig.base.errors import WorkspaceError
from liebig.base.json_output import print_json
from liebig.base.progress import announce


def command(
    folder: Annotated[Path, typer.Argument(help="Folder of the retriever.")],
    questions: Annotated[
        Path | None,
        typer.Option(help="Your questions with the passages that answer them, as liebig build reads them."),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print the check as one line of JSON; docs/json.md has the fields."),
    ] = False,
) -> None:
    """Check which system of a retriever answers best: by words, by meaning or both. The folder stays as it is.

    Example:

        liebig check runs/articles --questions questions.jsonl
    """
    for path in filter(None, (folder, questions)):
        if not path.exists():
            raise WorkspaceError("there is no such file or folder", file=path, fix="check the path")
    from liebig.builder.check_text import sentences
    from liebig.builder.recheck import recheck

    checks = recheck(folder, questions, announce)
    if as_json:
        print_json(checks)
        return
    for line in ["", *sentences(checks), f"The folder answers with {checks['served']}."]:
        typer.echo(line)  # a result: --quiet prints it too
