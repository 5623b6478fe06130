"""How good generated queries are: cleaned of repetitions, whether BM25 finds their passage, and ROUGE-L."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from liebig.base.errors import DataError
from liebig.bm25.search import BM25

NOWHERE = 0


class Finder:
    """BM25 indexes that find the rank of a query's own passage."""

    def __init__(self, paths: Sequence[Path], threads: int = 1) -> None:
        self._indexes = [BM25.open(path) for path in paths]
        self._threads = threads

    def ranks(self, queries: Sequence[str], passages: Sequence[str], k: int) -> NDArray[np.int64]:
        """The rank of each query's passage, from 1; 0 where it is not among the first k."""
        ranks = np.full(len(queries), NOWHERE, np.int64)
        places = [self._place(passage) for passage in passages]
        for number, index in enumerate(self._indexes):
            mine = [i for i, place in enumerate(places) if place[0] == number]
            targets = np.array([places[i][1] for i in mine], np.int64)
            hits = index.search([queries[i] for i in mine], k, self._threads).numbers
            if mine:
                match = hits == targets[:, None]
                ranks[mine] = np.where(match.any(axis=1), match.argmax(axis=1) + 1, NOWHERE)
        return ranks

    def _place(self, passage: str) -> tuple[int, int]:
        for number, index in enumerate(self._indexes):
            inside = index.find(passage)
            if inside is not None:
                return number, inside
        raise DataError(
            f"no given BM25 index contains the passage {passage!r}",
            fix="index the collection that the queries were written for",
        )


def share(ranks: NDArray[np.int64], k: int) -> float:
    """The share of queries whose passage is among the first k."""
    return float(((ranks > NOWHERE) & (ranks <= k)).mean()) if len(ranks) else 0.0


WORD = re.compile(r"\w+")


def words(text: str) -> list[str]:
    return WORD.findall(text.lower())


def rouge_l(candidate: str, references: Sequence[str]) -> float:
    """ROUGE-L (Lin, 2004): F1 of the longest common subsequence of words, with the reference that fits best."""
    return max((_f1(words(candidate), words(reference)) for reference in references), default=0.0)


def _f1(a: Sequence[str], b: Sequence[str]) -> float:
    common = _common(a, b)
    return 2 * common / (len(a) + len(b)) if common else 0.0


def _common(a: Sequence[str], b: Sequence[str]) -> int:
    row = [0] * (len(b) + 1)
    for one in a:
        last = 0
        for j, other in enumerate(b, 1):
            last, row[j] = row[j], last + 1 if one == other else max(row[j], row[j - 1])
    return row[-1]


def clean(queries: Sequence[str], counts: Counter[str]) -> list[str]:
    """The queries that hold a word, each once; case and punctuation do not count."""
    kept: dict[tuple[str, ...], str] = {}
    for query in queries:
        text = " ".join(query.split())
        alike = tuple(words(text))
        if not alike:
            counts["empty"] += 1
        elif alike in kept:
            counts["duplicates"] += 1
        else:
            kept[alike] = text
    counts["queries"] += len(kept)
    return list(kept.values())
