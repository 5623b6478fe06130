"""A collection folder, written: items go in as they come, in any order, and each finds its file.

An id may come again with the same contents (the same passage under several questions): it is kept once. With other
contents it is an error. Memory: the ledgers' hashes. Folders are made whole or not at all by `liebig.workspace.stage`.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from liebig.data.collection import SPLIT_KINDS, group_row
from liebig.data.documents import document_row
from liebig.data.items import Item, check_split
from liebig.data.ledger import Ledger, Seen
from liebig.data.output import json_line, tab_line
from liebig.data.unpack import BUFFER
from liebig.errors import DataError
from liebig.records import Document, Group, Judgement, Passage, Query, ScoredPair, Tuple

Named = Document | Passage | Query
SINGULAR = {"documents": "document", "passages": "passage", "queries": "query"}


class CollectionWriter:
    """Writes items into the files of a collection. `counts` and `repeated` say how many were written and left out."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.counts: Counter[str] = Counter()
        self.repeated: Counter[str] = Counter()
        self.ledgers = {kind: Ledger() for kind in SINGULAR}
        self._listed: dict[str, Ledger] = {}
        self._files: dict[str, BinaryIO] = {}
        self._sizes: Counter[str] = Counter()

    def __enter__(self) -> CollectionWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files.values():
            file.close()
        if kind is None:
            for name, ledger in self.ledgers.items():
                if ledger:
                    ledger.index().save(self.folder / "index" / name)

    def add(self, item: Item) -> bool:
        """Write an item; False where the same record was there already."""
        record = item.record
        if isinstance(record, Query) and item.split:
            self._list(item.split, record.id, item)
        if isinstance(record, Document | Passage | Query):
            return self._add_named(record, item)
        self._add_to_split(item)
        return True

    def _add_named(self, record: Named, item: Item) -> bool:
        kind, row, content = _described(record)
        seen = self.ledgers[kind].add(record.id, content, self._sizes[f"{kind}.jsonl"])
        if seen is Seen.OTHER:
            item.where.refuse(
                f"the id {record.id!r} was used before for another {SINGULAR[kind]}", "make ids unique"
            )
        if seen is Seen.SAME:
            self.repeated[kind] += 1
            return False
        self._write(f"{kind}.jsonl", json_line(row))
        self.counts[kind] += 1
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
                "this is a run, and runs are no part of a collection",
                file=item.where.file,
                fix="use liebig evaluate or liebig convert",
            )
        name = check_split(split, item.where)
        self._write(f"{kind}/{name}{SPLIT_KINDS[kind]}", line)
        self.counts[f"{kind}/{name}"] += 1

    def _list(self, split: str, name: str, item: Item) -> None:
        """Enter a query into its split's list, once."""
        ledger = self._listed.setdefault(check_split(split, item.where), Ledger())
        if ledger.add(name, "", 0) is Seen.NEW:
            self._write(f"splits/{split}.txt", name)

    def _write(self, name: str, line: str) -> None:
        if name not in self._files:
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            self._files[name] = path.open("wb", buffering=BUFFER)
        self._sizes[name] += self._files[name].write(line.encode("utf-8") + b"\n")


def _described(record: Named) -> tuple[str, dict[str, Any], str]:
    """The kind of a record, its row, and the text by which two of one id are compared."""
    if isinstance(record, Passage):
        row: dict[str, Any] = {"id": record.id, "title": record.title, "text": record.text, "doc": record.doc}
        return "passages", row, f"{record.title}\0{record.text}"
    if isinstance(record, Query):
        row = {"id": record.id, "text": record.text, "answers": record.answers}
        return "queries", row, "\0".join((record.text, *record.answers))
    parts = [record.title, *(t for s in record.sections for t in (s.heading, *s.paragraphs))]
    return "documents", document_row(record), "\0".join(parts)
