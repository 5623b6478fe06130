"""Byte-pair merges learned from counted words, the same for the same counts.

The words lie in one flat array of symbols, linked to their neighbours; every pair knows where it occurs, and
a heap holds the counts. A merge visits the places of its pair alone and updates the counts of the pairs beside
them. Ties go to the smaller pair of ids. (The trainers of the `tokenizers` library number the symbols of a
WordPiece vocabulary in the order of a randomly seeded hash table: two runs give two vocabularies.)
Cost: 30,000 merges over a million different words take about ten seconds and 60 bytes a character.
"""

from __future__ import annotations

import heapq
from typing import Any, NamedTuple

import numpy as np
from numba import njit, types
from numba.typed import Dict, List
from numpy.typing import NDArray

_BASE = np.uint64(0x9E3779B97F4A7C15)
_INNER = np.uint64(0xD1B54A32D192ED03)


class Row(NamedTuple):
    """All words, one symbol after the other, each linked to its neighbours in the word (-1: none)."""

    symbols: Any
    before: Any
    after: Any
    weight: Any  # how often the word of this symbol was met


class Pairs(NamedTuple):
    """Counts and places of neighbouring symbols. The places of a pair are a linked list, newest first."""

    index: Any  # pair -> number
    count: Any
    newest: Any  # number -> a place, or -1
    position: Any  # place -> position in the row
    older: Any  # place -> the place before it, or -1
    used: Any  # one number: places in use


class Pieces(NamedTuple):
    """What every piece spells, as a hash, so that the same spelling gets the same id."""

    known: Any  # spelling -> id
    body: Any
    size: Any
    inner: Any


def learn_merges(
    symbols: NDArray[np.int64],
    offsets: NDArray[np.int64],
    counts: NDArray[np.int64],
    bodies: NDArray[np.uint64],
    inner: NDArray[np.bool_],
    new_pieces: int,
    min_count: int,
) -> NDArray[np.int64]:
    """Rows (left, right, piece): the merges in their order, until there are `new_pieces` new ids.

    `symbols[offsets[w]:offsets[w+1]]` is a word met `counts[w]` times. `bodies` hashes what each starting
    symbol spells and `inner` says that it may only stand inside a word: two merges that spell the same piece
    give the same id.
    """
    return _learn(symbols.copy(), offsets, counts, bodies, inner, new_pieces, max(min_count, 1))


@njit(cache=True)
def _learn(
    symbols: Any, offsets: Any, counts: Any, bodies: Any, inner: Any, new_pieces: int, min_count: int
) -> Any:
    row = _row(symbols, offsets, counts)
    pairs = _pairs(row)
    pieces = _pieces(bodies, inner)
    heap = [(-pairs.count[i], pair >> 32, pair & 0xFFFFFFFF) for pair, i in pairs.index.items()]
    heapq.heapify(heap)
    merges = [(np.int64(0), np.int64(0), np.int64(0)) for _ in range(0)]
    while len(pieces.body) - len(bodies) < new_pieces and len(heap) > 0:
        count, left, right = heapq.heappop(heap)
        number = pairs.index[(left << 32) | right]
        if -count != pairs.count[number]:  # counted before a later merge took some of it
            if pairs.count[number] > 0:
                heapq.heappush(heap, (-pairs.count[number], left, right))
            continue
        if -count < min_count:
            break
        piece = _spell(pieces, left, right)
        merges.append((left, right, piece))
        for pair in _merge(row, pairs, number, left, right, piece):
            grown = pairs.count[pairs.index[pair]]
            if grown > 0:
                heapq.heappush(heap, (-grown, pair >> 32, pair & 0xFFFFFFFF))
    table = np.empty((len(merges), 3), np.int64)
    for i in range(len(merges)):
        table[i, 0], table[i, 1], table[i, 2] = merges[i]
    return table


@njit(cache=True)
def _row(symbols: Any, offsets: Any, counts: Any) -> Any:
    n = len(symbols)
    before = np.arange(-1, n - 1)
    after = np.arange(1, n + 1)
    weight = np.empty(n, np.int64)
    for w in range(len(counts)):
        if offsets[w + 1] > offsets[w]:
            before[offsets[w]] = -1
            after[offsets[w + 1] - 1] = -1
            weight[offsets[w] : offsets[w + 1]] = counts[w]
    return Row(symbols, before, after, weight)


