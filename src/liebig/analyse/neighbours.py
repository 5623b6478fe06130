"""Neighbourhood recall between two retrievers (coCondenser, Eq. 17 and Fig. 3).

    nb-recall^n@k = |top k of the first ∩ top n of the second| / n

averaged over queries. With the retrievers of the first and the second training stage it says how well the first one
already found the negatives that the second one will meet. Cost: a set lookup for each of the n hits of a query.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Ranked = Mapping[str, Sequence[str]]


def nb_recall(first: Sequence[str], second: Sequence[str], n: int, ks: Sequence[int]) -> NDArray[np.float64]:
    """Of one query, for each k. A second retriever with fewer than n hits is still divided by n, as in the equation."""
    place = {passage: rank for rank, passage in enumerate(first, 1)}
    ranks = np.array([place.get(passage, len(first) + max(ks) + 1) for passage in second[:n]], dtype=np.int64)
    return np.array([np.sum(ranks <= k) / n for k in ks], dtype=np.float64)


def curve(first: Ranked, second: Ranked, n: int, ks: Sequence[int]) -> NDArray[np.float64]:
    """Queries × ks, over the queries that the second retriever has; one the first has not counts with 0."""
    return np.stack([nb_recall(first.get(query, ()), hits, n, ks) for query, hits in second.items()])
