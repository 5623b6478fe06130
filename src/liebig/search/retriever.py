"""A retriever's folder as a Python object: search, encode, explain; safe to share between threads.

    from liebig import Retriever

    retriever = Retriever.from_folder("runs/notes")
    for result in retriever.search("what limits the growth of barley?", k=3):
        print(result.rank, result.title, result.text)

Opening maps the files and checks their hashes; the model is loaded with the first dense question. `reload` takes over
a generation that `liebig update` has written meanwhile; searches under way finish with the one they began with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from liebig.base.errors import LiebigError, RecipeError
from liebig.base.machine import checked
from liebig.base.progress import counted
from liebig.base.records import Document, Passage, Query
from liebig.base.storage import fetched
from liebig.search.answer import (
    DocumentResults,
    Result,
    SearchAnswer,
    SearchOptions,
    answers,
    by_document,
    with_texts,
)
from liebig.search.context import PromptContext, looked_at, within_budget
from liebig.search.explain import Contribution, bm25_score, dense_score, leave_one_out
from liebig.search.filters import Filters
from liebig.search.generation import Generation
from liebig.search.retriever_folder import RetrieverDescription, SystemName, read

if TYPE_CHECKING:
    from liebig.model.cross_encoder import CrossEncoder
    from liebig.text.layout import Role


T = TypeVar("T")
UNSHOWN = ("sources", "exclude", "include", "ignore_files")  # about the machine that a folder was built on


@dataclass(frozen=True)
class OpenOptions:
    """How every generation of a folder is opened."""

    verify: bool
    device: str | None
    reranker: str | Path | None
    light: bool


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
        light: bool = False,
    ) -> Retriever:
        """Open what `liebig build` wrote; `verify=False` compares sizes only, not the files' hashes.

        `light` answers the first question sooner: numpy encodes it where it can, so that torch is not imported.

        `reranker` names a cross-encoder (a folder, or a name on the hub) for system="reranked", in the place of the
        one that the folder may have.
        """
        folder, options = fetched(Path(path)), OpenOptions(verify, checked(device), reranker, light)
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
        """The k best passages of a query, which may use the query language (`query_language.py`).

        `filters` names fields of the metadata with the value, the values or the range that a passage's document must
        have. `answer` says more: what was not understood, what the query may have meant, and counts for filters.
        """
        return self.search_many([text], k, system, filters)[0]

    def search_documents(
        self, text: str, k: int = 10, system: str | None = None, filters: Filters | None = None
    ) -> list[DocumentResults]:
        """The k best passages of a query, those of one document together."""
        return by_document(self.search(text, k, system, filters))

    def search_many(
        self, texts: Sequence[str], k: int = 10, system: str | None = None, filters: Filters | None = None
    ) -> list[list[Result]]:
        """The k best passages of every query, asked together."""
        return self.search_systems(texts, k, [system], filters)[0]

    def search_systems(
        self, texts: Sequence[str], k: int, systems: Sequence[str | None], filters: Filters | None = None
    ) -> list[list[list[Result]]]:
        """The same by each of several systems; a query is encoded once for all of them."""
        made = self.answers(texts, SearchOptions(k, tuple(systems), filters, suggest=False))
        return [[answer.lists[place] for answer in made] for place in range(len(systems))]

    def answer(self, text: str, k: int = 10, system: str | None = None, **options: Any) -> SearchAnswer:
        """The results of a query with notes, a suggestion and counts; `options` are those of `SearchOptions`."""
        return self.answers([text], SearchOptions(k, (system,), **options))[0]

    def answers(self, texts: Sequence[str], options: SearchOptions) -> list[SearchAnswer]:
        """The answers to queries that are asked together."""
        several = _several(texts)
        return self._asking(lambda generation: answers(generation, several, options))

    def context(
        self, question: str, tokens: int = 2000, system: str | None = None, filters: Filters | None = None
    ) -> PromptContext:
        """The best passages of a question in at most that many tokens, numbered, for a prompt: `context(...).text`."""
        if tokens < 1:
            raise RecipeError(f"tokens must be at least 1, got {tokens}")
        answer = self.answer(question, looked_at(tokens), system, filters=filters)
        return within_budget(question, answer.results, tokens, answer.notes)

    def similar(self, passage_id: str, k: int = 10, filters: Filters | None = None) -> list[Result]:
        """The k passages most like a given one, by their vectors; by the words they share where there are none."""
        if k < 1:
            raise RecipeError(f"k must be at least 1, got {k}")
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
        return self._asking(lambda generation: generation.passage(id))

    def document(self, id: str) -> Document | None:
        """The document with this id; None where the collection has passages only, or no such document."""
        return self._asking(lambda generation: generation.document(id))

    def info(self) -> dict[str, Any]:
        """What is in the folder, for people and pages."""
        generation = self._current
        description = generation.description
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
            **generation.infos(),
            **{name: value for name, value in description.more.items() if name not in UNSHOWN},
        }

    @property
    def light(self) -> bool:
        """Whether numpy encodes questions, because nothing else was loaded yet (`from_folder`, until `leave_light`)."""
        return self._options.light

    def leave_light(self) -> None:
        """Encode by what takes seconds to load and is faster then: in int8 where it is good, else by torch."""
        with self._reloading:
            self._current.leave_light()
            self._options = replace(self._options, light=False)

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


def _similar(generation: Generation, passage_id: str, k: int, filters: Filters | None) -> list[Result]:
    passage = generation.passage(passage_id)
    passing = generation.passing(filters) if filters else None
    table = generation.systems(passing, vectors=lambda queries: generation.encode_passages([passage]))
    question = Query("", f"{passage.title} {passage.text}".strip())
    system = table.get("dense") or table["bm25"]
    hits = with_texts(generation, system.answer([question], min(k + 1, generation.total)))[0]
    others = [hit for hit in hits if hit.id != passage.id][:k]  # a passage is most like itself
    return [replace(hit, rank=rank) for rank, hit in enumerate(others, 1)]


def _explain(generation: Generation, query: str, passage_id: str, system: str) -> list[Contribution]:
    if generation.name_of(system) not in ("bm25", "dense"):
        raise RecipeError(f"{system} is explained by its parts", fix="ask for bm25 or dense")
    passage = generation.passage(passage_id)
    if system == "bm25":
        assert generation.terms is not None, "its name was checked"
        return leave_one_out(passage, bm25_score(generation.terms, query))
    vector = generation.encode([query], "query")[0]
    return leave_one_out(passage, dense_score(generation.encode_passages, vector))


def _open(folder: Path, description: RetrieverDescription, options: OpenOptions) -> Generation:
    """Open a generation; one that was replaced while it was read is left for the newer."""
    while True:
        kind = Generation
        if description.engine is not None:
            from liebig.search.engine_generation import EngineGeneration as kind
        try:
            generation = kind(folder, description, **asdict(options))
        except (LiebigError, OSError):
            now = read(folder)
            if now == description:
                raise
        else:
            now = read(folder)
            if now == description:
                return generation
        description = now
