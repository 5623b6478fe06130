"""Rough scores in int8 for exact search, on processors with int8 dot products, and how far off they can be.

A query q and a vector x are rounded to q' and x', codes of eight bits with one scale each, and q'x' is computed in
integers, four times as fast as in float32. By Cauchy and Schwarz

    |qx - q'x'| <= |q - q'| |x| + |q'| |x - x'|,

and all four norms are known, so the bound is proven and not estimated. A score lies between a lower and an upper bound.
A vector whose upper bound is below the k-th best lower bound cannot be among the k best; the rest is scored again in
float64 (`exact_cpu`), and the results are those of a search without rounding. Rounding a vector costs as much as its
product with some queries, so float32 is as fast for a few.

Q queries, C vectors of a block, D width, K words of four codes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from liebig.model.kernels.registers import (
    LANES,
    PANEL,
    ROWS,
    ZERO,
    absolute,
    add,
    broadcast,
    bytes_tile,
    fma,
    inline,
    kernel,
    load,
    load_ints,
    mask_at_least,
    max_by_bits,
    mul,
    reduce_add,
    reduce_max,
    round_nearest,
    store_bytes,
    trailing_zeros,
)
from liebig.ragged import read_only
from liebig.vectors import Shard, ranked as heap, starts

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]
Bytes = NDArray[np.uint8]
Longs = NDArray[np.int64]
Doubles = NDArray[np.float64]
Keys = NDArray[np.uint64]

F, I = np.float32, np.int32  # noqa: E741
VECTORS = 2048  # that are rounded at once: .8 MB of width 384
KEPT = 1 << 15  # vectors of a block that is kept
MORE = 32  # times k: the length of the lists
MOST, TINY = F(127), F(1e-30)
MARGIN = 1.001  # for the rounding of the norms themselves
LAST = 1e-6  # for the last digits of scores and bounds in float32


@kernel
def _round(
    x_ND: Floats, n: int, zero: np.float32, codes_ND: Bytes, t: int
) -> tuple[np.float32, np.float32, np.float32]:
    """The codes of a row plus `zero`; its scale, the square of the rounding error, and the sum of the codes."""
    most = broadcast(F(0))
    for d in range(0, x_ND.shape[1], LANES):
        most = max_by_bits(most, absolute(load(x_ND, (n, d))))
    scale = max(reduce_max(most) / MOST, TINY)
    factor, back, zeros = broadcast(F(1) / scale), broadcast(-scale), broadcast(zero)
    errors, codes = broadcast(F(0)), broadcast(F(0))
    for d in range(0, x_ND.shape[1], LANES):
        numbers = load(x_ND, (n, d))
        code = round_nearest(mul(numbers, factor))
        error = fma(code, back, numbers)
        errors, codes = fma(error, error, errors), add(codes, code)
        store_bytes(codes_ND, (t, d), add(code, zeros))
    return scale, reduce_add(errors), reduce_add(codes)


@kernel
def round_queries(x_QD: Floats, codes_QD: Bytes, scales_Q: Floats, errors_Q: Floats) -> None:
    """Queries as bytes, ZERO added to them, their scales, and the norms of what rounding took away."""
    for q in range(len(x_QD)):
        scale, square, _ = _round(x_QD, q, F(ZERO), codes_QD, q)
        scales_Q[q], errors_Q[q] = scale, np.sqrt(square)


class Int8Block(NamedTuple):
    """Some vectors in int8."""

    panels: Ints  # (C/PANEL * K) x PANEL: bytes with a sign, one panel above the other
    start: Ints  # C: what sums begin with, because queries have ZERO added to them
    scales: Floats  # C
    errors: Floats  # C: the norms of what rounding took away

    @classmethod
    def empty(cls, width: int, count: int = VECTORS) -> Int8Block:
        room = -(-count // PANEL) * PANEL
        return cls(_ints(room // PANEL * width // 4, PANEL), _ints(room), _floats(room), _floats(room))


@kernel
def round_vectors(x_CD: Floats, codes_1D: Bytes, words_K: Ints, block: Int8Block) -> None:
    depth = len(words_K)
    for c in range(len(x_CD)):
        scale, square, codes = _round(x_CD, c, F(0), codes_1D, 0)
        block.scales[c], block.start[c], block.errors[c] = scale, I(-F(ZERO) * codes), np.sqrt(square)
        first, column = c // PANEL * depth, c % PANEL
        for k in range(depth):
            block.panels[first + k, column] = words_K[k]


class Lists(NamedTuple):
    """What may be among the K best of each query so far."""

    limits: Keys  # Q x K: heaps of the best lower bounds
    sizes: Longs  # Q: of these heaps
    entries: Keys  # Q x M: upper bounds
    listed: Longs  # Q: how many of them

    @classmethod
    def empty(cls, queries: int, k: int) -> Lists:
        return cls(
            np.zeros((queries, k), np.uint64), np.zeros(queries, np.int64),
            np.empty((queries, MORE * k + 1024), np.uint64), np.zeros(queries, np.int64),
        )  # fmt: skip


@kernel
def scan(
    words_QK: Ints, scales_Q: Floats, begin: int, end: int, block: Int8Block, live_C: NDArray[np.bool_], count: int,
    first: int, fixed_Q: Floats, norms_Q: Floats, lists: Lists,
) -> bool:  # fmt: skip
    """Take the scores of a block into the lists of the queries from `begin` to `end`; `begin` is a multiple of ROWS.

    A score is off by `fixed_Q`, plus `norms_Q` times the error of the vector. A list that is full is cleared of what
    is below its limit by now; False where that does not help.
    """
    depth, room = words_QK.shape[1], lists.entries.shape[1]
    sums_RC, numbers = np.empty((ROWS, PANEL), I), np.empty((3, end), F)
    limits_Q, bars_Q, shares_Q = numbers[0], numbers[1], numbers[2]
    for q in range(begin, end):
        limits_Q[q] = _limit(lists, q)
        bars_Q[q] = _bar(limits_Q[q], fixed_Q[q], scales_Q[q])
        shares_Q[q] = norms_Q[q] / scales_Q[q] * F(1 + LAST)
    for c in range(0, count, PANEL):
        there = -1 if count - c >= PANEL else (1 << (count - c)) - 1
        for q in range(begin, end, ROWS):
            bytes_tile(
                words_QK, q, 0, block.panels, c // PANEL * depth, 0, block.start, c, sums_RC, 0, 0, depth
            )
            for r in range(min(ROWS, end - q)):
                n, hits, share = q + r, 0, broadcast(shares_Q[q + r])
                for v in range(0, PANEL, LANES):
                    scores = mul(load_ints(sums_RC, (r, v)), load(block.scales, c + v))
                    bounds = fma(load(block.errors, c + v), share, scores)
                    hits |= mask_at_least(bounds, bars_Q[n]) << v
                hits &= there
                while hits != 0:
                    j = trailing_zeros(hits)
                    hits &= hits - 1
                    score = F(sums_RC[r, j]) * (scales_Q[n] * block.scales[c + j])
                    off = fixed_Q[n] + norms_Q[n] * block.errors[c + j]
                    off += F(LAST) * (abs(score) + off)
                    if score + off < limits_Q[n] or (len(live_C) > 0 and not live_C[c + j]):
                        continue
                    if lists.listed[n] == room and not _clear(lists, n, limits_Q[n]):
                        return False
                    lists.entries[n, lists.listed[n]] = heap.key(score + off, first + c + j)
                    lists.listed[n] += 1
                    if _raise(lists, n, heap.key(score - off, first + c + j)):
                        limits_Q[n] = _limit(lists, n)
                        bars_Q[n] = _bar(limits_Q[n], fixed_Q[n], scales_Q[n])
    return True


@inline
def _limit(lists: Lists, q: int) -> np.float32:
    """What an upper bound has to reach."""
    return heap.score_of(lists.limits[q, 0]) if lists.sizes[q] == lists.limits.shape[1] else F(-3e38)


@inline
def _bar(limit: np.float32, fixed: np.float32, scale: np.float32) -> np.float32:
    """The limit of bounds without what is fixed for a query, before its scale; a little less, for rounding."""
    bar = max((np.float64(limit) - fixed) / scale, -3e38)
    return F(bar - LAST * (abs(bar) + (abs(limit) + fixed) / scale))


@inline
def _raise(lists: Lists, q: int, entry: np.uint64) -> bool:
    """Take a lower bound into the heap of a query; whether that moved its limit."""
    k = lists.limits.shape[1]
    if lists.sizes[q] < k:
        heap.push(lists.limits[q], lists.sizes[q], entry)
        lists.sizes[q] += 1
        return lists.sizes[q] == k
    if entry > lists.limits[q, 0]:
        heap.replace(lists.limits[q], k, entry)
        return True
    return False


@kernel
def _clear(lists: Lists, q: int, limit: np.float32) -> bool:
    """Take what is below the limit off a list; whether a quarter of it is free then."""
    kept, entries_M = 0, lists.entries[q]
    for i in range(lists.listed[q]):
        if heap.score_of(entries_M[i]) >= limit:
            entries_M[kept] = entries_M[i]
            kept += 1
    lists.listed[q] = kept
    return kept <= len(entries_M) // 4 * 3


class KeptBlock(NamedTuple):
    """A block that is kept in memory: the shard it is of, its first vector there and in all, how many, and codes."""

    shard: int
    start: int
    first: int
    size: int
    block: Int8Block


def keep_blocks(shards: Sequence[Shard]) -> list[KeptBlock]:
    """All vectors in int8, a byte per number: for searches by few queries, which rounding would take longer than."""
    blocks: list[KeptBlock] = []
    for number, (first, shard) in enumerate(zip(starts(shards), shards)):
        for start in range(0, len(shard), KEPT):
            values = _whole_lanes(shard.vectors[start : start + KEPT].decode())
            block = Int8Block.empty(values.shape[1], len(values))
            one = _ints(1, values.shape[1] // 4)
            round_vectors(read_only(values), one.view(np.uint8), one[0], block)
            blocks.append(KeptBlock(number, start, first + start, len(values), block))
    return blocks


class Search:
    """The numbers of all vectors that can be among the k best of some queries, found block by block."""

    def __init__(self, queries: Floats, k: int) -> None:
        queries = _whole_lanes(queries)
        count, width = queries.shape
        rows = -(-count // ROWS) * ROWS
        self._words, self._scales, errors = _ints(rows, width // 4), _floats(rows), np.zeros(count, F)
        round_queries(read_only(queries), self._words.view(np.uint8), self._scales, errors)
        self._errors = errors * MARGIN
        self._norms = (MARGIN * (np.linalg.norm(queries.astype(np.float64), axis=1) + errors)).astype(F)
        self._one, self._block, self._lists = (
            _ints(1, width // 4),
            Int8Block.empty(width),
            Lists.empty(count, k),
        )

    def add(
        self, first: int, values: Floats, largest: float, off: Doubles, live: NDArray[np.bool_],
        each: Callable[[Callable[[slice], bool]], Iterable[bool]],
    ) -> bool:  # fmt: skip
        """Take in a block of at most VECTORS vectors; False where so many could be among the best that int8 is no gain.

        `largest` is no less than their largest norm, `off` is the error of exact scores themselves; `each` calls a
        function with the shares of the queries, which begin with whole tiles.
        """
        values = _whole_lanes(values)
        round_vectors(read_only(values), self._one.view(np.uint8), self._one[0], self._block)
        return all(each(lambda part: self.scan(part, first, self._block, len(values), largest, off, live)))

    def scan(
        self, part: slice, first: int, block: Int8Block, count: int, largest: float, off: Doubles,
        live: NDArray[np.bool_],
    ) -> bool:  # fmt: skip
        """The same of a block that is rounded, for some of the queries."""
        fixed = (self._errors * largest + off).astype(F)
        return bool(
            scan(
                self._words, self._scales, part.start, part.stop, block, live, count, first, fixed, self._norms,
                self._lists,
            )
        )  # fmt: skip

    def best(self) -> Longs:
        """k of each query that are likely to be its best, Q x K; -1 where there is none."""
        entries, k = self._lists.entries, self._lists.limits.shape[1]
        entries[np.arange(entries.shape[1]) >= self._lists.listed[:, None]] = 0
        entries.partition(-k, axis=1)
        highest = entries[:, -k:].copy()
        entries[:, -k:] = 0  # these are done
        return np.where(highest > 0, heap.numbers_of(highest), -1)

    def others(self, worst_Q: Floats) -> Longs:
        """What else can be among the best, Q x M, where k of them have this exact score at least; after `best`."""
        entries, lowest = self._lists.entries, heap.keys_of(worst_Q, 2**32 - 1)
        queries, places = np.nonzero((entries >= lowest[:, None]) & (entries > 0))
        counts = np.bincount(queries, minlength=len(worst_Q))
        numbers = np.full((len(worst_Q), int(counts.max(initial=0))), -1, np.int64)
        columns = np.arange(len(queries)) - np.repeat(np.cumsum(counts) - counts, counts)
        numbers[queries, columns] = heap.numbers_of(entries[queries, places])
        return numbers


def _whole_lanes(x_ND: Floats) -> Floats:
    """Rows of whole vectors: with as many 0 behind them, which change no product."""
    missing = -x_ND.shape[1] % LANES
    return np.pad(x_ND, ((0, 0), (0, missing))) if missing else x_ND


def _ints(*shape: int) -> Ints:
    return _aligned(int(np.prod(shape))).view(I).reshape(shape)


def _floats(*shape: int) -> Floats:
    return _aligned(int(np.prod(shape))).view(F).reshape(shape)


def _aligned(count: int) -> Bytes:
    """Memory for that many numbers, which begins with a cache line."""
    made = np.zeros(4 * count + 64, np.uint8)
    first = -made.ctypes.data % 64
    return made[first : first + 4 * count]
