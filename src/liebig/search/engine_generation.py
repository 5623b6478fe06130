"""One generation of a retriever that lives in a search engine: the same answers, asked of the engine.

The folder has the model, the statistics of BM25's terms and `engine.json`, which names the engine's tables; passages,
metadata, vectors and postings are in the engine (`builder/push.py` writes them). A hybrid is fused here from the
engine's lists, as for a folder. Filters run in the engine. Left out are what needs the postings at hand: suggestions,
counts for filters, and conditions on words; a condition that was left out is said in the notes of the answer.
Memory: the terms (about 100 bytes each) and the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import NonNegativeInt, PositiveFloat, PositiveInt

from liebig.base import npy, workspace
from liebig.base.errors import DataError, RecipeError, WorkspaceError
from liebig.base.json_file import FileModel, read_json
from liebig.base.records import UNITS, Document, Passage, Query, Section
from liebig.bm25.search import BM25Settings, TermStatistics
from liebig.collection import Collection
from liebig.collection.lookup import read_strings
from liebig.engines import EngineText, FilterCondition, SearchEngine, engine_class
from liebig.search.filters import DATES, Facets, Filters, comparisons, dated, folded
from liebig.search.fusion import Hits
from liebig.search.generation import Generation
from liebig.search.query_language import FieldCondition, ParsedQuery
from liebig.search.systems import Folded, QueryVectors, SentenceScores, System
from liebig.vectors import document_of

SUMMARY, TERMS, FREQUENCIES = "engine.json", "terms", "frequencies.npy"
PASSAGES = "passages"
KEPT = 20_000  # texts of passages kept in memory
COMPARED = {"before": ("dates", "<"), "after": ("dates", ">=")}


class EngineVectors(FileModel):
    """A table of vectors: how they were made, as an index says it."""

    table: str
    width: PositiveInt
    about: Mapping[str, Any]

    @property
    def model(self) -> Path | None:
        return None


class EngineFile(FileModel):
    """`engine.json`: where the tables are, and what they were made of."""

    format: Literal[1]
    kind: Literal["milvus", "opensearch"]
    uri: str
    key: str  # the mark of the tables
    tables: tuple[str, ...]  # the first has the passages
    passages: NonNegativeInt
    places: NonNegativeInt  # above that of every row
    documents: NonNegativeInt
    fields: tuple[str, ...]  # what filters may name
    settings: BM25Settings
    average: PositiveFloat  # of the passages' lengths, as the weights of their terms have it
    vectors: Mapping[Literal["dense", "sentences"], EngineVectors]

    @classmethod
    def read(cls, folder: Path) -> EngineFile:
        return read_json(folder / SUMMARY, cls, fix="push the retriever again")

    def connect(self) -> SearchEngine:
        """The engine, whose tables are those that were pushed."""
        engine: SearchEngine = engine_class(self.kind).connect(self.uri)
        for name in self.tables:
            mark = engine.mark(name)
            if mark != self.key:
                said = "there is no table" if mark is None else "another retriever has the table"
                raise WorkspaceError(f"{said} {name!r} at {self.uri}", fix="push the retriever again")
        return engine


class EngineTerms(TermStatistics):
    """The statistics of BM25's terms; postings are in the engine."""

    def __init__(self, folder: Path, about: EngineFile, engine: SearchEngine) -> None:
        self.settings, self.average, self._count = about.settings, about.average, about.passages
        self._folder, self._engine, self._table = folder, engine, about.tables[0]
        self.frequencies = npy.load(folder / FREQUENCIES, [np.int64], (None,))
        self._analyzer = self.settings.analyzer

    @cached_property
    def numbers(self) -> dict[str, int]:
        terms = read_strings(self._folder, TERMS).to_list()
        if len(terms) != len(self.frequencies):
            raise npy.corrupt(self._folder / FREQUENCIES, "has another number of terms")
        return {term: number for number, term in enumerate(terms)}

    def __len__(self) -> int:
        return self._count

    def frequency(self, *terms: str) -> int:
        known = (self.numbers[term] for term in terms if term in self.numbers)
        return min(sum(int(self.frequencies[number]) for number in known), self._count)

    def known(self, word: str) -> list[int]:
        numbers = (self.numbers.get(term, -1) for term in self._analyzer.variants(word))
        return [number for number in numbers if number >= 0 and self.frequencies[number]]

    def weights(self, question: str) -> dict[int, float]:
        """A question as a sparse vector: the idf of its terms, as often as they occur."""
        weights: dict[int, float] = {}
        for word in self._analyzer.query_words(question):
            numbers = self.known(word)
            frequency = min(sum(int(self.frequencies[number]) for number in numbers), self._count)
            for number in numbers:
                weights[number] = weights.get(number, 0.0) + self.weight(frequency)
        return weights

    def of_best(self, question: str, k: int, words: Iterable[tuple[str, ...]]) -> set[tuple[str, ...]]:
        hits = self._engine.by_terms(self._table, [self.weights(question)], k, ())[0]
        rows = self._engine.terms(self._table, [id for id, _ in hits]).values() if hits else ()
        there = {number for row in rows for number in row}
        return {terms for terms in words if any(self.numbers.get(term) in there for term in terms)}

    def info(self) -> dict[str, Any]:
        return {"kind": "bm25", "passages": len(self), "terms": len(self.frequencies)}


