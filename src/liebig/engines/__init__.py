"""Search engines that exist, holding a whole retriever: passages, metadata, vectors, and BM25 as sparse vectors.

A back end is one file with a subclass of `SearchEngine`, and one line in `BUILT_IN`. What is written to it is said by
`builder/push.py`, what is asked of it by `search/engine_generation.py`; an engine knows tables of rows and nothing
else. BM25 becomes an inner product: a passage's vector has, for each of its terms, tf / (tf + norm), a question's has
the idf of each of its terms, so the engine's scores are those of the folder up to rounding.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from liebig.base import machine
from liebig.base.errors import RecipeError, ResourceError
from liebig.base.own_sources import is_noted

BUILT_IN = {"milvus": "liebig.engines.milvus:Milvus", "opensearch": "liebig.engines.opensearch:OpenSearch"}

Operator = Literal["in", ">", ">=", "<", "<="]
TermWeights = Mapping[int, float]  # a sparse vector: term numbers with their weights
EngineHits = list[tuple[str, float]]  # ids of rows with scores, best first


@dataclass(frozen=True)
class TableShape:
    """The columns of a table: the width of its vectors (None: it has none), and whether it has terms and texts."""

    name: str
    width: int | None
    terms: bool
    texts: bool


@dataclass(frozen=True)
class EngineText:
    """What is shown of a passage."""

    passage: str
    title: str
    text: str
    doc: str
    language: str
    metadata: Mapping[str, str]


@dataclass(frozen=True)
class EngineRow:
    """A passage, or the vector of one of its pieces or sentences, with what filters look at.

    `fields` are a document's metadata as text, `numbers` and `dates` (seconds) those of them that are numbers or dates.
    `place` is that of the passage in the collection: of equal scores the first comes first.
    """

    id: str
    place: int
    fields: Mapping[str, str]
    numbers: Mapping[str, float]
    dates: Mapping[str, float]
    shown: EngineText
    vector: NDArray[np.float32] | None = None
    terms: TermWeights | None = None


@dataclass(frozen=True)
class FilterCondition:
    """What a row's column must be: one of some values, or above or below one; `excluded` turns it around."""

    column: Literal["passage", "place", "fields", "numbers", "dates"]
    name: str  # within the column; "" for the passage's id and place
    operator: Operator
    values: tuple[str, ...] | tuple[float, ...] = field(default=())
    excluded: bool = False


class SearchEngine(ABC):
    """Tables of rows on a server. Every method raises a sentence where the server refuses or does not answer."""

    kind: ClassVar[str]
    deepest: ClassVar[int]  # hits of one search at most

    @classmethod
    @abstractmethod
    def connect(cls, uri: str) -> SearchEngine:
        """Connect to a server; it answers, and accepts the token."""

    @abstractmethod
    def make(self, shape: TableShape, mark: str) -> None:
        """Make a table, with a mark of whose it is."""

    @abstractmethod
    def mark(self, name: str) -> str | None:
        """The mark of a table; None where there is no such table."""

    @abstractmethod
    def drop(self, name: str) -> None:
        """Remove a table, if it is there."""

    @abstractmethod
    def write(self, shape: TableShape, rows: Sequence[EngineRow]) -> None:
        """Write rows; one whose id is there is replaced."""

    @abstractmethod
    def delete(self, name: str, passages: Sequence[str]) -> None:
        """Remove every row of some passages."""

    @abstractmethod
    def settle(self, name: str) -> int:
        """Make what was written visible; gives the number of rows."""

    @abstractmethod
    def by_terms(
        self, name: str, queries: Sequence[TermWeights], k: int, where: Sequence[FilterCondition]
    ) -> list[EngineHits]:
        """The k rows of the largest inner products of terms; none of rows that share no term."""

    @abstractmethod
    def by_vectors(
        self, name: str, queries: NDArray[np.float32], k: int, where: Sequence[FilterCondition]
    ) -> list[EngineHits]:
        """The k rows of the largest inner products of vectors."""

    @abstractmethod
    def texts(self, name: str, where: Sequence[FilterCondition], most: int) -> list[EngineText]:
        """What is shown of rows, in their order; any `most` of them where there are more."""

    def all_texts(self, name: str, where: Sequence[FilterCondition], places: int) -> Iterator[EngineText]:
        """What is shown of all rows, in their order: a range of places is halved until one answer holds it."""
        ranges = [(0, places)]
        while ranges:
            first, end = ranges.pop()
            inside = FilterCondition("place", "", ">=", (first,)), FilterCondition("place", "", "<", (end,))
            texts = self.texts(name, [*where, *inside], self.deepest)
            if len(texts) < self.deepest or end - first == 1:
                yield from texts
            else:
                middle = (first + end) // 2
                ranges += [(middle, end), (first, middle)]

    @abstractmethod
    def terms(self, name: str, ids: Sequence[str]) -> dict[str, TermWeights]:
        """The terms of rows, by their ids."""


def engine_class(kind: str) -> Any:
    """The class of a back end, imported when it is used."""
    module, name = BUILT_IN[kind].split(":")
    return getattr(import_module(module), name)


def token_for(uri: str) -> str:
    """The user's token, for an address that the user has named: a folder that somebody else made may name any."""
    token, address = machine.engine_token()
    if token and uri != address and not is_noted(uri, "engines"):
        raise RecipeError(
            f"the retriever is in an engine at {uri}, which you have not named on this machine, "
            f"so it does not get your {machine.ENGINE_TOKEN}",
            fix=f"if the token is for that server, set {machine.ENGINE_URI}={uri}",
        )
    return token


def no_answer(engine: str, uri: str, said: str) -> ResourceError:
    """The sentence about a server that refuses or is silent."""
    return ResourceError(f"{engine} at {uri} {said}", fix=f"check the address and {machine.ENGINE_TOKEN}")


def ordered(hits: list[tuple[str, float, int]], k: int) -> EngineHits:
    """Hits best first; of equal scores the one that stands first in the collection."""
    hits.sort(key=lambda hit: (-hit[1], hit[2]))
    return [(id, score) for id, score, _ in hits[:k]]
