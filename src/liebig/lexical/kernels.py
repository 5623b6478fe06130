"""The compiled loops of BM25: counting postings, and scoring a query over one segment.

Lucene's formula in the precision of bm25s: a term's part is idf * tf / (tf + k1 * (1 - b + b * length / average)),
computed in float64, rounded to float32 and added in the order of the query's terms. So a score depends on the
document and on the totals of the collection, never on the segment: segmented = rebuilt to the last digit.

D documents, F fields, T tokens, P postings, V terms.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from liebig.data import heap

Int32s = NDArray[np.int32]
Longs = NDArray[np.int64]
Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
BLOCK = 256  # documents whose best score is looked at together


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
    """Documents and weighted term frequencies, term by term, documents rising; `starts_V` is used up."""
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
    """Tokens that are no stop words, of each run."""
    lengths = np.zeros(len(ends), np.int32)
    start = 0
    for run in range(len(ends)):
        for i in range(start, ends[run]):
            lengths[run] += tokens_T[i] >= 0
        start = ends[run]
    return lengths


@numba.njit(cache=True, nogil=True)
def search(
    terms: Longs, idf: Floats, ends: Longs, starts_V: Longs, docs_P: Int32s, tf_P: Floats, norm_D: Doubles,
    buffer_D: Floats, scores: Floats, numbers: Longs,
) -> None:  # fmt: skip
    """The best documents of each query: terms[ends[q-1]:ends[q]] are its terms here, -1 for one that is not here.

    `buffer_D` is zero before and after; `scores` and `numbers` (Q x k) are filled. A deleted document has an
    infinite norm and so a score of 0, and what scores 0 is not found.
    """
    start = 0
    for q in range(len(ends)):
        for i in range(start, ends[q]):
            if terms[i] >= 0:
                weight = np.float64(idf[i])
                for j in range(starts_V[terms[i]], starts_V[terms[i] + 1]):
                    tf = np.float64(tf_P[j])
                    buffer_D[docs_P[j]] += np.float32(weight * (tf / (norm_D[docs_P[j]] + tf)))
        start = ends[q]
        _take_best(buffer_D, scores[q], numbers[q])


@numba.njit(cache=True, nogil=True)
def _take_best(buffer_D: Floats, scores: Floats, numbers: Longs) -> None:
    """The best of a buffer, which is cleared on the way; a heap with the worst on top."""
    size, k = 0, len(scores)
    for start in range(0, len(buffer_D), BLOCK):
        block = buffer_D[start : start + BLOCK]
        best = heap.highest(block)
        if best <= 0:
            continue
        if size < k or best > scores[0]:
            for i in range(len(block)):
                if size < k:
                    if block[i] > 0:
                        heap.push(scores, numbers, size, block[i], start + i)
                        size += 1
                elif block[i] > scores[0]:
                    heap.replace(scores, numbers, size, block[i], start + i)
        block[:] = 0
    heap.sort(scores, numbers, size)
    scores[size:] = -np.inf
    numbers[size:] = -1


@numba.njit(cache=True, nogil=True)
def copy_postings(
    starts_V: Longs, docs_P: Int32s, tf_P: Floats, renumber_D: Longs, target_V: Longs, heads: Longs,
    out_docs: Int32s, out_tf: Floats,
) -> None:  # fmt: skip
    """Append a segment's postings of live documents behind `heads` of the terms they are there."""
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
    """Live documents of each term."""
    counts = np.zeros(len(starts_V) - 1, np.int64)
    for term in range(len(counts)):
        for j in range(starts_V[term], starts_V[term + 1]):
            counts[term] += renumber_D[docs_P[j]] >= 0
    return counts
