"""A folder of vectors: shards that are written once, each a `.npy` file and its ids.

`vectors.json` says type, width and the shards in order. A shard is complete or absent (it is renamed into place), so
an interrupted writer goes on with the next, and an index takes shards over by linking them. Everything is mapped.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import NonNegativeInt, PositiveInt

from liebig.base import durable, npy, workspace
from liebig.base.errors import DataError
from liebig.base.json_file import FileModel, FileName, Nonnegative, read_json
from liebig.base.records import Title
from liebig.collection.lookup import Ids, memory_ids, write_ids
from liebig.vectors.quantise import DTYPES, Floats, Type, VectorCodes, encode

FORMAT = 1
SUMMARY = "vectors.json"
SHARDS = "shards"
DELETED = "deleted.npy"  # numbers, over all shards, of vectors that are no longer there
Longs = NDArray[np.int64]


class VectorsAbout(FileModel, extra="allow"):
    """How vectors were made, as far as a search depends on it; there may be more."""

    model: str | None = None
    query_model: str | None = None
    prompt: str | None = None
    query_prompt: str | None = None
    unit: bool = False
    pieces: bool = False
    title: Title = "space"
    max_length: PositiveInt | None = None

    def row(self) -> dict[str, Any]:
        """What the file has, and no default."""
        return self.model_dump(exclude_unset=True)


class VectorsFile(FileModel):
    """`vectors.json`."""

    format: Literal[1]
    type: Type
    width: PositiveInt
    count: NonNegativeInt
    shards: tuple[FileName, ...]
    about: VectorsAbout


class ShardFile(FileModel):
    """`shard.json`: the largest norm of a vector; `cut` has what encoding counted until an interrupted run resumes."""

    count: NonNegativeInt
    largest: Nonnegative
    cut: tuple[NonNegativeInt, ...] = ()

    @classmethod
    def read(cls, shard: Path) -> ShardFile:
        return read_json(shard / "shard.json", cls, fix="encode again")


@dataclass(frozen=True)
class Shard:
    """Some vectors and their ids, mapped."""

    path: Path | None  # None while it is in memory only
    vectors: VectorCodes
    ids: Ids
    largest: float  # the largest norm of a vector
    deleted: Longs = field(
        default_factory=lambda: np.zeros(0, np.int64)
    )  # rows that are no longer there, rising

    def __len__(self) -> int:
        return len(self.vectors)

    @classmethod
    def open(cls, path: Path, kind: Type, width: int) -> Shard:
        """Map a shard whose files have been checked."""
        about, ids = ShardFile.read(path), Ids.open(path)
        codes = npy.load(path / "vectors.npy", [DTYPES[kind]], (len(ids), width))
        scales = None
        if kind == "int8":
            scales = npy.load(path / "scales.npy", [np.float32], (len(ids),))
            if not (np.isfinite(scales) & (scales >= 0)).all():
                raise npy.corrupt(path / "scales.npy", "has a scale that is negative or not finite")
        return cls(path, VectorCodes(kind, codes, scales), ids, about.largest)

    def check_finite(self) -> None:
        """Refuse vectors with NaN or infinity: no score is above or below such a one. Cost: a pass over floats."""
        if self.path is not None and not self.vectors.finite:
            raise npy.corrupt(self.path / "vectors.npy", "has a vector with NaN or infinity")

    @classmethod
    def in_memory(cls, ids: Sequence[str], vectors: Floats, kind: Type) -> Shard:
        """A shard that is not on disk (yet)."""
        coded = encode(np.ascontiguousarray(vectors, np.float32), kind)
        pieces = (coded[i : i + 4096].decode() for i in range(0, len(coded), 4096))
        largest = max((float(np.linalg.norm(piece, axis=1).max()) for piece in pieces), default=0.0)
        if not np.isfinite(largest):
            raise DataError("a vector is too long for its norm to be a number", fix="scale the vectors")
        return cls(None, coded, memory_ids(ids), largest)

    def save(self, path: Path, more: Mapping[str, Any] | None = None) -> None:
        """Write the shard, whole or not at all; `more` is kept in its `shard.json`."""
        partial = path.with_name(path.name + ".writing")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        npy.save(partial / "vectors.npy", self.vectors.codes)
        if self.vectors.scales is not None:
            npy.save(partial / "scales.npy", self.vectors.scales)
        write_ids(partial, self.ids.strings)
        about = {"count": len(self), "largest": self.largest, **(more or {})}
        (partial / "shard.json").write_text(json.dumps(about), encoding="utf-8")
        for file in partial.iterdir():
            durable.sync(file)  # a shard in its place is complete even after a power cut
        durable.replace(partial, path)


def write_shard(
    path: Path, ids: Sequence[str], vectors: Floats, kind: Type, more: Mapping[str, Any] | None = None
) -> None:
    """Write vectors and their ids as a shard."""
    assert len(ids) == len(vectors), "an id for each vector"
    Shard.in_memory(ids, vectors, kind).save(path, more)


@dataclass(frozen=True)
class Vectors:
    """An opened folder of vectors; `about` says how they were made (model, side, prompts)."""

    path: Path
    type: Type
    width: int
    shards: tuple[Shard, ...]
    about: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return sum(len(shard) - len(shard.deleted) for shard in self.shards)

    @classmethod
    def open(cls, path: Path, *, hashes: bool = True) -> Vectors:
        """Map a folder, after its files were held against its manifest."""
        if SUMMARY not in workspace.checked_outputs(path, hashes=hashes):
            raise DataError("the folder contains no vectors", file=path, fix="make it with liebig encode")
        return cls.read(path, values=hashes)

    @classmethod
    def read(cls, path: Path, *, values: bool = False) -> Vectors:
        """Map a folder that has been checked; `values` has every vector looked at, which reads all of them."""
        summary = read_json(path / SUMMARY, VectorsFile, fix="encode again")
        opened = [Shard.open(path / SHARDS / name, summary.type, summary.width) for name in summary.shards]
        gone, total = np.zeros(0, np.int64), sum(map(len, opened))
        if (path / DELETED).is_file():
            gone = npy.load_numbers(path / DELETED, total)
            if not npy.ascends(gone, strictly=True):
                raise npy.corrupt(path / DELETED, "has numbers that are not in order")
        for shard in opened if values else ():
            shard.check_finite()
        return cls(path, summary.type, summary.width, tuple(without(opened, gone)), summary.about.row())

    def chunks(self, rows: int) -> Iterator[tuple[list[str], Floats]]:
        """Ids and vectors that are there, at most `rows` at a time."""
        for shard in self.shards:
            gone = set(shard.deleted.tolist())
            for start in range(0, len(shard), rows):
                keep = np.array(
                    [i for i in range(start, min(start + rows, len(shard))) if i not in gone], np.int64
                )
                if len(keep):
                    yield [shard.ids[i] for i in keep.tolist()], shard.vectors[keep].decode()

    def sample(self, count: int, key: int = 0) -> Floats:
        """Some of the vectors, drawn evenly and in their order; all if there are no more."""
        total = sum(map(len, self.shards))
        rng = np.random.Generator(np.random.Philox(key))
        chosen = (
            np.sort(rng.choice(total, min(count, total), replace=False)) if total else np.zeros(0, np.int64)
        )
        gone = [first + shard.deleted for first, shard in zip(starts(self.shards), self.shards)]
        there = chosen[~np.isin(chosen, np.concatenate([np.zeros(0, np.int64), *gone]))]
        return vectors_at(self.shards, there, self.width)


def starts(shards: Sequence[Shard]) -> list[int]:
    """The number of each shard's first vector, and the number past the last."""
    return [0, *np.cumsum([len(shard) for shard in shards], dtype=np.int64).tolist()]


