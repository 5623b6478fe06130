"""BM25 at millions of passages against bm25s with numba: queries per second of one core, in one run.

    python bench/bm25_large.py --data DATA [--passages 8800000]

Passages are drawn from the wiki text's own distribution: each takes the length of a real passage, and its terms, with
repetition, from that passage and the two after it. So terms are as frequent, and as bursty, as in the text. They are
drawn as numbers of terms, without text, and postings are counted as an index counts them. Both sides get the same
postings (bm25s with the scores that its own indexing would give) and the questions of NQ as text; top 100, one thread.
Memory: about 10 bytes per posting, 4 GB for 8.8 million passages.

The sides take turns, and the lowest CPU time of each question counts, because other work on the machine only ever adds
time. Our first pass has empty caches and is shown beside it. All scores are compared with bm25s's.
The last line is `ratio: X`, our queries per second over those of bm25s.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import bm25s
import numba
import numpy as np
import Stemmer

from bm25 import K, cut, lines
from liebig.bm25 import kernels
from liebig.bm25.analysis import Analyzer, Vocabulary
from liebig.bm25.index import Segment
from liebig.bm25.kernels import Floats, Int32s, Longs
from liebig.bm25.search import BM25, BM25Settings
from liebig.collection.lookup import write_strings

NEIGHBOURS = 3  # real passages that a drawn one takes its terms from


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with wiki and nq")
    parser.add_argument("--passages", type=int, default=8_800_000)
    parser.add_argument("--real", type=int, default=100_000, help="wiki passages to draw from")
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        segment = draw_segment(args.data / "wiki", args.real, args.passages, Path(folder))
        print(f"{len(segment):,} passages, {len(segment.docs):,} postings, {len(segment.terms):,} terms")
        rows = lines(args.data / "nq" / "test.jsonl.xz")
        print(
            f"ratio: {compare(segment, [row['text'] for row in islice(rows, args.questions)], args.rounds):.2f}"
        )


def compare(segment: Segment, questions: list[str], rounds: int) -> float:
    index = BM25(BM25Settings(), [segment])
    peer = Peer(index, segment)
    sides: dict[str, Callable[[str], Any]] = {
        "ours": lambda question: index.search([question], K),
        "bm25s": peer.search,
    }
    for side in sides.values():
        side("compile this")
    seconds = {name: np.full((rounds + 1, len(questions)), np.inf) for name in sides}
    for turn in range(rounds + 1):
        for place, question in enumerate(questions):
            answers = {}
            for name, side in sides.items():
                start = time.process_time()
                answers[name] = side(question)
                seconds[name][turn, place] = time.process_time() - start
            ours, theirs = answers["ours"].scores, answers["bm25s"].scores
            assert np.array_equal(np.maximum(ours, 0), theirs), f"other scores than bm25s: {question}"
    best = {name: row[1:].min(0) for name, row in seconds.items()}
    for name, row in best.items():
        print(
            f"{name:6} {1 / row.mean():7.1f} queries/s of one core   mean {1e3 * row.mean():7.2f} ms   median "
            f"{1e3 * np.median(row):7.2f}   95 % below {1e3 * np.quantile(row, 0.95):7.2f}   "
            f"first pass {1e3 * seconds[name][0].mean():7.2f}"
        )
    print(f"top {K} of {len(questions)} questions: the same scores as bm25s in all {rounds + 1} passes")
    print(
        f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f} GiB, both sides together"
    )
    return float(best["bm25s"].mean() / best["ours"].mean())


class Peer:
    """bm25s with its numba backend, with scores written as its indexing would: Lucene's formula in float32."""

    def __init__(self, index: BM25, segment: Segment) -> None:
        scores = np.empty(len(segment.docs), np.float32)
        score_postings(segment.starts, segment.docs, segment.tf, index._norms[0].values, scores)
        self._model = bm25s.BM25(k1=index.settings.k1, b=index.settings.b, method="lucene", backend="numba")
        self._model.scores = {
            "data": scores, "indices": segment.docs, "indptr": segment.starts, "num_docs": len(segment)
        }  # fmt: skip
        self._model.nonoccurrence_array = None
        self._model.vocab_dict = segment.terms
        self._model.unique_token_ids_set = set(segment.terms.values())
        self._stemmer = Stemmer.Stemmer("english")

    def search(self, question: str) -> Any:
        tokens = bm25s.tokenize(
            [question], stopwords="en", stemmer=self._stemmer, show_progress=False, return_ids=False
        )
        return self._model.retrieve(tokens, k=K, show_progress=False, backend_selection="numba")


@numba.njit
def score_postings(starts: Longs, docs: Int32s, tf: Any, norms: Any, scores: Floats) -> None:
    for term in range(len(starts) - 1):
        first, end = starts[term], starts[term + 1]
        idf = np.log(1 + (len(norms) - (end - first) + 0.5) / (end - first + 0.5))
        kernels.score_term(idf, docs[first:end], tf[first:end], norms, scores[first:end])


def draw_segment(wiki: Path, real: int, passages: int, folder: Path) -> Segment:
    terms: dict[str, int] = {}
    vocabulary = Vocabulary(Analyzer(), terms)
    rows = [
        np.fromiter(vocabulary.numbers(f"{passage.title} {passage.text}"), np.int32)
        for passage in islice(cut(wiki), real)
    ]
    rows = [row[row >= 0] for row in rows]
    tokens, ends = np.concatenate(rows), np.cumsum([len(row) for row in rows])
    lengths, counts = count(tokens, ends, passages, len(terms))
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    docs, tf = np.empty(starts[-1], np.int32), np.empty(starts[-1], np.uint8)
    fill(tokens, ends, starts[:-1].copy(), lengths, docs, tf)
    write_strings(folder, "terms", iter(terms))
    fields = np.zeros((passages, 3), np.int32)
    fields[:, 1] = lengths
    # nothing asks for ids, and those of millions of passages would take most of the time
    return Segment(folder, starts, docs, tf, fields, None, None, None, np.zeros(0, np.int64))  # type: ignore[arg-type]


@numba.njit
def count(tokens: Int32s, ends: Longs, passages: int, terms: int) -> tuple[Int32s, Longs]:
    """The length of each drawn passage, and how many passages have each term."""
    np.random.seed(0)
    seen, counts, lengths = np.full(terms, -1), np.zeros(terms, np.int64), np.zeros(passages, np.int32)
    for number in range(passages):
        first, width, length = draw(ends)
        lengths[number] = length
        for _ in range(length):
            term = tokens[first + np.random.randint(0, width)]
            if seen[term] != number:
                seen[term] = number
                counts[term] += 1
    return lengths, counts


@numba.njit
def fill(tokens: Int32s, ends: Longs, heads: Longs, lengths: Int32s, docs: Int32s, tf: Any) -> None:
    """The same passages once more, now as postings."""
    np.random.seed(0)
    seen = np.full(len(heads), -1)
    for number in range(len(lengths)):
        first, width, length = draw(ends)
        for _ in range(length):
            term = tokens[first + np.random.randint(0, width)]
            if seen[term] != number:
                seen[term] = number
                docs[heads[term]], tf[heads[term]] = number, 0
                heads[term] += 1
            tf[heads[term] - 1] += 1


@numba.njit
def draw(ends: Longs) -> tuple[int, int, int]:
    """Where the terms of the next passage are taken from, and how many."""
    real = np.random.randint(0, len(ends))
    first = ends[real - 1] if real else 0
    return first, ends[min(real + NEIGHBOURS, len(ends)) - 1] - first, ends[real] - first


if __name__ == "__main__":
    main()
