"""Rough scores in int8 for exact search, on processors with AVX-512 VNNI, and how far off they can be.

A query q and a vector x are rounded to q' and x', codes of eight bits with one scale each, and q'x' is computed in
integers, four times as fast as in float32. By Cauchy and Schwarz

    |qx - q'x'| <= |q - q'| |x| + |q'| |x - x'|,

and all four norms are known, so the bound is proven and not estimated: whatever could be among the best by it is scored
again in float64 (`exact_cpu`), and the results are those of a search without rounding. Rounding a vector costs as much
as its product with some queries, so float32 is as fast for a few.

Q queries, C vectors of a tile, D width, K words of four codes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from liebig.model.kernels.registers import (
    LANES,
    kernel,
    larger_size,
    largest_size,
    load,
    load_ints,
    lowest_bit,
    plus,
    reaching,
    rounded,
    size,
    spread,
    store,
    store_bytes,
    tile,
    times,
    times_plus,
    total,
)
from liebig.ragged import read_only
from liebig.vectors import ranked as heap

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]
Bytes = NDArray[np.uint8]
Longs = NDArray[np.int64]
Doubles = NDArray[np.float64]
Keys = NDArray[np.uint64]

F, I = np.float32, np.int32  # noqa: E741
ROWS, PANEL = 6, 64  # queries and vectors of a tile of the product
VECTORS = 1024  # of a tile: half a megabyte
MORE = 32  # times k: the length of the lists
ZERO, MOST, TINY = F(128), F(127), F(1e-30)
MARGIN = 1.001  # for the rounding of the norms themselves
bytes_tile = tile("bytes", ROWS, PANEL // LANES)


@kernel
def _round(
    x_ND: Floats, n: int, zero: np.float32, codes_ND: Bytes, t: int
) -> tuple[np.float32, np.float32, np.float32]:
    """The codes of a row plus `zero`; its scale, the square of the rounding error, and the sum of the codes."""
    most = spread(F(0))
    for d in range(0, x_ND.shape[1], LANES):
        most = larger_size(most, size(load(x_ND, (n, d))))
    scale = max(largest_size(most) / MOST, TINY)
    factor, back, zeros = spread(F(1) / scale), spread(-scale), spread(zero)
    errors, codes = spread(F(0)), spread(F(0))
    for d in range(0, x_ND.shape[1], LANES):
        numbers = load(x_ND, (n, d))
        code = rounded(times(numbers, factor))
        error = times_plus(code, back, numbers)
        errors, codes = times_plus(error, error, errors), plus(codes, code)
        store_bytes(codes_ND, (t, d), plus(code, zeros))
    return scale, total(errors), total(codes)


@kernel
def round_queries(x_QD: Floats, codes_QD: Bytes, scales_Q: Floats, errors_Q: Floats) -> None:
    """Queries as bytes without a sign, their scales, and the norms of what rounding took away."""
    for q in range(len(x_QD)):
        scale, square, _ = _round(x_QD, q, ZERO, codes_QD, q)
        scales_Q[q], errors_Q[q] = scale, np.sqrt(square)


@kernel
def round_vectors(
    x_CD: Floats, codes_1D: Bytes, words_K: Ints, panels_WC: Ints, start_C: Ints, scales_C: Floats
) -> np.float32:
    """Vectors as bytes with a sign, in panels; returns the largest norm of what rounding took away."""
    worst, depth = F(0), len(words_K)
    for c in range(len(x_CD)):
        scale, square, codes = _round(x_CD, c, F(0), codes_1D, 0)
        scales_C[c], start_C[c] = scale, I(-ZERO * codes)
        worst = max(worst, np.sqrt(square))
        first, column = c // PANEL * depth, c % PANEL
        for k in range(depth):
            panels_WC[first + k, column] = words_K[k]
    return worst


@kernel
def scan(
    words_QK: Ints, scales_Q: Floats, begin: int, end: int, panels_WC: Ints, start_C: Ints, scales_C: Floats,
    live_C: NDArray[np.bool_], count: int, first: int, slack_Q: Doubles, limits_QK: Keys, sizes_Q: Longs,
    entries_QM: Keys, listed_Q: Longs,
) -> bool:  # fmt: skip
    """Take the scores of a tile into the lists of the queries from `begin` to `end`, where `begin` is a whole tile.

    `limits_QK` are heaps of the best rough scores. What is more than twice the slack below the K-th best of them cannot
    be among the K best, and is not listed. A list that is full is cleared of what the limit excludes by now; False
    where that does not help.
    """
    depth, k = words_QK.shape[1], limits_QK.shape[1]
    sums_RC, row_C, limits_Q = np.empty((ROWS, PANEL), I), np.empty(PANEL, F), np.empty(end, F)
    for q in range(begin, end):
        limits_Q[q] = _limit(limits_QK, sizes_Q, q, slack_Q)
    for c in range(0, count, PANEL):
        there = -1 if count - c >= PANEL else (1 << (count - c)) - 1
        for q in range(begin, end, ROWS):
            bytes_tile(words_QK, q, 0, panels_WC, c // PANEL * depth, 0, start_C, c, sums_RC, 0, 0, depth)
            for r in range(min(ROWS, end - q)):
                n, hits = q + r, 0
                scale = spread(scales_Q[n])
                for v in range(0, PANEL, LANES):
                    scores = times(load_ints(sums_RC, (r, v)), times(scale, load(scales_C, c + v)))
                    store(row_C, v, scores)
                    hits |= reaching(scores, limits_Q[n]) << v
                hits &= there
                while hits != 0:
                    j = lowest_bit(hits)
                    hits &= hits - 1
                    if row_C[j] < limits_Q[n] or (len(live_C) > 0 and not live_C[c + j]):
                        continue
                    place = listed_Q[n]
                    if place == entries_QM.shape[1]:
                        if not _clear(limits_Q[n], entries_QM, listed_Q, n):
                            return False
                        place = listed_Q[n]
                    entry = heap.key(row_C[j], first + c + j)
                    entries_QM[n, place], listed_Q[n] = entry, place + 1
                    if sizes_Q[n] < k:
                        heap.push(limits_QK[n], sizes_Q[n], entry)
                        sizes_Q[n] += 1
                    elif entry > limits_QK[n, 0]:
                        heap.replace(limits_QK[n], k, entry)
                    else:
                        continue
                    limits_Q[n] = _limit(limits_QK, sizes_Q, n, slack_Q)
    return True


@kernel
def _limit(limits_QK: Keys, sizes_Q: Longs, q: int, slack_Q: Doubles) -> np.float32:
    if sizes_Q[q] < limits_QK.shape[1]:
        return F(-3e38)
    limit = np.float64(heap.score_of(limits_QK[q, 0])) - 2 * slack_Q[q]
    return F(limit - 1e-6 * abs(limit))  # as float32 no higher than it is


@kernel
def _clear(limit: float, entries_QM: Keys, listed_Q: Longs, q: int) -> bool:
    """Take what is below the limit off a list; whether a quarter of it is free then."""
    kept = 0
    for i in range(listed_Q[q]):
        if heap.score_of(entries_QM[q, i]) >= limit:
            entries_QM[q, kept] = entries_QM[q, i]
            kept += 1
    listed_Q[q] = kept
    return kept <= entries_QM.shape[1] // 4 * 3


class Search:
    """The numbers of all vectors that can be among the k best of some queries, found tile by tile."""

    def __init__(self, queries: Floats, k: int) -> None:
        count, width = queries.shape
        rows, depth = -(-count // ROWS) * ROWS, width // 4
        self._words, self._scales = _ints(rows, depth), _floats(rows)
        self._errors, self._norms = np.zeros(count, F), np.linalg.norm(queries.astype(np.float64), axis=1)
        round_queries(read_only(queries), self._words.view(np.uint8), self._scales, self._errors)
        self._one, self._panels = _ints(1, depth), _ints(VECTORS // PANEL * depth, PANEL)
        self._start, self._vectors = _ints(VECTORS), _floats(VECTORS)
        self._slack = np.zeros(count)
        self._limits, self._sizes = np.zeros((count, k), np.uint64), np.zeros(count, np.int64)
        room = MORE * k + 1024
        self._entries = np.empty((count, room), np.uint64)
        self._listed = np.zeros(count, np.int64)

    def add(
        self, first: int, values: Floats, largest: float, off: Doubles, live: NDArray[np.bool_],
        each: Callable[[Callable[[slice], bool]], Iterable[bool]],
    ) -> bool:  # fmt: skip
        """Take in a tile of at most VECTORS vectors; False where so many could be among the best that int8 is no gain.

        `largest` is no less than their largest norm, `off` is the error of exact scores themselves; `each` calls a
        function with the shares of the queries, which begin with whole tiles.
        """
        error = round_vectors(
            read_only(values),
            self._one.view(np.uint8),
            self._one[0],
            self._panels,
            self._start,
            self._vectors,
        )
        bound = self._errors * largest + (self._norms + self._errors) * float(error)
        self._slack = np.maximum(self._slack, bound * MARGIN + off)  # a limit may stand on the tiles before

        def share(part: slice) -> bool:
            return bool(
                scan(
                    self._words, self._scales, part.start, part.stop, self._panels, self._start, self._vectors,
                    live, len(values), first, self._slack, self._limits, self._sizes, self._entries, self._listed,
                )
            )  # fmt: skip

        return all(each(share))

    def best(self) -> Longs:
        """The k best of each query by rough scores, Q x K; -1 where there is none."""
        k = self._limits.shape[1]
        self._entries[np.arange(self._entries.shape[1]) >= self._listed[:, None]] = 0
        self._entries.partition(-k, axis=1)
        entries = self._entries[:, -k:].copy()
        self._entries[:, -k:] = 0  # these are done
        return np.where(entries > 0, heap.numbers_of(entries), -1)

    def others(self, worst_Q: Floats) -> Longs:
        """What else can be among the best, Q x M, where so many have this exact score at least; after `best`."""
        floor = np.nextafter((worst_Q.astype(np.float64) - self._slack).astype(F), F(-np.inf))
        lowest = heap.keys_of(floor, 2**32 - 1)
        queries, places = np.nonzero((self._entries >= lowest[:, None]) & (self._entries > 0))
        counts = np.bincount(queries, minlength=len(floor))
        numbers = np.full((len(floor), int(counts.max(initial=0))), -1, np.int64)
        columns = np.arange(len(queries)) - np.repeat(np.cumsum(counts) - counts, counts)
        numbers[queries, columns] = heap.numbers_of(self._entries[queries, places])
        return numbers


def _ints(*shape: int) -> Ints:
    return _aligned(int(np.prod(shape))).view(I).reshape(shape)


def _floats(*shape: int) -> Floats:
    return _aligned(int(np.prod(shape))).view(F).reshape(shape)


def _aligned(count: int) -> Bytes:
    """Memory for so many numbers, that begins with a cache line."""
    made = np.zeros(4 * count + 64, np.uint8)
    first = -made.ctypes.data % 64
    return made[first : first + 4 * count]
