"""Systems that answer questions with passages: a BM25 index, or a vector index with the model that made it.

A system takes texts and gives ids with scores, best first. A dense system finds its model in what the index says of
itself; the model is loaded when the first question comes, because that takes longer than the search.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from liebig import workspace
from liebig.data.ranked import Ranked
from liebig.data.vectors import Vectors
from liebig.errors import DataError, RecipeError
from liebig.index.base import Index
from liebig.index.opening import open_index
from liebig.lexical import bm25
from liebig.lexical.bm25 import BM25
from liebig.records import Query

if TYPE_CHECKING:
    from liebig.model.encoder import Encoder
    from liebig.text.layout import RoleLayout

Found = list[tuple[str, float]]  # ids and scores of one query, best first
SMALL = 10_000  # hits whose room costs less than asking a server of vectors how many it has


class System(ABC):
    """Queries in, ranked passages out."""

    name: str

    @abstractmethod
    def search(self, queries: Sequence[Query], k: int) -> list[Found]:
        """The k best passages of every query."""

    def ask(self, question: str, k: int) -> Found:
        """The k best passages of one question."""
        return self.search([Query("", question)], k)[0]


class Lexical(System):
    """A BM25 index."""

    def __init__(self, index: BM25, threads: int = 1) -> None:
        self.name, self.index, self.threads = "bm25", index, threads

    def search(self, queries: Sequence[Query], k: int) -> list[Found]:
        texts, depth = [query.text for query in queries], within(k, self.index)
        return named(self.index.search(texts, depth, self.threads), self.index.id)


class Dense(System):
    """A vector index and the encoder of its queries."""

    def __init__(
        self,
        index: Index,
        model: str | Path | None = None,
        device: str | None = None,
        query_length: int | None = None,
    ) -> None:
        self.name, self.index, self._device, self._query_length = "dense", index, device, query_length
        self._model = model if model is not None else index.about.get("query_model", index.about.get("model"))

    @cached_property
    def encoder(self) -> Encoder:
        """The model that makes query vectors."""
        if self._model is None:
            raise RecipeError("the index does not say which model made it", fix="name one with --model")
        from liebig.model.encoder import Encoder

        encoder = Encoder.load(str(self._model))
        if encoder.width != self.index.width:
            raise DataError(
                f"the model makes vectors of width {encoder.width}, the index holds {self.index.width}",
                fix="name the model that the index was made with",
            )
        encoder.use(query_length=self._query_length)
        return encoder.to(self._device) if self._device is not None else encoder

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of questions, made as the index's vectors were."""
        _, layout = layouts_of(self.encoder, self.index.about)
        return self.encoder.encode_texts(texts, layout=layout, unit=bool(self.index.about.get("unit")))

    def search(self, queries: Sequence[Query], k: int) -> list[Found]:
        return self.search_vectors(self.encode([query.text for query in queries]), k)

    def search_vectors(self, vectors: NDArray[np.float32], k: int) -> list[Found]:
        """The k best passages of vectors that are there already."""
        return named(self.index.search(vectors, within(k, self.index)), self.index.id)


class Given(System):
    """A vector index whose query vectors were encoded before."""

    def __init__(self, index: Index, vectors: Vectors) -> None:
        self.name, self._index, self._vectors = "dense", index, vectors

    def search(self, queries: Sequence[Query], k: int) -> list[Found]:
        vectors = np.stack([self._vector(query.id) for query in queries])
        return named(self._index.search(vectors, within(k, self._index)), self._index.id)

    def _vector(self, id: str) -> NDArray[np.float32]:
        for shard in self._vectors.shards:
            if (row := shard.ids.find(id)) is not None:
                return shard.vectors[row : row + 1].decode()[0]
        raise DataError(
            f"there is no vector of query {id!r}", file=self._vectors.path, fix="encode the queries"
        )


def layouts_of(encoder: Encoder, about: Mapping[str, Any]) -> tuple[RoleLayout, RoleLayout]:
    """How passages and queries become tokens for an index: as its vectors say, else as the model's folder does."""
    passage = encoder.layout_for("passage", about.get("prompt"))
    length = min(about.get("max_length") or passage.length, encoder.backbone.max_positions)
    passage = replace(passage, length=length, title=about.get("title", passage.title))
    return passage, encoder.layout_for("query", about.get("query_prompt"))


def within(k: int, index: Sized) -> int:
    """A depth that an index has: room is made for as many hits as are asked for. A small one is not worth counting."""
    return k if k <= SMALL else min(k, max(len(index), 1))


def named(ranked: Ranked, id_of: Callable[[int], str]) -> list[Found]:
    """Ids in the place of numbers."""
    return [[(id_of(number), score) for number, score in ranked.row(q)] for q in range(len(ranked))]


def open_system(
    path: Path, *, model: str | Path | None = None, threads: int | None = None, device: str | None = None
) -> System:
    """The system of a folder: a BM25 index, or an index of vectors."""
    if bm25.SUMMARY in workspace.read_manifest(path).outputs:
        return Lexical(BM25.open(path), threads or 1)
    return Dense(open_index(path, threads=threads, device=device), model, device)