def vectors_at(shards: Sequence[Shard], numbers: Longs, width: int) -> Floats:
    """The vectors of these numbers, in their order."""
    firsts = np.array(starts(shards), np.int64)
    owners = np.searchsorted(firsts, numbers, side="right") - 1
    vectors = np.empty((len(numbers), width), np.float32)
    for owner in np.unique(owners).tolist():
        mine = owners == owner
        vectors[mine] = shards[owner].vectors[numbers[mine] - firsts[owner]].decode()
    return vectors


def without(shards: Sequence[Shard], numbers: Longs) -> list[Shard]:
    """The shards, with the vectors of these numbers deleted and no others."""
    firsts = starts(shards)
    parts = [numbers[(numbers >= a) & (numbers < b)] - a for a, b in pairwise(firsts)]
    return [replace(shard, deleted=part) for shard, part in zip(shards, parts)]


def document_of(id: str) -> str:
    """The id of the text that a piece is named after: what stands before the last `#`, or the id itself."""
    return id.rpartition("#")[0] or id


LOOKED_AHEAD = 16  # pieces of a text that are looked for at once


def pieces_of(shards: Sequence[Shard], texts: Sequence[str]) -> tuple[Longs, Longs]:
    """The numbers of all pieces of some texts, text by text, and how many each has; pieces are named text#0, text#1, …

    Pieces of a text lie one behind the other, also where one shard ends and the next begins, so only the first is
    looked up. Cost: some microseconds per text and a binary search in every shard, whatever the number of vectors.
    """
    firsts, counts = np.zeros(len(texts), np.int64), np.zeros(len(texts), np.int64)
    names = [f"{text}#0" for text in texts]
    for number, (begin, shard) in enumerate(zip(starts(shards), shards)):
        rows = shard.ids.find_all(names)
        here = np.flatnonzero((rows >= 0) & ~np.isin(rows, shard.deleted))
        firsts[here], counts[here] = begin + rows[here], _lengths(shard.ids, rows[here])
        for text in here[rows[here] + counts[here] == len(shard)].tolist():
            for later in shards[number + 1 :]:
                more = next(i for i in range(len(later) + 1) if i == len(later)
                            or later.ids[i] != f"{texts[text]}#{counts[text] + i}")  # fmt: skip
                counts[text] += more
                if more < len(later):
                    break
    behind = np.cumsum(counts)
    return np.repeat(firsts - behind + counts, counts) + np.arange(counts.sum()), counts


