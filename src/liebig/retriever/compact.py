"""Vectors of many updates put together again: few shards, nothing deleted in them; the vectors stay what they are.

Every update adds a shard and marks what is gone. Searching many small shards is slower than searching one, so from time
to time they are written anew, one shard at a time. Cost: one read and one write of the vectors.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from liebig.data.quantise import Floats
from liebig.data.vectors import SHARDS, Vectors, write_shard, write_summary
from liebig.index.base import Index
from liebig.index.exact_index import ExactIndex
from liebig.retriever.config import CompactConfig
from liebig.workspace import Folder

MOST_SHARDS = 32
SIZE = 65_536  # vectors of a shard


def is_due(index: Index) -> bool:
    """Whether there are many shards, or more deleted vectors than others."""
    if not isinstance(index, ExactIndex):
        return False
    return len(index.shards) > MOST_SHARDS or len(index.deleted()) > len(index)


def run(config: CompactConfig, folder: Folder) -> None:
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
