"""Does a query find its passage? By BM25, in the first of several indexes that has the passage."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from liebig.errors import DataError
from liebig.lexical.bm25 import BM25

NOWHERE = 0


class Finder:
    """BM25 indexes that are asked for the rank of a query's own passage."""

    def __init__(self, paths: Sequence[Path], threads: int = 1) -> None:
        self._indexes = [BM25.open(path) for path in paths]
        self._threads = threads

    def ranks(self, queries: Sequence[str], passages: Sequence[str], k: int) -> NDArray[np.int64]:
        """The rank of each query's passage, from 1; 0 where it is not among the first k."""
        found = np.full(len(queries), NOWHERE, np.int64)
        places = [self._place(passage) for passage in passages]
        for number, index in enumerate(self._indexes):
            mine = [i for i, place in enumerate(places) if place[0] == number]
            wanted = np.array([places[i][1] for i in mine], np.int64)
            hits = index.search([queries[i] for i in mine], k, self._threads).numbers
            if mine:
                match = hits == wanted[:, None]
                found[mine] = np.where(match.any(axis=1), match.argmax(axis=1) + 1, NOWHERE)
        return found

    def _place(self, passage: str) -> tuple[int, int]:
        for number, index in enumerate(self._indexes):
            inside = index.find(passage)
            if inside is not None:
                return number, inside
        raise DataError(
            f"the passage {passage!r} is in no BM25 index given",
            fix="index the collection that the queries were written for",
        )


def share(ranks: NDArray[np.int64], k: int) -> float:
    """The share of queries whose passage is among the first k."""
    return float(((ranks > NOWHERE) & (ranks <= k)).mean()) if len(ranks) else 0.0
