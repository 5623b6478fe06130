"""A retriever's folder as a Python object: search, encode, explain; safe to share between threads.

    from liebig import Retriever

    retriever = Retriever.from_folder("runs/notes")
    for result in retriever.search("what limits the growth of barley?", k=3):
        print(result.rank, result.title, result.text)

Opening maps the files and checks their hashes; the model is loaded with the first dense question. `reload` takes over
a generation that `liebig update` has written meanwhile; searches under way finish with the one they began with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from liebig.data.collection import Collection
from liebig.errors import DataError, LiebigError, RecipeError
from liebig.explain import nearest
from liebig.machine import checked
from liebig.records import Document, Passage, Query
from liebig.retriever.contributions import Contribution, bm25_score, dense_score, leave_one_out
from liebig.retriever.filters import Filtered, Filters
from liebig.retriever.folder import SYSTEMS, Described, SystemName, read
from liebig.retriever.opened import Opened
from liebig.search.fold import document_of
from liebig.search.systems import Found, System

if TYPE_CHECKING:
    from liebig.retriever.embedding import Kind

DEPTH = 100  # passages each system of a hybrid is asked for at least
T = TypeVar("T")
PARTS = {"bm25": ("bm25",), "dense": ("dense",), "hybrid": ("bm25", "dense")}


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


class Retriever:
    """Passages of a folder, found by words, by vectors, or by both."""

    def __init__(self, opened: Opened, *, verify: bool = True, device: str | None = None) -> None:
        self._opened, self._verify, self._device = opened, verify, device
        self._reloading = Lock()

    @classmethod
    def from_folder(cls, path: str | Path, *, verify: bool = True, device: str | None = None) -> Retriever:
        """Open what `liebig build` wrote; `verify=False` compares sizes only, not the files' hashes."""
        folder = Path(path)
        opened = _open(folder, read(folder), verify, checked(device))
        return cls(opened, verify=verify, device=device)

    def __repr__(self) -> str:
        return f"Retriever({str(self.folder)!r}, {len(self):,} passages, {self.system})"

    def __len__(self) -> int:
        return self._opened.collection.count("passages")

    @property
    def opened(self) -> Opened:
        """The generation that is open now: its texts, indexes and model. Hold it where several of them must fit."""
        return self._opened

    @property
    def folder(self) -> Path:
        """Where it lies."""
        return self._opened.folder

    @property
    def generation(self) -> int:
        """Counts the updates of the folder."""
        return self._opened.described.generation

    @property
    def system(self) -> SystemName:
        """The system asked where none is named: the one that did best when the folder was built."""
        return self._opened.described.system

    @property
    def systems(self) -> tuple[SystemName, ...]:
        """The systems there are."""
        return self._opened.described.systems

    def search(
        self, text: str, k: int = 10, system: str | None = None, filters: Filters | None = None
    ) -> list[Result]:
        """The k best passages of a question.

        `filters` names fields of the metadata with the value, or the values, a passage's document must have.
        """
        return self.search_many([text], k, system, filters)[0]

    def search_many(
        self, texts: Sequence[str], k: int = 10, system: str | None = None, filters: Filters | None = None
    ) -> list[list[Result]]:
        """The k best passages of every question, asked together."""
        return self.search_systems(texts, k, [system], filters)[0]

    def search_systems(
        self, texts: Sequence[str], k: int, systems: Sequence[str | None], filters: Filters | None = None
    ) -> list[list[list[Result]]]:
        """The same by each of several systems; a question is encoded once for all of them."""
        if k < 1:
            raise RecipeError(f"k = {k}: there is nothing to search", fix="ask for at least 1")
        several = _several(texts)
        return self._asking(lambda opened: _search(opened, several, k, systems, filters))

    def encode(self, texts: Sequence[str], kind: Kind = "passage") -> NDArray[np.float32]:
        """Vectors of texts, made as those in the index are (`passage`) or as those of questions (`query`)."""
        if kind not in ("passage", "query"):
            raise RecipeError(f"there are no vectors of kind {kind!r}", fix="encode as passage or as query")
        several = _several(texts)
        return self._asking(lambda opened: opened.encode(several, kind))

    def explain(self, query: str, passage_id: str, system: str = "dense") -> list[Contribution]:
        """Start, end and contribution of each word of a passage's text: what its score loses without the word."""
        return self._asking(lambda opened: _explain(opened, query, passage_id, system))

    def passage(self, id: str) -> Passage:
        """The passage with this id."""
        return self._asking(lambda opened: _passage(opened.collection, id))

    def document(self, id: str) -> Document | None:
        """The document with this id; None where the collection has passages only, or no such document."""
        return self._asking(lambda opened: _document(opened.collection, id))

    def info(self) -> dict[str, Any]:
        """What is in the folder, for people and pages."""
        opened = self._opened
        described = opened.described
        indexes = {"bm25": opened.bm25, "dense": opened.index}
        return {
            "folder": str(opened.folder.name),
            "generation": described.generation,
            "passages": opened.collection.count("passages"),
            "documents": opened.collection.count("documents"),
            "system": described.system,
            "systems": list(described.systems),
            "weight": described.weight,
            "model": described.model,
            **{name: index.info() for name, index in indexes.items() if index is not None},
            **{name: value for name, value in described.more.items() if name != "sources"},
        }

    def reload(self) -> bool:
        """Take over the folder's newest generation; True where there was one."""
        with self._reloading:
            before = self._opened
            now = read(before.folder)
            if now == before.described:
                return False
            opened = _open(before.folder, now, self._verify, self._device)
            opened.take_model(before)
            self._opened = opened
            return True

    def _asking(self, ask: Callable[[Opened], T]) -> T:
        """The answer of the generation that is open; of its successor, where it was removed before it could answer."""
        opened = self._opened
        try:
            return ask(opened)
        except (LiebigError, OSError):
            if not self.reload() and self._opened is opened:
                raise
            return ask(self._opened)


