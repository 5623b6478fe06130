"""Systems that answer questions with passages: a BM25 index, or a vector index with the model that made it.

A system takes texts and gives ids with scores, best first. A dense system finds its model in what the index says of
itself; the model is loaded when the first question comes, because that takes longer than the search.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from liebig.base import workspace
from liebig.base.errors import DataError, RecipeError
from liebig.base.records import Query
from liebig.bm25 import search as bm25
from liebig.bm25.search import BM25
from liebig.indexes import exact_cpu, open_index
from liebig.indexes.base import Index
from liebig.vectors.ranked import Ranked
from liebig.vectors.vector_folder import Vectors

if TYPE_CHECKING:
    from liebig.model.encoder import Encoder
    from liebig.search.embed import Embedder
    from liebig.search.filters import Passing
    from liebig.text.layout import RoleLayout


Hits = list[tuple[str, float]]  # ids and scores of one query, best first
SCORED = 1 << 17  # vectors that pass a filter and are all scored; of more, a search meets enough soon
SMALL = 10_000  # hits whose room costs less than asking a server of vectors how many it has


class System(ABC):
    """Queries in, ranked passages out."""

    name: str

    @abstractmethod
    def search(self, queries: Sequence[Query], k: int) -> list[Hits]:
        """The k best passages of every query."""

    def among(self, passing: Passing) -> System | None:
        """The system restricted to passages that pass a filter; None where it cannot score those alone."""
        return None

    def ask(self, question: str, k: int) -> Hits:
        """The k best passages of one question."""
        return self.search([Query("", question)], k)[0]


class Lexical(System):
    """A BM25 index."""

    def __init__(self, index: BM25, threads: int = 1, mask: NDArray[np.bool_] | None = None) -> None:
        self.name, self.index, self.threads, self._mask = "bm25", index, threads, mask

    def search(self, queries: Sequence[Query], k: int) -> list[Hits]:
        texts, depth = [query.text for query in queries], within(k, self.index)
        return named(self.index.search(texts, depth, self.threads, self._mask), self.index.id)

    def among(self, passing: Passing) -> System:
        mask = passing.mask(self.name, [segment.ids for segment in self.index.segments])
        return Lexical(self.index, self.threads, mask)


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
    def embedder(self) -> Embedder:
        """The model that makes query vectors as the index's vectors were made."""
        if self._model is None:
            raise RecipeError("the index does not say which model made it", fix="name one with --model")
        from liebig.search.embed import Embedder

        path, about = Path(self._model), self.index.about
        made = Embedder.load(path, self._device, query_length=self._query_length)
        if made.encoder.width != self.index.width:
            raise DataError(
                f"the model makes vectors of width {made.encoder.width}, the index holds {self.index.width}",
                fix="name the model that the index was made with",
            )
        return Embedder(
            made.encoder, *layouts_of(made.encoder, about), unit=bool(about.get("unit")), folder=path
        )

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of questions."""
        return self.embedder.vectors(texts, "query")

    def search(self, queries: Sequence[Query], k: int) -> list[Hits]:
        return self.search_vectors(self.encode([query.text for query in queries]), k)

    def search_vectors(
        self, vectors: NDArray[np.float32], k: int, numbers: NDArray[np.int64] | None = None
    ) -> list[Hits]:
        """The k best passages of vectors that are there already; among these numbers, where some are given."""
        if numbers is None:
            return named(self.index.search(vectors, within(k, self.index)), self.index.id)
        shards = self.index.stored()
        assert shards is not None, "numbers_among says so"
        ranked = exact_cpu.search_numbers(vectors, shards, max(1, min(k, len(numbers))), numbers)
        return named(ranked, self.index.id)

    def numbers_among(self, passing: Passing) -> NDArray[np.int64] | None:
        """The numbers of the vectors that pass a filter; None where they are too many, or not stored here."""
        shards = self.index.stored()
        if shards is None:
            return None
        pieces = bool(self.index.about.get("pieces"))
        numbers = np.flatnonzero(passing.mask(self.name, [shard.ids for shard in shards], pieces))
        return numbers if len(numbers) <= SCORED else None


class Given(System):
    """A vector index whose query vectors were encoded before."""

    def __init__(self, index: Index, vectors: Vectors) -> None:
        self.name, self._index, self._vectors = "dense", index, vectors

    def search(self, queries: Sequence[Query], k: int) -> list[Hits]:
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


def named(ranked: Ranked, id_of: Callable[[int], str]) -> list[Hits]:
    """Ids in the place of numbers."""
    return [[(id_of(number), score) for number, score in ranked.row(q)] for q in range(len(ranked))]


def open_system(
    path: Path, *, model: str | Path | None = None, threads: int | None = None, device: str | None = None
) -> System:
    """The system of a folder: a BM25 index, or an index of vectors."""
    if bm25.SUMMARY in workspace.read_manifest(path).outputs:
        return Lexical(BM25.open(path), threads or 1)
    return Dense(open_index(path, threads=threads, device=device), model, device)


# Two systems into one ranking: by reciprocal ranks, or by scores made comparable; weights found on a dev
# split.
#
# Reciprocal rank fusion (Cormack et al. 2009) sums weight / (60 + rank). Weighted fusion brings the scores
# of a query to [0, 1] (min-max) or to mean 0 and deviation 1, and sums them; a passage that a system did
# not find gets its lowest. Equal results keep the order of the first system. Cost: one pass over the hits;
# tuning: one per weight tried.

Norm = Literal["minmax", "zscore"]
Fuse = Callable[[Sequence[Hits]], Hits]
DAMPING = 60
DEPTH = 100  # passages of each system that are fused at the least
WEIGHTS = tuple(step / 20 for step in range(21))  # tried on a dev split


def reciprocal_rank(
    lists: Sequence[Hits], weights: Sequence[float] | None = None, damping: float = DAMPING
) -> Hits:
    """Sum of weight / (damping + rank), ranks from 1."""
    total: dict[str, float] = {}
    for weight, hits in zip(weights or [1.0] * len(lists), lists):
        for rank, (id, _) in enumerate(hits, 1):
            total[id] = total.get(id, 0.0) + weight / (damping + rank)
    return _ordered(total)


def weighted(lists: Sequence[Hits], weights: Sequence[float], norm: Norm = "minmax") -> Hits:
    """Weighted sum of normalised scores."""
    total: dict[str, float] = dict.fromkeys((id for hits in lists for id, _ in hits), 0.0)
    for weight, hits in zip(weights, lists):
        if not hits:
            continue
        scores, lowest = _normalised([score for _, score in hits], norm)
        mine = dict(zip((id for id, _ in hits), scores))
        for id in total:
            total[id] += weight * float(mine.get(id, lowest))
    return _ordered(total)


def _normalised(scores: Sequence[float], norm: Norm) -> tuple[list[float], float]:
    """Scores made comparable, and that of what was not found: never above what was."""
    values = np.array(scores, np.float64)
    if norm == "zscore":
        spread = values.std()
        values = (values - values.mean()) / (spread if spread > 0 else 1.0)
        return list(values), float(values.min()) if spread > 0 else -1.0
    spread = values.max() - values.min()
    return list((values - values.min()) / spread if spread > 0 else np.ones(len(values))), 0.0


def _ordered(total: dict[str, float]) -> Hits:
    return sorted(total.items(), key=lambda pair: -pair[1])


class Hybrid(System):
    """Several systems asked at once, their answers fused; each is asked for DEPTH passages at the least."""

    def __init__(self, systems: Sequence[System], fuse: Fuse) -> None:
        self.name, self.systems, self._fuse = "hybrid", systems, fuse

    def search(self, queries: Sequence[Query], k: int) -> list[Hits]:
        return self.search_all(queries, k)[-1]

    def search_all(self, queries: Sequence[Query], k: int) -> list[list[Hits]]:
        """What each system found, and last what they found together."""
        asked = [system.search(queries, max(k, DEPTH)) for system in self.systems]
        fused = [self._fuse(lists)[:k] for lists in zip(*asked)]
        return [*([found[:k] for found in answers] for answers in asked), fused]


@dataclass(frozen=True)
class FusionWeight:
    """The weight of the first of two systems (the other has the rest) that did best, and the value of every weight."""

    weight: float
    value: float
    tried: tuple[tuple[float, float], ...]


def best_weight(tried: Sequence[tuple[float, float]]) -> FusionWeight:
    """Of weights and their values the best; of equal values the weight nearest to a half."""
    weight, value = max(tried, key=lambda pair: (pair[1], -abs(pair[0] - 0.5)))
    return FusionWeight(weight, value, tuple(tried))


def weighted_by(weight: float, norm: Norm) -> Fuse:
    """Weighted fusion of two systems."""
    return partial(weighted, weights=(weight, 1 - weight), norm=norm)


def ranks_by(weight: float, damping: float = DAMPING) -> Fuse:
    """Reciprocal rank fusion of two systems with a weight."""
    return partial(reciprocal_rank, weights=(weight, 1 - weight), damping=damping)


# From passages to documents: several hits of one document become one.
#
# | how | score of a document | | ----- | -------------------------------------------- | | max | of its best
# passage (MaxP) | | first | of its first passage, if that was found (FirstP) | | mean | mean over its
# passages that were found |
#
# Passages are folded by the document they name, or, for vectors of long texts, by what stands before `#` in
# their ids. The order of equal scores is that of the hits. Cost: one pass, and one look-up of all passages
# that were found.

How = Literal["max", "first", "mean"]
Owners = Callable[[Iterable[str]], Mapping[str, str]]  # from passages, all at once, to their documents
PIECE = "#"
PLACES = re.compile(r"(?:[#-]\d+)*")  # behind a document's id: of pieces, of passages, of pieces of passages
MOST = 64  # how many times more passages than documents are looked for at the most


def document_of(id: str) -> str:
    """What stands before the last `#`; the id itself where there is none."""
    return id.rpartition(PIECE)[0] or id


def by_name(ids: Iterable[str]) -> dict[str, str]:
    """The documents that pieces are named after."""
    return {id: document_of(id) for id in ids}


def is_first(id: str, document: str) -> bool:
    """Whether a passage is the first of its document, by the numbers it has behind its id: d#0, d-0, d-0#0."""
    place = id.removeprefix(document)
    if PLACES.fullmatch(place) is None:
        raise DataError(
            f"the id {id!r} does not say which passage of {document!r} it is", fix="fold=max, or fold=mean"
        )
    return not place.strip("#-0")