@njit(cache=True)
def _pairs(row: Any) -> Any:
    """Every pair of the row. A merge frees one symbol and adds at most two places: 3n places suffice."""
    n = len(row.symbols)
    pairs = Pairs(
        Dict.empty(types.int64, types.int64),
        List.empty_list(types.int64),
        List.empty_list(types.int64),
        np.empty(3 * n, np.int64),
        np.empty(3 * n, np.int64),
        np.zeros(1, np.int64),
    )
    for p in range(n):
        if row.after[p] >= 0:
            _add(pairs, row.symbols[p], row.symbols[row.after[p]], row.weight[p], p)
    return pairs


@njit(cache=True)
def _add(pairs: Any, left: int, right: int, weight: int, position: int) -> Any:
    """The pair is at `position`, `weight` times; returns the pair."""
    pair = (np.int64(left) << 32) | np.int64(right)
    if pair not in pairs.index:
        pairs.index[pair] = len(pairs.count)
        pairs.count.append(np.int64(0))
        pairs.newest.append(np.int64(-1))
    number = pairs.index[pair]
    pairs.count[number] += weight
    place = pairs.used[0]
    pairs.position[place] = position
    pairs.older[place] = pairs.newest[number]
    pairs.newest[number] = place
    pairs.used[0] += 1
    return pair


@njit(cache=True)
def _take(pairs: Any, left: int, right: int, weight: int) -> None:
    """The pair is no longer there, `weight` times; its place is skipped when it is visited."""
    pairs.count[pairs.index[(np.int64(left) << 32) | np.int64(right)]] -= weight


@njit(cache=True)
def _merge(row: Any, pairs: Any, number: int, left: int, right: int, piece: int) -> Any:
    """Join `left` and `right` everywhere, from left to right; returns the pairs that grew."""
    grown = [np.int64(0) for _ in range(0)]
    for p in _places(pairs, number):
        q = row.after[p]
        if row.symbols[p] != left or q < 0 or row.symbols[q] != right:
            continue
        a, z, weight = row.before[p], row.after[q], row.weight[p]
        if a >= 0:
            _take(pairs, row.symbols[a], left, weight)
            grown.append(_add(pairs, row.symbols[a], piece, weight, a))
        if z >= 0:
            _take(pairs, right, row.symbols[z], weight)
            grown.append(_add(pairs, piece, row.symbols[z], weight, p))
            row.before[z] = p
        row.symbols[p], row.symbols[q], row.after[p] = piece, -1, z
    pairs.count[number] = 0
    return grown


@njit(cache=True)
def _places(pairs: Any, number: int) -> Any:
    """Where a pair was seen, in order; forgotten afterwards."""
    found = [np.int64(0) for _ in range(0)]
    place = pairs.newest[number]
    while place >= 0:
        found.append(pairs.position[place])
        place = pairs.older[place]
    pairs.newest[number] = -1
    return np.sort(np.array(found))


@njit(cache=True)
def _pieces(bodies: Any, inner: Any) -> Any:
    pieces = Pieces(
        Dict.empty(types.uint64, types.int64),
        List.empty_list(types.uint64),
        List.empty_list(types.int64),
        List.empty_list(types.boolean),
    )
    for i in range(len(bodies)):
        pieces.known[_name(bodies[i], inner[i])] = i
        pieces.body.append(bodies[i])
        pieces.size.append(1)
        pieces.inner.append(inner[i])
    return pieces


@njit(cache=True)
def _name(body: Any, inner: bool) -> Any:
    return body ^ _INNER if inner else body


@njit(cache=True)
def _spell(pieces: Any, left: int, right: int) -> Any:
    """The id of `left` and `right` joined: a new one unless that spelling has one already."""
    body = pieces.body[left]
    for _ in range(pieces.size[right]):
        body *= _BASE
    body += pieces.body[right]
    name = _name(body, pieces.inner[left])
    if name not in pieces.known:
        pieces.known[name] = len(pieces.body)
        pieces.body.append(body)
        pieces.size.append(pieces.size[left] + pieces.size[right])
        pieces.inner.append(pieces.inner[left])
    return pieces.known[name]
