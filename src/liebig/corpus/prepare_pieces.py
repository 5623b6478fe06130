"""A collection's file cut into pieces of whole lines, and the documents of a piece.

Pieces are byte ranges, so any process can read any of them without reading what lies before. Where a collection
has no documents its passages are taken: those that follow each other and name the same document become the
paragraphs of it, and a piece never ends between them. Cost: a seek for each piece.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from typing import BinaryIO

from liebig.data import beir, documents
from liebig.data.fields import Row, as_row
from liebig.data.items import Where
from liebig.data.json_input import parse
from liebig.data.lines import decode
from liebig.errors import DataError
from liebig.records import Document, Passage, Section


@dataclass(frozen=True)
class Piece:
    """Whole lines of a file: the bytes from `begin` to `end`."""

    file: Path
    begin: int
    end: int
    is_passages: bool

    def documents(self) -> Iterator[Document]:
        """The documents of the piece; what is wrong with one is said with its line in the file."""
        try:
            yield from self._grouped() if self.is_passages else self._single()
        except DataError as error:
            line = self._lines_before() + (error.line or 0)
            raise DataError(error.what, file=self.file, line=line, fix=error.fix) from None

    def _single(self) -> Iterator[Document]:
        return (documents.document(row, where) for where, row in self._rows())

    def _grouped(self) -> Iterator[Document]:
        passages = (beir.passage(row, where) for where, row in self._rows())
        for _, group in groupby(enumerate(passages), key=_document_key):
            yield _as_document([passage for _, passage in group])

    def _rows(self) -> Iterator[tuple[Where, Row]]:
        """The rows, with lines counted from the start of the piece."""
        with self.file.open("rb") as file:
            file.seek(self.begin)
            number = 0
            while file.tell() < self.end:
                number += 1
                where = Where(str(self.file), number)
                line = decode(file.readline(), where)
                if line and not line.isspace():
                    yield where, as_row(parse(line, where), where)

    def _lines_before(self) -> int:
        with self.file.open("rb") as file:
            steps = range(0, self.begin, 1 << 20)
            return sum(file.read(min(1 << 20, self.begin - at)).count(b"\n") for at in steps)


def _document_key(numbered: tuple[int, Passage]) -> str | int:
    """What neighbours must share to be one document: its id; a passage without one stands alone."""
    number, passage = numbered
    return passage.doc or number


def _as_document(passages: list[Passage]) -> Document:
    first = passages[0]
    return Document(first.doc or first.id, first.title, (Section("", tuple(p.text for p in passages)),))


def cut(folder: Path, size: int) -> list[Piece]:
    """Pieces of about `size` bytes of a collection's documents, or of its passages where it has no documents."""
    for name in ("documents", "passages"):
        file = folder / f"{name}.jsonl"
        if file.is_file() and file.stat().st_size:
            bounds = _bounds(file, size, name == "passages")
            return [Piece(file, begin, end, name == "passages") for begin, end in pairwise(bounds)]
    raise DataError(
        "the collection has neither documents nor passages", file=folder, fix="make one with liebig init"
    )


def _bounds(path: Path, size: int, is_passages: bool) -> list[int]:
    total, bounds = path.stat().st_size, [0]
    with path.open("rb") as file:
        while bounds[-1] + size < total:
            file.seek(bounds[-1] + size - 1)
            file.readline()
            bounds.append(_next_group(file, str(path)) if is_passages else file.tell())
    return bounds if bounds[-1] == total else [*bounds, total]


def _next_group(file: BinaryIO, name: str) -> int:
    """Where the first line begins whose passage is of another document than the line before it."""
    before: str | None = None
    while True:
        begin, line = file.tell(), file.readline()
        if not line:
            return begin
        doc = _document_of(line, name)
        if before is not None and (not before or doc != before):
            return begin
        before = doc


def _document_of(line: bytes, name: str) -> str:
    """The document a line's passage names; what is wrong with the line is said when its piece is read."""
    try:
        where = Where(name)
        return beir.passage(as_row(parse(decode(line, where), where), where), where).doc
    except DataError:
        return ""
