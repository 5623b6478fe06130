"""Systems that answer questions with passages, and how they are put together.

A system takes queries and gives ids with scores, best first. `Lexical` asks a BM25 index and `DenseSystem` a vector
index; `Hybrid` fuses several systems, `Reranked` lets a cross-encoder order the best hits of another, `Folded` turns
passages into their documents (or pieces into their texts), `Filtered` keeps what passes a filter, and `Recorded`
repeats answers that were given before. `liebig search`, `retrieve` and `serve`, the `Retriever` and the check of
`liebig build` all answer with these, so the same folder gives the same hits.

The model of a dense system is loaded with the first question, because that takes longer than the search. Cost of what
stands around the indexes: one pass over the hits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from liebig.base import workspace
from liebig.base.errors import DataError, RecipeError
from liebig.base.records import Passage, Query
from liebig.bm25 import search as bm25
from liebig.bm25.search import BM25
from liebig.indexes import exact_cpu, open_index
from liebig.indexes.base import Index
from liebig.ragged import ranges
from liebig.search.fusion import FUSION_DEPTH, SENTENCES, Fuse, Hits, weighted
from liebig.vectors import Vectors, document_of, pieces_of
from liebig.vectors.ranked import Ranked

if TYPE_CHECKING:
    from liebig.model.settings import TextReader
    from liebig.search.embed import Embedder
    from liebig.search.filters import Passing
    from liebig.text.layout import RoleLayout

IdOf = Callable[[int], str]  # from the number of a text in an index to its id
QueryVectors = Callable[[Sequence[Query]], NDArray[np.float32]]  # from queries to their vectors, Q x D
GATHERED = 1 << 17  # vectors that pass a filter and are read one by one, rather than scoring or searching all
SHARE = 16  # and, where all are scored anyway, which part of all they may be
KNOWN_IDS = 1 << 16  # ids of an index kept as strings
SMALL = 10_000  # hits whose room costs less than asking a server of vectors how many it has


@dataclass(frozen=True)
class Answer:
    """The hits of every query, and those of each part of the system by its name; a simple system is its only part."""

    hits: list[Hits]
    parts: Mapping[str, list[Hits]]


class System(ABC):
    """Queries in, ranked passages out."""

    name: str

    @abstractmethod
    def search(self, queries: Sequence[Query], k: int) -> list[Hits]:
        """The k best passages of every query."""

    def answer(self, queries: Sequence[Query], k: int) -> Answer:
        """The same with what each part found, as deep as it was asked."""
        hits = self.search(queries, k)
        return Answer(hits, {self.name: hits})

    def among(self, passing: Passing, thorough: bool = False) -> System | None:
        """The system restricted to passages that pass a filter; None where it cannot be, or would have to score all
        vectors that it otherwise does not and is not told to be `thorough`."""
        return None

    def ask(self, question: str, k: int) -> Hits:
        return self.search([Query("", question)], k)[0]


def cached_ids(index: BM25 | Index) -> IdOf:
    """The ids of an index by their numbers, remembered: a look-up on disk takes microseconds, for every hit.

    Systems that are made for one request share those of their index, so that a second request finds them.
    """
    return lru_cache(KNOWN_IDS)(index.id)


class Lexical(System):
    """A BM25 index."""

    def __init__(
        self, index: BM25, threads: int = 1, mask: NDArray[np.bool_] | None = None, id_of: IdOf | None = None
    ) -> None:
        self.name, self.index, self.threads, self._mask = "bm25", index, threads, mask
        self._id = id_of or cached_ids(index)

    def search(self, queries: Sequence[Query], k: int) -> list[Hits]:
        texts, depth = [query.text for query in queries], within(k, self.index)
        return named(self.index.search(texts, depth, self.threads, self._mask), self._id)

    def among(self, passing: Passing, thorough: bool = False) -> System:
        mask = passing.mask(self.name, [segment.ids for segment in self.index.segments])
        return Lexical(self.index, self.threads, mask, self._id)


class DenseSystem(System):
    """A vector index, and what makes vectors of its queries: a `QueryEncoder`, or `StoredVectors`.

    With `numbers` or a `mask` only those vectors are searched.
    """

    def __init__(
        self,
        index: Index,
        vectors: QueryVectors,
        numbers: NDArray[np.int64] | None = None,
        name: str = "dense",
        id_of: IdOf | None = None,
        mask: NDArray[np.bool_] | None = None,
    ) -> None:
        self.name, self.index, self._vectors = name, index, vectors
        self._numbers, self._mask = numbers, mask
        self._id = id_of or cached_ids(index)

    def search(self, queries: Sequence[Query], k: int) -> list[Hits]:
        vectors, numbers = self._vectors(queries), self._numbers
        if self._mask is not None:
            ranked = self.index.search_masked(vectors, within(k, self.index), self._mask)
        elif numbers is None:
            ranked = self.index.search(vectors, within(k, self.index))
        else:
            shards = self.index.stored()
            assert shards is not None, "`among` looked"
            ranked = exact_cpu.search_numbers(vectors, shards, max(1, min(k, len(numbers))), numbers)
        return named(ranked, self._id)

    def among(self, passing: Passing, thorough: bool = False) -> System | None:
        """Where the vectors are stored here: the few that pass are gathered; of many, all are scored."""
        shards = self.index.stored()
        if shards is None:
            return None
        mask = passing.mask(self.name, [shard.ids for shard in shards], bool(self.index.about.get("pieces")))
        count = int(np.count_nonzero(mask))
        most = min(GATHERED, len(mask) // SHARE) if self.index.exhaustive else GATHERED
        if count > most and not (thorough or self.index.exhaustive):
            return None
        if count > most:
            return DenseSystem(self.index, self._vectors, None, self.name, self._id, mask)
        return DenseSystem(self.index, self._vectors, np.flatnonzero(mask), self.name, self._id)


class VectorSpace(Protocol):
    """How the vectors of an index were made."""

    @property
    def width(self) -> int: ...

    @property
    def about(self) -> Mapping[str, Any]: ...

    @property
    def model(self) -> Path | None: ...


class QueryEncoder:
    """The model of an index's queries, which reads them as the index says; loaded with the first one.

    Without `model` it is the one that the index names.
    """

    def __init__(
        self,
        index: VectorSpace,
        model: str | Path | None = None,
        device: str | None = None,
        query_length: int | None = None,
        half: bool | None = None,
        light: bool = False,
    ) -> None:
        self._light = light
        self._model = model if model is not None else index.model
        self._width, self._about, self._device = index.width, index.about, device
        self._query_length, self._half = query_length, half
        self._embedder: Embedder | None = None
        self._kept: tuple[Sequence[Query], NDArray[np.float32]] | None = None
        self._lock = Lock()

    def __call__(self, queries: Sequence[Query]) -> NDArray[np.float32]:
        return self.embedder.vectors([query.text for query in queries], "query")

    def kept(self, queries: Sequence[Query]) -> NDArray[np.float32]:
        """The same for queries that are asked again and again: made once for all generations with this model."""
        if self._kept is None or self._kept[0] != queries:
            self._kept = queries, self(queries)
        return self._kept[1]

    @property
    def embedder(self) -> Embedder:
        """The model, loaded once, whichever thread comes first."""
        with self._lock:
            if self._embedder is None:
                self._embedder = self._load()
            return self._embedder

    def leave_light(self) -> None:
        """Load the model again, now in int8 or by torch; searches meanwhile use the one that there is."""
        self._light = False
        if self._embedder is not None:
            made = self._load()
            made.vectors(["warm"], "query")
            self._embedder = made

    def _load(self) -> Embedder:
        if self._model is None:
            raise RecipeError("the index does not say which model made it", fix="name one with --model")
        from liebig.search.embed import Embedder, question_precision  # which BM25 does without

        made = Embedder.load(
            Path(self._model),
            self._device,
            query_length=self._query_length,
            half=self._half,
            precision="fp32" if self._light else question_precision(),
            light=self._light,
        )
        if made.width != self._width:
            raise DataError(
                f"the model makes vectors of width {made.width}, the index holds {self._width}",
                fix="name the model that the index was made with",
            )
        return self._as_indexed(made)

    def _as_indexed(self, embedder: Embedder) -> Embedder:
        """The same model, reading texts as those of the index were read."""
        passage, query = layouts_of(embedder.reader, self._about)
        return embedder.reading(passage, query, unit=bool(self._about.get("unit")))

    def share(self, other: QueryEncoder) -> None:
        """Go on with the model that another has loaded, if it has."""
        if other._embedder is None:
            return
        manner = ("prompt", "query_prompt", "unit", "max_length", "title")
        same = all(self._about.get(name) == other._about.get(name) for name in manner)
        self._embedder = other._embedder if same else self._as_indexed(other._embedder)
        self._kept = other._kept if same else None


class StoredVectors:
    """Vectors of queries that were encoded before, by the queries' ids."""

    def __init__(self, vectors: Vectors) -> None:
        self._vectors = vectors

    def __call__(self, queries: Sequence[Query]) -> NDArray[np.float32]:
        return np.stack([self._vector(query.id) for query in queries])

    def _vector(self, id: str) -> NDArray[np.float32]:
        for shard in self._vectors.shards:
            if (row := shard.ids.find(id)) is not None:
                return shard.vectors[row : row + 1].decode()[0]
        raise DataError(
            f"there is no vector of query {id!r}", file=self._vectors.path, fix="encode the queries"
        )