def _lengths(ids: Ids, rows: Longs) -> Longs:
    """How many pieces begin with each of these rows, which are first pieces: the next first one ends them."""
    values, ends = ids.strings.utf8.values, ids.strings.utf8.offsets[1:]
    counts, open_ = np.ones(len(rows), np.int64), np.arange(len(rows))
    while len(open_):
        places = (rows + counts)[open_, None] + np.arange(LOOKED_AHEAD)
        beyond = places >= len(ids)
        end = ends[np.minimum(places, len(ids) - 1)]
        first = beyond | ((values[end - 1] == ord("0")) & (values[end - 2] == ord("#")))
        counts[open_] += np.where(first.any(1), first.argmax(1), LOOKED_AHEAD)
        open_ = open_[~first.any(1)]
    return counts


def write_vectors(
    path: Path,
    parts: Iterable[tuple[Sequence[str], Floats]],
    kind: Type,
    width: int,
    about: Mapping[str, Any],
) -> None:
    """A folder of vectors, a shard of each part; those of an interrupted run go first."""
    shutil.rmtree(path / SHARDS, ignore_errors=True)
    names: list[str] = []
    count = 0
    for ids, vectors in parts:
        names.append(f"{len(names):05d}")
        write_shard(path / SHARDS / names[-1], ids, vectors, kind)
        count += len(ids)
    write_summary(path, kind, width, names, about, count)


def write_summary(
    path: Path, kind: Type, width: int, shards: Iterable[str], about: Mapping[str, Any], count: int
) -> None:
    """The file that makes a folder of shards one of vectors; written last."""
    summary = {
        "format": FORMAT, "type": kind, "width": width, "count": count, "shards": list(shards), "about": dict(about)
    }  # fmt: skip
    durable.atomic_write(path / SUMMARY, (json.dumps(summary, indent=2) + "\n").encode())