@dataclass(frozen=True)
class Conditions:
    """What passages must meet, in the engine's words."""

    where: tuple[FilterCondition, ...]


class EngineSystem(System):
    """A table of an engine, asked with the terms or the vectors of questions."""

    def __init__(
        self, name: str, engine: SearchEngine, table: str, where: tuple[FilterCondition, ...], ask: Any
    ) -> None:
        self.name, self._engine, self._table, self._where, self._ask = name, engine, table, where, ask

    def search(self, queries: Sequence[Query], k: int) -> list[Hits]:
        depth = min(k, self._engine.deepest)
        by = self._engine.by_terms if self.name == "bm25" else self._engine.by_vectors
        return by(self._table, self._ask(queries), depth, self._where)


class EngineSentences(SentenceScores):
    """The vectors of sentences in an engine, of which those of the passages found are compared."""

    def __init__(self, engine: SearchEngine, table: str, vectors: QueryVectors) -> None:
        self._engine, self._table, self._vectors = engine, table, vectors

    def search(self, queries: Sequence[Query], found: Sequence[Sequence[Hits]], k: int) -> list[Hits]:
        vectors = self._vectors(queries)
        return [self._of_passages(vectors[i : i + 1], lists)[:k] for i, lists in enumerate(found)]

    def _of_passages(self, vector: NDArray[np.float32], lists: Sequence[Hits]) -> Hits:
        ids = list(dict.fromkeys([id for hits in lists for id, _ in hits]))
        if not ids:
            return []
        here = FilterCondition("passage", "", "in", tuple(ids))
        hits = self._engine.by_vectors(self._table, vector, self._engine.deepest, [here])[0]
        best: dict[str, float] = {}
        for id, score in hits:  # the best comes first
            best.setdefault(document_of(id), score)
        return sorted(((id, best[id]) for id in ids if id in best), key=lambda hit: -hit[1])


class EngineTexts(Collection):
    """The passages and documents in an engine, looked up as answers need them."""

    def __init__(self, engine: SearchEngine, about: EngineFile, path: Path) -> None:
        self.path, self._engine, self._about = path, engine, about
        self._known: dict[str, Passage] = {}

    def count(self, kind: str) -> int:
        """How many passages or documents there are."""
        return {"passages": self._about.passages, "documents": self._about.documents}[kind]

    def has(self, kind: str) -> bool:
        return self.count(kind) > 0

    def some_passages(self, names: Iterable[str]) -> Iterator[Passage]:
        """Those of the passages that are there, each once."""
        known, names = self._known if len(self._known) < KEPT else {}, dict.fromkeys(names)
        new = [name for name in names if name not in known]
        for start in range(0, len(new), 512):
            some = FilterCondition("passage", "", "in", tuple(new[start : start + 512]))
            texts = self._engine.texts(self._about.tables[0], [some], 512)
            known = known | {text.passage: _passage(text) for text in texts}
        self._known = known
        return (known[name] for name in names if name in known)

    def passage(self, name: str) -> Passage:
        found = next(self.some_passages([name]), None)
        if found is None:
            raise DataError(f"there is no passage {name!r}", file=self.path)
        return found

    def document(self, name: str) -> Document:
        """A document: its passages, one after the other."""
        here = FilterCondition("fields", "doc", "in", (name,))
        texts = list(self._engine.all_texts(self._about.tables[0], [here], self._about.places))
        if not texts:
            raise DataError(f"there is no document {name!r}", file=self.path)
        metadata = {key: value for key, value in texts[0].metadata.items() if key not in UNITS}
        return Document(name, texts[0].title, (Section("", tuple(t.text for t in texts)),), metadata)


