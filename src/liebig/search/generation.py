"""One generation of a retriever's folder, opened: its texts, its indexes and its models.

`Retriever` holds one and takes over the next; what asks it is `answer.py`. Memory: that of BM25's terms, the model,
some ten MB of ids, and 20 bytes per passage where there are filters or conditions; all else is mapped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from liebig.base import workspace
from liebig.base.errors import DataError, RecipeError
from liebig.base.mistakes import nearest
from liebig.base.records import Document, Passage, Query
from liebig.bm25.search import BM25, TermStatistics
from liebig.collection import KINDS, Collection
from liebig.indexes import open_index
from liebig.search.filters import Facets, Filters, Owners, Passing
from liebig.search.floor import Floor
from liebig.search.fusion import SENTENCE_SHARE, SENTENCES, Fuse, Hits, exact_weight, weighted_by
from liebig.search.matching import WordMatcher
from liebig.search.query_language import ParsedQuery
from liebig.search.retriever_folder import SYSTEMS, RetrieverDescription, SystemName
from liebig.search.suggest import suggestion
from liebig.search.systems import (
    Filtered,
    Hybrid,
    Lexical,
    Once,
    QueryEncoder,
    QueryVectors,
    Reranked,
    SentenceScores,
    System,
    VectorSpace,
    cached_ids,
    of_texts,
)
from liebig.vectors import document_of

if TYPE_CHECKING:
    from liebig.model.cross_encoder import CrossEncoder
    from liebig.model.encoder import Encoder
    from liebig.search.embed import Embedder
    from liebig.text.layout import Record, Role


class Generation:
    """Texts, indexes, and the model, which is loaded with the first dense question.

    Nothing here changes, so searches that run while the next generation is taken over finish with theirs.
    """

    def __init__(
        self,
        folder: Path,
        description: RetrieverDescription,
        *,
        verify: bool = True,
        device: str | None = None,
        reranker: str | Path | None = None,
        light: bool = False,
    ) -> None:
        """`reranker` is a cross-encoder to use in the place of the folder's own; `light` is that of `Embedder`."""
        self._light = light
        self.folder, self.description = folder, description
        own = None if description.reranker is None else folder / description.reranker
        self._reranker_source, self._device = own if reranker is None else reranker, device
        self._reranker: CrossEncoder | None = None
        for model in filter(None, (description.model, description.query)):
            workspace.verify_part(folder / model, hashes=verify)
        self._open(verify)
        dense = self.spaces.get("dense")
        self._models = tuple(
            _identity(folder / name) for name in (description.model, description.query) if name
        )
        self._encoder = None if dense is None else self._text_encoder(dense, device, description.query)
        # Questions may have a smaller model than passages, in the same space.
        self._passage_encoder = (
            self._encoder if dense is None or description.query is None else self._text_encoder(dense, device)
        )
        self._lock = Lock()
        self._owners: Owners | None = None

    def _open(self, verify: bool) -> None:
        folder, description = self.folder, self.description
        self.collection = Collection(folder / description.collection)
        if (self.collection.path / workspace.MANIFEST).is_file():
            workspace.verify(self.collection.path, hashes=verify)
        self.collection.open()
        self.bm25 = BM25.open(folder / description.bm25, hashes=verify) if description.bm25 else None
        self.index = open_index(folder / description.index, hashes=verify) if description.index else None
        self.sentences = (
            open_index(folder / description.sentences, hashes=verify) if description.sentences else None
        )
        self.terms: TermStatistics | None = self.bm25
        self.spaces: Mapping[str, VectorSpace] = {} if self.index is None else {"dense": self.index}
        opened = {"bm25": self.bm25, "dense": self.index}
        self._ids = {name: cached_ids(index) for name, index in opened.items() if index is not None}

    def _text_encoder(self, index: VectorSpace, device: str | None, query: str | None = None) -> QueryEncoder:
        named = query or self.description.model
        model = index.model if named is None else self.folder / named
        return QueryEncoder(index, model, device, light=self._light)

    @property
    def embedder(self) -> Embedder:
        """The model of questions, with prompts and scaling as the index has them."""
        return self.embedder_for("query")

    def embedder_for(self, kind: Role) -> Embedder:
        """The model of questions or of passages, which are the same unless the folder has one for each."""
        encoder = self._encoder if kind == "query" else self._passage_encoder
        if encoder is None:
            raise RecipeError("the retriever has no vectors", fix="use system='bm25'")
        return encoder.embedder

    @property
    def encoder(self) -> Encoder:
        """The model of questions alone."""
        return self.embedder.encoder

    @property
    def owners(self) -> Owners:
        """Metadata by passage, read when the first filter comes."""
        with self._lock:
            if self._owners is None:
                made = Owners.of(self.collection)
                files = (
                    self.collection.path / f"{kind}.jsonl" for kind in KINDS if self.collection.has(kind)
                )
                if not all(file.is_file() for file in files):
                    raise DataError("this generation was removed while it was read", file=self.folder)
                self._owners = made
            return self._owners

    @cached_property
    def matcher(self) -> WordMatcher:
        """Evaluates the query language's conditions on words."""
        return WordMatcher(self.bm25, self.collection, self.owners)

    def expanded(self, prefix: str) -> list[str]:
        """The terms that a prefix stands for, to rank passages by."""
        return self.matcher.expanded(prefix)

    @cached_property
    def floor(self) -> Floor:
        """Says whether a question fits the corpus; only where there are vectors."""
        assert self._encoder is not None, "there are vectors"
        return Floor(self.terms, self.systems(vectors=self._encoder.kept)["dense"])

    @property
    def names(self) -> tuple[SystemName, ...]:
        there = self.description.systems
        more: tuple[SystemName, ...] = ("reranked",) if self._reranker_source is not None else ()
        return (*there, *(name for name in more if there and name not in there))

    @property
    def reranker(self) -> CrossEncoder | None:
        """The cross-encoder, loaded once; an int8 export runs on the CPU. None if there is none."""
        with self._lock:
            if self._reranker is None and self._reranker_source is not None:
                from liebig.model.cross_encoder import CrossEncoder

                self._reranker = CrossEncoder.load(self._reranker_source, device=self._device or "cpu")
            return self._reranker

    def _rerank(self, pairs: Sequence[tuple[Query, Sequence[Passage]]]) -> list[NDArray[np.float32]]:
        from liebig.methods.reranker import scorer

        assert self.reranker is not None, "its system was made"
        return scorer([self.reranker])(pairs)

    def take_model(self, other: Generation) -> None:
        """Go on with the models that another generation has loaded, where they are the same."""
        if self._reranker_source is not None and self._reranker_source == other._reranker_source:
            self._reranker = other._reranker
        same = bool(self._models) and None not in self._models and self._models == other._models
        both = ((self._encoder, other._encoder), (self._passage_encoder, other._passage_encoder))
        for mine, loaded in both if same else ():
            if mine is not None and loaded is not None:
                mine.share(loaded)

    def leave_light(self) -> None:
        """Encode in int8 or by torch from now on, where the folder was opened `light`."""
        self._light = False
        for encoder in filter(None, {self._encoder, self._passage_encoder}):
            encoder.leave_light()

    def name_of(self, system: str | None, reranker: str | Path | None = None) -> SystemName:
        """The name of a system that there is; for None reranked, if a reranker is named, else the one of choice."""
        name = system or (self.description.system if reranker is None else "reranked")
        known = [one for one in SYSTEMS if one == name]
        if not known:
            raise RecipeError(f"there is no system {name!r}", fix=nearest(name, SYSTEMS))
        if name not in self.names:
            raise RecipeError(f"the retriever has no {name}", fix=f"ask for {' or '.join(self.names)}")
        if reranker is not None and name != "reranked":
            raise RecipeError(
                f"the system {name} does not use a reranker", fix="leave out the reranker, or the system"
            )
        return known[0]

    def systems(
        self, passing: Any = None, threads: int = 1, vectors: QueryVectors | None = None
    ) -> dict[SystemName, System]:
        """Every system there is, for one request: they share the vectors of its questions.

        `passing` are the passages that they may give; `vectors` makes the vectors of questions in the place of the
        model.
        """
        shared = None if self._encoder is None else Once(vectors or self._encoder)
        made = self._single_systems(passing, threads, shared)
        if "hybrid" in self.description.systems:
            assert shared is not None, "a hybrid has vectors"
            sentences = self._sentence_scores(shared)
            share = 0.0 if sentences is None else SENTENCE_SHARE
            now = self.description

            def fuse_for(question: str) -> Fuse:
                return weighted_by(max(now.weight, exact_weight(question)), now.norm, share, now.spread)

            made["hybrid"] = Hybrid([made["bm25"], made["dense"]], fuse_for, sentences)
        if "reranked" in self.names:
            best = made.get("hybrid") or next(iter(made.values()))
            made["reranked"] = Reranked(best, self._rerank, self.passage, self.description.depth)
        return {name: made[name] for name in SYSTEMS if name in made}

    def _single_systems(self, passing: Any, threads: int, vectors: QueryVectors | None) -> dict[str, System]:
        made: dict[str, System] = {}
        if self.bm25 is not None:
            made["bm25"] = Lexical(self.bm25, threads, id_of=self._ids["bm25"])
        if self.index is not None and vectors is not None:
            made["dense"] = of_texts(self.index, vectors, id_of=self._ids["dense"])
        if passing is None:
            return made
        return {
            name: system.among(passing)
            or Filtered(system, passing.check, self.total, partial(system.among, passing, True))
            for name, system in made.items()
        }

    def _sentence_scores(self, vectors: QueryVectors) -> SentenceScores | None:
        return None if self.sentences is None else SentenceScores(self.sentences, vectors)

    def passing(self, filters: Filters) -> Any:
        """The passages that pass filters, as `systems` takes them."""
        return self.owners.passing(filters)

    def conditions(self, query: ParsedQuery, filters: Filters | None) -> tuple[Any, list[str]]:
        """The passages that a query's conditions and the filters let through, and what is to be said about them."""
        owners, notes = self.owners, []
        fields = []
        for condition in query.fields:
            if owners.unknown(condition):
                notes.append(f"No document has what {condition} asks about, so it was left out.")
            else:
                fields.append(condition)
        passing = owners.passing(filters, fields)
        passages = passing.passages
        for word in query.words:
            having = self.matcher.having(word)
            if not word.excluded and not having.any():
                notes.append(f"No passage has {word}.")
            passages = passages & (having ^ word.excluded)
        if not notes and not passages.any():
            notes.append("No passage meets all of the conditions.")
        return Passing(owners, passages), notes

    def facets(self, query: ParsedQuery, names: Sequence[str], filters: Filters | None) -> Facets:
        """How many documents that match have each value of some fields.

        A document matches if one of its passages meets the conditions and has a word of the query. A filter on the
        field itself does not count, so that the other values can still be chosen.
        """
        counts: Facets = {}
        sharing = self.matcher.sharing(query.text) if names else None
        for name in names:
            others = {field: value for field, value in (filters or {}).items() if field != name}
            passing, _ = self.conditions(query, others)
            if sharing is not None:
                passing = Passing(passing.owners, passing.passages & sharing)
            owners = passing.owners
            counts[name] = owners.counts(name, passing.documents) if owners.has(name) else {}
        return counts

    def listed(self, passing: Any, k: int, newest: bool) -> Hits:
        """The first passage of every document that passes, in the order of the collection, or newest first."""
        owners = passing.owners
        places = np.flatnonzero(passing.passages)
        places = places[np.argsort(owners.order[places])]
        documents = owners.documents[places]
        _, first = np.unique(documents, return_index=True)
        places = places[np.sort(first)]
        if newest:  # documents without a date (NaN) are last
            places = places[np.argsort(-owners.dates[owners.documents[places]], kind="stable")]
        at = self.collection.passage_at
        return [(at(place).id, 0.0) for place in places[:k].tolist()]

    def suggestion(self, query: ParsedQuery) -> str | None:
        """The query with its unknown words replaced; None where there is none, or nothing near."""
        return None if self.bm25 is None else suggestion(self.bm25, query)

    def infos(self) -> dict[str, Any]:
        opened = {"bm25": self.bm25, "dense": self.index, SENTENCES: self.sentences}
        return {name: index.info() for name, index in opened.items() if index is not None}

    @property
    def total(self) -> int:
        """How deep a search can go."""
        return max(1, self.collection.count("passages"))

    def passage(self, id: str) -> Passage:
        try:
            return self.collection.passage(id)
        except DataError:
            if (owner := document_of(id)) == id:
                raise
            return self.collection.passage(owner)

    def document(self, id: str) -> Document | None:
        if not id or not self.collection.has("documents"):
            return None
        try:
            return self.collection.document(id)
        except DataError:
            return None

    def look_up(self, ids: Iterable[str]) -> None:
        """Prepare to give these passages, where they are not at hand."""

    def metadata(self, passage: Passage) -> Mapping[str, str]:
        """What is known of a passage beside its text: its document's metadata, and its own."""
        document = self.document(passage.doc)
        return {**({} if document is None else document.metadata), **passage.metadata}

    def encode_passages(self, passages: Sequence[Passage]) -> NDArray[np.float32]:
        """Vectors of passages, with or without their titles as in the index."""
        return self.encode(passages, "passage")

    def encode(self, texts: Sequence[Record], kind: Role) -> NDArray[np.float32]:
        """Vectors of texts, made as those of the index and of its queries are."""
        return self.embedder_for(kind).vectors(texts, kind)


def _identity(path: Path) -> tuple[int, int, int] | None:
    """What tells a folder from another of its name that took its place, as after building anew; None without one."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns
