"""Which texts a process of `liebig encode` has to encode, and how windows of vectors become shards.

Shard s holds texts s * shard … and is made by process s mod W. A shard that is already there is left alone; where one
takes long, what is done of it is kept in `parts/` about every minute and taken from there after an interruption. The
shards are the same bytes either way. The sentences of a shard's passages, if asked for, lie in a folder beside it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import astuple
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from liebig.base.workspace import WHOLE, StagePart
from liebig.search.pieces import Cut
from liebig.search.token_windows import TextItem
from liebig.search.window_vectors import WindowVectors
from liebig.vectors import SHARDS, Shard, ShardFile, write_shard
from liebig.vectors.quantise import Type

if TYPE_CHECKING:
    from liebig.train.distributed import World


PARTS = "parts"
SENTENCES = "sentences"  # in the folder of passages: the vectors of their sentences
PART_SECONDS = 30.0  # work that an interruption may lose, besides a window


class Alone:
    """A `World` of one process that computes on its CPU, for which torch need not be imported."""

    rank, size, device, first = 0, 1, None, True

    def largest(self, value: int) -> int:
        return value

    def barrier(self) -> None:
        pass


class VectorShards:
    """Which texts are this process's to encode; `count` is the number of shards of all processes, once all are read."""

    def __init__(self, path: Path, size: int, world: World | Alone, part: StagePart = WHOLE) -> None:
        self.path, self.size, self._world, self._part = path, size, world, part
        self.count = 0
        self.owners: deque[int] = deque()

    def groups(
        self, texts: Iterable[TextItem], window: int, skip: Callable[[int], None]
    ) -> Iterator[list[TextItem]]:
        """Texts that are this process's and not done yet, a window at a time; `owners` are their shards."""
        rest, read, kept = iter(texts), 0, 0
        while True:
            shard, place = divmod(read, self.size)
            if place == 0:
                kept = (
                    self.size
                    if self.file(shard).is_dir()
                    else sum(cut_of(path).texts for path in self.parts(shard).glob("[0-9]*[0-9]"))
                )
            group = list(islice(rest, min(window, self.size - place)))
            if not group:
                return
            read += len(group)
            self.count = shard + 1
            if not self.takes(read - 1):
                continue
            if place < kept:
                skip(len(group))
            else:
                self.owners.append(shard)
                yield group

    def takes(self, number: int) -> bool:
        """Whether a text is this process's."""
        return self._part.takes(number // self.size, self._world.rank, self._world.size)

    def share(self, total: int | None) -> int | None:
        """How many of all texts are this process's."""
        if total is None:
            return None
        size, rank = self._part.of * self._world.size, self._part.place * self._world.size + self._world.rank
        starts = range(rank * self.size, total, size * self.size)
        return sum(min(self.size, total - start) for start in starts)

    def file(self, shard: int) -> Path:
        return self.path / SHARDS / f"{shard:05d}"

    def parts(self, shard: int) -> Path:
        """Where its parts lie while it is made."""
        return self.path / PARTS / f"{shard:05d}"


def read_parts(folder: Path, width: int) -> Iterator[WindowVectors]:
    """The parts of a shard that an interrupted run left, in order."""
    for path in sorted(folder.glob("[0-9]*[0-9]")):
        beside = sentences_beside(path)
        yield _read_part(path, width)._replace(
            sentences=_read_part(beside, width) if beside.is_dir() else None
        )


def _read_part(path: Path, width: int) -> WindowVectors:
    shard = Shard.open(path, "fp32", width)
    ids = [shard.ids[i] for i in range(len(shard))]
    return WindowVectors(ids, shard.vectors.decode(), cut_of(path))


def sentences_beside(shard: Path) -> Path:
    """Where the sentences of a shard's passages lie, or those of a part of it."""
    if shard.parent.name != SHARDS:
        return shard.with_name(shard.name + "s")
    return shard.parents[1] / SENTENCES / SHARDS / shard.name


def cut_of(shard: Path) -> Cut:
    return Cut(*ShardFile.read(shard).cut)


def write_window(path: Path, window: WindowVectors, kind: Type) -> None:
    if window.sentences is not None:  # first, because a shard that is there is complete
        write_window(sentences_beside(path), window.sentences, kind)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_shard(path, window.ids, window.vectors, kind, {"cut": astuple(window.cut)})


def by_shard(
    windows: Iterable[WindowVectors], shards: VectorShards, width: int
) -> Iterator[tuple[Path, WindowVectors, bool]]:
    """Windows put together to shards (True), and what is done of one that takes long to its parts (False)."""
    parts: list[WindowVectors] = []
    current, kept, since = -1, 0, time.monotonic()
    for window in windows:
        shard = shards.owners.popleft()
        if shard != current:
            if parts:
                yield shards.file(current), _joined(parts), True
            parts = list(read_parts(shards.parts(shard), width))
            current, kept, since = shard, len(parts), time.monotonic()
        elif time.monotonic() - since > PART_SECONDS:
            # Never the window that may be a shard's last: a shard that is made has one that is encoded.
            path = shards.parts(shard) / f"{sum(part.cut.texts for part in parts[:kept]):08d}"
            yield path, _joined(parts[kept:]), False
            kept, since = len(parts), time.monotonic()
        parts.append(window)
    if parts:
        yield shards.file(current), _joined(parts), True


def _joined(parts: list[WindowVectors]) -> WindowVectors:
    sentences = [part.sentences for part in parts if part.sentences is not None]
    return WindowVectors(
        [name for part in parts for name in part.ids],
        np.concatenate([part.vectors for part in parts]),
        sum((part.cut for part in parts), Cut()),
        _joined(sentences) if sentences else None,
    )