def _several(texts: Sequence[str]) -> list[str]:
    if isinstance(texts, str):
        raise RecipeError("one text was given where several are taken", fix="give a list: [text]")
    return list(texts)


def _named(opened: Opened, system: str | None) -> str:
    name = system or opened.described.system
    if name not in SYSTEMS:
        raise RecipeError(f"there is no system {name!r}", fix=nearest(name, SYSTEMS))
    if name not in opened.described.systems:
        raise RecipeError(
            f"the retriever has no {name}", fix=f"ask for {' or '.join(opened.described.systems)}"
        )
    return name


def _search(
    opened: Opened, texts: list[str], k: int, systems: Sequence[str | None], filters: Filters | None
) -> list[list[list[Result]]]:
    """By system and question."""
    names = [PARTS[_named(opened, system)] for system in systems]
    if not texts:
        return [[] for _ in systems]
    queries = [Query(str(place), text) for place, text in enumerate(texts)]
    asked = {part: _asked(opened, part, texts, filters) for part in dict.fromkeys(chain(*names))}
    found = []
    for parts in names:
        depth = min(max(k, DEPTH) if len(parts) > 1 else k, _total(opened))
        lists = zip(*(asked[part].search(queries, depth) for part in parts))
        found.append([_results(opened, parts, of_query, k) for of_query in lists])
    return found


def _explain(opened: Opened, query: str, passage_id: str, system: str) -> list[Contribution]:
    if _named(opened, system) == "hybrid":
        raise RecipeError("a hybrid is explained by its parts", fix="ask for bm25 or dense")
    passage = _passage(opened.collection, passage_id)
    if system == "bm25":
        assert opened.bm25 is not None, "its name was checked"
        return leave_one_out(passage, bm25_score(opened.bm25, query))
    vector = opened.encode([query], "query")[0]
    return leave_one_out(passage, dense_score(opened.encode_passages, vector))


def _open(folder: Path, described: Described, verify: bool, device: str | None) -> Opened:
    """Open a generation; one that was replaced while it was opened is left for the newer."""
    while True:
        try:
            opened = Opened(folder, described, verify=verify, device=device)
        except (LiebigError, OSError):
            now = read(folder)
            if now == described:
                raise
        else:
            now = read(folder)
            if now == described:
                return opened
        described = now


def _total(opened: Opened) -> int:
    return max(1, opened.collection.count("passages"))


def _asked(opened: Opened, name: str, texts: Sequence[str], filters: Filters | None) -> System:
    system = opened.system(name, texts)
    if not filters:
        return system
    return Filtered(system, opened.owners.passes(filters), _total(opened))


def _results(opened: Opened, names: Sequence[str], lists: Sequence[Found], k: int) -> list[Result]:
    found = lists[0] if len(lists) == 1 else opened.fuse(*lists)
    ranks = {name: {id: rank for rank, (id, _) in enumerate(hits, 1)} for name, hits in zip(names, lists)}
    results = []
    for rank, (id, score) in enumerate(found[:k], 1):
        passage = _passage(opened.collection, id)
        document = _document(opened.collection, passage.doc)
        results.append(
            Result(
                id=passage.id,
                score=score,
                rank=rank,
                title=passage.title,
                text=passage.text,
                doc=passage.doc,
                metadata={} if document is None else document.metadata,
                ranks={name: of_system.get(id) for name, of_system in ranks.items()},
            )
        )
    return results


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