def fold(hits: Hits, k: int, how: How = "max", owner: Callable[[str], str] = document_of) -> Hits:
    """The k best documents of the passages found."""
    scores: dict[str, list[float]] = {}
    for id, score in hits:
        document = owner(id)
        if how != "first" or is_first(id, document):
            scores.setdefault(document, []).append(score)
    combine: Callable[[Sequence[float]], float] = _mean if how == "mean" else max
    folded = [(document, combine(of_document)) for document, of_document in scores.items()]
    return sorted(folded, key=lambda pair: -pair[1])[:k]


def _mean(scores: Sequence[float]) -> float:
    return sum(scores) / len(scores)


class Folded(System):
    """A system whose passages are folded to documents; more are looked for until there are k documents."""

    def __init__(self, system: System, how: How = "max", owners: Owners = by_name) -> None:
        self.name, self._system, self._how, self._owners = system.name, system, how, owners

    def among(self, passing: Passing) -> System | None:
        system = self._system.among(passing)
        return None if system is None else Folded(system, self._how, self._owners)

    def search(self, queries: Sequence[Query], k: int) -> list[Hits]:
        found: list[Hits] = [[] for _ in queries]
        rest, times = list(range(len(queries))), 4
        while rest:
            hits = self._system.search([queries[i] for i in rest], k * times)
            owners = self._owners({id for of_query in hits for id, _ in of_query})
            for i, of_query in zip(rest, hits):
                found[i] = fold(of_query, k, self._how, owners.__getitem__)
            more = [i for i, of_query in zip(rest, hits) if len(found[i]) < k and len(of_query) == k * times]
            rest, times = (more, times * 4) if times < MOST else ([], times)
        return found
