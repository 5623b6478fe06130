"""Write a collection folder: items arrive in any order, and each goes to the file of its kind.

A repeated id with the same contents (a passage listed under several questions) is kept once; with different contents
it is an error. Memory: the hashes of `id_table.py`. `liebig.base.workspace.stage` makes sure that a folder is written
completely or not at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from liebig.base.errors import DataError
from liebig.base.records import Document, Group, Judgement, Passage, Query, ScoredPair, Tuple
from liebig.collection import SPLIT_KINDS, group_row
from liebig.collection.id_table import IdTable, Repeat
from liebig.formats.compressed import BUFFER
from liebig.formats.documents import document_row
from liebig.formats.items import Item, check_split
from liebig.formats.output import json_line, tab_line

Named = Document | Passage | Query
SINGULAR = {"documents": "document", "passages": "passage", "queries": "query"}


@dataclass(frozen=True)
class WriterMark:
    """How much a writer had written at one time."""

    sizes: dict[str, int]
    records: dict[str, int]
    listed: dict[str, int]
    counts: Counter[str]
    repeated: Counter[str]


class CollectionWriter:
    """Writes items into the files of a collection. `counts` and `repeated` say how many were written and left out."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.counts: Counter[str] = Counter()
        self.repeated: Counter[str] = Counter()
        self.tables = {kind: IdTable() for kind in SINGULAR}
        self._listed: dict[str, IdTable] = {}
        self._files: dict[str, BinaryIO] = {}
        self._sizes: Counter[str] = Counter()
        self.last_id = ""  # under which the last record was written

    def size(self, kind: str) -> int:
        """Bytes written of a kind of record."""
        return self._sizes[f"{kind}.jsonl"]

    def __enter__(self) -> CollectionWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files.values():
            file.close()
        if kind is None:
            for name, table in self.tables.items():
                if table:
                    table.index().save(self.folder / "index" / name)

    def add(self, item: Item, source: str = "") -> bool:
        """Write an item; False where the same record was there already.

        Where the id is that of another document, the name of the source, if given, is put before it.
        """
        record = item.record
        if isinstance(record, Query) and item.split:
            self._list(item.split, record.id, item)
        if isinstance(record, Document | Passage | Query):
            return self._add_named(record, item, source)
        self._add_to_split(item)
        return True

    def copy(self, kind: str, lines: bytes, keys: Sequence[int], offsets: Sequence[int]) -> None:
        """Write lines of another collection as they are, with the hashes of their ids and where each line begins."""
        start = self.size(kind)
        for key, offset in zip(keys, offsets):
            self.tables[kind].copy(key, start + offset)
        self._write(f"{kind}.jsonl", lines.removesuffix(b"\n"))
        self.counts[kind] += len(keys)

    def mark(self) -> WriterMark:
        """How much is written now, to come back to."""
        return WriterMark(
            dict(self._sizes),
            {kind: len(table) for kind, table in self.tables.items()},
            {split: len(table) for split, table in self._listed.items()},
            self.counts.copy(),
            self.repeated.copy(),
        )

    def back_to(self, mark: WriterMark) -> None:
        """Remove all that was written since the mark."""
        for name, file in list(self._files.items()):
            size = mark.sizes.get(name, 0)
            if size:
                file.seek(size)
                file.truncate()
            else:
                self._files.pop(name).close()
                (self.folder / name).unlink()
        self._sizes = Counter(mark.sizes)
        for kind, table in self.tables.items():
            table.truncate(mark.records[kind])
        for split, table in self._listed.items():
            table.truncate(mark.listed.get(split, 0))
        self.counts, self.repeated = mark.counts.copy(), mark.repeated.copy()

    def _add_named(self, record: Named, item: Item, source: str) -> bool:
        kind, row, content = _described(record)
        seen = self.tables[kind].add(record.id, content, self._sizes[f"{kind}.jsonl"])
        number = 1
        while seen is Repeat.OTHER and source:
            row["id"] = f"{source}/{record.id}" if number == 1 else f"{source}~{number}/{record.id}"
            seen = self.tables[kind].add(row["id"], content, self._sizes[f"{kind}.jsonl"])
            number += 1
        if seen is Repeat.OTHER:
            item.where.refuse(
                f"the id {record.id!r} was used before for another {SINGULAR[kind]}", "make ids unique"
            )
        if seen is Repeat.SAME:
            self.repeated[kind] += 1
            return False
        self._write(f"{kind}.jsonl", json_line(row))
        self.counts[kind] += 1
        self.last_id = row["id"]
        return True

    def _add_to_split(self, item: Item) -> None:
        record, split = item.record, item.split or "train"
        if isinstance(record, Judgement):
            kind, line = "judgements", tab_line(record.query, record.passage, str(record.relevance))
        elif isinstance(record, Group):
            kind, line = "groups", json_line(group_row(record))
        elif isinstance(record, ScoredPair):
            kind, line = "pairs", json_line({"a": record.a, "b": record.b, "score": record.score})
        elif isinstance(record, Tuple):
            row = {"anchor": record.anchor, "positive": record.positive, "negatives": record.negatives}
            kind, line = "tuples", json_line(row)
        else:
            raise DataError(
                "this is a run, which cannot be part of a collection",
                file=item.where.file,
                fix="use liebig evaluate or liebig convert",
            )
        name = check_split(split, item.where)
        self._write(f"{kind}/{name}{SPLIT_KINDS[kind]}", line)
        self.counts[f"{kind}/{name}"] += 1

    def _list(self, split: str, name: str, item: Item) -> None:
        """Enter a query into its split's list, once."""
        table = self._listed.setdefault(check_split(split, item.where), IdTable())
        if table.add(name, "", 0) is Repeat.NEW:
            self._write(f"splits/{split}.txt", name)

    def _write(self, name: str, line: str | bytes) -> None:
        if name not in self._files:
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            self._files[name] = path.open("wb", buffering=BUFFER)
        line = line.encode("utf-8") if isinstance(line, str) else line
        self._sizes[name] += self._files[name].write(line + b"\n")


def _described(record: Named) -> tuple[str, dict[str, Any], str]:
    """The kind of a record, its row, and the text by which two of one id are compared."""
    if isinstance(record, Passage):
        row: dict[str, Any] = {"id": record.id, "title": record.title, "text": record.text, "doc": record.doc}
        row |= record.metadata
        row |= {"language": record.language} if record.language else {}
        return "passages", row, f"{record.title}\0{record.text}"
    if isinstance(record, Query):
        row = {"id": record.id, "text": record.text, "answers": record.answers}
        return "queries", row, "\0".join((record.text, *record.answers))
    parts = [record.title, *(t for s in record.sections for t in (s.heading, *s.paragraphs))]
    return "documents", document_row(record), "\0".join(parts)
