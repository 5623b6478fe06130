"""Views of a document as index arithmetic: two spans, two crops, a sentence and what is around it.

Every function takes arrays of examples and one uint64 key for each, and returns token positions `[example,
view, (start, end)]`: no token is touched before `gather` copies the spans that were drawn. A draw depends on
its key alone, so a batch is a pure function of the step, in any process. Cost: under a microsecond an example
plus 3 ns a sentence; drawn and gathered, over 40 M tokens/s and core.

- two spans of a document: coCondenser (3.2), CoT-MAE's contexts (nearby, overlapping, random in a window)
- two independent crops: Contriever (3.1.2)
- inverse cloze: Lee et al. (2019), Contriever (3.1.2)
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numba import njit
from numpy.typing import NDArray

from liebig.base.rng import below, mix, uniform
from liebig.ragged import read_only
from liebig.text.passages import most_units, units_of

Kind = Literal["random", "nearby", "overlap", "window", "mixed"]
Positions = NDArray[np.int64]
_KINDS = {"random": 0, "nearby": 1, "overlap": 2, "window": 3, "mixed": 4}
_RANDOM, _NEARBY, _OVERLAP, _WINDOW, _MIXED = range(5)
_SWAP, _KIND, _LENGTH, _PLACE, _OTHER, _SHARE = range(6)  # the numbered draws of a key


def two_sentence_spans(
    sentences: NDArray[Any],
    first: NDArray[Any],
    last: NDArray[Any],
    keys: NDArray[np.uint64],
    longest: int,
    kind: Kind = "random",
    short: float = 0.0,
    window: int = 100,
) -> Positions:
    """Two spans of whole sentences of each document: document i is the sentences first[i] … last[i]-1.

    The document is packed into spans of at most `longest` tokens (each with probability `short` a smaller limit
    of its own), and two are chosen. `random`: any two. `nearby`: neighbours. `window`: at most `window` spans apart.
    `overlap`: the second begins with the last sentences of the first, at most half of them and fewer where the next
    sentence would not fit, and goes on; after the last span there is nothing, so there it ends with its first
    sentences. `mixed`: one of the last three, CoT-MAE's contexts. A document of one span is halved.
    """
    assert (sentences[last] - sentences[first] >= 2).all(), "two spans need two tokens"
    sentences = read_only(np.asarray(sentences))
    spans = np.empty((len(keys), 2, 2), dtype=np.int64)
    size = most_units(sentences, first, last, longest) + 1
    _two_sentence_spans(sentences, first, last, keys, longest, _KINDS[kind], short, window, size, spans)
    return spans


def two_crops(
    starts: NDArray[Any], ends: NDArray[Any], keys: NDArray[np.uint64], low: float, high: float
) -> Positions:
    """Contriever's crops: twice, independently, a ratio ~ U(low, high), max(1, int(n · ratio)) tokens, anywhere."""
    assert 0 <= low <= high <= 1, "ratios are shares of the document"
    assert (ends > starts).all(), "a document is empty"
    n = np.asarray(ends - starts, dtype=np.int64)[:, None]
    views = np.arange(2)[None, :]
    ratio = low + (high - low) * uniform(keys[:, None], 2 * views)
    length = np.maximum(1, (n * ratio).astype(np.int64))
    start = np.asarray(starts)[:, None] + below(keys[:, None], 2 * views + 1, n - length + 1)
    return np.stack((start, start + length), axis=2)


def cloze_span(
    starts: NDArray[Any],
    ends: NDArray[Any],
    keys: NDArray[np.uint64],
    low: float,
    high: float,
    keep: float = 0.1,
    longest: int = 512,
) -> Positions:
    """Inverse cloze with a span as the query: of a ratio ~ U(low, high), at most all tokens but one.

    `[example, (query, left, right), (start, end)]`: the passage is left and right one after the other, the tokens
    around the query, at most `longest`. With probability `keep` the query stays in it (then right is empty).
    """
    assert (ends - starts >= 2).all(), "a query and a rest need two tokens"
    n = np.asarray(ends - starts, dtype=np.int64)
    ratio = low + (high - low) * uniform(keys, _LENGTH)
    length = np.clip((n * ratio).astype(np.int64), 1, np.minimum(n - 1, longest))
    query = starts + below(keys, _PLACE, n - length + 1)
    return _around(np.asarray(starts), np.asarray(ends), query, query + length, keys, keep, longest)


def cloze_sentence(
    sentences: NDArray[Any],
    first: NDArray[Any],
    last: NDArray[Any],
    keys: NDArray[np.uint64],
    keep: float = 0.1,
    longest: int = 512,
) -> Positions:
    """Inverse cloze with a sentence as the query (Lee et al., 2019); the form of `cloze_span`.

    Sentences hold at least one token. A query is cut at `longest` tokens. Where it is the whole document there is
    no rest, so it stays.
    """
    assert (sentences[last] > sentences[first]).all(), "a document is empty"
    chosen = first + below(keys, _PLACE, last - first)
    begin, end = np.asarray(sentences[chosen]), np.asarray(sentences[chosen + 1])
    end = np.minimum(end, begin + longest)
    starts, ends = np.asarray(sentences[first]), np.asarray(sentences[last])
    keeps = np.where((begin == starts) & (end == ends), 1.0, keep)
    return _around(starts, ends, begin, end, keys, keeps, longest)


