"""What an earlier reading made of each file, so that an update reads only the files that have changed.

A reading leaves `read.jsonl`: a line per file that became documents, with its stamp (size, times and inode, as the file
system has them), and where its documents stand in documents.jsonl. A file with the same stamp is not opened again. One
that changed less than RACY seconds before the reading began, or while it was read, has no line, because another change
in the same moment would not show in its stamp (git's rule for its index). Cost: some 50 µs per document taken over, and
a line per file in memory.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from liebig.base.hashes import RACY
from liebig.formats.inputs import InputSource, Stamp
from liebig.formats.ledger import Ledger

NAME = "read.jsonl"
DOCUMENTS = "documents.jsonl"


class FileReading(NamedTuple):
    """How a file was read: its stamp, in which format, under which name, and what the ledger says of it."""

    stamp: Stamp
    format: str
    name: str
    start: int
    end: int
    guessed: str
    cut: str
    table: str


class ReadBefore:
    """The files of an earlier reading, by their labels; without a folder there are none."""

    def __init__(self, folder: Path | None = None) -> None:
        self._lines: dict[str, bytes] = {}
        self._documents = None if folder is None else folder / DOCUMENTS
        if folder is not None and (folder / NAME).is_file():
            with (folder / NAME).open("rb") as file:
                self._lines = {orjson.loads(line)[0]: line for line in file}

    def lines(self, source: InputSource, format: str, name: str, ledger: Ledger) -> Iterator[bytes] | None:
        """The documents of a file that has not changed, which the ledger gets as read; None for any other."""
        line = self._lines.get(source.label)
        if line is None or (stamp := source.stamp()) is None:
            return None
        _, number, *rest = orjson.loads(line)
        before = FileReading(Stamp(*number), *rest)
        if (stamp, format, name) != (before.stamp, before.format, before.name):
            return None
        return self._stored(source.label, before, ledger)

    def _stored(self, label: str, before: FileReading, ledger: Ledger) -> Iterator[bytes]:
        assert self._documents is not None, "there are lines"
        with self._documents.open("rb") as file:
            file.seek(before.start)
            while file.tell() < before.end:
                yield file.readline()
        for noted, said in (
            (ledger.guessed, before.guessed),
            (ledger.cut, before.cut),
            (ledger.tables, before.table),
        ):
            if said:
                noted[label] = said
        ledger.mark_read(label)


class ReadingLog:
    """Notes where the documents of each file are written, and says in the end which files need not be read again."""

    def __init__(self) -> None:
        self._began = time.time()
        self._spans: dict[
            str, tuple[int, int] | None
        ] = {}  # None where a reading of this file alone would differ
        self._sources: dict[str, tuple[InputSource, Stamp, str, str]] = {}

    def opened(self, source: InputSource, format: str, name: str) -> None:
        if (stamp := source.stamp()) is not None:
            self._sources[source.label] = (source, stamp, format, name)

    def written(self, label: str, start: int, end: int, as_given: bool) -> None:
        """A document of a file was written; `as_given` is false where it got another id, or was there already."""
        first, last = self._spans.get(label, (start, start)) or (0, -1)
        self._spans[label] = (first, end) if as_given and last == start else None

    def save(self, folder: Path, ledger: Ledger) -> None:
        """Write a line for every file that was read to its end and has not changed since."""
        with (folder / NAME).open("wb") as file:
            file.writelines(self._list(ledger))

    def _list(self, ledger: Ledger) -> Iterator[bytes]:
        for label, (source, stamp, format, name) in self._sources.items():
            span = self._spans.get(label)
            if span is None or label not in ledger.read or stamp.changed > self._began - RACY:
                continue
            if source.stamp() == stamp:
                notes: list[Any] = [
                    noted.get(label, "") for noted in (ledger.guessed, ledger.cut, ledger.tables)
                ]
                yield orjson.dumps(
                    [label, list(stamp), format, name, *span, *notes], option=orjson.OPT_APPEND_NEWLINE
                )
