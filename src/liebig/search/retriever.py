"""A retriever's folder as a Python object: search, encode, explain; safe to share between threads.

    from liebig import Retriever

    retriever = Retriever.from_folder("runs/notes")
    for result in retriever.search("what limits the growth of barley?", k=3):
        print(result.rank, result.title, result.text)

Opening maps the files and checks their hashes; the model is loaded with the first dense question. `reload` takes over
a generation that `liebig update` has written meanwhile; searches under way finish with the one they began with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from liebig.base import workspace
from liebig.base.config import nearest
from liebig.base.errors import DataError, LiebigError, RecipeError
from liebig.base.machine import checked
from liebig.base.progress import counted
from liebig.base.records import Document, Passage, Query
from liebig.bm25.search import BM25
from liebig.collection import KINDS, Collection
from liebig.indexes import open_index
from liebig.indexes.base import Index
from liebig.search.explain import Contribution, bm25_score, dense_score, leave_one_out
from liebig.search.filters import Filters, Owners
from liebig.search.retriever_folder import SYSTEMS, RetrieverDescription, SystemName, read
from liebig.search.systems import (
    SENTENCE_SHARE,
    SENTENCES,
    Answer,
    Filtered,
    Hybrid,
    Lexical,
    Once,
    QueryEncoder,
    QueryVectors,
    Reranked,
    System,
    cached_ids,
    of_texts,
    weighted_by,
)
from liebig.vectors import document_of

if TYPE_CHECKING:
    from liebig.model.cross_encoder import CrossEncoder
    from liebig.model.encoder import Encoder
    from liebig.search.embed import Embedder
    from liebig.text.layout import Record, Role


class Generation:
    """One generation of a folder, opened: texts, indexes, and the model, which is loaded with the first dense question.

    Nothing here changes, so searches that run while the next generation is taken over finish with theirs. Memory: that
    of BM25's terms, the model, some ten MB of ids, and 12 bytes per passage where metadata are filtered; all else is
    mapped.
    """

    def __init__(
        self,
        folder: Path,
        description: RetrieverDescription,
        *,
        verify: bool = True,
        device: str | None = None,
        reranker: str | Path | None = None,
    ) -> None:
        """`reranker` is a cross-encoder to use in the place of the folder's own."""
        self.folder, self.description = folder, description
        own = None if description.reranker is None else folder / description.reranker
        self._reranker_source, self._device = own if reranker is None else reranker, device
        self._reranker: CrossEncoder | None = None
        self.collection = Collection(folder / description.collection)
        if (self.collection.path / workspace.MANIFEST).is_file():
            workspace.verify(self.collection.path, hashes=verify)
        for model in filter(None, (description.model, description.query)):
            workspace.verify_part(folder / model, hashes=verify)
        self.collection.open()
        self.bm25 = BM25.open(folder / description.bm25, hashes=verify) if description.bm25 else None
        self.index = open_index(folder / description.index, hashes=verify) if description.index else None
        self.sentences = (
            open_index(folder / description.sentences, hashes=verify) if description.sentences else None
        )
        opened = {"bm25": self.bm25, "dense": self.index, SENTENCES: self.sentences}
        self._ids = {name: cached_ids(index) for name, index in opened.items() if index is not None}
        self._models = tuple(
            _identity(folder / name) for name in (description.model, description.query) if name
        )
        self._encoder = (
            None if self.index is None else self._text_encoder(self.index, device, description.query)
        )
        # Questions may have a smaller model than passages, in the same space.
        self._passage_encoder = (
            self._encoder
            if self.index is None or description.query is None
            else self._text_encoder(self.index, device)
        )
        self._lock = Lock()
        self._owners: Owners | None = None

    def _text_encoder(self, index: Index, device: str | None, query: str | None = None) -> QueryEncoder:
        named = query or self.description.model
        return QueryEncoder(index, index.model if named is None else self.folder / named, device)

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

    @property
    def names(self) -> tuple[SystemName, ...]:
        """The systems that can be asked."""
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
        self, filters: Filters | None = None, threads: int = 1, vectors: QueryVectors | None = None
    ) -> dict[SystemName, System]:
        """Every system there is, for one request: they share the vectors of its questions.

        `vectors` makes those in the place of the model of questions.
        """
        made: dict[str, System] = {}
        if self.bm25 is not None:
            made["bm25"] = Lexical(self.bm25, threads, id_of=self._ids["bm25"])
        if self.index is not None and self._encoder is not None:
            shared = Once(vectors or self._encoder)
            made["dense"] = of_texts(self.index, shared, id_of=self._ids["dense"])
            if self.sentences is not None:
                made[SENTENCES] = of_texts(self.sentences, shared, SENTENCES, self._ids[SENTENCES])
        if filters:
            passing = self.owners.passing(filters)
            made = {
                name: system.among(passing) or Filtered(system, passing.check, self.total)
                for name, system in made.items()
            }
        if "hybrid" in self.description.systems:
            sentences = made.get(SENTENCES)
            share = 0.0 if sentences is None else SENTENCE_SHARE
            now = self.description
            fuse = weighted_by(now.weight, now.norm, share, now.spread)
            three = [made["bm25"], made["dense"], *([] if sentences is None else [sentences])]
            made["hybrid"] = Hybrid(three, fuse)
        if "reranked" in self.names:
            best = made.get("hybrid") or next(iter(made.values()))
            passage = partial(_passage, self.collection)
            made["reranked"] = Reranked(best, self._rerank, passage, self.description.depth)
        return {name: made[name] for name in SYSTEMS if name in made}

    @property
    def total(self) -> int:
        """How deep a search can go."""
        return max(1, self.collection.count("passages"))

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


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Result:
    """A passage found. `ranks` says where each system asked had it; None where it was not among its best."""

    id: str
    score: float
    rank: int
    title: str
    text: str
    doc: str
    metadata: Mapping[str, str] = field(default_factory=dict, hash=False)
    ranks: Mapping[str, int | None] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class DocumentResults:
    """The results of one document, best first."""

    doc: str
    title: str
    metadata: Mapping[str, str] = field(hash=False)
    results: tuple[Result, ...]