def truncate(
    starts: NDArray[Any], ends: NDArray[Any], keys: NDArray[np.uint64], longest: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """At most `longest` tokens of a span: a random part of the excess goes on the left, the rest on the right."""
    excess = np.maximum(ends - starts - longest, 0)
    left = starts + below(keys, 0, excess + 1)
    return left, np.minimum(left + longest, ends)


def _around(
    starts: NDArray[Any],
    ends: NDArray[Any],
    query: NDArray[Any],
    query_end: NDArray[Any],
    keys: NDArray[np.uint64],
    keep: Any,
    longest: int,
) -> Positions:
    """The query and up to `longest` tokens on both sides of it, the share of each side drawn where it matters."""
    kept = uniform(keys, _SHARE) < keep
    room = np.maximum(longest - np.where(kept, query_end - query, 0), 0)
    left, right = query - starts, ends - query_end
    least, most = np.maximum(0, room - right), np.minimum(left, room)
    take = np.where(least < most, least + below(keys, _OTHER, np.maximum(most - least, 0) + 1), most)
    end = query_end + np.minimum(right, room - take)
    pieces = np.empty((len(keys), 3, 2), dtype=np.int64)
    pieces[:, 0] = np.stack((query, query_end), axis=1)
    pieces[:, 1] = np.stack((query - take, np.where(kept, end, query)), axis=1)
    pieces[:, 2] = np.stack((np.where(kept, end, query_end), end), axis=1)
    return pieces


@njit(nogil=True, cache=True)
def _how(key: Any, kind: int) -> int:
    return _NEARBY + below(key, _KIND, 3) if kind == _MIXED else kind


@njit(nogil=True, cache=True)
def _length(key: Any, i: int, longest: int, short: float) -> int:
    """`longest`, or with probability `short` anything from 1 to longest."""
    if uniform(key, 2 * i) < short:
        return 1 + below(key, 2 * i + 1, longest)
    return longest


@njit(nogil=True, cache=True)
def _two_sentence_spans(
    sentences: Any,
    first: Any,
    last: Any,
    keys: Any,
    longest: int,
    kind: int,
    short: float,
    window: int,
    size: int,
    spans: Any,
) -> None:
    units, cuts = np.empty(size, np.int64), np.empty(size, np.int64)
    for i in range(len(keys)):
        n = units_of(sentences, first[i], last[i], longest, units)
        k = _cut(mix(keys[i], _LENGTH), units, n, longest, short, cuts)
        one, two = spans[i, 0], spans[i, 1]
        if k == 1:
            _halve(units, n, one, two)
            if below(keys[i], _SWAP, 2):
                one[0], one[1], two[0], two[1] = two[0], two[1], one[0], one[1]
            continue
        how = _how(keys[i], kind)
        a = below(keys[i], _PLACE, k)
        one[0], one[1] = units[cuts[a]], units[cuts[a + 1]]
        if how == _OVERLAP:
            two[0], two[1] = _sharing(keys[i], units, n, cuts[a], cuts[a + 1], longest)
        else:
            b = _another(keys[i], a, k, 1 if how == _NEARBY else (window if how == _WINDOW else k))
            two[0], two[1] = units[cuts[b]], units[cuts[b + 1]]


@njit(nogil=True, cache=True)
def _cut(key: Any, units: Any, n: int, longest: int, short: float, cuts: Any) -> int:
    """Units packed into spans, each under its own limit; span k is units cuts[k] … cuts[k+1]. Returns how many."""
    k, i = 0, 0
    cuts[0] = 0
    while i < n:
        limit = _length(key, k, longest, short)
        j = i + 1
        while j < n and units[j + 1] - units[i] <= limit:
            j += 1
        k += 1
        cuts[k] = j
        i = j
    return k


@njit(nogil=True, cache=True)
def _halve(units: Any, n: int, one: Any, two: Any) -> None:
    """A document of one span: parted between two sentences, near the middle, or inside its only sentence."""
    start, end = units[0], units[n]
    middle = (start + end) // 2
    best = middle
    if n > 1:
        best = units[1]
        for u in range(2, n):
            if abs(units[u] - middle) < abs(best - middle):
                best = units[u]
    one[0], one[1], two[0], two[1] = start, best, best, end


@njit(nogil=True, cache=True)
def _another(key: Any, a: int, k: int, reach: int) -> int:
    """An index other than a, at most `reach` away, each as likely."""
    low, high = max(0, a - reach), min(k - 1, a + reach)
    b = low + below(key, _OTHER, high - low)
    return b + 1 if b >= a else b


@njit(nogil=True, cache=True)
def _sharing(key: Any, units: Any, n: int, first: int, last: int, longest: int) -> Any:
    """A span that shares up to half of the units first … last-1 and goes on after them, or before the last ones."""
    half = (last - first) // 2
    shared = 1 + below(key, _SHARE, half) if half > 0 else 0
    if last < n:
        i = last - shared
        while i < last and units[last + 1] - units[i] > longest:
            i += 1  # share less, so that there is room for a unit of its own
        j = last
        while j < n and units[j + 1] - units[i] <= longest:
            j += 1
        return units[i], units[j]
    j = first + shared
    while j > first and units[j] - units[first - 1] > longest:
        j -= 1
    i = first
    while i > 0 and units[j] - units[i - 1] <= longest:
        i -= 1
    return units[i], units[j]
