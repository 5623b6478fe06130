"""The compiled loops of BM25: counting postings, and scoring queries over one segment.

Lucene's formula in the precision of bm25s: a term adds idf * tf / (tf + k1 * (1 - b + b * length / average)),
computed in float64, rounded to float32 and added in the order of the query's terms. So a score depends on the
document and on the totals of the collection, never on the segment: an index of many segments gives the same scores, to
the last digit, as one that was built at once.

D documents, F fields, T tokens, P postings, V terms.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from liebig.vectors import ranked as heap

Int32s = NDArray[np.int32]
Longs = NDArray[np.int64]
Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Keys = NDArray[np.uint64]
Flags = NDArray[np.bool_]
LARGEST_BLOCK = 512  # documents of which first only the best score is compared


@numba.njit(cache=True, nogil=True)
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


@numba.njit(cache=True, nogil=True)
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


@numba.njit(cache=True, nogil=True)
def count_terms(tokens_T: Int32s, ends: Longs) -> Int32s:
    """The number of tokens of each run that are not stop words."""
    lengths = np.zeros(len(ends), np.int32)
    start = 0
    for run in range(len(ends)):
        for i in range(start, ends[run]):
            lengths[run] += tokens_T[i] >= 0
        start = ends[run]
    return lengths


@numba.njit(cache=True, nogil=True)
def score_term(idf: float, docs_P: Int32s, tf_P: Floats, norm_D: Doubles, scores_P: Floats) -> None:
    """What a term adds to the score of each document in its postings."""
    weight = np.float64(np.float32(idf))
    for j in range(len(docs_P)):
        tf = np.float64(tf_P[j])
        scores_P[j] = np.float32(weight * (tf / (norm_D[docs_P[j]] + tf)))


@numba.njit(cache=True, nogil=True)
def search(
    terms: Longs, idf: Floats, cached: Longs, ends: Longs, starts_V: Longs, docs_P: Int32s, tf_P: Floats,
    norm_D: Doubles, live_D: Flags, term_scores: Floats, buffer_D: Floats, bits_D: Int32s, scores: Floats,
    numbers: Longs,
) -> None:  # fmt: skip
    """The best documents of each query: terms[ends[q-1]:ends[q]] are its terms in this segment, -1 for an absent one.

    What a term adds is in `term_scores` from cached[i] on, or computed if that is -1. `buffer_D` is zero before and
    after, and `bits_D` are its bits; `scores` and `numbers` (Q x k) are filled. A deleted document has an infinite norm
    and so a score of 0, and documents that score 0 are not returned; nor are those that are not live (empty: all are).
    """
    start = 0
    keys = np.empty(scores.shape[1], np.uint64)
    block = _block_size(len(buffer_D), scores.shape[1])
    best = np.empty((len(buffer_D) + block - 1) // block, np.float32)
    for q in range(len(ends)):
        for i in range(start, ends[q]):
            if terms[i] < 0:
                continue
            docs = docs_P[starts_V[terms[i]] : starts_V[terms[i] + 1]]
            if cached[i] >= 0:
                added = term_scores[cached[i] : cached[i] + len(docs)]
                for j in range(len(docs)):
                    buffer_D[docs[j]] += added[j]
            else:
                weight, tfs = np.float64(idf[i]), tf_P[starts_V[terms[i]] : starts_V[terms[i] + 1]]
                for j in range(len(docs)):
                    tf = np.float64(tfs[j])
                    buffer_D[docs[j]] += np.float32(weight * (tf / (norm_D[docs[j]] + tf)))
        start = ends[q]
        for d in range(len(live_D)):
            if not live_D[d]:
                buffer_D[d] = 0
        _take_best(buffer_D, bits_D, block, best, keys, scores[q], numbers[q])


@numba.njit(cache=True, nogil=True)
def _take_best(
    buffer_D: Floats, bits_D: Int32s, block: int, best: Floats, keys: Keys, scores: Floats, numbers: Longs
) -> None:
    """The k best documents of a buffer, which is cleared on the way.

    The k-th best of the blocks' best scores is a floor: k documents reach it, and few others do, so that most blocks
    need no heap.
    """
    size, k, floor = 0, len(scores), np.float32(0)
    for i in range(len(best)):
        best[i] = heap.highest(bits_D[i * block : (i + 1) * block])
    if len(best) > k:  # the heap finds the k-th best; np.partition would take seconds to compile
        for i in range(len(best)):
            entry = heap.key(best[i], i)
            if i < k:
                heap.push(keys, i, entry)
            elif entry > keys[0]:
                heap.replace(keys, k, entry)
        floor = heap.score_of(keys[0])
    for i in range(len(best)):
        if best[i] <= 0:
            continue
        for d in range(i * block, min((i + 1) * block, len(buffer_D))):
            if best[i] >= floor and buffer_D[d] >= floor and buffer_D[d] > 0:
                entry = heap.key(buffer_D[d], d)
                if size < k:
                    heap.push(keys, size, entry)
                    size += 1
                elif entry > keys[0]:
                    heap.replace(keys, k, entry)
        buffer_D[i * block : (i + 1) * block] = 0
    heap.unpack(keys, size, scores, numbers)


@numba.njit(cache=True, nogil=True)
def _block_size(documents: int, k: int) -> int:
    """Large enough to skip quickly, and small enough that there are more blocks than k, which the floor needs."""
    return max(8, min(LARGEST_BLOCK, documents // (2 * k)))


@numba.njit(cache=True, nogil=True)
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


@numba.njit(cache=True, nogil=True)
def count_live(starts_V: Longs, docs_P: Int32s, renumber_D: Longs) -> Longs:
    """The number of live documents of each term."""
    counts = np.zeros(len(starts_V) - 1, np.int64)
    for term in range(len(counts)):
        for j in range(starts_V[term], starts_V[term + 1]):
            counts[term] += renumber_D[docs_P[j]] >= 0
    return counts
