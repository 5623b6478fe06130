"""Exact search on a CPU: every vector is scored, in tiles of a matrix product over the mapped shards.

The BLAS gives rough scores in float32, whose last digits depend on where a vector stands in its tile; for many queries,
on a processor with int8 dot products, they come from int8 with a proven bound of their error (`exact_bytes`). Whatever
can be among the k best by them is scored again in float64, number by number and always in the same order. So a score
depends on query and vector alone: shards, tiles, threads and processes cannot change a result, and equal vectors tie.
For few queries and many vectors an index keeps all of them in int8, so that each is read once and not decoded.
Memory: one tile of scores, the best of every query, and of vectors that are not fp32 one tile, or all where that is
little (KEPT), or all in int8 (KEPT_INT8); the shards are mapped. Time: that of the matrix product, up to a few million.

Q queries, C vectors of a tile, D width, K hits per query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from liebig.base.compiled import byte_products, njit, overload
from liebig.base.errors import DataError
from liebig.base.machine import cores
from liebig.ragged import read_only
from liebig.vectors import Shard, ranked as heap, starts
from liebig.vectors.quantise import Codes, VectorCodes, raw, table
from liebig.vectors.ranked import Ranked, stack

if TYPE_CHECKING:
    from liebig.indexes.exact_bytes import KeptBlock

Floats = NDArray[np.float32]
Longs = NDArray[np.int64]
Keys = NDArray[np.uint64]
BLOCK = 128
FAST = {"reassoc", "contract", "nsz", "nnan", "ninf"}


def _scan_numpy(
    rough_QC: Floats, bits_QC: NDArray[np.int32], slack_Q: Floats, first: int, live_C: NDArray[np.bool_],
    queries_QD: Floats, codes_C: Any, table: Floats, scales_C: Floats, limits_QK: Keys, sizes_Q: Longs, best_QK: Keys,
    found_Q: Longs,
) -> None:  # fmt: skip
    live = np.flatnonzero(live_C) if len(live_C) else np.arange(rough_QC.shape[1])
    for q in range(len(rough_QC)):
        rough = rough_QC[q, live]
        _keep_numpy(limits_QK, sizes_Q, q, heap.keys_of(rough, 0))
        worst, full = heap.scores_of(limits_QK[q, :1])[0], sizes_Q[q] == limits_QK.shape[1]
        limit = np.float64(worst) - 2 * np.float64(slack_Q[q]) if full else -np.inf
        rows = live[rough >= limit]
        scores = _exact_numpy(queries_QD[q], rows, codes_C, table, scales_C)
        _keep_numpy(best_QK, found_Q, q, heap.keys_of(scores, first + rows))


def _keep_numpy(keys_QK: Keys, sizes_Q: Longs, q: int, entries: Keys) -> None:
    kept = heap.keep(np.concatenate([keys_QK[q, : sizes_Q[q]], entries]), keys_QK.shape[1])
    keys_QK[q, : len(kept)], sizes_Q[q] = kept, len(kept)


def _exact_numpy(query_D: Floats, rows: Longs, codes_C: Any, table: Floats, scales_C: Floats) -> Floats:
    """Row by row and not by the BLAS, whose last digits depend on where a vector stands."""
    codes = codes_C[rows]
    values = codes if codes.dtype.kind == "f" else table[codes]
    scores = (values.astype(np.float64) * query_D.astype(np.float64)).sum(axis=1)
    return (scores * scales_C[rows].astype(np.float64) if len(scales_C) else scores).astype(np.float32)


@njit(cache=True, nogil=True, numpy=_scan_numpy)
def scan(
    rough_QC: Floats, bits_QC: NDArray[np.int32], slack_Q: Floats, first: int, live_C: NDArray[np.bool_],
    queries_QD: Floats, codes_C: Any, table: Floats, scales_C: Floats, limits_QK: Keys, sizes_Q: Longs, best_QK: Keys,
    found_Q: Longs,
) -> None:  # fmt: skip
    """Take a tile into the best of every query; `first` is the number of the tile's first vector.

    `bits_QC` are the bits of the scores (a view made by compiled code would take seconds to compile).

    `limits_QK` and `best_QK` are heaps of the K best rough and exact scores so far. A rough score is off by `slack_Q`
    at most, so what is among the K best exactly is no more than twice that below the K-th best rough score.
    """
    candidates = np.empty(rough_QC.shape[1], np.int64)
    for q in range(len(rough_QC)):
        n = _candidates(rough_QC[q], bits_QC[q], slack_Q[q], live_C, limits_QK[q], sizes_Q, q, candidates)
        limit = _limit(limits_QK[q], sizes_Q[q], slack_Q[q])
        for i in range(n):
            c = candidates[i]
            if rough_QC[q, c] >= limit:
                score = _exact(queries_QD[q], codes_C, c, table, scales_C)
                _keep(best_QK[q], found_Q, q, heap.key(score, first + c))


@njit(cache=True, nogil=True)
def _candidates(
    rough_C: Floats, bits_C: NDArray[np.int32], slack: float, live_C: NDArray[np.bool_], limits_K: Keys,
    sizes_Q: Longs, q: int, candidates: Longs,
) -> int:  # fmt: skip
    """Columns that may be among the best, by the limit as it was when they were met."""
    n, k = 0, len(limits_K)
    limit = _limit(limits_K, sizes_Q[q], slack)
    for start in range(0, len(rough_C), BLOCK):
        block = rough_C[start : start + BLOCK]
        if heap.highest(bits_C[start : start + BLOCK]) < limit:
            continue
        for i in range(len(block)):
            if block[i] >= limit and (len(live_C) == 0 or live_C[start + i]):
                candidates[n] = start + i
                n += 1
                entry = heap.key(block[i], 0)
                if sizes_Q[q] < k:
                    heap.push(limits_K, sizes_Q[q], entry)
                    sizes_Q[q] += 1
                elif entry > limits_K[0]:
                    heap.replace(limits_K, k, entry)
                limit = _limit(limits_K, sizes_Q[q], slack)
    return n


@njit(cache=True, nogil=True)
def _limit(limits_K: Keys, size: int, slack: float) -> float:
    if size < len(limits_K):
        return -np.inf
    return np.float64(heap.score_of(limits_K[0])) - 2 * np.float64(slack)


@njit(cache=True, nogil=True)
def _keep(best_K: Keys, found_Q: Longs, q: int, entry: np.uint64) -> None:
    if found_Q[q] < len(best_K):
        heap.push(best_K, found_Q[q], entry)
        found_Q[q] += 1
    elif entry > best_K[0]:
        heap.replace(best_K, len(best_K), entry)


def _score_pairs_numpy(
    queries_QD: Floats, places: Longs, rows: Longs, codes_C: Any, table: Floats, scales_C: Floats, scores_QM: Floats
) -> None:  # fmt: skip
    for q in np.unique(places[:, 0]).tolist():  # the places are in the order of the queries
        here = slice(*np.searchsorted(places[:, 0], [q, q + 1]).tolist())
        scores_QM[q, places[here, 1]] = _exact_numpy(queries_QD[q], rows[here], codes_C, table, scales_C)


@njit(cache=True, nogil=True, numpy=_score_pairs_numpy)
def score_pairs(
    queries_QD: Floats, places: Longs, rows: Longs, codes_C: Any, table: Floats, scales_C: Floats, scores_QM: Floats
) -> None:  # fmt: skip
    """Exact scores of chosen rows; `places` are their query and column among the scores."""
    for i in range(len(rows)):
        q, m = places[i]
        scores_QM[q, m] = _exact(queries_QD[q], codes_C, rows[i], table, scales_C)


def _finish_numpy(best_QK: Keys, found_Q: Longs, scores_QK: Floats, numbers_QK: Longs) -> None:
    for q in range(len(found_Q)):
        heap.unpack(best_QK[q], found_Q[q], scores_QK[q], numbers_QK[q])


@njit(cache=True, nogil=True, numpy=_finish_numpy)
def finish(best_QK: Keys, found_Q: Longs, scores_QK: Floats, numbers_QK: Longs) -> None:
    for q in range(len(found_Q)):
        heap.unpack(best_QK[q], found_Q[q], scores_QK[q], numbers_QK[q])


@njit(cache=True, nogil=True)
def _exact(query_D: Floats, codes_C: Any, c: int, table: Floats, scales_C: Floats) -> np.float32:
    score = _dot(query_D, codes_C[c], table)
    return np.float32(score * np.float64(scales_C[c]) if len(scales_C) else score)


def _dot(query_D: Floats, codes: Any, table: Floats) -> float:
    """The product of a query and a stored vector, in float64."""
    raise AssertionError("only called from compiled code")


@overload(_dot, jit_options={"fastmath": FAST, "nogil": True})
def _dot_compiled(query_D: Any, codes: Any, table: Any) -> Any:
    return _dot_plain if str(codes.dtype).startswith("float") else _dot_table


def _dot_plain(query_D: Any, codes: Any, table: Any) -> Any:
    total = np.float64(0)
    for i in range(len(query_D)):
        total += np.float64(query_D[i]) * np.float64(codes[i])
    return total


def _dot_table(query_D: Any, codes: Any, table: Any) -> Any:
    total = np.float64(0)
    for i in range(len(query_D)):
        total += np.float64(query_D[i]) * np.float64(table[codes[i]])
    return total


TILE = 8 << 20  # scores of a tile: 32 MB
MANY = 32  # queries from which on rounding the vectors pays
SCORES = 1 << 25  # from which on int8 pays, though it has to be compiled once
QUERIES, ROWS = 1024, 65536  # the most queries and vectors of a tile
KEPT = 1 << 27  # bytes of all vectors up to which they are kept as float32, whatever they are stored as
KEPT_INT8 = 1 << 31  # and as int8, beyond that
CACHED, WARM = (
    1 << 23,
    16,
)  # bytes of float32 that a cache holds, and searches after which int8 is made of more
GATHERED = 8192  # vectors copied together where only some are searched


def search(
    queries: Floats,
    shards: Sequence[Shard],
    k: int,
    *,
    parts: Iterable[int] | None = None,
    threads: int | None = None,
    kept: Callable[[], Sequence[KeptBlock]] | None = None,
) -> Ranked:
    """The k best vectors of every query; `parts` are the places of the shards to look at (all), for one of many.

    `kept` gives all vectors in int8, where an index keeps them for searches by few queries.
    """
    queries = np.ascontiguousarray(queries, np.float32)
    check(queries, shards)
    chosen = range(len(shards)) if parts is None else sorted(parts)
    firsts = starts(shards)
    numbered = [(firsts[i], shards[i]) for i in chosen]
    keep = 4 * queries.shape[1] * sum(len(shard) for _, shard in numbered) <= KEPT
    rankings = []
    for i in range(0, len(queries), QUERIES):
        some, ranked = queries[i : i + QUERIES], None
        if _in_bytes(some, sum(len(shard) for _, shard in numbered)):
            ranked = _search_bytes(some, numbered, k, threads or cores())
        elif kept is not None and parts is None:
            ranked = _search_kept(some, numbered, kept(), k, threads or cores())
        rankings.append(ranked or _search(some, numbered, k, threads or cores(), keep))
    return stack(rankings) if rankings else Ranked.nothing(0, k)


def _in_bytes(queries: Floats, vectors: int) -> bool:
    """Whether rough scores in int8 are possible, and pay: there are many."""
    return len(queries) >= MANY and len(queries) * vectors >= SCORES and bool(byte_products())


def _search_bytes(
    queries: Floats, shards: Sequence[tuple[int, Shard]], k: int, threads: int
) -> Ranked | None:
    """The same by rough scores in int8 (`exact_bytes`); None where too many vectors are as near as the best."""
    from liebig.indexes.exact_bytes import ROWS as WHOLE, VECTORS, Search  # which needs numba

    bounds = (
        np.linspace(0, len(queries), max(1, min(threads, len(queries) // WHOLE)) + 1).astype(int)
        // WHOLE
        * WHOLE
    )
    bounds[-1] = len(queries)
    shares = [slice(a, b) for a, b in pairwise(bounds.tolist())]
    search, norms = Search(queries, k), np.linalg.norm(queries.astype(np.float64), axis=1)
    with ThreadPoolExecutor(len(shares)) as pool:
        for first, shard in shards:
            off, live = norms * shard.largest * _rounding(queries.shape[1]), _live(shard)
            for start in range(0, len(shard), VECTORS):
                values, there = shard.vectors[start : start + VECTORS].decode(), live[start : start + VECTORS]
                if not search.add(
                    first + start, values, shard.largest, off, there, lambda share: pool.map(share, shares)
                ):
                    return None
    return _best_entries(_exact_entries(search, queries, shards), k)


def keeps_bytes(shards: Sequence[Shard], width: int, searches: int) -> bool:
    """Whether to keep all vectors in int8: they fit, the processor is quick with them, and rounding them pays.

    It does where float32 would be decoded for every search, and where many `searches` by few queries came before.
    """
    numbers = width * sum(map(len, shards))
    pays = 4 * numbers > KEPT or (4 * numbers > CACHED and searches >= WARM)
    return pays and numbers <= KEPT_INT8 and bool(byte_products())


def _search_kept(
    queries: Floats, shards: Sequence[tuple[int, Shard]], blocks: Sequence[KeptBlock], k: int, threads: int
) -> Ranked | None:
    """As `_search_bytes` with vectors that are rounded already; every thread has a part of them."""
    from liebig.indexes.exact_bytes import Search

    norms = np.linalg.norm(queries.astype(np.float64), axis=1)
    lives = [_live(shard) for _, shard in shards]

    def entries(part: Sequence[KeptBlock]) -> Keys | None:
        search = Search(queries, k)
        for at in part:
            largest, live = shards[at.shard][1].largest, lives[at.shard][at.start : at.start + at.size]
            off = norms * largest * _rounding(queries.shape[1])
            if not search.scan(slice(0, len(queries)), at.first, at.block, at.size, largest, off, live):
                return None
        return _exact_entries(search, queries, shards)

    count = max(1, min(threads, len(blocks)))
    if count == 1:
        made = [entries(blocks)]
    else:
        bounds = np.linspace(0, len(blocks), count + 1).astype(int).tolist()
        with ThreadPoolExecutor(count) as pool:
            made = list(pool.map(lambda part: entries(blocks[part[0] : part[1]]), pairwise(bounds)))
    whole = [one for one in made if one is not None]
    return _best_entries(np.concatenate(whole, 1), k) if len(whole) == len(made) else None


def _exact_entries(search: Any, queries: Floats, shards: Sequence[tuple[int, Shard]]) -> Keys:
    """Exact scores and numbers of what may be among the best, Q x M; 0 where there is nothing."""
    numbers = search.best()
    scores = _scores(queries, numbers, shards)
    others = search.others(scores.min(1))
    scores = np.concatenate([scores, _scores(queries, others, shards)], 1)
    numbers = np.concatenate([numbers, others], 1)
    return np.where(numbers < 0, np.uint64(0), heap.keys_of(scores, np.maximum(numbers, 0)))


def _best_entries(entries: Keys, k: int) -> Ranked:
    entries = np.sort(np.partition(entries, -k, axis=1)[:, -k:], axis=1)[:, ::-1]
    ranked = Ranked.nothing(len(entries), k)
    there = entries > 0
    ranked.scores[there], ranked.numbers[there] = (
        heap.scores_of(entries[there]),
        heap.numbers_of(entries[there]),
    )
    return ranked


def search_range(queries: Floats, shards: Sequence[Shard], k: int, numbers: tuple[int, int]) -> Ranked:
    """The k best among the vectors numbered from … to."""
    parts = []
    for first, shard in zip(starts(shards), shards):
        a, b = max(numbers[0] - first, 0), min(numbers[1] - first, len(shard))
        if a < b:
            gone = shard.deleted[(shard.deleted >= a) & (shard.deleted < b)] - a
            parts.append((first + a, replace(shard, vectors=shard.vectors[a:b], deleted=gone)))
    return _search(np.ascontiguousarray(queries, np.float32), parts, k, cores())


def search_numbers(queries: Floats, shards: Sequence[Shard], k: int, numbers: Longs) -> Ranked:
    """The k best among the vectors of these numbers, which rise, with the scores of `search`; no others are read."""
    queries = np.ascontiguousarray(queries, np.float32)
    check(queries, shards)
    gone = [shard.deleted + first for first, shard in zip(starts(shards), shards)]
    numbers = numbers[~np.isin(numbers, np.concatenate([np.zeros(0, np.int64), *gone]))]

    def gathered() -> Iterator[tuple[int, Shard]]:
        """Vectors by their places among the numbers, in pieces that are small in memory."""
        for (first, end), shard in zip(pairwise(starts(shards)), shards):
            a, b = np.searchsorted(numbers, (first, end)).tolist()
            for start in range(a, b, GATHERED):
                rows = numbers[start : min(start + GATHERED, b)] - first
                yield start, replace(shard, vectors=shard.vectors[rows], deleted=np.zeros(0, np.int64))

    rankings = [
        _search(queries[i : i + QUERIES], gathered(), k, cores()) for i in range(0, len(queries), QUERIES)
    ]
    ranked = stack(rankings) if rankings else Ranked.nothing(0, k)
    return Ranked(ranked.scores, np.append(numbers, -1)[ranked.numbers])


def without_others(shards: Sequence[Shard], mask: NDArray[np.bool_]) -> list[Shard]:
    shown = []
    for first, shard in zip(starts(shards), shards):
        hidden = ~mask[first : first + len(shard)]
        hidden[shard.deleted] = True
        shown.append(replace(shard, deleted=np.flatnonzero(hidden)))
    return shown


def score(queries: Floats, numbers: Longs, shards: Sequence[Shard]) -> Floats:
    """The exact scores of given vectors, Q x M; minus infinity where the number is -1 or the vector deleted."""
    return _scores(np.ascontiguousarray(queries, np.float32), numbers, list(zip(starts(shards), shards)))


def _scores(queries: Floats, numbers: Longs, shards: Sequence[tuple[int, Shard]]) -> Floats:
    scores = np.full(numbers.shape, -np.inf, np.float32)
    for first, shard in shards:
        places = np.argwhere((numbers >= first) & (numbers < first + len(shard)))
        rows = numbers[places[:, 0], places[:, 1]] - first
        if len(shard.deleted):
            there = ~np.isin(rows, shard.deleted)
            places, rows = places[there], rows[there]
        order = np.argsort(rows)  # as they lie in memory
        places, rows = places[order], rows[order]
        codes, values, scales = _raw(shard.vectors)
        score_pairs(queries, places, rows, codes, values, scales, scores)
    return scores


def check(queries: Floats, shards: Sequence[Shard] = ()) -> None:
    """Refuse query vectors that are not finite, or not as wide as those of the shards."""
    for shard in shards:
        width = shard.vectors.codes.shape[1]
        if queries.shape[1] != width:
            raise DataError(
                f"the queries have width {queries.shape[1]}, the vectors {width}",
                file=shard.path,
                fix="encode both with the same model",
            )
    if not np.isfinite(queries).all():
        raise DataError("a query vector contains NaN or infinity", fix="check the model that made it")


@dataclass(frozen=True)
class _Best:
    """Heaps of every query while the tiles pass by: the k best rough scores, and the k best exact ones."""

    limits: Keys
    sizes: Longs
    best: Keys
    counts: Longs

    @classmethod
    def empty(cls, queries: int, k: int) -> _Best:
        keys, sizes = np.zeros((2, queries, k), np.uint64), np.zeros((2, queries), np.int64)
        return cls(keys[0], sizes[0], keys[1], sizes[1])

    def rows(self, share: slice) -> tuple[Keys, Longs, Keys, Longs]:
        return self.limits[share], self.sizes[share], self.best[share], self.counts[share]

    def ranked(self) -> Ranked:
        ranked = Ranked.nothing(*self.best.shape)
        finish(self.best, self.counts, ranked.scores, ranked.numbers)
        return ranked


@dataclass(frozen=True)
class _Tile:
    """Some vectors, their rough scores, and which of them are there (empty: all)."""

    first: int
    vectors: VectorCodes
    rough: Floats
    slack: Floats
    live: NDArray[np.bool_]


def _search(
    queries: Floats, shards: Iterable[tuple[int, Shard]], k: int, threads: int, keep: bool = False
) -> Ranked:
    best = _Best.empty(len(queries), k)
    bounds = np.linspace(0, len(queries), min(threads, len(queries)) + 1).astype(int).tolist()
    shares = [
        slice(a, b) for a, b in pairwise(bounds)
    ]  # whole rows lie together, so loops over them are quick
    if len(shares) == 1:  # a thread would take longer to start than a small search
        for tile in _tiles(queries, shards, keep):
            _scan(tile, queries, best, shares[0])
        return best.ranked()
    with ThreadPoolExecutor(len(shares)) as pool:
        for tile in _tiles(queries, shards, keep):
            list(pool.map(partial(_scan, tile, queries, best), shares))
    return best.ranked()


def _tiles(queries: Floats, shards: Iterable[tuple[int, Shard]], keep: bool) -> Iterator[_Tile]:
    """Tile after tile; each is used up before the next, which takes its memory.

    With `keep` the vectors are decoded once and not for every search: for a single query that is most of the time.
    """
    norms = np.linalg.norm(queries.astype(np.float64), axis=1)
    rows = min(ROWS, max(256, TILE // len(queries)))
    buffer = np.empty(len(queries) * rows, np.float32)
    for first, shard in shards:
        slack = (norms * shard.largest * _rounding(queries.shape[1])).astype(np.float32)
        live = _live(shard)
        for start in range(0, len(shard), rows):
            vectors = shard.vectors[start : start + rows]
            rough = buffer[: len(queries) * len(vectors)].reshape(len(queries), len(vectors))
            values = shard.vectors.decoded[start : start + rows] if keep else vectors.decode()
            np.matmul(queries, values.T, out=rough)
            yield _Tile(first + start, vectors, rough, slack, live[start : start + rows])


def _scan(tile: _Tile, queries: Floats, best: _Best, share: slice) -> None:
    codes, values, scales = _raw(tile.vectors)
    rough = tile.rough[share]
    scan(
        rough, rough.view(np.int32), tile.slack[share], tile.first, tile.live, queries[share], codes, values, scales,
        *best.rows(share),
    )  # fmt: skip


def _raw(coded: VectorCodes) -> tuple[Codes, Floats, Floats]:
    """Codes, what they stand for and their scales, as compiled loops take them."""
    scales = coded.scales if coded.scales is not None else np.zeros(0, np.float32)
    return read_only(raw(coded)), table(coded.type), read_only(scales)


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
