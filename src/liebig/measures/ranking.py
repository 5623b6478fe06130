"""From the hits of a query to the ranks and grades of its judged passages.

Every measure depends only on where the judged passages stand, so a query's thousand hits shrink to the few that are
judged. Hits are sorted by (score as float32 descending, id descending), trec_eval's order; a run already in that
order, the usual case, costs one pass. Ids are only compared where scores are equal.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

# Arguments of the compiled kernels are named tuples, because numba accepts those directly.

Bytes = NDArray[np.uint8]
Longs = NDArray[np.int64]
Grades = NDArray[np.int32]


class Hits(NamedTuple):
    """Hits `segments[s]:segments[s + 1]` belong to query s; the id of hit i is `data[starts[i]:ends[i]]`."""

    segments: Longs
    data: Bytes
    starts: Longs
    ends: Longs
    scores: NDArray[np.float32]
    ranks: NDArray[np.int32]


class Table(NamedTuple):
    """Judgements `first[q]:first[q + 1]` belong to query q, sorted by hash; `pool` holds its grades, descending."""

    first: Longs
    data: Bytes
    starts: Longs
    ends: Longs
    hashes: NDArray[np.uint64]
    grades: Grades
    pool: Grades


class Specs(NamedTuple):
    """The measures; a cut of 0 is no cut, `given` says that the rank written in the run counts."""

    codes: Longs
    cuts: Longs
    rels: Longs
    given: NDArray[np.bool_]


class JudgedHits(NamedTuple):
    """The judged hits of one query, best first: place by score, rank written in the run, grade."""

    places: Longs
    written: Longs
    grades: Grades


# Ids stay bytes from the run file to the measure: nothing is decoded, and UTF-8 bytes sort as trec_eval's strcmp sorts
# them. An id is the range [start, end) of a byte array. Equal hashes (FNV-1a) are always confirmed by a comparison.


def unpack(data: Bytes, start: int, end: int) -> str:
    """The string in a range of bytes; bytes that are not UTF-8 are shown as escapes."""
    return data[start:end].tobytes().decode("utf-8", errors="backslashreplace")


@numba.njit(cache=True, nogil=True)
def hash_range(data: Bytes, start: int, end: int) -> np.uint64:
    """FNV-1a, 64 bits."""
    value = np.uint64(0xCBF29CE484222325)
    for i in range(start, end):
        value = (value ^ np.uint64(data[i])) * np.uint64(0x100000001B3)
    return value


@numba.njit(cache=True, nogil=True)
def compare(a: Bytes, a_start: int, a_end: int, b: Bytes, b_start: int, b_end: int) -> int:
    """Negative, zero or positive as the first string sorts before, equals or sorts after the second."""
    length_a, length_b = a_end - a_start, b_end - b_start
    for i in range(min(length_a, length_b)):
        x, y = a[a_start + i], b[b_start + i]
        if x != y:
            return -1 if x < y else 1
    return length_a - length_b


@numba.njit(cache=True, nogil=True)
def hash_all(data: Bytes, starts: Longs, ends: Longs) -> NDArray[np.uint64]:
    """The hash of every range."""
    hashes = np.empty(starts.size, dtype=np.uint64)
    for i in range(starts.size):
        hashes[i] = hash_range(data, starts[i], ends[i])
    return hashes


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
def find_judged(hits: Hits, rows: Longs, hashes: NDArray[np.uint64], table: Table, query: int) -> JudgedHits:
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
    return JudgedHits(places[:n], written[:n], grades[:n])


@numba.njit(cache=True, nogil=True)
def by_written_rank(hits: JudgedHits) -> JudgedHits:
    """The same hits in the order of the ranks written in the run; insertion sort, as they are nearly sorted."""
    places, written, grades = hits.places.copy(), hits.written.copy(), hits.grades.copy()
    for i in range(1, written.size):
        place, rank, grade = places[i], written[i], grades[i]
        j = i
        while j > 0 and written[j - 1] > rank:
            places[j], written[j], grades[j] = places[j - 1], written[j - 1], grades[j - 1]
            j -= 1
        places[j], written[j], grades[j] = place, rank, grade
    return JudgedHits(places, written, grades)


# The formulas take the judged hits of one query, so their time grows with those, not with all hits. Sums run in rank
# order and in float64, as in trec_eval.
#
#     ranks    of the judged hits, from 1, ascending
#     grades   of the same hits (negative: in the pool, not judged)
#     pool     all grades of the query, descending
#     cut      last rank that counts; 0 for no cut
#     hits     number of hits of the query
#     rel      lowest grade that counts as relevant

Gains = NDArray[np.float64]
NDCG, NDCG_EXP, RR, AP, R, R_CAP, P, SUCCESS, JUDGED = range(9)
CODES = {
    "nDCG": NDCG, "nDCG_exp": NDCG_EXP, "RR": RR, "AP": AP, "R": R, "R_cap": R_CAP, "P": P, "Success": SUCCESS,
    "Judged": JUDGED,
}  # fmt: skip


@numba.njit(cache=True, nogil=True)
def linear_gains(grades: Grades) -> Gains:
    """Gain of a grade: the grade itself, nothing below zero."""
    gains = np.zeros(grades.size)
    for i in range(grades.size):
        gains[i] = max(grades[i], 0)
    return gains


@numba.njit(cache=True, nogil=True)
def exponential_gains(grades: Grades) -> Gains:
    """Gain of a grade: 2^grade - 1, nothing below zero."""
    gains = np.zeros(grades.size)
    for i in range(grades.size):
        gains[i] = 2.0 ** max(grades[i], 0) - 1.0
    return gains


@numba.njit(cache=True, nogil=True)
def dcg(ranks: Longs, gains: Gains, cut: int) -> float:
    """Sum of gain / log2(rank + 1)."""
    total = 0.0
    for i in range(ranks.size):
        if cut and ranks[i] > cut:
            break
        total += gains[i] / np.log2(ranks[i] + 1.0)
    return total


@numba.njit(cache=True, nogil=True)
def ndcg(ranks: Longs, gains: Gains, best: Gains, cut: int) -> float:
    """DCG over the DCG of the best possible ranking, whose gains are `best`."""
    return ratio(dcg(ranks, gains, cut), dcg(np.arange(1, best.size + 1), best, cut))


@numba.njit(cache=True, nogil=True)
def reciprocal_rank(ranks: Longs, grades: Grades, cut: int, rel: int) -> float:
    """1 / rank of the first relevant hit, 0 where there is none above the cut."""
    for i in range(ranks.size):
        if cut and ranks[i] > cut:
            break
        if grades[i] >= rel:
            return 1.0 / ranks[i]
    return 0.0


@numba.njit(cache=True, nogil=True)
def average_precision(ranks: Longs, grades: Grades, relevant: int, cut: int, rel: int) -> float:
    """Precision at the rank of each relevant hit above the cut, summed, over all relevant passages."""
    total, hits = 0.0, 0
    for i in range(ranks.size):
        if cut and ranks[i] > cut:
            break
        if grades[i] >= rel:
            hits += 1
            total += hits / ranks[i]
    return ratio(total, relevant)


@numba.njit(cache=True, nogil=True)
def count_above(ranks: Longs, grades: Grades, cut: int, rel: int) -> int:
    """Number of hits above the cut with at least the grade."""
    relevant = 0
    for i in range(ranks.size):
        if ranks[i] <= cut and grades[i] >= rel:
            relevant += 1
    return relevant


@numba.njit(cache=True, nogil=True)
def count(pool: Grades, rel: int) -> int:
    """Number of relevant passages of the query."""
    relevant = 0
    while relevant < pool.size and pool[relevant] >= rel:
        relevant += 1
    return relevant


@numba.njit(cache=True, nogil=True)
def ratio(part: float, whole: float) -> float:
    """A share, 0 where there is nothing to share."""
    return part / whole if whole > 0 else 0.0


@numba.njit(cache=True, nogil=True)
def value(code: int, cut: int, rel: int, ranks: Longs, grades: Grades, pool: Grades, hits: int) -> float:
    """The value of one measure for one query."""
    if code == NDCG:
        return ndcg(ranks, linear_gains(grades), linear_gains(pool), cut)
    if code == NDCG_EXP:
        return ndcg(ranks, exponential_gains(grades), exponential_gains(pool), cut)
    if code == RR:
        return reciprocal_rank(ranks, grades, cut, rel)
    if code == AP:
        return average_precision(ranks, grades, count(pool, rel), cut, rel)
    if code == JUDGED:
        return ratio(count_above(ranks, grades, cut, 0), min(cut, hits))
    relevant = count_above(ranks, grades, cut, rel)
    if code == R:
        return ratio(relevant, count(pool, rel))
    if code == R_CAP:
        return ratio(relevant, min(cut, count(pool, rel)))
    if code == P:
        return relevant / cut
    return 1.0 if relevant else 0.0