def by_document(results: Iterable[Result]) -> list[DocumentResults]:
    """Results under the document each is from; documents in the order of their best passages.

    A passage that names no document stands for itself.
    """
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(result.doc or result.id, []).append(result)
    return [
        DocumentResults(doc, group[0].title, group[0].metadata, tuple(group)) for doc, group in groups.items()
    ]


@dataclass(frozen=True)
class OpenOptions:
    """How every generation of a folder is opened."""

    verify: bool
    device: str | None
    reranker: str | Path | None


class Retriever:
    """Passages of a folder, found by words, by vectors, by both, or by both and then reranked."""

    def __init__(self, generation: Generation, options: OpenOptions) -> None:
        self._current, self._options = generation, options
        self._reloading = Lock()

    @classmethod
    def from_folder(
        cls,
        path: str | Path,
        *,
        verify: bool = True,
        device: str | None = None,
        reranker: str | Path | None = None,
    ) -> Retriever:
        """Open what `liebig build` wrote; `verify=False` compares sizes only, not the files' hashes.

        `reranker` names a cross-encoder (a folder, or a name on the hub) for system="reranked", in the place of the
        one that the folder may have.
        """
        folder, options = Path(path), OpenOptions(verify, checked(device), reranker)
        return cls(_open(folder, read(folder), options), options)

    def __repr__(self) -> str:
        return f"Retriever({str(self.folder)!r}, {counted(len(self), 'passages')}, {self.system})"

    def __len__(self) -> int:
        return self._current.collection.count("passages")

    @property
    def current(self) -> Generation:
        """The generation that is open now: its texts, indexes and model. Hold it where several of them must fit."""
        return self._current

    @property
    def folder(self) -> Path:
        """Where it lies."""
        return self._current.folder

    @property
    def generation(self) -> int:
        """Counts the updates of the folder."""
        return self._current.description.generation

    @property
    def system(self) -> SystemName:
        """The system asked where none is named: the one that did best when the folder was built."""
        return self._current.description.system

    @property
    def systems(self) -> tuple[SystemName, ...]:
        """The systems there are."""
        return self._current.names

    @property
    def reranker(self) -> CrossEncoder | None:
        """The cross-encoder of system="reranked"; None where there is none."""
        return self._current.reranker

    def search(
        self, text: str, k: int = 10, system: str | None = None, filters: Filters | None = None
    ) -> list[Result]:
        """The k best passages of a question.

        `filters` names fields of the metadata with the value, or the values, a passage's document must have.
        """
        return self.search_many([text], k, system, filters)[0]

    def search_documents(
        self, text: str, k: int = 10, system: str | None = None, filters: Filters | None = None
    ) -> list[DocumentResults]:
        """The k best passages of a question, those of one document together."""
        return by_document(self.search(text, k, system, filters))

    def search_many(
        self, texts: Sequence[str], k: int = 10, system: str | None = None, filters: Filters | None = None
    ) -> list[list[Result]]:
        """The k best passages of every question, asked together."""
        return self.search_systems(texts, k, [system], filters)[0]

    def search_systems(
        self, texts: Sequence[str], k: int, systems: Sequence[str | None], filters: Filters | None = None
    ) -> list[list[list[Result]]]:
        """The same by each of several systems; a question is encoded once for all of them."""
        return self.search_generation(texts, k, systems, filters)[1]

    def search_generation(
        self, texts: Sequence[str], k: int, systems: Sequence[str | None], filters: Filters | None = None
    ) -> tuple[int, list[list[list[Result]]]]:
        """`search_systems`, and the number of the generation that answered: another may be open by now."""
        if k < 1:
            raise RecipeError(f"k = {k}: there is nothing to search", fix="ask for at least 1")
        several = _several(texts)
        return self._asking(
            lambda generation: (
                generation.description.generation,
                _search(generation, several, k, systems, filters),
            )
        )

    def similar(self, passage_id: str, k: int = 10, filters: Filters | None = None) -> list[Result]:
        """The k passages most like a given one, by their vectors; by the words they share where there are none."""
        if k < 1:
            raise RecipeError(f"k = {k}: there is nothing to search", fix="ask for at least 1")
        return self._asking(lambda generation: _similar(generation, passage_id, k, filters))

    def encode(self, texts: Sequence[str], kind: Role = "passage") -> NDArray[np.float32]:
        """Vectors of texts, made as those in the index are (`passage`) or as those of questions (`query`)."""
        if kind not in ("passage", "query"):
            raise RecipeError(f"there are no vectors of kind {kind!r}", fix="encode as passage or as query")
        several = _several(texts)
        return self._asking(lambda generation: generation.encode(several, kind))

    def explain(self, query: str, passage_id: str, system: str = "dense") -> list[Contribution]:
        """Start, end and contribution of each word of a passage's text: what its score loses without the word."""
        return self._asking(lambda generation: _explain(generation, query, passage_id, system))

    def passage(self, id: str) -> Passage:
        """The passage with this id."""
        return self._asking(lambda generation: _passage(generation.collection, id))

    def document(self, id: str) -> Document | None:
        """The document with this id; None where the collection has passages only, or no such document."""
        return self._asking(lambda generation: _document(generation.collection, id))

    def info(self) -> dict[str, Any]:
        """What is in the folder, for people and pages."""
        generation = self._current
        description = generation.description
        indexes = {"bm25": generation.bm25, "dense": generation.index, SENTENCES: generation.sentences}
        return {
            "folder": str(generation.folder.name),
            "generation": description.generation,
            "passages": generation.collection.count("passages"),
            "documents": generation.collection.count("documents"),
            "system": description.system,
            "systems": list(generation.names),
            "weight": description.weight,
            "model": description.model,
            **({} if description.query is None else {"query": description.query}),
            **{name: index.info() for name, index in indexes.items() if index is not None},
            **{name: value for name, value in description.more.items() if name != "sources"},
        }

    def reload(self) -> bool:
        """Take over the folder's newest generation; True where there was one."""
        with self._reloading:
            before = self._current
            now = read(before.folder)
            if now == before.description:
                return False
            generation = _open(before.folder, now, self._options)
            generation.take_model(before)
            self._current = generation
            return True

    def _asking(self, ask: Callable[[Generation], T]) -> T:
        """The answer of the generation that is open; of its successor, where it was removed before it could answer."""
        generation = self._current
        try:
            return ask(generation)
        except (LiebigError, OSError):
            if not self.reload() and self._current is generation:
                raise
            return ask(self._current)