class Once:
    """Vectors of queries, made once however deep a search looks and however many systems ask: for one request."""

    def __init__(self, vectors: QueryVectors) -> None:
        self._vectors, self._known = vectors, dict[Query, NDArray[np.float32]]()

    def __call__(self, queries: Sequence[Query]) -> NDArray[np.float32]:
        new = [query for query in dict.fromkeys(queries) if query not in self._known]
        if new:
            self._known.update(zip(new, self._vectors(new)))
        return np.stack([self._known[query] for query in queries])


class Recorded(System):
    """Answers that were given before, by the queries' ids."""

    def __init__(self, name: str, hits: Mapping[str, Hits]) -> None:
        self.name, self._hits = name, hits

    def search(self, queries: Sequence[Query], k: int) -> list[Hits]:
        return [self._hits[query.id][:k] for query in queries]


def layouts_of(encoder: TextReader, about: Mapping[str, Any]) -> tuple[RoleLayout, RoleLayout]:
    """How passages and queries become tokens for an index: as its vectors say, else as the model's folder does."""
    passage = encoder.layout_for("passage", about.get("prompt"))
    length = min(about.get("max_length") or passage.length, encoder.max_positions)
    passage = replace(passage, length=length, title=about.get("title", passage.title))
    return passage, encoder.layout_for("query", about.get("query_prompt"))


