"""The recipes of the stages that only `liebig build` and `liebig update` have. Imports nothing heavy."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from liebig.base.config import Config, InputPath
from liebig.base.records import Passage
from liebig.base.workspace import Folder
from liebig.collection.collection import Collection
from liebig.collection.lookup import hash64
from liebig.collection.writer import CollectionWriter
from liebig.formats.items import Item, Where
from liebig.formats.output import write_lines
from liebig.indexes import open_index
from liebig.indexes.base import Index
from liebig.indexes.exact import ExactIndex
from liebig.model.encoder import Encoder
from liebig.vectors.quantise import Floats
from liebig.vectors.vector_folder import SHARDS, Vectors, write_shard, write_summary


class QuestionsConfig(Config):
    """Known-item questions made from the corpus itself."""

    collection: InputPath = Field(description="A collection with passages.")
    most: int = Field(400, ge=0, description="At most so many questions.")
    pool: int = Field(2000, ge=1, description="Passages they are asked against, at most.")
    seed: int = Field(0, description="Draws questions and pool.")


class CheckConfig(Config):
    """Which encoder and which system answer the known-item questions best."""

    questions: InputPath = Field(description="What the questions stage wrote.")
    bm25: InputPath = Field(description="BM25 index of the pool.")
    start: InputPath = Field(description="Vectors of the pool by the encoder as it came.")
    trained: InputPath | None = Field(
        None, description="Vectors by the encoder after training on the corpus."
    )
    seed: int = Field(0, description="Divides the questions in two halves.")


class ModelConfig(Config):
    """A model taken into the retriever's folder."""

    model: InputPath = Field(description="The model's folder.")


class MeanConfig(Config):
    """The mean of an encoder's weights before and after training."""

    start: InputPath = Field(description="The model before.")
    trained: InputPath = Field(description="The same model after.")


class ChangesConfig(Config):
    """What is new, changed and gone between two generations of a collection."""

    before: InputPath = Field(description="The collection that the indexes were made of.")
    now: InputPath = Field(description="The collection as it is now.")
    index: InputPath = Field(description="The vectors of the older one.")


class CompactConfig(Config):
    """Vectors of many updates put together again."""

    index: InputPath = Field(description="The vectors.")


# Half of what training changed: the mean of an encoder's weights before and after it.
#
# Where an encoder is a retriever already, a corpus teaches it the corpus and takes away some of what it
# knew: titles are answered better, questions unlike titles sometimes worse. A model and what a short
# training made of it lie in one valley, so their mean is a model too, and keeps more of both (Wortsman et
# al. 2022). `liebig average` takes folders of one form; a start may have any that loads, so both are loaded
# here. Cost: both models in memory.

MODEL = "model"


def run_mean(config: MeanConfig, folder: Folder) -> None:
    """Write the mean of both to `model/`."""
    encoder = Encoder.load(config.trained)
    before = dict(Encoder.load(config.start).named_parameters())
    with torch.no_grad():
        for name, value in encoder.named_parameters():
            value.copy_((value + before[name]) / 2)
    encoder.save(folder.path / MODEL)


# What is new, changed and gone between two generations of a collection, passage by passage, by hash.
#
# `passages.jsonl` holds what has to be indexed, `gone.txt` ids to take out of BM25, `stale.txt` ids to take
# out of the vectors: those, and the pieces of changed passages where a passage has several vectors. Cost:
# one pass over both collections; memory: 16 bytes a passage.

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


def run_changes(config: ChangesConfig, folder: Folder) -> None:
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


# Vectors of many updates put together again: few shards, nothing deleted in them; the vectors stay what
# they are.
#
# Every update adds a shard and marks what is gone. Searching many small shards is slower than searching
# one, so from time to time they are written anew, one shard at a time. Cost: one read and one write of the
# vectors.

MOST_SHARDS = 32
SIZE = 65_536  # vectors of a shard


def is_due(index: Index) -> bool:
    """Whether there are many shards, or more deleted vectors than others."""
    if not isinstance(index, ExactIndex):
        return False
    return len(index.shards) > MOST_SHARDS or len(index.deleted()) > len(index)


def run_compact(config: CompactConfig, folder: Folder) -> None:
    """Write the vectors that are there."""
    vectors = Vectors.open(config.index)
    names: list[str] = []
    count = 0
    for ids, rows in _shards(vectors):
        names.append(f"{len(names):05d}")
        write_shard(_empty(folder.path / SHARDS / names[-1]), ids, rows, vectors.type)
        count += len(ids)
    write_summary(folder.path, vectors.type, vectors.width, names, vectors.about, count)


def _empty(path: Path) -> Path:
    """A place for a shard, where an interrupted run may have left one."""
    shutil.rmtree(path, ignore_errors=True)
    return path


def _shards(vectors: Vectors) -> Iterator[tuple[list[str], Floats]]:
    """Ids and vectors, as many together as make a shard."""
    names: list[str] = []
    parts: list[Floats] = []
    for ids, rows in vectors.chunks(SIZE):
        names += ids
        parts.append(rows)
        if len(names) >= SIZE:
            yield names, np.concatenate(parts)
            names, parts = [], []
    if names:
        yield names, np.concatenate(parts)
