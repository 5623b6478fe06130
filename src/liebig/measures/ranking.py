"""From the hits of a query to the ranks and grades of its judged passages.

Every measure depends only on where the judged passages stand, so a query's thousand hits shrink to the few that are
judged. Hits are sorted by (score as float32 descending, id descending), trec_eval's order; a run already in that
order, the usual case, costs one pass. Ids are only compared where scores are equal.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from liebig.measures.arrays import Bytes, Found, Hits, Longs, Table
from liebig.measures.strings import compare, hash_range

UNJUDGED = -(2**31)


@numba.njit(cache=True, nogil=True)
def own_hit(hits: Hits, first: int, last: int, name: Bytes) -> int:
    """The hit whose id is the query's own, or -1."""
    for hit in range(first, last):
        if compare(hits.data, hits.starts[hit], hits.ends[hit], name, 0, name.size) == 0:
            return hit
    return -1


@numba.njit(cache=True, nogil=True)
def sort_hits(hits: Hits, rows: Longs) -> Longs:
    """Rows in trec_eval's order: merge sort from runs of one, skipped where they are in order already."""
    n = rows.size
    done = True
    for i in range(1, n):
        if _before(hits, rows[i], rows[i - 1]):
            done = False
            break
    source, target, width = rows, np.empty_like(rows), n if done else 1
    while width < n:
        for left in range(0, n, 2 * width):
            _merge(hits, source, target, left, min(left + width, n), min(left + 2 * width, n))
        source, target, width = target, source, 2 * width
    return source


@numba.njit(cache=True, nogil=True)
def _before(hits: Hits, i: int, j: int) -> bool:
    if hits.scores[i] != hits.scores[j]:
        return hits.scores[i] > hits.scores[j]
    return compare(hits.data, hits.starts[i], hits.ends[i], hits.data, hits.starts[j], hits.ends[j]) > 0


@numba.njit(cache=True, nogil=True)
def _merge(hits: Hits, source: Longs, target: Longs, left: int, middle: int, right: int) -> None:
    a, b = left, middle
    for k in range(left, right):
        if b < right and (a >= middle or _before(hits, source[b], source[a])):
            target[k] = source[b]
            b += 1
        else:
            target[k] = source[a]
            a += 1


@numba.njit(cache=True, nogil=True)
def hash_rows(hits: Hits, rows: Longs) -> NDArray[np.uint64]:
    """The hash of the id of each hit."""
    hashes = np.empty(rows.size, dtype=np.uint64)
    for i in range(rows.size):
        hashes[i] = hash_range(hits.data, hits.starts[rows[i]], hits.ends[rows[i]])
    return hashes


@numba.njit(cache=True, nogil=True)
def find_duplicate(hits: Hits, rows: Longs, hashes: NDArray[np.uint64]) -> int:
    """A hit whose id an earlier hit of the same query has, or -1; open addressing, half full at most."""
    size = 8
    while size < 2 * rows.size:
        size *= 2
    table = np.full(size, -1, dtype=np.int64)
    for i in range(rows.size):
        slot = np.int64(hashes[i] & np.uint64(size - 1))
        while table[slot] >= 0:
            other = table[slot]
            if hashes[other] == hashes[i] and _same(hits, rows[i], rows[other]):
                return rows[i]
            slot = (slot + 1) & (size - 1)
        table[slot] = i
    return -1


@numba.njit(cache=True, nogil=True)
def _same(hits: Hits, i: int, j: int) -> bool:
    return compare(hits.data, hits.starts[i], hits.ends[i], hits.data, hits.starts[j], hits.ends[j]) == 0


@numba.njit(cache=True, nogil=True)
def grade_of(table: Table, first: int, last: int, hits: Hits, hit: int, value: np.uint64) -> int:
    """The grade of a hit among the judgements [first, last), which are sorted by hash; UNJUDGED if absent."""
    low, high = first, last
    while low < high:
        middle = (low + high) // 2
        if table.hashes[middle] < value:
            low = middle + 1
        else:
            high = middle
    while low < last and table.hashes[low] == value:
        if (
            compare(
                hits.data, hits.starts[hit], hits.ends[hit], table.data, table.starts[low], table.ends[low]
            )
            == 0
        ):
            return int(table.grades[low])
        low += 1
    return UNJUDGED


@numba.njit(cache=True, nogil=True)
def find_judged(hits: Hits, rows: Longs, hashes: NDArray[np.uint64], table: Table, query: int) -> Found:
    """The judged ones among a query's hits, which come in ranked order."""
    places = np.empty(rows.size, dtype=np.int64)
    written = np.empty(rows.size, dtype=np.int64)
    grades = np.empty(rows.size, dtype=np.int32)
    n = 0
    for i in range(rows.size):
        grade = grade_of(table, table.first[query], table.first[query + 1], hits, rows[i], hashes[i])
        if grade != UNJUDGED:
            places[n], written[n], grades[n] = i + 1, hits.ranks[rows[i]], grade
            n += 1
    return Found(places[:n], written[:n], grades[:n])


@numba.njit(cache=True, nogil=True)
def by_written_rank(found: Found) -> Found:
    """The same hits in the order of the ranks written in the run; insertion sort, as they are nearly sorted."""
    places, written, grades = found.places.copy(), found.written.copy(), found.grades.copy()
    for i in range(1, written.size):
        place, rank, grade = places[i], written[i], grades[i]
        j = i
        while j > 0 and written[j - 1] > rank:
            places[j], written[j], grades[j] = places[j - 1], written[j - 1], grades[j - 1]
            j -= 1
        places[j], written[j], grades[j] = place, rank, grade
    return Found(places, written, grades)