def within(k: int, index: Sized) -> int:
    """A depth that an index has: room is made for as many hits as are asked for. A small one is not worth counting."""
    return k if k <= SMALL else min(k, max(len(index), 1))


def named(ranked: Ranked, id_of: IdOf) -> list[Hits]:
    """Ids in the place of numbers."""
    return [[(id_of(number), score) for number, score in ranked.row(q)] for q in range(len(ranked))]


def open_system(
    path: Path, *, model: str | Path | None = None, threads: int | None = None, device: str | None = None
) -> System:
    """The system of an index's folder: BM25, or vectors with their model."""
    if bm25.SUMMARY in workspace.read_manifest(path).outputs:
        return Lexical(BM25.open(path), threads or 1)
    index = open_index(path, threads=threads, device=device)
    return of_texts(index, QueryEncoder(index, model, device))


class SentenceScores:
    """Vectors of sentences, of which only those of passages that other systems found are scored.

    A passage has the score of its best sentence. Cost: a look-up and some products per passage, whatever the size of
    the corpus; the vectors stay on disk.
    """

    def __init__(self, index: Index, vectors: QueryVectors) -> None:
        shards = index.stored()
        assert shards is not None, "builds store the vectors of sentences"
        self._shards, self._vectors = shards, vectors

    def search(self, queries: Sequence[Query], found: Sequence[Sequence[Hits]], k: int) -> list[Hits]:
        """The k best of each query's passages, given as the lists of hits that they were found in."""
        vectors = self._vectors(queries)
        exact_cpu.check(vectors, self._shards)
        ids = list(dict.fromkeys([id for lists in found for hits in lists for id, _ in hits]))
        numbers, counts = pieces_of(self._shards, ids)
        places, starts = {id: place for place, id in enumerate(ids)}, np.cumsum(counts) - counts

        def best(vector: NDArray[np.float32], lists: Sequence[Hits]) -> Hits:
            own = np.array(list(dict.fromkeys([places[id] for hits in lists for id, _ in hits])), np.int64)
            own = own[counts[own] > 0]
            if not len(own):
                return []
            rows = numbers[ranges(starts[own], counts[own])]
            scores = exact_cpu.score(vector, rows[None], self._shards)[0]
            scores = np.maximum.reduceat(scores, np.cumsum(counts[own]) - counts[own])
            order = np.argsort(-scores, kind="stable")[:k]
            return [(ids[i], score) for i, score in zip(own[order].tolist(), scores[order].tolist())]

        return [best(vectors[i : i + 1], lists) for i, lists in enumerate(found)]


