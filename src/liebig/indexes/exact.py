"""The exact index: shards of vectors, ids and deletions; nothing to train, nothing to tune.

Any folder of vectors can be opened as one. Added vectors stay in memory until they are saved; the shards of another
folder are taken over as they are. Saving links what is on disk and writes what is not. Searching: `exact_cpu`, and
`exact_gpu` where a device is given.
"""

from __future__ import annotations

import json
import shutil
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from liebig.base import npy
from liebig.base.durable import atomic_write
from liebig.base.errors import DataError
from liebig.base.hashes import link
from liebig.indexes import exact_cpu
from liebig.indexes.base import INDEX, Index, ignore
from liebig.vectors import (
    DELETED,
    SHARDS,
    Longs,
    Shard,
    Vectors,
    starts,
    without,
    write_shard,
    write_summary,
)
from liebig.vectors.quantise import Floats, Type
from liebig.vectors.ranked import Ranked

if TYPE_CHECKING:
    from liebig.indexes.exact_bytes import KeptBlock

FEW = 8  # queries of a search that rounding all vectors would take longer than
MOST_SHARDS = 32  # more small ones are noticeably slower to search than one large one


class ExactIndex(Index):
    """Shards searched on the CPU, or on a GPU where a device is given."""

    class Config(Index.Config):
        """Every vector is scored: right for up to a few million passages, and always exact."""

        kind: Literal["exact"] = "exact"
        type: Literal["fp32", "fp16", "int8"] | None = Field(
            default=None,
            description="Number format of the stored vectors [default: that of the folder of vectors].",
        )

    kind = "exact"

    def __init__(
        self,
        type: Type,
        width: int,
        shards: Sequence[Shard] = (),
        about: Mapping[str, Any] | None = None,
        *,
        threads: int | None = None,
        device: str | None = None,
    ) -> None:
        self.type, self.width, self.about, self.threads = type, width, about or {}, threads
        self.device = device
        self.shards: list[Shard] = list(shards)
        self._gpu: Any = None
        self._kept: list[KeptBlock] | None = None
        self._searches = 0  # by few queries
        self._firsts: list[int] = []  # of the shards, which only ever grow in number; asked for every hit

    @classmethod
    def build(
        cls,
        config: Config,
        vectors: Vectors,
        folder: Path,
        *,
        seed: int = 0,
        done: Callable[[int], None] = ignore,
    ) -> ExactIndex:
        index = cls(config.type or vectors.type, vectors.width, about=vectors.about)
        index.extend(vectors, folder, done=done)
        return index

    @classmethod
    def open(cls, folder: Path, *, threads: int | None = None, device: str | None = None) -> ExactIndex:
        return cls.of(Vectors.read(folder), threads=threads, device=device)

    def extend(self, vectors: Vectors, folder: Path, *, done: Callable[[int], None] = ignore) -> None:
        """Take over the shards as they are, or converted where their type is another."""
        same = vectors.type == self.type
        self.take(
            vectors.shards
            if same
            else convert(vectors.shards, folder, self.type, self.width, len(self.shards))
        )
        done(len(vectors))

    @classmethod
    def of(cls, vectors: Vectors, *, threads: int | None = None, device: str | None = None) -> ExactIndex:
        return cls(vectors.type, vectors.width, vectors.shards, vectors.about, threads=threads, device=device)

    def __len__(self) -> int:
        return sum(len(shard) - len(shard.deleted) for shard in self.shards)

    def search(self, queries: Floats, k: int) -> Ranked:
        if self.device is None or self.device == "cpu":
            return self._scan(queries, self.shards, k)
        from liebig.indexes.exact_gpu import Resident

        exact_cpu.check(queries, self.shards)
        if self._gpu is None:
            self._gpu = Resident(self.shards, self.width, self.device)
        return self._gpu.search(queries, k)  # type: ignore[no-any-return]  # imported where it is used

    def search_masked(self, queries: Floats, k: int, mask: NDArray[np.bool_]) -> Ranked:
        return self._scan(queries, exact_cpu.without_others(self.shards, mask), k)

    def _scan(self, queries: Floats, shards: Sequence[Shard], k: int) -> Ranked:
        self._searches += len(queries) <= FEW
        keeps = exact_cpu.keeps_bytes(shards, self.width, self._searches)
        kept = self._blocks if keeps and len(queries) <= FEW else None
        return exact_cpu.search(queries, shards, k, threads=self.threads, kept=kept)

    def _blocks(self) -> list[KeptBlock]:
        """The vectors in int8, rounded once, for searches by few queries."""
        if self._kept is None:
            from liebig.indexes.exact_bytes import keep_blocks  # which needs numba

            self._kept = keep_blocks(self.shards)
        return self._kept

    @property
    def exhaustive(self) -> bool:
        return True

    def stored(self) -> Sequence[Shard]:
        return self.shards

    @property
    def fragmented(self) -> bool:
        return len(self.shards) > MOST_SHARDS or len(self.deleted()) > len(self)

    def id(self, number: int) -> str:
        if len(self._firsts) != len(self.shards) + 1:
            self._firsts = starts(self.shards)
        place = bisect_right(self._firsts, number) - 1
        return self.shards[place].ids[number - self._firsts[place]]

    def find(self, id: str) -> int | None:
        for first, shard in zip(starts(self.shards), self.shards):
            row = shard.ids.find(id)
            if row is not None and row not in shard.deleted:
                return first + row
        return None

    def add(self, ids: Sequence[str], vectors: Floats) -> None:
        if vectors.ndim != 2 or vectors.shape[1] != self.width:
            raise DataError(f"vectors of shape {vectors.shape} do not match an index of width {self.width}")
        self.take([Shard.in_memory(ids, vectors, self.type)])

    def take(self, shards: Sequence[Shard]) -> None:
        """Add shards as they are; of an id that is already there the older vector goes."""
        for shard in shards:
            assert shard.vectors.type == self.type, "a shard of another type"
            old = starts(self.shards)
            gone = [first + row for first, mine in zip(old, self.shards) for row in shared_rows(mine, shard)]
            mine = self.deleted()
            later = shard.deleted + old[-1]
            self.shards.append(shard)
            self._set_deleted(np.concatenate([mine, np.array(gone, np.int64), later]))

    def delete(self, ids: Iterable[str]) -> list[str]:
        numbers = {id: self.find(id) for id in ids}
        gone = [number for number in numbers.values() if number is not None]
        self._set_deleted(np.concatenate([self.deleted(), np.array(gone, np.int64)]))
        return [id for id, number in numbers.items() if number is None]

    def deleted(self) -> Longs:
        parts = [shard.deleted + first for first, shard in zip(starts(self.shards), self.shards)]
        return np.concatenate([np.zeros(0, np.int64), *parts])

    def _set_deleted(self, numbers: Longs) -> None:
        self.shards = without(self.shards, np.unique(numbers))
        self._gpu = self._kept = None

    def save(self, folder: Path) -> None:
        names = [f"{place:05d}" for place in range(len(self.shards))]
        (folder / SHARDS).mkdir(parents=True, exist_ok=True)
        for name, shard in zip(names, self.shards):
            place_shard(shard, folder / SHARDS / name)
        gone = self.deleted()
        (folder / DELETED).unlink(missing_ok=True)
        if len(gone):
            npy.save(folder / DELETED, gone)
        write_summary(folder, self.type, self.width, names, self.about, len(self))
        atomic_write(folder / INDEX, (json.dumps({"kind": self.kind}, indent=2) + "\n").encode())

    def info(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "vectors": len(self),
            "deleted": len(self.deleted()),
            "width": self.width,
            "type": self.type,
            "shards": len(self.shards),
            "recall": 1.0,
        }


