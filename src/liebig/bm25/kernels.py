"""The compiled loops of BM25: counting postings, and scoring queries over one segment.

Segments are scored window by window of passages, so that the sums stay in the processor's cache: at millions of
passages this is where the time goes. What a term adds is looked up, one number per posting or, where these would take
too much memory, one per frequency and passage length (a *table*): 1 and 2 ns per posting, and 13 if it is computed.

Lucene's formula in the precision of bm25s: a term adds idf * tf / (tf + k1 * (1 - b + b * length / average)),
computed in float64, rounded to float32 and added in the order of the query's terms. So a score depends on the
document and on the totals of the collection, never on the segment: an index of many segments gives the same scores, to
the last digit, as one that was built at once.

C distinct norms, D documents, F fields, T tokens, P postings, V terms, W documents of a window.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from liebig.base.compiled import njit
from liebig.vectors import ranked as heap

Int32s = NDArray[np.int32]
Longs = NDArray[np.int64]
Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Keys = NDArray[np.uint64]
Flags = NDArray[np.bool_]
Codes = NDArray[np.uint8] | NDArray[np.uint16]
LARGEST_BLOCK = 256  # documents of which first only the best score is compared
WINDOW = 1 << 16  # documents scored at once: 256 KB of sums
TABLE_ROWS = 8  # term frequencies in a table; higher ones are rare and computed
ZERO = np.int64(0)  # a kernel that is given a plain 0 is compiled for this number alone


@njit(cache=True, nogil=True)
def count_documents(tokens_T: Int32s, ends: Longs, fields: int, terms: int) -> Longs:
    """In how many documents each term occurs; `ends` are the ends of the runs, F for each document."""
    seen, counts = np.full(terms, -1, np.int64), np.zeros(terms, np.int64)
    start = 0
    for run in range(len(ends)):
        document = run // fields
        for i in range(start, ends[run]):
            term = tokens_T[i]
            if term >= 0 and seen[term] != document:
                seen[term] = document
                counts[term] += 1
        start = ends[run]
    return counts


@njit(cache=True, nogil=True)
def fill_postings(
    tokens_T: Int32s, ends: Longs, weights_F: Doubles, starts_V: Longs, docs_P: Int32s, tf_P: Floats
) -> None:
    """Documents and weighted term frequencies, term by term, documents ascending; `starts_V` is moved to the ends."""
    fields = len(weights_F)
    seen = np.full(len(starts_V), -1, np.int64)
    start = 0
    for run in range(len(ends)):
        document, weight = run // fields, weights_F[run % fields]
        for i in range(start, ends[run]):
            term = tokens_T[i]
            if term < 0:
                continue
            if seen[term] != document:
                seen[term] = document
                docs_P[starts_V[term]] = document
                tf_P[starts_V[term]] = 0
                starts_V[term] += 1
            tf_P[starts_V[term] - 1] += weight
        start = ends[run]


@njit(cache=True, nogil=True)
def count_terms(tokens_T: Int32s, ends: Longs) -> Int32s:
    """The number of tokens of each run that are not stop words."""
    lengths = np.zeros(len(ends), np.int32)
    start = 0
    for run in range(len(ends)):
        for i in range(start, ends[run]):
            lengths[run] += tokens_T[i] >= 0
        start = ends[run]
    return lengths


def added_scores(idf: float, norm: Doubles, tf: Floats | Doubles) -> Floats:
    """What a term adds to documents of these norms, in numpy."""
    frequencies = tf.astype(np.float64)
    return (np.float64(np.float32(idf)) * (frequencies / (norm + frequencies))).astype(np.float32)


def _score_term_numpy(idf: float, docs_P: Int32s, tf_P: Floats, norm_D: Doubles, scores_P: Floats) -> None:
    scores_P[:] = added_scores(idf, norm_D[docs_P], tf_P)


@njit(cache=True, nogil=True, numpy=_score_term_numpy)
def score_term(idf: float, docs_P: Int32s, tf_P: Floats, norm_D: Doubles, scores_P: Floats) -> None:
    """What a term adds to the score of each document in its postings."""
    weight = np.float64(np.float32(idf))
    for j in range(len(docs_P)):
        tf = np.float64(tf_P[j])
        scores_P[j] = np.float32(weight * (tf / (norm_D[docs_P[j]] + tf)))


def _fill_table_numpy(idf: float, norm_C: Doubles, table: Floats) -> None:
    rows = np.arange(1, TABLE_ROWS, dtype=np.float64)[:, None]
    table[: len(norm_C)] = 0
    table[len(norm_C) :] = added_scores(idf, norm_C, rows).reshape(-1)


@njit(cache=True, nogil=True, numpy=_fill_table_numpy)
def fill_table(idf: float, norm_C: Doubles, table: Floats) -> None:
    """What a term adds for each frequency below TABLE_ROWS and each norm."""
    weight = np.float64(np.float32(idf))
    for row in range(TABLE_ROWS):
        tf = np.float64(row)
        for column in range(len(norm_C)):
            table[row * len(norm_C) + column] = (
                np.float32(weight * (tf / (norm_C[column] + tf))) if row else 0
            )


def _search_numpy(
    terms: Longs, idf: Floats, cached: Longs, ends: Longs, starts_V: Longs, docs_P: Int32s, tf_P: Floats,
    norm_D: Doubles, codes_D: Codes, columns: int, live_D: Flags, term_scores: Floats, sums_W: Floats, bits_W: Int32s,
    scores: Floats, numbers: Longs,
) -> None:  # fmt: skip
    """`search` without numba; a document occurs once in a term's postings, so its sum is the same to the last digit."""
    sums_D = np.empty(max(1, len(norm_D)), np.float32)
    for q, (start, end) in enumerate(pairwise([0, *ends.tolist()])):
        sums_D[:] = 0
        for i in range(start, end):
            if terms[i] < 0:
                continue
            postings = slice(starts_V[terms[i]], starts_V[terms[i] + 1])
            docs = docs_P[postings]
            if cached[i] >= 0:
                sums_D[docs] += term_scores[cached[i] : cached[i] + len(docs)]
            else:  # tables hold the same numbers; they only spare a loop the division
                sums_D[docs] += added_scores(idf[i], norm_D[docs], tf_P[postings])
        if len(live_D):
            sums_D[~live_D] = 0
        k = min(scores.shape[1], len(sums_D))
        floor = np.partition(sums_D, -k)[-k]  # few documents reach it, so few keys are made
        hits = np.flatnonzero((sums_D >= floor) & (sums_D > 0))
        keys = heap.keep(heap.keys_of(sums_D[hits], hits), k)
        heap.unpack(keys, len(keys), scores[q], numbers[q])