class Hybrid(System):
    """Several systems asked at once, their answers fused; each is asked for FUSION_DEPTH passages at least.

    How, may depend on the text of a question. What they found may be scored by its sentences, too, as one more part.
    """

    def __init__(
        self,
        systems: Sequence[System],
        fuse_for: Callable[[str], Fuse],
        sentences: SentenceScores | None = None,
    ) -> None:
        self.name, self.systems, self._fuse_for, self._sentences = "hybrid", systems, fuse_for, sentences

    def search(self, queries: Sequence[Query], k: int) -> list[Hits]:
        return self.answer(queries, k).hits

    def answer(self, queries: Sequence[Query], k: int) -> Answer:
        depth = max(k, FUSION_DEPTH)
        parts = {system.name: system.search(queries, depth) for system in self.systems}
        if self._sentences is not None:
            parts[SENTENCES] = self._sentences.search(queries, list(zip(*parts.values())), depth)
        fused = [self._fuse_for(query.text)(lists) for query, lists in zip(queries, zip(*parts.values()))]
        return Answer([hits[:k] for hits in fused], parts)


class Reranked(System):
    """A system whose first `depth` hits are ordered anew, by their scores and a cross-encoder's; the others stay below.

    Both lists of scores are brought to [0, 1] and count half: a cross-encoder that was trained on other texts than
    these knows something that the hybrid does not, and rarely more. `score` gives numbers to the passages of each query
    (`methods.reranker.scorer`), `passage` looks up their texts.
    """

    def __init__(
        self,
        system: System,
        score: Callable[[Sequence[tuple[Query, Sequence[Passage]]]], list[NDArray[np.float32]]],
        passage: Callable[[str], Passage],
        depth: int,
    ) -> None:
        self.name, self._system, self._score, self._passage = "reranked", system, score, passage
        self.depth = depth

    def search(self, queries: Sequence[Query], k: int) -> list[Hits]:
        return self.answer(queries, k).hits

    def answer(self, queries: Sequence[Query], k: int) -> Answer:
        from liebig.methods.reranker import AT_ONCE  # imports torch, which BM25 does without

        first = self._system.answer(queries, max(k, self.depth))
        ids = [[id for id, _ in hits] for hits in first.hits]
        pairs = list(zip(queries, ids))
        ordered: list[Hits] = []
        for start in range(
            0, len(pairs), AT_ONCE
        ):  # so that the texts in memory do not grow with the queries
            some = pairs[start : start + AT_ONCE]
            candidates = [
                (query, [self._passage(id) for id in of_query[: self.depth]]) for query, of_query in some
            ]
            values = (
                self._score(candidates)
                if any(passages for _, passages in candidates)
                else [NONE for _ in candidates]
            )
            ordered += [
                _beside(hits, scores)[:k]
                for hits, scores in zip(first.hits[start : start + AT_ONCE], values, strict=True)
            ]
        return Answer(ordered, {**first.parts, self._system.name: first.hits})


NONE = np.zeros(0, np.float32)  # the scores of no passage
TRUST = 0.5  # of a cross-encoder's scores beside those of the hits (experiments/adaptation)


