"""The formulas, on the ranks and grades of one query's judged hits.

ranks   of the judged hits, from 1, ascending           grades  their grades (negative: in the pool, not judged)
pool    all grades of the query, descending             cut     last rank looked at; 0 for no cut
hits    number of hits of the query                     rel     least grade that counts as relevant

Each takes time in the number of judged hits, not of hits. The sums run in rank order and in float64, as trec_eval's.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from liebig.measures.arrays import Grades, Longs

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
    total, found = 0.0, 0
    for i in range(ranks.size):
        if cut and ranks[i] > cut:
            break
        if grades[i] >= rel:
            found += 1
            total += found / ranks[i]
    return ratio(total, relevant)


@numba.njit(cache=True, nogil=True)
def count_above(ranks: Longs, grades: Grades, cut: int, rel: int) -> int:
    """Number of hits above the cut with at least the grade."""
    found = 0
    for i in range(ranks.size):
        if ranks[i] <= cut and grades[i] >= rel:
            found += 1
    return found


@numba.njit(cache=True, nogil=True)
def count(pool: Grades, rel: int) -> int:
    """Number of relevant passages of the query."""
    found = 0
    while found < pool.size and pool[found] >= rel:
        found += 1
    return found


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
    found = count_above(ranks, grades, cut, rel)
    if code == R:
        return ratio(found, count(pool, rel))
    if code == R_CAP:
        return ratio(found, min(cut, count(pool, rel)))
    if code == P:
        return found / cut
    return 1.0 if found else 0.0
