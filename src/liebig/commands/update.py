"""`liebig update`: new, changed and deleted documents, taken into a retriever's indexes (`builder/update.py`)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from liebig.base.machine import is_running
from liebig.base.progress import announce
from liebig.builder.project_file import read_project
from liebig.commands.build import DEFAULTS, option
from liebig.formats.convert import given_converters

WRITTEN = ("folder",)  # which is uploaded where it is an address


def command(
    folder: Annotated[
        Path | None, typer.Argument(help="Folder of the retriever [default: as liebig.toml says].")
    ] = None,
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SOURCE]...", help="Files and folders it is built from now [default: as before]."
        ),
    ] = None,
    convert: Annotated[list[str] | None, option("convert", metavar="SUFFIX=COMMAND")] = None,
    strict: Annotated[bool, option("strict", "--strict")] = DEFAULTS.strict,
    watch: Annotated[
        bool, typer.Option("--watch", help="Stay, and update whenever a file of the sources changes.")
    ] = False,
    while_process: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Take new, changed and deleted documents into a retriever; a running server switches to the new generation.

    Example:

        liebig update runs/articles
        liebig update runs/articles --watch
    """
    reading = None
    if folder is None:
        project = read_project(Path())
        folder, sources = project.out, list(project.config.sources)
        reading = project.config
    if watch:
        from liebig.builder.watch import watch as follow

        follow(
            folder,
            sources or [],
            announce,
            strict,
            lambda: while_process is not None and not is_running(while_process),
            reading,
            given_converters(convert or []),
        )
        return
    from liebig.builder.update import update

    update(folder, sources or [], announce, strict, reading, given_converters(convert or []))
