"""Filters on metadata: which passages a search may give.

A filter names a field and the value it must have, or several of which it must have one: {"language": "de", "year":
["2023", "2024"]}. Fields are those of the documents' metadata, and `id`, `doc` and `title`. What a search gives is the
ranking without what is filtered out; a hybrid fuses what passes.

A filter becomes one truth value per passage, and that a mask over the numbers of an index (`Passing`): BM25 and the
stored vectors score what passes and nothing else. Where that is not possible or too much passes, a search looks deeper
and deeper until k passages pass (`systems.Filtered`).
Memory: 12 bytes per passage, 4 per number of an index, 4 per document and field asked for, and the different values;
read once, at the first filter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from liebig.base.errors import RecipeError
from liebig.collection import Collection
from liebig.collection.lookup import Ids, hash64, hash_all
from liebig.vectors import document_of

Filters = Mapping[str, str | Sequence[str]]


@dataclass(frozen=True)
class Column:
    """One field of all documents: the number of its value, 0 where a document has none."""

    values: Mapping[str, int]
    codes: NDArray[np.int32]

    def among(self, values: Sequence[str]) -> NDArray[np.bool_]:
        """Which documents have one of these values."""
        return np.isin(self.codes, [self.values[value] for value in values if value in self.values])


@dataclass(frozen=True)
class Owners:
    """The document of every passage, by the hash of its id, and the documents' fields."""

    hashes: NDArray[np.uint64]
    documents: NDArray[np.int32]
    columns: Mapping[str, Column]
    _indexes: dict[str, NDArray[np.int32]] = field(default_factory=dict)

    @classmethod
    def of(cls, collection: Collection) -> Owners:
        """Read a collection once."""
        numbers, columns = _columns(collection)
        pairs = ((hash64(p.id), numbers[p.doc or p.id]) for p in collection.passages())
        rows = np.fromiter(pairs, np.dtype((np.uint64, 2))).reshape(-1, 2)
        hashes, owners = rows[:, 0].astype(np.uint64), rows[:, 1].astype(np.int32)
        order = np.argsort(hashes)
        return cls(hashes[order], owners[order], columns)

    def passing(self, filters: Filters) -> Passing:
        """The passages that pass."""
        conditions = {name: _values(name, value) for name, value in filters.items()}
        ids = conditions.pop("id", None)
        documents = np.ones(self._count, bool)
        for name, values in conditions.items():
            documents &= self._column(name).among(values)
        passages = documents[self.documents]
        if ids is not None:
            passages &= np.isin(np.arange(len(passages)), self.places(ids))
        return Passing(self, passages)

    def places(self, ids: Iterable[str]) -> NDArray[np.int32]:
        """Where passages stand among the hashes; -1 for an id that no passage has."""
        keys = hash_all(ids)
        if not len(self.hashes):
            return np.full(len(keys), -1, np.int32)
        places = np.minimum(np.searchsorted(self.hashes, keys), len(self.hashes) - 1)
        return np.where(self.hashes[places] == keys, places, -1).astype(np.int32)

    def places_in(self, name: str, ids: Sequence[Ids], pieces: bool) -> NDArray[np.int32]:
        """The same for every number of an index, whose ids are those of passages or of their pieces; kept."""
        if name not in self._indexes:
            names = (id for part in ids for id in part.strings)
            self._indexes[name] = self.places(map(document_of, names) if pieces else names)
        return self._indexes[name]

    @property
    def _count(self) -> int:
        return len(self.columns["doc"].codes)

    def _column(self, name: str) -> Column:
        if name not in self.columns:
            raise RecipeError(
                f"no document has the field {name!r}",
                fix=f"filter by {', '.join(sorted({*self.columns, 'id'}))}",
            )
        return self.columns[name]


@dataclass(frozen=True)
class Passing:
    """Which passages of a collection pass a filter."""

    owners: Owners
    passages: NDArray[np.bool_]

    def check(self, ids: Sequence[str]) -> list[bool]:
        """Says of passages, by their ids, whether they pass."""
        passing: list[bool] = self._of(self.owners.places(ids)).tolist()
        return passing

    def mask(self, name: str, ids: Sequence[Ids], pieces: bool = False) -> NDArray[np.bool_]:
        """Says it of every number of an index; `name` tells the indexes of a retriever apart."""
        return self._of(self.owners.places_in(name, ids, pieces))

    def _of(self, places: NDArray[np.int32]) -> NDArray[np.bool_]:
        return np.append(self.passages, False)[places]  # -1 is the last


def _values(name: str, value: str | Sequence[str]) -> list[str]:
    values = [value] if isinstance(value, str) or not isinstance(value, Iterable) else list(value)
    if not all(isinstance(one, str) for one in values):
        raise RecipeError(
            f"the filter {name} = {value!r} is not text", fix=f'metadata are text: {{"{name}": "…"}}'
        )
    return values


def _columns(collection: Collection) -> tuple[dict[str, int], dict[str, Column]]:
    """The number of every document, and its fields; a collection without documents has those its passages name."""
    numbers: dict[str, int] = {}
    values: dict[str, dict[str, int]] = {"doc": {}, "title": {}}
    codes: dict[str, list[tuple[int, int]]] = {"doc": [], "title": []}
    for id, fields in _fields(collection):
        if id in numbers:
            continue
        numbers[id] = len(numbers)
        for name, value in fields.items():
            known = values.setdefault(name, {})
            codes.setdefault(name, []).append((numbers[id], known.setdefault(value, len(known) + 1)))
    return numbers, {name: Column(values[name], _filled(codes[name], len(numbers))) for name in values}


def _fields(collection: Collection) -> Iterator[tuple[str, dict[str, str]]]:
    if collection.has("documents"):
        for document in collection.documents():
            yield document.id, {**document.metadata, "doc": document.id, "title": document.title}
    for passage in collection.passages():
        owner = passage.doc or passage.id
        yield owner, {"doc": owner, "title": passage.title}


def _filled(codes: Sequence[tuple[int, int]], count: int) -> NDArray[np.int32]:
    column = np.zeros(count, np.int32)
    if codes:
        places, values = np.array(codes).T
        column[places] = values
    return column