def _beside(hits: Hits, scores: NDArray[np.float32]) -> Hits:
    """The first hits by both scores; the others keep their order, with made-up scores below."""
    first, rest = hits[: len(scores)], hits[len(scores) :]
    ordered = weighted([first, [(id, float(v)) for (id, _), v in zip(first, scores)]], (1 - TRUST, TRUST))
    floor = ordered[-1][1] if ordered else 0.0
    return ordered + [(id, floor - place) for place, (id, _) in enumerate(rest, 1)]


# Folding: several hits of one document become one. Equal scores keep the order of the hits.

Owners = Callable[[Iterable[str]], Mapping[str, str]]  # from passages, all at once, to their documents
MOST = 64  # how many times more passages than documents are looked for at most


def by_name(ids: Iterable[str]) -> dict[str, str]:
    """The documents that pieces are named after."""
    return {id: document_of(id) for id in ids}


def fold(hits: Hits, k: int, owner: Callable[[str], str] = document_of) -> Hits:
    """The k best documents of some passages, each as good as its best passage (MaxP)."""
    scores: dict[str, float] = {}
    for id, score in hits:
        document = owner(id)
        scores[document] = max(score, scores.get(document, score))
    return sorted(scores.items(), key=lambda pair: -pair[1])[:k]


class Folded(System):
    """A system whose passages are folded to documents; it looks deeper until there are k documents."""

    def __init__(self, system: System, owners: Owners = by_name) -> None:
        self.name, self._system, self._owners = system.name, system, owners

    def among(self, passing: Passing, thorough: bool = False) -> System | None:
        system = self._system.among(passing, thorough)
        return None if system is None else Folded(system, self._owners)

    def search(self, queries: Sequence[Query], k: int) -> list[Hits]:
        folded: list[Hits] = [[] for _ in queries]
        rest, times = list(range(len(queries))), 4
        while rest:
            hits = self._system.search([queries[i] for i in rest], k * times)
            owners = self._owners({id for of_query in hits for id, _ in of_query})
            for i, of_query in zip(rest, hits):
                folded[i] = fold(of_query, k, owners.__getitem__)
            more = [i for i, of_query in zip(rest, hits) if len(folded[i]) < k and len(of_query) == k * times]
            rest, times = (more, times * 4) if times < MOST else ([], times)
        return folded


def of_texts(index: Index, vectors: QueryVectors, name: str = "dense", id_of: IdOf | None = None) -> System:
    """A vector index that answers with texts, also where a text has several vectors, one for each of its pieces."""
    dense = DenseSystem(index, vectors, name=name, id_of=id_of)
    return Folded(dense) if index.about.get("pieces") else dense


Passes = Callable[[Sequence[str]], Sequence[bool]]  # says of passages, by their ids, whether they pass
GROWTH = 4  # how many times deeper the next look is
DEEP = 10_000  # passages of a look that cost more than scoring all vectors once


class Filtered(System):
    """A system of which only passages that pass are taken; it looks deeper until there are k, or no more of `total`.

    Beyond DEEP passages another system is asked instead, if there is one: `thorough` makes one that scores all.
    """

    def __init__(
        self, system: System, passes: Passes, total: int, thorough: Callable[[], System | None] = lambda: None
    ) -> None:
        self.name, self._system, self._passes, self._total = system.name, system, passes, total
        self._thorough = thorough

    def search(self, queries: Sequence[Query], k: int) -> list[Hits]:
        kept: list[Hits] = [[] for _ in queries]
        rest, depth = list(range(len(queries))), min(self._total, k * GROWTH)
        while rest:
            hits = self._system.search([queries[i] for i in rest], depth)
            for i, of_query in zip(rest, hits):
                passed = self._passes([id for id, _ in of_query])
                kept[i] = [hit for hit, ok in zip(of_query, passed) if ok][:k]
            rest = [i for i, of_query in zip(rest, hits) if len(kept[i]) < k and len(of_query) == depth]
            if depth >= self._total:
                break
            depth = min(self._total, depth * GROWTH)
            if rest and depth > DEEP and (other := self._thorough()) is not None:
                for i, of_query in zip(rest, other.search([queries[i] for i in rest], k)):
                    kept[i] = of_query
                break
        return kept
