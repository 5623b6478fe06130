"""Fusion: several rankings as one. Equal results keep the order of the first system."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from liebig.search.retriever_folder import Norm

Hits = list[tuple[str, float]]  # ids and scores of one query, best first
Fuse = Callable[[Sequence[Hits]], Hits]
SENTENCES = "sentences"  # the name of their part in a hybrid
FUSION_DEPTH = 100  # passages that each system of a hybrid is asked for at least
SENTENCE_SHARE = 0.25  # of the weight of vectors in a hybrid, that of sentences (chosen on three dev sets)
# What is asked for letter by letter: lru_cache, os.path, CreateFileW, --dry-run, a/b/c.txt, sha256, KB-4711, 4711234.
EXACT = re.compile(
    r"--[a-z][\w-]+|\w*[^\W_]_[^\W_]\w*|\w*[a-z][A-Z]\w*|(?=.*[A-Za-z])[\w@-]+(?:(?:\.|::|\\)[\w@-]{2,})+"
    r"|~?/[\w./-]{2,}|\w+/\w+[/.][\w/.-]+|\w*\d[A-Za-z]+\d\w*|(?=\w{4})[A-Za-z]+\d\w*|[A-Z]{2,}-\d+\w*|\d{5,}",
    re.ASCII,
)
QUOTING = ".,;:?!()[]{}\"'`"  # around a word, and no part of it
LONGEST_EXACT = 200  # characters
# The least weight of BM25 where all words of a question are such, and where some are (experiments/exact.py).
EXACT_ALONE, EXACT_AMONG = 0.7, 0.4
SPREAD_RANK, SPREAD_TIMES = 10, 1.85  # of the difference that `spread_at` measures (chosen on three dev sets)


def weighted(
    lists: Sequence[Hits],
    weights: Sequence[float],
    norm: Norm = "minmax",
    spreads: Sequence[float | None] | None = None,
) -> Hits:
    """The weighted sum of scores that were made comparable.

    `minmax` brings the scores of each list to [0, 1]. It makes a list whose hits are all alike count as much as one
    with a clear winner. `spread` does not: scores are counted from the lowest of the
    list, in units of `spreads`, which are the same for all queries (`spread_at`); a list without one, as that of BM25,
    is divided by its range. A passage that a system did not find gets that system's lowest score.
    """
    return Comparable.of(lists, norm, spreads).weighted(weights)


class Comparable(NamedTuple):
    """What several systems found for a question, with scores that were made comparable (`weighted` says how)."""

    ids: list[str]
    parts: list[
        NDArray[np.float64] | None
    ]  # scores by system, one per id; none of a system that found nothing

    @classmethod
    def of(
        cls, lists: Sequence[Hits], norm: Norm = "minmax", spreads: Sequence[float | None] | None = None
    ) -> Comparable:
        ids = list(dict.fromkeys([id for hits in lists for id, _ in hits]))
        places = dict(zip(ids, range(len(ids))))
        parts: list[NDArray[np.float64] | None] = []
        for hits, spread in zip(lists, spreads or [None] * len(lists)):
            if not hits:
                parts.append(None)
                continue
            scores, lowest = _normalised(np.array([score for _, score in hits], np.float64), norm, spread)
            part = np.full(len(ids), lowest)
            part[[places[id] for id, _ in hits]] = scores
            parts.append(part)
        return cls(ids, parts)

    def weighted(self, weights: Sequence[float], k: int | None = None) -> Hits:
        """The best k by the weighted sum."""
        totals = np.zeros(len(self.ids))
        for weight, part in zip(weights, self.parts):
            if part is not None:
                totals += weight * part
        best = np.argsort(-totals, kind="stable")[:k]
        return [(self.ids[place], total) for place, total in zip(best.tolist(), totals[best].tolist())]


def _normalised(
    values: NDArray[np.float64], norm: Norm, spread: float | None = None
) -> tuple[NDArray[np.float64], float]:
    """Scores made comparable, and the score of what was not found: never above what was."""
    if norm == "spread":
        # BM25 finds what has a word of the query: where that is less than was asked for, the others have 0.
        lowest = 0.0 if spread is None and len(values) < FUSION_DEPTH else values.min()
        unit = values.max() - lowest if spread is None else spread
        return (values - lowest) / unit if unit > 0 else np.zeros(len(values)), 0.0
    span = values.max() - values.min()
    return (values - values.min()) / span if span > 0 else np.ones(len(values)), 0.0


def spread_at(hits: Hits) -> float:
    """By how much the best hit stands out: what the unit of an encoder's scores is measured by, over many queries."""
    scores = [score for _, score in hits[:SPREAD_RANK]]
    return SPREAD_TIMES * (scores[0] - scores[-1]) if scores else 0.0


def weighted_by(weight: float, norm: Norm, sentences: float = 0.0, spread: float = 1.0) -> Fuse:
    """Weighted fusion of BM25 and vectors, which have the rest of the weight.

    With `sentences`, a share of that rest, there is a third one: the vectors of sentences. `spread` is the unit of the
    vectors' scores.
    """
    weights = shares_of(weight, sentences)
    return partial(weighted, weights=weights, norm=norm, spreads=(None, *(spread for _ in weights[1:])))


def exact_weight(question: str) -> float:
    """The least weight of BM25 for a question that names something letter by letter: a function, a file, an error.

    Vectors know little of such names. A question of nothing else asks for the passages that have them.
    """
    words = [word.strip(QUOTING) for word in question.split()]
    exact = [len(word) <= LONGEST_EXACT and EXACT.fullmatch(word) is not None for word in words]
    if not any(exact):
        return 0.0
    return EXACT_ALONE if all(exact) else EXACT_AMONG


def shares_of(weight: float, sentences: float = 0.0) -> tuple[float, ...]:
    """The weights of BM25, of vectors and, where they have a share, of their sentences."""
    rest = 1 - weight
    return (weight, rest * (1 - sentences), rest * sentences) if sentences else (weight, rest)