@njit(cache=True, nogil=True, numpy=_search_numpy)
def search(
    terms: Longs, idf: Floats, cached: Longs, ends: Longs, starts_V: Longs, docs_P: Int32s, tf_P: Floats,
    norm_D: Doubles, codes_D: Codes, columns: int, live_D: Flags, term_scores: Floats, sums_W: Floats, bits_W: Int32s,
    scores: Floats, numbers: Longs,
) -> None:  # fmt: skip
    """The best documents of each query: terms[ends[q-1]:ends[q]] are its terms in this segment, -1 for an absent one.

    What a term adds is in `term_scores` from cached[i] on; it is computed if that is -1, and below it the term has a
    table from -2 - cached[i] on, with the columns that `codes_D` gives. Documents are scored a window at a time:
    `sums_W` is zero before and after, and `bits_W` are its bits. `scores` and `numbers` (Q x k) are filled. A deleted
    document has an infinite norm and so a score of 0, and documents that score 0 are not returned; nor are those that
    are not live (empty: all are).
    """
    start, k = 0, scores.shape[1]
    keys, heads = np.empty(k, np.uint64), np.empty(len(terms), np.int64)
    block = _block_size(len(sums_W), k)
    for i in range(len(terms)):
        heads[i] = starts_V[terms[i]] if terms[i] >= 0 else 0
    for q in range(len(ends)):
        size = ZERO
        for first in range(0, len(norm_D), len(sums_W)):
            last = min(first + len(sums_W), len(norm_D))
            for i in range(start, ends[q]):
                if terms[i] < 0:
                    continue
                begin, end = heads[i], starts_V[terms[i] + 1]
                heads[i] = end if last == len(norm_D) else _seek(docs_P, begin, end, last)
                _add_scores(
                    terms[i], idf[i], cached[i], begin, heads[i], first, starts_V, docs_P, tf_P, norm_D, codes_D,
                    columns, term_scores, sums_W,
                )  # fmt: skip
            for d in range(first, min(last, len(live_D))):
                if not live_D[d]:
                    sums_W[d - first] = 0
            size = _take_best(sums_W[: last - first], bits_W[: last - first], first, block, keys, size)
        heap.unpack(keys, size, scores[q], numbers[q])
        start = ends[q]


