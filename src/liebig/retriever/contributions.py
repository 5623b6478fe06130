"""Why a passage matched: what its score loses when a word of it is left out.

Dense: the passage is encoded once for each word left out, so a word counts with all it does to its neighbours. BM25:
the formula with the word's count and the length one lower. Words beyond the model's length have no part. Cost, dense:
one batch of as many texts as the passage has words; past MOST words neighbours are left out together.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from liebig.lexical.bm25 import BM25
from liebig.records import Passage
from liebig.search.snippets import WORD

Contribution = tuple[int, int, float]  # of the passage's text: start, end, what it adds to the score
MOST = 256
Score = Callable[[Sequence[Passage]], Sequence[float]]


def leave_one_out(passage: Passage, score: Score) -> list[Contribution]:
    """What each word of a passage adds to its score."""
    spans = word_spans(passage.text)
    text = passage.text
    left = [Passage(passage.id, text[:a] + text[b:], passage.title) for a, b in spans]
    whole, *parts = score([passage, *left])
    return [(a, b, float(whole - part)) for (a, b), part in zip(spans, parts)]


def word_spans(text: str) -> list[tuple[int, int]]:
    """Where words begin and end; neighbours together where there are more than MOST."""
    spans = [(m.start(), m.end()) for m in WORD.finditer(text) if m.group()[0].isalnum()]
    size = math.ceil(len(spans) / MOST) or 1
    groups = [spans[i : i + size] for i in range(0, len(spans), size)]
    return [(group[0][0], group[-1][1]) for group in groups]


def dense_score(encode: Callable[[Sequence[Passage]], np.ndarray], query: np.ndarray) -> Score:
    """Scores of passages by their vectors, made as those of the index are."""

    def score(passages: Sequence[Passage]) -> list[float]:
        return (encode(passages).astype(np.float64) @ query.astype(np.float64)).tolist()

    return score


def bm25_score(index: BM25, query: str) -> Score:
    """Scores of passages by BM25, as if each stood in the index in its own place."""
    settings, analyzer = index.settings, index.settings.analyzer
    wanted = analyzer.terms(query)
    idf = {term: _idf(index, term) for term in wanted}
    fields = np.sum([segment.totals for segment in index.segments], axis=0) * settings.weights
    average = float(fields.sum()) / max(len(index), 1) or 1.0

    def one(passage: Passage) -> float:
        counts: Counter[str] = Counter()
        for text, weight in ((passage.title, settings.title_weight), (passage.text, settings.body_weight)):
            for term in analyzer.terms(text):
                counts[term] += weight  # type: ignore[assignment]  # weights are no whole numbers
        norm = settings.k1 * (1 - settings.b + settings.b * sum(counts.values()) / average)
        return sum(idf[term] * counts[term] / (counts[term] + norm) for term in wanted if counts[term])

    return lambda passages: [one(passage) for passage in passages]


def _idf(index: BM25, term: str) -> float:
    found = [(segment, segment.terms.get(term)) for segment in index.segments]
    count = sum(segment.frequency(number) for segment, number in found if number is not None)
    return math.log(1 + (len(index) - count + 0.5) / (count + 0.5)) if count else 0.0
