"""When nothing fits: a bound below which the answer of a system of vectors is left out.

Vectors always give something, so a question about anything gets ten hits. Its answer is left out where two things come
together: the best LOOKED_AT hits of BM25 have less than COVERED of the question's words (weighted by idf, so unknown
ones count most), and no vector is nearer to it than nonsense is to this corpus, that is, than the mean of the best
scores of NONSENSE plus DEVIATIONS standard deviations. The bound comes from the corpus and the model at hand: no
setting, and nothing stored. A question of stop words alone is not judged, nor one with filters or conditions.

Chosen on seven judged sets cut to 700 to 900 passages (experiments/floor.py): it left out none of 383 questions to
their own corpus, 77 % of 2,298 questions to another, and 98 % of 280 further strings; of the questions to
eight whole builds 61 of 8,381, 53 of them SQuAD's and six SciFact's. DEVIATIONS was chosen on these same questions, so
expect somewhat worse elsewhere. Below SMALL passages the rule was not measured.

Cost: the nonsense is embedded once per model, with the first question that BM25 does not cover, and searched once per
generation; from then on most questions are decided by the score that they have anyway.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

import numpy as np

from liebig.base.records import Query

if TYPE_CHECKING:
    from liebig.bm25.search import TermStatistics
    from liebig.search.systems import System

COVERED, LOOKED_AT, DEVIATIONS = 0.8, 10, 3.0
SMALL = 100  # passages below which one known word is enough: idf means little among so few
NONSENSE = (
    "qwxzjk", "vbpfgh", "zkqvtpw", "hgwqyx", "jkzzbtv", "xyqwfk", "pwvhtqz", "bfkjyxg", "tqzgwhv", "kxjvpyb",
    "lorvu snateb gipho", "mireda toskul befna", "wuldig parsen hotmu", "crenit yolba duske", "fivost ganule drepi",
    "shombi treluk vasnod", "keprul jadovi mustel", "binzor falet gruhm", "ostive naplur qeddo", "yurnak welop tisgra",
)  # fmt: skip
QUERIES = [Query(str(place), text) for place, text in enumerate(NONSENSE)]


class Floor:
    """The bound of one generation; `dense` is its system of vectors, with vectors of NONSENSE that may be kept."""

    def __init__(self, bm25: TermStatistics | None, dense: System) -> None:
        self._bm25, self._dense = bm25, dense
        self._bound: float | None = None
        self._lock = Lock()

    def fits(self, question: str, best: float) -> bool:
        """Whether a question fits the corpus; `best` is the score of the vector nearest to it."""
        if self._bound is not None and best >= self._bound:
            return True
        return self._covered(question) or best >= self.bound

    @property
    def bound(self) -> float:
        """The score that nonsense does not reach."""
        with self._lock:
            if self._bound is None:
                scores = [hits[0][1] for hits in self._dense.search(QUERIES, 1) if hits]
                self._bound = float(np.mean(scores) + DEVIATIONS * np.std(scores)) if scores else -np.inf
            return self._bound

    def _covered(self, question: str) -> bool:
        """Whether BM25's best passages together have enough of the question's words."""
        if self._bm25 is None:
            return False
        analyzer = self._bm25.settings.analyzer
        words = filter(None, map(analyzer.variants, analyzer.query_words(question)))
        weights = {terms: self._bm25.idf(*terms) for terms in dict.fromkeys(words)}
        if not weights:
            return True
        having = self._bm25.of_best(question, LOOKED_AT, weights)
        there = sum(weight for terms, weight in weights.items() if terms in having)
        enough = COVERED * sum(weights.values()) if len(self._bm25) >= SMALL else 0.0
        return there > 0 and there >= enough