def _passage(text: EngineText) -> Passage:
    return Passage(text.passage, text.text, text.title, text.doc, text.metadata, text.language)


class EngineGeneration(Generation):
    """Texts and indexes in an engine, and the model."""

    engine: SearchEngine
    about: EngineFile
    statistics: EngineTerms

    def _open(self, verify: bool) -> None:
        place = self.folder / str(self.description.engine)
        workspace.verify(place, hashes=verify)
        self.about = EngineFile.read(place)
        self.engine = self.about.connect()
        self.collection = EngineTexts(self.engine, self.about, place)
        self.bm25 = self.index = self.sentences = None
        self.terms = self.statistics = EngineTerms(place, self.about, self.engine)
        self.spaces = {str(name): space for name, space in self.about.vectors.items() if name == "dense"}

    def _single_systems(self, passing: Any, threads: int, vectors: QueryVectors | None) -> dict[str, System]:
        where = () if passing is None else passing.where
        terms = self.statistics
        lexical = EngineSystem(
            "bm25",
            self.engine,
            self.about.tables[0],
            where,
            lambda some: [terms.weights(q.text) for q in some],
        )
        made: dict[str, System] = {"bm25": lexical}
        if vectors is not None and (space := self.about.vectors.get("dense")) is not None:
            dense = EngineSystem("dense", self.engine, space.table, where, vectors)
            made["dense"] = Folded(dense) if space.about.get("pieces") else dense
        return made

    def _sentence_scores(self, vectors: QueryVectors) -> SentenceScores | None:
        space = self.about.vectors.get("sentences")
        return None if space is None else EngineSentences(self.engine, space.table, vectors)

    def look_up(self, ids: Iterable[str]) -> None:
        list(self.collection.some_passages(ids))

    def metadata(self, passage: Passage) -> Mapping[str, str]:
        return passage.metadata

    def passing(self, filters: Filters) -> Conditions:
        for name in filters:
            self._known_field(name)
        return Conditions(comparisons(filters))

    def _known_field(self, name: str) -> None:
        if name not in self.about.fields and name != "id":
            raise RecipeError(
                f"no document has the field {name!r}",
                fix=f"filter by {', '.join(sorted({*self.about.fields, 'id'}))}",
            )

    def conditions(self, query: ParsedQuery, filters: Filters | None) -> tuple[Conditions, list[str]]:
        where = list(self.passing(filters or {}).where)
        notes = [f"The engine has no conditions on words, so {word} was left out." for word in query.words]
        for condition in query.fields:
            compared = self._compared(condition)
            if compared is None:
                notes.append(f"The engine cannot evaluate {condition}, so it was left out.")
            else:
                where.append(compared)
        return Conditions(tuple(where)), notes

    def _compared(self, condition: FieldCondition) -> FilterCondition | None:
        """A condition of the query language as a comparison; None for parts of words and patterns."""
        name, value = condition.name, condition.value
        if name in COMPARED:
            column = next((date for date in DATES if date in self.about.fields), None)
            if column is None:
                return None
            both = comparisons({column: {"lt" if name == "before" else "gte": value}})
            return replace(both[0], excluded=condition.excluded)
        if name in ("lang", "type"):
            return FilterCondition("fields", f"~{name}", "in", (folded(name, value),), condition.excluded)
        return None

    def expanded(self, prefix: str) -> list[str]:
        return []

    def listed(self, passing: Conditions, k: int, newest: bool) -> Hits:
        documents: dict[str, EngineText] = {}
        for text in self.engine.all_texts(self.about.tables[0], passing.where, self.about.places):
            documents.setdefault(text.doc or text.passage, text)
            if len(documents) == k and not newest:
                break
        first = list(documents.values())
        if newest:
            first.sort(key=lambda text: -dated(text.metadata)[0])
        return [(text.passage, 0.0) for text in first[:k]]

    def facets(self, query: ParsedQuery, names: Sequence[str], filters: Filters | None) -> Facets:
        return {name: {} for name in names}

    def suggestion(self, query: ParsedQuery) -> str | None:
        return None

    def infos(self) -> dict[str, Any]:
        where = {"kind": self.about.kind, "where": self.about.uri}
        spaces: dict[str, Any] = {
            name: {**where, "table": space.table, "width": space.width, "model": space.about.get("model")}
            for name, space in self.about.vectors.items()
        }
        return {"bm25": {**self.statistics.info(), **where}, **spaces}
