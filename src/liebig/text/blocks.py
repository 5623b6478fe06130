"""Whole sentences packed into blocks of at most N tokens: the arithmetic of passages and spans, without text.

Greedy, as in query-as-context (4.1) and Condenser's data: a sentence joins the block while it fits. A sentence
of more than N tokens is cut every N tokens and its rest goes on as a sentence of its own, so nothing is lost.
Blocks never cross a group (a section, a document). With overlap, a block begins with the last sentences of the
one before it, as many as have at most `overlap` tokens together and leave room for the next sentence.
Cost: a few nanoseconds a sentence.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray


class Blocks(NamedTuple):
    """Block k is tokens[starts[k]:ends[k]], from group groups[k]."""

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    groups: NDArray[np.int64]


def pack_sentences(sentences: NDArray[Any], groups: NDArray[Any], longest: int, overlap: int = 0) -> Blocks:
    """Blocks of at most `longest` tokens.

    Sentence s is tokens[sentences[s]:sentences[s+1]]; group g is sentences groups[g] to groups[g+1].
    """
    assert 0 <= overlap < longest, "a block needs room for more than its overlap"
    table = _pack(sentences.astype(np.int64), groups.astype(np.int64), longest, overlap)
    return Blocks(table[0], table[1], table[2])


@njit(nogil=True, cache=True)
def units_of(sentences: Any, first: int, last: int, longest: int, units: Any) -> int:
    """Where the sentences first … last-1 begin, long ones cut; returns how many units `units` delimits."""
    n = 0
    units[0] = sentences[first]
    for s in range(first, last):
        at, end = sentences[s], sentences[s + 1]
        while at < end:
            at = min(at + longest, end)
            n += 1
            units[n] = at
    return n


@njit(nogil=True, cache=True)
def most_units(sentences: Any, first: Any, last: Any, longest: int) -> int:
    """An upper bound on the units of any of the groups."""
    most = 0
    for g in range(len(first)):
        tokens = sentences[last[g]] - sentences[first[g]]
        most = max(most, (last[g] - first[g]) + tokens // longest + 1)
    return most


@njit(nogil=True, cache=True)
def _pack(sentences: Any, groups: Any, longest: int, overlap: int) -> Any:
    bound = len(sentences) + (sentences[-1] - sentences[0]) // longest + 1
    table = np.empty((3, bound), np.int64)
    units = np.empty(most_units(sentences, groups[:-1], groups[1:], longest) + 1, np.int64)
    made = 0
    for g in range(len(groups) - 1):
        n = units_of(sentences, groups[g], groups[g + 1], longest, units)
        i = 0
        while i < n:
            j = i + 1
            while j < n and units[j + 1] - units[i] <= longest:
                j += 1
            table[0, made], table[1, made], table[2, made] = units[i], units[j], g
            made += 1
            i = j if j == n else _back(units, i, j, longest, overlap)
    return table[:, :made].copy()


@njit(nogil=True, cache=True)
def _back(units: Any, i: int, j: int, longest: int, overlap: int) -> int:
    """Where the next block begins: up to `overlap` tokens before unit j, which must still fit."""
    k = j
    while k - 1 > i and units[j] - units[k - 1] <= overlap and units[j + 1] - units[k - 1] <= longest:
        k -= 1
    return k