def _several(texts: Sequence[str]) -> list[str]:
    if isinstance(texts, str):
        raise RecipeError("one text was given where several are taken", fix="give a list: [text]")
    return list(texts)


def _search(
    generation: Generation, texts: list[str], k: int, systems: Sequence[str | None], filters: Filters | None
) -> list[list[list[Result]]]:
    """By system and question."""
    names = [generation.name_of(system) for system in systems]
    if not texts:
        return [[] for _ in systems]
    queries = [Query(str(place), text) for place, text in enumerate(texts)]
    table, depth = generation.systems(filters), min(k, generation.total)
    return [_results(generation, table[name].answer(queries, depth)) for name in names]


def _similar(generation: Generation, passage_id: str, k: int, filters: Filters | None) -> list[Result]:
    passage = _passage(generation.collection, passage_id)
    table = generation.systems(filters, vectors=lambda queries: generation.encode_passages([passage]))
    question = Query("", f"{passage.title} {passage.text}".strip())
    system = table.get("dense") or table["bm25"]
    hits = _results(generation, system.answer([question], min(k + 1, generation.total)))[0]
    others = [hit for hit in hits if hit.id != passage.id][:k]  # a passage is most like itself
    return [replace(hit, rank=rank) for rank, hit in enumerate(others, 1)]