@njit(cache=True, nogil=True)
def _add_scores(
    term: int, idf: float, cached: int, begin: int, end: int, first: int, starts_V: Longs, docs_P: Int32s,
    tf_P: Floats, norm_D: Doubles, codes_D: Codes, columns: int, term_scores: Floats, sums_W: Floats,
) -> None:  # fmt: skip
    """Add what a term's postings from `begin` to `end` add to their documents, which are counted from `first`."""
    docs, tfs, weight = docs_P[begin:end], tf_P[begin:end], np.float64(idf)
    if cached >= 0:
        added = term_scores[cached + begin - starts_V[term] : cached + end - starts_V[term]]
        for j in range(len(docs)):  # unsigned numbers spare a check for places that count from the end
            sums_W[np.uint64(docs[j] - first)] += added[j]
    elif cached == -1:
        for j in range(len(docs)):
            tf = np.float64(tfs[j])
            sums_W[np.uint64(docs[j] - first)] += np.float32(weight * (tf / (norm_D[docs[j]] + tf)))
    else:
        table, codes_W = term_scores[-2 - cached :], codes_D[first : first + len(sums_W)]
        for j in range(len(docs)):
            d, row = np.uint64(docs[j] - first), np.uint64(tfs[j])
            if row < np.uint64(TABLE_ROWS) and tfs[j] == row:  # a weighted frequency need not be whole
                sums_W[d] += table[row * np.uint64(columns) + np.uint64(codes_W[d])]
            else:
                tf = np.float64(tfs[j])
                sums_W[d] += np.float32(weight * (tf / (norm_D[docs[j]] + tf)))


@njit(cache=True, nogil=True)
def _seek(docs_P: Int32s, place: int, end: int, document: int) -> int:
    """The first place from `place` on whose document is not below `document`: steps that double, then halves."""
    step, high = 1, place
    while high < end and docs_P[high] < document:
        place = high + 1
        high += step
        step *= 2
    high = min(high, end)
    while place < high:
        middle = (place + high) >> 1
        if docs_P[middle] < document:
            place = middle + 1
        else:
            high = middle
    return place


@njit(cache=True, nogil=True)
def _take_best(sums_W: Floats, bits_W: Int32s, first: int, block: int, keys: Keys, size: int) -> int:
    """Keep the k best documents in the heap, whose size is returned; the sums are cleared on the way.

    A floor spares most blocks the heap: the k-th best of all windows before or, in the first one, the k-th best of the
    blocks' best scores, which k documents reach and few others do.
    """
    k, floor = len(keys), np.float32(0)
    blocks = (len(sums_W) + block - 1) // block
    if size == k:
        floor = heap.score_of(keys[0])
    elif size == 0 and blocks > k:  # the heap finds the k-th best; np.partition would take seconds to compile
        for i in range(blocks):
            entry = heap.key(_highest(bits_W[i * block : (i + 1) * block]), i)
            if i < k:
                heap.push(keys, i, entry)
            elif entry > keys[0]:
                heap.replace(keys, k, entry)
        floor = heap.score_of(keys[0])
    for start in range(0, len(sums_W), block):
        end = min(start + block, len(sums_W))
        highest = _highest(bits_W[start:end])
        if highest <= 0:
            continue
        if highest >= floor:
            for d in range(start, end):
                if sums_W[d] >= floor and sums_W[d] > 0:
                    entry = heap.key(sums_W[d], first + d)
                    if size < k:
                        heap.push(keys, size, entry)
                        size += 1
                    elif entry > keys[0]:
                        heap.replace(keys, k, entry)
        sums_W[start:end] = 0
    return size


@njit(cache=True, nogil=True)
def _highest(bits: Int32s) -> np.float32:
    """The highest of some sums, given as their bits, which have the order of the sums: none is negative."""
    highest = np.int32(0)
    for i in range(len(bits)):
        highest = max(highest, bits[i])
    return np.int32(highest).view(np.float32)


@njit(cache=True, nogil=True)
def _block_size(documents: int, k: int) -> int:
    """Large enough to skip quickly, and small enough that there are more blocks than k, which the floor needs."""
    return max(8, min(LARGEST_BLOCK, documents // (2 * k)))


@njit(cache=True, nogil=True)
def copy_postings(
    starts_V: Longs, docs_P: Int32s, tf_P: Floats, renumber_D: Longs, target_V: Longs, heads: Longs,
    out_docs: Int32s, out_tf: Floats,
) -> None:  # fmt: skip
    """Append the postings of a segment's live documents at `heads`, the ends so far of the merged terms."""
    for term in range(len(starts_V) - 1):
        head = heads[target_V[term]]
        for j in range(starts_V[term], starts_V[term + 1]):
            number = renumber_D[docs_P[j]]
            if number >= 0:
                out_docs[head], out_tf[head] = number, tf_P[j]
                head += 1
        heads[target_V[term]] = head


@njit(cache=True, nogil=True)
def count_live(starts_V: Longs, docs_P: Int32s, renumber_D: Longs) -> Longs:
    """The number of live documents of each term."""
    counts = np.zeros(len(starts_V) - 1, np.int64)
    for term in range(len(counts)):
        for j in range(starts_V[term], starts_V[term + 1]):
            counts[term] += renumber_D[docs_P[j]] >= 0
    return counts
