"""What is new, changed and gone between two generations of a collection, passage by passage, by hash.

`passages.jsonl` holds what has to be indexed, `gone.txt` ids to take out of BM25, `stale.txt` ids to take out of the
vectors: those, and the pieces of changed passages where a passage has several vectors. Cost: one pass over both
collections; memory: 16 bytes a passage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from liebig.data.collection import Collection
from liebig.data.collection_writer import CollectionWriter
from liebig.data.items import Item, Where
from liebig.data.lookup import hash64
from liebig.data.output import write_lines
from liebig.index.base import Index
from liebig.index.opening import open_index
from liebig.records import Passage
from liebig.retriever.config import ChangesConfig
from liebig.workspace import Folder

GONE, STALE, SUMMARY = "gone.txt", "stale.txt", "changes.json"


@dataclass(frozen=True)
class Prints:
    """Fingerprints of a collection's passages: hashes of ids, rising, beside hashes of contents."""

    ids: NDArray[np.uint64]
    contents: NDArray[np.uint64]

    @classmethod
    def of(cls, pairs: Iterable[tuple[int, int]]) -> Prints:
        """Of hashes of ids and contents in any order."""
        rows = np.fromiter(pairs, np.dtype((np.uint64, 2))).reshape(-1, 2)
        order = np.argsort(rows[:, 0], kind="stable")
        return cls(rows[order, 0], rows[order, 1])

    def __sub__(self, other: Prints) -> int:
        """How many ids the other has not."""
        return int((~np.isin(self.ids, other.ids)).sum())

    def changed(self, other: Prints) -> int:
        """How many ids have other contents there."""
        _, mine, theirs = np.intersect1d(self.ids, other.ids, return_indices=True)
        return int((self.contents[mine] != other.contents[theirs]).sum())

    def find(self, id: str) -> int | None:
        """The hash of the content that an id has."""
        key = np.uint64(hash64(id))
        place = int(np.searchsorted(self.ids, key))
        there = place < len(self.ids) and self.ids[place] == key
        return int(self.contents[place]) if there else None


def _passages(collection: Collection) -> Iterator[tuple[int, int]]:
    return ((hash64(p.id), _content(p)) for p in collection.passages())


def _content(passage: Passage) -> int:
    return hash64("\0".join((passage.title, passage.text, passage.doc)))


@dataclass
class Counts:
    """Documents (passages where there are no documents) of each kind, and passages to index and to take out."""

    new: int = 0
    changed: int = 0
    deleted: int = 0
    passages: int = 0
    gone: int = 0

    @property
    def nothing(self) -> bool:
        """Whether both generations are the same."""
        return not (self.passages or self.gone or self.new or self.changed or self.deleted)


def run(config: ChangesConfig, folder: Folder) -> None:
    """Write what changed."""
    before, now = Collection(config.before), Collection(config.now)
    index = open_index(config.index)
    old, new = Prints.of(_passages(before)), Prints.of(_passages(now))
    counts, stale = Counts(), list[str]()
    with CollectionWriter(folder.path) as writer:
        for passage in now.passages():
            content = old.find(passage.id)
            if content == _content(passage):
                continue
            writer.add(Item(passage, Where(str(now.path))))
            counts.passages += 1
            stale += _pieces(index, passage.id) if content is not None else []
    gone = [passage.id for passage in before.passages() if new.find(passage.id) is None]
    counts.gone = len(gone)
    stale += [id for name in gone for id in _vectors(index, name)]
    write_lines(folder.path / GONE, gone)
    write_lines(folder.path / STALE, stale)
    _count_documents(before, now, counts)
    folder.write_json(SUMMARY, asdict(counts))


def _pieces(index: Index, id: str) -> list[str]:
    """The pieces of a passage, where it has several vectors; one vector under its own id is replaced by itself."""
    return _vectors(index, id) if index.about.get("pieces") else []


def _vectors(index: Index, id: str) -> list[str]:
    """Under which ids the vectors of a passage are."""
    if not index.about.get("pieces"):
        return [id]
    found: list[str] = []
    while index.find(piece := f"{id}#{len(found)}") is not None:
        found.append(piece)
    return found


def _count_documents(before: Collection, now: Collection, counts: Counts) -> None:
    """How many documents are new, changed and gone; passages, where a collection has no documents."""
    old, new = Prints.of(_documents(before)), Prints.of(_documents(now))
    counts.new, counts.deleted, counts.changed = new - old, old - new, new.changed(old)


def _documents(collection: Collection) -> Iterator[tuple[int, int]]:
    if not collection.has("documents"):
        yield from _passages(collection)
        return
    for document in collection.documents():
        sections = [text for s in document.sections for text in (s.heading, *s.paragraphs)]
        metadata = [f"{name}={value}" for name, value in sorted(document.metadata.items())]
        yield hash64(document.id), hash64("\0".join((document.title, *sections, "", *metadata)))
