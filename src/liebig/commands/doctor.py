"""`liebig doctor`: the machine, and a folder where one is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from liebig.base.errors import DataError
from liebig.doctor.machine_check import Finding


def doctor(folder: Path | None, texts: Path | None, model: Path | None, say: Callable[[str], None]) -> bool:
    """Say everything; False where something is wrong."""
    good = True
    for finding in _findings(folder, texts, model):
        say(str(finding))
        good &= finding.good
    return good


def _findings(folder: Path | None, texts: Path | None, model: Path | None) -> Iterator[Finding]:
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
) -> None:
    """Check this machine and a folder: hashes, counts, re-encoded vectors, recall. Exits with 1 if a check fails.

    Example:

        liebig doctor runs/articles
    """

    if not doctor(folder, texts, model, typer.echo):
        raise typer.Exit(1)
