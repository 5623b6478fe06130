"""`liebig doctor`: the machine, and a folder where one is named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from liebig.base.errors import DataError
from liebig.base.json_output import print_json
from liebig.doctor.machine_check import Finding


def findings(folder: Path | None, texts: Path | None, model: Path | None) -> Iterator[Finding]:
    """Everything that is looked at, in order."""
    from liebig.doctor.folder_check import examine, index_alone
    from liebig.doctor.machine_check import machine
    from liebig.search.retriever_folder import NAME

    yield from machine()
    if folder is None:
        return
    if not folder.is_dir():
        raise DataError("there is no such folder", file=folder, fix="name a retriever's folder")
    if (folder / NAME).is_file():
        yield from examine(folder)
    elif texts is not None:
        yield from index_alone(folder, texts, model)
    else:
        raise DataError(
            "is not a retriever", file=folder, fix="name one, or an index with --texts COLLECTION"
        )


def command(
    folder: Annotated[
        Path | None, typer.Argument(help="Folder of a retriever, or of an index with --texts.")
    ] = None,
    texts: Annotated[Path | None, typer.Option(help="Collection that an index was built from.")] = None,
    model: Annotated[
        Path | None, typer.Option(help="Model of an index [default: the one recorded in the index].")
    ] = None,
    json: Annotated[
        bool,
        typer.Option("--json", help="Print the findings as one line of JSON; docs/json.md has the fields."),
    ] = False,
) -> None:
    """Check this machine and a folder: hashes, counts, re-encoded vectors, recall. Exits with 1 if a check fails.

    Example:

        liebig doctor runs/articles
    """
    seen = []
    for finding in findings(folder, texts, model):
        seen.append(finding)
        if not json:
            typer.echo(str(finding))
    good = all(finding.good for finding in seen)
    if json:
        print_json({"good": good, "findings": seen})
    if not good:
        raise typer.Exit(1)
