"""`liebig doctor`: the machine, and a folder where one is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from liebig.doctor.finding import Finding
from liebig.errors import DataError


def doctor(folder: Path | None, texts: Path | None, model: Path | None, say: Callable[[str], None]) -> bool:
    """Say everything; False where something is wrong."""
    good = True
    for finding in _findings(folder, texts, model):
        say(str(finding))
        good &= finding.good
    return good


def _findings(folder: Path | None, texts: Path | None, model: Path | None) -> Iterator[Finding]:
    from liebig.doctor.folder import examine, index_alone
    from liebig.doctor.machine import machine
    from liebig.retriever.folder import NAME

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
        raise DataError("is no retriever", file=folder, fix="name one, or an index with --texts COLLECTION")
