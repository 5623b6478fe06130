"""The best k of each query as two arrays, and how several such rankings become one.

Scores fall along a row; of equal scores the lower number comes first. Where a query has fewer than k, the rest of
its row holds number -1 and score minus infinity. Merging costs one sort of k entries per part and query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

NONE = -1


@dataclass(frozen=True, slots=True, eq=False)
class Ranked:
    """What was found: passages by their numbers."""

    scores: NDArray[np.float32]  # Q x k
    numbers: NDArray[np.int64]  # Q x k

    def __len__(self) -> int:
        return len(self.scores)

    def row(self, query: int) -> list[tuple[int, float]]:
        """Number and score of each passage found for one query."""
        numbers, scores = self.numbers[query], self.scores[query]
        found = int((numbers != NONE).sum())
        return list(zip(numbers[:found].tolist(), scores[:found].tolist()))

    @classmethod
    def nothing(cls, queries: int, k: int) -> Ranked:
        """Rows that hold nothing yet."""
        return cls(np.full((queries, k), -np.inf, np.float32), np.full((queries, k), NONE, np.int64))


def merge(parts: Sequence[Ranked], k: int) -> Ranked:
    """The k best of all parts, whose numbers do not overlap; rows always have k places."""
    if len(parts) == 1 and parts[0].scores.shape[1] == k:
        return parts[0]
    parts = [*parts, Ranked.nothing(len(parts[0]), k)]
    scores = np.concatenate([part.scores for part in parts], axis=1)
    numbers = np.concatenate([part.numbers for part in parts], axis=1)
    return best(scores, numbers, k)


def best(scores: NDArray[np.float32], numbers: NDArray[np.int64], k: int) -> Ranked:
    """The k best of at least k scores in any order."""
    order = np.lexsort((numbers, -scores), axis=1)[:, :k]
    return Ranked(np.take_along_axis(scores, order, 1), np.take_along_axis(numbers, order, 1))


def stack(parts: Sequence[Ranked]) -> Ranked:
    """The queries of all parts, one after the other."""
    return Ranked(
        np.concatenate([part.scores for part in parts]), np.concatenate([part.numbers for part in parts])
    )
