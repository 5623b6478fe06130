"""Exact search: every vector is scored, in tiles of a matrix product over the mapped shards.

Rough scores in float32 by the BLAS, the best again in float64 (`kernels`), so results are the same whatever the
tiles, shards, threads and processes. Memory: one tile of scores, one of vectors where they are not fp32, and the best
of every query; the shards themselves are mapped. Time: that of the matrix product, up to a few million vectors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from liebig.data.quantise import Coded, Codes, Floats, raw, table
from liebig.data.ranked import Ranked, stack
from liebig.data.vectors import Longs, Shard, starts
from liebig.errors import DataError
from liebig.index import kernels
from liebig.index.kernels import Keys
from liebig.machine import cores

TILE = 8 << 20  # scores of a tile: 32 MB
QUERIES, ROWS = 1024, 65536  # the most queries and vectors of a tile


def search(
    queries: Floats,
    shards: Sequence[Shard],
    k: int,
    *,
    parts: Iterable[int] | None = None,
    threads: int | None = None,
) -> Ranked:
    """The k best vectors of every query; `parts` are the places of the shards to look at (all), for one of many."""
    queries = np.ascontiguousarray(queries, np.float32)
    _check(queries, shards)
    chosen = range(len(shards)) if parts is None else sorted(parts)
    firsts = starts(shards)
    numbered = [(firsts[i], shards[i]) for i in chosen]
    found = [
        _search(queries[i : i + QUERIES], numbered, k, threads or cores())
        for i in range(0, len(queries), QUERIES)
    ]
    return stack(found) if found else Ranked.nothing(0, k)


def search_range(queries: Floats, shards: Sequence[Shard], k: int, numbers: tuple[int, int]) -> Ranked:
    """The k best among the vectors numbered from … to."""
    parts = []
    for first, shard in zip(starts(shards), shards):
        a, b = max(numbers[0] - first, 0), min(numbers[1] - first, len(shard))
        if a < b:
            gone = shard.deleted[(shard.deleted >= a) & (shard.deleted < b)] - a
            parts.append((first + a, replace(shard, vectors=shard.vectors[a:b], deleted=gone)))
    return _search(np.ascontiguousarray(queries, np.float32), parts, k, cores())


def score(queries: Floats, numbers: Longs, shards: Sequence[Shard]) -> Floats:
    """The exact scores of given vectors, Q x M; minus infinity where the number is -1 or the vector deleted."""
    queries = np.ascontiguousarray(queries, np.float32)
    scores = np.full(numbers.shape, -np.inf, np.float32)
    for (first, end), shard in zip(pairwise(starts(shards)), shards):
        places = np.argwhere((numbers >= first) & (numbers < end))
        rows = numbers[places[:, 0], places[:, 1]] - first
        places, rows = places[~np.isin(rows, shard.deleted)], rows[~np.isin(rows, shard.deleted)]
        codes, values, scales = _raw(shard.vectors)
        kernels.score_pairs(queries, places, rows, codes, values, scales, scores)
    return scores


def _check(queries: Floats, shards: Sequence[Shard]) -> None:
    for shard in shards:
        width = shard.vectors.codes.shape[1] * (8 if shard.vectors.type == "binary" else 1)
        if queries.shape[1] != width:
            raise DataError(
                f"the queries have width {queries.shape[1]}, the vectors {width}",
                file=shard.path,
                fix="encode both with the same model",
            )
    if not np.isfinite(queries).all():
        raise DataError("a query vector holds NaN or infinity", fix="check the model that made it")


@dataclass(frozen=True)
class _Best:
    """Heaps of every query while the tiles pass by: the k best rough scores, and the k best exact ones."""

    limits: Keys
    sizes: Longs
    best: Keys
    found: Longs

    @classmethod
    def empty(cls, queries: int, k: int) -> _Best:
        keys, sizes = np.zeros((2, queries, k), np.uint64), np.zeros((2, queries), np.int64)
        return cls(keys[0], sizes[0], keys[1], sizes[1])

    def rows(self, share: slice) -> tuple[Keys, Longs, Keys, Longs]:
        return self.limits[share], self.sizes[share], self.best[share], self.found[share]

    def ranked(self) -> Ranked:
        ranked = Ranked.nothing(*self.best.shape)
        kernels.finish(self.best, self.found, ranked.scores, ranked.numbers)
        return ranked


@dataclass(frozen=True)
class _Tile:
    """Some vectors, their rough scores, and which of them are there (empty: all)."""

    first: int
    vectors: Coded
    rough: Floats
    slack: Floats
    live: NDArray[np.bool_]


def _search(queries: Floats, shards: Sequence[tuple[int, Shard]], k: int, threads: int) -> Ranked:
    best = _Best.empty(len(queries), k)
    bounds = np.linspace(0, len(queries), min(threads, len(queries)) + 1).astype(int).tolist()
    shares = [
        slice(a, b) for a, b in pairwise(bounds)
    ]  # whole rows lie together, so loops over them are quick
    with ThreadPoolExecutor(len(shares)) as pool:
        for tile in _tiles(queries, shards):
            list(pool.map(partial(_scan, tile, queries, best), shares))
    return best.ranked()


def _tiles(queries: Floats, shards: Sequence[tuple[int, Shard]]) -> Iterator[_Tile]:
    """Tile after tile; each is used up before the next, which takes its memory."""
    norms = np.linalg.norm(queries.astype(np.float64), axis=1)
    rows = min(ROWS, max(256, TILE // len(queries)))
    buffer = np.empty(len(queries) * rows, np.float32)
    for first, shard in shards:
        slack = (norms * shard.largest * _rounding(queries.shape[1])).astype(np.float32)
        live = _live(shard)
        for start in range(0, len(shard), rows):
            vectors = shard.vectors[start : start + rows]
            rough = buffer[: len(queries) * len(vectors)].reshape(len(queries), len(vectors))
            np.matmul(queries, vectors.decode().T, out=rough)
            yield _Tile(first + start, vectors, rough, slack, live[start : start + rows])


def _scan(tile: _Tile, queries: Floats, best: _Best, share: slice) -> None:
    codes, values, scales = _raw(tile.vectors)
    kernels.scan(
        tile.rough[share], tile.slack[share], tile.first, tile.live, queries[share], codes, values, scales,
        *best.rows(share),
    )  # fmt: skip


def _raw(coded: Coded) -> tuple[Codes, Floats, Floats]:
    """Codes, what they stand for and their scales, as compiled loops take them."""
    scales = coded.scales if coded.scales is not None else np.zeros(0, np.float32)
    return raw(coded), table(coded.type), scales


def _rounding(width: int) -> float:
    """Bound of the relative error of a product of `width` float32 numbers, in any order, and of decoding them."""
    return (width + 8) * 2.0**-24 * 1.01


def _live(shard: Shard) -> NDArray[np.bool_]:
    """Which vectors are there; empty where all are."""
    if len(shard.deleted) == 0:
        return np.zeros(0, bool)
    live = np.ones(len(shard), bool)
    live[shard.deleted] = False
    return live
