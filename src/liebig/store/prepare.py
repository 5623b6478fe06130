"""`liebig prepare`: a collection becomes a token store.

The collection's file is cut into pieces; one process, or several where the collection is large, each turn a piece into
a shard, one file that is whole or absent; the shards are joined in order. A run that was killed finds the shards that
were finished and makes the others, so its bytes are those of an uninterrupted run, as they are for any number of
processes.
Cost: the tokenizer's time and about a tenth of it; about 150 MB of memory a process.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, BinaryIO

from liebig.base.errors import DataError
from liebig.base.json_file import read_json
from liebig.base.machine import spread
from liebig.base.progress import Progress, quantity
from liebig.base.records import Document, Section
from liebig.base.workspace import WHOLE, StagePart
from liebig.formats import beir, documents
from liebig.formats.items import Row, Where, as_row
from liebig.formats.rows import decode, parse
from liebig.store import SUMMARY
from liebig.store.writing import build, join
from liebig.text import sentences
from liebig.text.tokenizer import Tokenizer

# Pieces are byte ranges, so any process can read any piece without reading what comes before it. In a collection
# without documents, consecutive passages that name the same document become its paragraphs; a piece never ends between
# them.


@dataclass(frozen=True)
class FilePiece:
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
        # Neighbours with one document's id are that document; a passage without one stands alone.
        for _, group in groupby(enumerate(passages), key=lambda pair: pair[1].doc or pair[0]):
            parts = [passage for _, passage in group]
            texts = tuple(passage.text for passage in parts)
            yield Document(parts[0].doc or parts[0].id, parts[0].title, (Section("", texts),))

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


def cut(folder: Path, size: int) -> list[FilePiece]:
    """Pieces of about `size` bytes of a collection's documents, or of its passages where it has no documents."""
    for name in ("documents", "passages"):
        file = folder / f"{name}.jsonl"
        if file.is_file() and file.stat().st_size:
            bounds = _bounds(file, size, name == "passages")
            return [FilePiece(file, begin, end, name == "passages") for begin, end in pairwise(bounds)]
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


PIECE = 4 << 20  # bytes of JSON lines
SHARDS = "shards"
Task = tuple[FilePiece, Path]  # and the file of its shard


@dataclass(frozen=True)
class Work:
    """What every process needs to make a shard of a piece."""

    tokenizer: Tokenizer
    language: str | None

    def __call__(self, task: Task) -> int:
        """Write the shard of a piece; gives the number of its tokens."""
        piece, path = task
        spans = partial(sentences.spans, language=self.language)
        shard = build(piece.documents(), self.tokenizer, spans)
        shard.save(path)
        return len(shard.tokens)


def prepare(
    collection: Path,
    folder: Path,
    tokenizer: Tokenizer,
    *,
    language: str | None = None,
    processes: int | None = None,
    piece: int | None = None,
    part: StagePart = WHOLE,
) -> None:
    """Write the store of a collection into `folder`, going on where an earlier run was broken off.

    Without a number of `processes`, more than this one are started where they pay.
    """
    if not (folder / SUMMARY).is_file():
        pieces = cut(collection, piece or PIECE)
        paths = [folder / SHARDS / f"{number:06}.npz" for number in range(len(pieces))]
        (folder / SHARDS).mkdir(exist_ok=True)
        mine = [task for number, task in enumerate(zip(pieces, paths)) if part.takes(number)]
        tasks = [task for task in mine if not task[1].is_file()]
        done = sum(p.end - p.begin for p, _ in mine) - sum(p.end - p.begin for p, _ in tasks)
        _make_all(Work(tokenizer, language), tasks, done, processes)
        if part != WHOLE:
            return
        join(paths, folder, tokenizer)
    shutil.rmtree(folder / SHARDS, ignore_errors=True)
    for stray in folder.glob(".*.tmp"):
        stray.unlink()
    summary = read_json(folder / SUMMARY, dict[str, Any])
    if not summary.get("tokens"):
        raise DataError("the collection has no text", file=collection, fix="look at it with liebig init")


def _make_all(work: Work, tasks: Sequence[Task], done: int, processes: int | None) -> None:
    """Make the shards that are missing, with a bar in megabytes of the collection."""
    total = done + sum(piece.end - piece.begin for piece, _ in tasks)
    with Progress("prepare", total / 1e6, "MB", done / 1e6) as bar:
        tokens = 0
        for (piece, _), count in zip(tasks, spread(work, tasks, processes)):
            tokens += count
            bar.note(f"{quantity(tokens)} tokens")
            bar.advance((piece.end - piece.begin) / 1e6)