def _explain(generation: Generation, query: str, passage_id: str, system: str) -> list[Contribution]:
    if generation.name_of(system) not in ("bm25", "dense"):
        raise RecipeError(f"{system} is explained by its parts", fix="ask for bm25 or dense")
    passage = _passage(generation.collection, passage_id)
    if system == "bm25":
        assert generation.bm25 is not None, "its name was checked"
        return leave_one_out(passage, bm25_score(generation.bm25, query))
    vector = generation.encode([query], "query")[0]
    return leave_one_out(passage, dense_score(generation.encode_passages, vector))


def _open(folder: Path, description: RetrieverDescription, options: OpenOptions) -> Generation:
    """Open a generation; one that was replaced while it was read is left for the newer."""
    while True:
        try:
            generation = Generation(folder, description, **asdict(options))
        except (LiebigError, OSError):
            now = read(folder)
            if now == description:
                raise
        else:
            now = read(folder)
            if now == description:
                return generation
        description = now


def _results(generation: Generation, answer: Answer) -> list[list[Result]]:
    """The hits of every question with what the collection knows of them, and their ranks in each part."""
    ranks = {
        name: [{id: rank for rank, (id, _) in enumerate(hits, 1)} for hits in lists]
        for name, lists in answer.parts.items()
    }
    return [
        [
            _result(
                generation.collection, id, score, rank, {name: by[q].get(id) for name, by in ranks.items()}
            )
            for rank, (id, score) in enumerate(hits, 1)
        ]
        for q, hits in enumerate(answer.hits)
    ]


def _result(
    collection: Collection, id: str, score: float, rank: int, ranks: Mapping[str, int | None]
) -> Result:
    passage = _passage(collection, id)
    document = _document(collection, passage.doc)
    metadata = {} if document is None else document.metadata
    return Result(passage.id, score, rank, passage.title, passage.text, passage.doc, metadata, ranks)


def _passage(collection: Collection, id: str) -> Passage:
    try:
        return collection.passage(id)
    except DataError:
        if (owner := document_of(id)) == id:
            raise
        return collection.passage(owner)


def _document(collection: Collection, id: str) -> Document | None:
    if not id or not collection.has("documents"):
        return None
    try:
        return collection.document(id)
    except DataError:
        return None
