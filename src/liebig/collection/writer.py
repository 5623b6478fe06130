"""Write a collection folder: items arrive in any order, and each goes to the file of its kind.

A repeated id with the same contents (a passage listed under several questions) is kept once; with different contents
it is an error. Memory: the hashes in the ledgers. `liebig.base.workspace.stage` makes sure that a folder is written
completely or not at all.
"""

from __future__ import annotations

from array import array
from collections import Counter
from enum import Enum, auto
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from liebig.base.errors import DataError
from liebig.base.records import Document, Group, Judgement, Passage, Query, ScoredPair, Tuple
from liebig.collection import SPLIT_KINDS, group_row
from liebig.collection.lookup import Hashes, OffsetIndex, hash64
from liebig.formats.documents import document_row
from liebig.formats.inputs import BUFFER
from liebig.formats.items import Item, check_split
from liebig.formats.output import json_line, tab_line

# A ledger is an open-addressing hash table, at most three quarters full, over plain arrays: 64-bit hashes of the id and
# the contents of each record, and its byte offset. That is 20 to 30 bytes per record (0.65 GB for 21 M passages, 0.2 GB
# more while the index is sorted). The chance that any two of 21 M ids share a hash is one in a hundred thousand.

GROWS = 1 << 22


class Repeat(Enum):
    """What the ledger says of a record."""

    NEW = auto()
    SAME = auto()
    OTHER = auto()


class Ledger:
    """Records by id, for telling repeated ones from clashes."""

    def __init__(self) -> None:
        self._ids, self._contents, self._offsets = array("Q"), array("Q"), array("Q")
        self._table = array("I", bytes(4 << 10))
        self._mask = len(self._table) - 1

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, name: str, content: str, offset: int) -> Repeat:
        """Enter a record; one whose id is known is compared and not entered again."""
        key, value = hash64(name), hash64(content)
        slot = self._slot(key)
        number = self._table[slot]
        if number:
            return Repeat.SAME if self._contents[number - 1] == value else Repeat.OTHER
        self._ids.append(key)
        self._contents.append(value)
        self._offsets.append(offset)
        self._table[slot] = len(self._ids)
        if len(self._ids) * 4 > len(self._table) * 3:
            self._grow()
        return Repeat.NEW

    def _slot(self, key: int) -> int:
        """Where a key stands, or would stand."""
        table, ids, mask = self._table, self._ids, self._mask
        slot = key & mask
        while (number := table[slot]) and ids[number - 1] != key:
            slot = (slot + 1) & mask
        return slot

    def _grow(self) -> None:
        """A larger table, filled anew: four times the size while it is small, then twice."""
        self._table = array("I", bytes(4)) * (len(self._table) * (4 if len(self._table) < GROWS else 2))
        self._mask = len(self._table) - 1
        table, mask = self._table, self._mask
        for number, key in enumerate(self._ids, 1):
            slot = key & mask
            while table[slot]:
                slot = (slot + 1) & mask
            table[slot] = number

    @property
    def ids(self) -> Hashes:
        """The hashes of the ids, in order."""
        return _view(self._ids)

    @property
    def contents(self) -> Hashes:
        """The hashes of the contents, in order."""
        return _view(self._contents)

    @property
    def offsets(self) -> NDArray[np.uint64]:
        """The byte offsets of the records, in order."""
        return _view(self._offsets)

    def index(self) -> OffsetIndex:
        """Offsets by id. Nothing can be entered any more, because the table is given up for the room."""
        self._table = array("I")
        return OffsetIndex.build(self.ids, self.offsets)


def _view(numbers: array[int]) -> NDArray[np.uint64]:
    """The numbers as an array, without copying them."""
    return np.frombuffer(numbers, dtype=np.uint64) if numbers else np.empty(0, np.uint64)


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
        if seen is Repeat.OTHER:
            item.where.refuse(
                f"the id {record.id!r} was used before for another {SINGULAR[kind]}", "make ids unique"
            )
        if seen is Repeat.SAME:
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
                "this is a run, which cannot be part of a collection",
                file=item.where.file,
                fix="use liebig evaluate or liebig convert",
            )
        name = check_split(split, item.where)
        self._write(f"{kind}/{name}{SPLIT_KINDS[kind]}", line)
        self.counts[f"{kind}/{name}"] += 1

    def _list(self, split: str, name: str, item: Item) -> None:
        """Enter a query into its split's list, once."""
        ledger = self._listed.setdefault(check_split(split, item.where), Ledger())
        if ledger.add(name, "", 0) is Repeat.NEW:
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
