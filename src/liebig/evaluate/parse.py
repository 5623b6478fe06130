"""The compiled part of reading a run: from the bytes of whole lines to where ids stand, ranks and scores.

One pass over the bytes. A score keeps up to 19 digits, which are scaled by an exact power of ten: the result is within
two units in the last place of the float64 nearest to the text. Only if that could change the float32 it rounds to, or
if the number is out of the ordinary (more digits, large exponents, inf), the line is marked to be read again.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from liebig.measures.arrays import Bytes, Longs
from liebig.measures.strings import compare

READ, AGAIN = 0, 1
FEW_COLUMNS, MANY_COLUMNS, BAD_RANK, BAD_SCORE = 1, 2, 3, 4
POWERS = np.array([10.0**i for i in range(23)])


class Parsed(NamedTuple):
    """One row per hit; `changes` are the rows where a new query begins, `bad_line` the first wrong line or -1."""

    query_starts: Longs
    query_ends: Longs
    starts: Longs
    ends: Longs
    ranks: NDArray[np.int32]
    scores: NDArray[np.float32]
    score_starts: Longs
    score_ends: Longs
    states: NDArray[np.uint8]
    changes: Longs
    bad_line: int
    reason: int


def parse_lines(data: Bytes, lines: int, columns: int, passage: int, rank: int, score: int) -> Parsed:
    """The hits in whole lines of text; a column of -1 is absent: ranks are then counted, scores fall with the rank.

    A rank that is not a number is 0: a run with scores may say anything there, as trec_eval does not look at it.
    """
    longs = np.empty((6, lines), dtype=np.int64)
    ranks, scores = np.empty(lines, dtype=np.int32), np.empty(lines, dtype=np.float32)
    states, changes = np.zeros(lines, dtype=np.uint8), np.empty(lines, dtype=np.int64)
    n, queries, bad, reason = _parse(
        data, columns, passage, rank, score, longs, ranks, scores, states, changes
    )
    return Parsed(
        longs[0, :n], longs[1, :n], longs[2, :n], longs[3, :n], ranks[:n], scores[:n], longs[4, :n], longs[5, :n],
        states[:n], changes[:queries], bad, reason,
    )  # fmt: skip


@numba.njit(cache=True, nogil=True)
def _parse(
    data: Bytes, columns: int, passage: int, rank: int, score: int, longs: NDArray[np.int64],
    ranks: NDArray[np.int32], scores: NDArray[np.float32], states: NDArray[np.uint8], changes: Longs,
) -> tuple[int, int, int, int]:  # fmt: skip
    n, queries, line, place = 0, 0, 0, 0
    starts, ends = np.empty(columns, dtype=np.int64), np.empty(columns, dtype=np.int64)
    i = 0
    while i < data.size:
        found, i = _split(data, i, starts, ends)
        if found == 0:
            line += 1
            continue
        if found != columns:
            return n, queries, line, FEW_COLUMNS if found < columns else MANY_COLUMNS
        longs[0, n], longs[1, n] = starts[0], ends[0]
        longs[2, n], longs[3, n] = starts[passage], ends[passage]
        if n == 0 or compare(data, starts[0], ends[0], data, longs[0, n - 1], longs[1, n - 1]) != 0:
            changes[queries] = n
            queries += 1
            place = 0
        place += 1
        ranks[n] = place if rank < 0 else _whole(data, starts[rank], ends[rank])
        if score < 0:
            scores[n] = -ranks[n]
            if ranks[n] < 1:
                return n, queries, line, BAD_RANK
        else:
            longs[4, n], longs[5, n] = starts[score], ends[score]
            scores[n], states[n] = _decimal(data, starts[score], ends[score])
            if np.isnan(scores[n]):
                return n, queries, line, BAD_SCORE
        n += 1
        line += 1
    return n, queries, -1, 0


@numba.njit(cache=True, nogil=True)
def _split(data: Bytes, i: int, starts: Longs, ends: Longs) -> tuple[int, int]:
    """The columns of the line that begins at i, and where the next line begins."""
    found = 0
    while data[i] != 10:
        if _blank(data[i]):
            i += 1
            continue
        if found < starts.size:
            starts[found] = i
        while not _blank(data[i]):
            i += 1
        if found < starts.size:
            ends[found] = i
        found += 1
    return found, i + 1


@numba.njit(cache=True, nogil=True)
def _blank(byte: np.uint8) -> bool:
    return bool(byte == 32 or (9 <= byte <= 13))


@numba.njit(cache=True, nogil=True)
def _whole(data: Bytes, start: int, end: int) -> int:
    """A number of at least 1 written in digits; 0 for anything else."""
    total = 0
    for i in range(start, end):
        digit = int(data[i]) - 48
        if digit < 0 or digit > 9 or total > 200_000_000:
            return 0
        total = 10 * total + digit
    return total


@numba.njit(cache=True, nogil=True)
def _decimal(data: Bytes, start: int, end: int) -> tuple[np.float32, int]:
    """The float32 of a decimal, and whether it must be read again; NaN for what cannot be a number."""
    i, sign = start, 1.0
    if data[i] == 45 or data[i] == 43:
        sign = -1.0 if data[i] == 45 else 1.0
        i += 1
    if i < end and data[i] > 57:
        return np.float32(0), AGAIN
    mantissa, digits, exponent, dot, any_digit = np.uint64(0), 0, 0, False, False
    while i < end and (data[i] == 46 or 48 <= data[i] <= 57):
        if data[i] == 46:
            if dot:
                return np.float32(np.nan), READ
            dot = True
        else:
            any_digit = True
            if digits < 19:
                mantissa = mantissa * np.uint64(10) + np.uint64(data[i] - 48)
                digits += 1 if mantissa > 0 else 0
                exponent -= dot
            else:
                exponent += not dot
        i += 1
    if not any_digit:
        return np.float32(np.nan), READ
    if i < end:
        if data[i] != 101 and data[i] != 69:
            return np.float32(np.nan), READ
        shift, i = _exponent(data, i + 1, end)
        if i < end:
            return np.float32(0), AGAIN
        exponent += shift
    return _scale(sign, mantissa, exponent)


@numba.njit(cache=True, nogil=True)
def _exponent(data: Bytes, i: int, end: int) -> tuple[int, int]:
    sign = 1
    if i < end and (data[i] == 45 or data[i] == 43):
        sign = -1 if data[i] == 45 else 1
        i += 1
    total, first = 0, i
    while i < end and 48 <= data[i] <= 57 and total < 1000:
        total = 10 * total + int(data[i]) - 48
        i += 1
    return sign * total, (i if i > first else -1)


@numba.njit(cache=True, nogil=True)
def _scale(sign: float, mantissa: np.uint64, exponent: int) -> tuple[np.float32, int]:
    """mantissa × 10^exponent; marked where the error of float64 could change the float32."""
    if mantissa == 0:
        return np.float32(sign * 0.0), READ
    if abs(exponent) > 22:
        return np.float32(0), AGAIN
    number = np.float64(mantissa)
    number = number * POWERS[exponent] if exponent >= 0 else number / POWERS[-exponent]
    if number < 1e-36 or number > 1e38:
        return np.float32(0), AGAIN
    single = np.float64(np.float32(number))
    slack = number * 2e-15
    if np.float64(np.float32(number - slack)) != single or np.float64(np.float32(number + slack)) != single:
        return np.float32(0), AGAIN
    return np.float32(sign * number), READ