def shared_rows(older: Shard, newer: Shard) -> list[int]:
    """Rows of a shard that are there and whose ids a newer shard has too."""
    places = np.flatnonzero(np.isin(older.ids.hashes, newer.ids.hashes))
    rows = older.ids.order[places].tolist()
    gone = set(older.deleted.tolist())
    return [row for row in rows if row not in gone and newer.ids.find(older.ids[row]) is not None]


def place_shard(shard: Shard, target: Path) -> None:
    """Put a shard into a folder: linked if it is on disk, written if it is not, left alone if it is there."""
    if shard.path is not None and target.exists() and shard.path.samefile(target):
        return
    shutil.rmtree(target, ignore_errors=True)
    if shard.path is None:
        shard.save(target)
    else:
        shutil.copytree(shard.path, target, copy_function=link)


def convert(shards: Iterable[Shard], folder: Path, kind: Type, width: int, first: int) -> list[Shard]:
    """Shards of another type, written one by one as shards of the type wanted, numbered from `first`."""
    made = []
    for place, shard in enumerate(shards, first):
        target = folder / SHARDS / f"{place:05d}"
        shutil.rmtree(target, ignore_errors=True)
        write_shard(target, list(shard.ids.strings), shard.vectors.decode(), kind)
        made.append(Shard.open(target, kind, width))
    return [without([new], old.deleted)[0] for new, old in zip(made, shards)]
