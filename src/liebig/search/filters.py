"""Filters on metadata: which passages a search may give, and how many documents there are of each value.

A filter names a field and the value it must have, several of which it must have one, or a range: {"language": "de",
"year": ["2023", "2024"], "size": {"lt": 10000}, "modified": {"gte": "2023-05"}}. Numbers in a range compare as numbers,
text as dates, where 2023-05 stands for the whole month. Fields are those of the documents' metadata, and `id`, `doc`,
`title`, `path`, `folder` and `type`; the last three are taken from the document's id where the metadata have none.
What a search gives is the ranking without what is filtered out; a hybrid fuses what passes.

A filter becomes one truth value per passage, and that a mask over the numbers of an index (`Passing`): BM25 and the
stored vectors score what passes and nothing else. Where that is not possible or too much passes, a search looks deeper
and deeper until k passages pass (`systems.Filtered`).
Memory: 20 bytes per passage, 4 per number of an index, 4 per document and field asked for, and the different values;
read once, at the first filter. A filter costs a pass over the different values of its field, then one over the
passages, however few of them pass.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import cached_property, reduce
from pathlib import PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liebig.base.errors import RecipeError
from liebig.bm25.analysis import CODES
from liebig.collection import Collection
from liebig.collection.lookup import Ids, hash64, hash_all
from liebig.engines import FilterCondition, Operator
from liebig.search.query_language import FieldCondition, date_span
from liebig.vectors import document_of

Bound = str | int | float
Filters = Mapping[str, str | Sequence[str] | Mapping[str, Bound]]
Facets = dict[str, dict[str, int]]  # by field and value, the number of documents
BOUNDS = ("gt", "gte", "lt", "lte")
# What ranges and years of `date`, before:, after: and "newest" look at: a document's own date, else its file's.
DATES = ("date", "modified")
EARLIEST, LATEST = -62_135_596_800, 253_402_300_799  # seconds: the first and the last that have a year
MOST_VALUES = 100  # of a facet that are counted: those of the most documents
SUFFIX = re.compile(r"\.([^\W_]{1,5})")


@dataclass(frozen=True)
class Column:
    """One field of all documents: the number of its value, 0 where a document has none."""

    values: Mapping[str, int]
    codes: NDArray[np.int32]

    def among(self, values: Sequence[str]) -> NDArray[np.bool_]:
        return np.isin(self.codes, [self.values[value] for value in values if value in self.values])

    def where(self, passes: Callable[[str], bool]) -> NDArray[np.bool_]:
        """Which documents have a value that passes; asked once per different value."""
        return np.array([False, *map(passes, self.values)])[self.codes]

    def within(self, bounds: Mapping[str, Bound]) -> NDArray[np.bool_]:
        """Which documents have a value inside all of the bounds."""
        passing = np.ones(len(self.codes), bool)
        for name, bound in bounds.items():
            start, end = _span(bound)
            values = self.dates if isinstance(bound, str) else self._numbers
            # A document without a value is NaN, which no comparison lets through.
            compared = {
                "gt": values >= end,
                "gte": values >= start,
                "lt": values < start,
                "lte": values < end,
            }
            if start == end:
                compared |= {"gt": values > start, "lte": values <= start}
            passing &= compared[name][self.codes]
        return passing

    @cached_property
    def _numbers(self) -> NDArray[np.float64]:
        return np.array([np.nan, *map(_number, self.values)])

    @cached_property
    def dates(self) -> NDArray[np.float64]:
        """Each different value as a time in seconds; NaN where it is none."""
        return np.array([np.nan, *map(seconds_of, self.values)])

    def mapped(self, change: Callable[[str], str]) -> Column:
        """The column with other values; "" is none."""
        known = {"": 0}
        codes = [0, *(known.setdefault(change(value), len(known)) for value in self.values)]
        del known[""]
        return Column(known, np.array(codes, np.int32)[self.codes])

    def or_else(self, other: Column) -> Column:
        """The column, with the other's value where a document has no date here."""
        known = dict(other.values)
        own = [0, *(known.setdefault(value, len(known) + 1) for value in self.values)]
        codes = np.where(
            np.isfinite(self.dates)[self.codes], np.array(own, np.int32)[self.codes], other.codes
        )
        return Column(known, codes)

    def counts(self, documents: NDArray[np.bool_]) -> dict[str, int]:
        """How many of these documents have each value, most first."""
        counts = np.bincount(self.codes[documents], minlength=len(self.values) + 1)[1:]
        keys = (
            counts * len(counts) - self._ranks
        )  # different for each value, so the best are found without sorting
        best = (
            np.argpartition(-keys, MOST_VALUES)[:MOST_VALUES] if len(keys) > MOST_VALUES else range(len(keys))
        )
        order = sorted(best, key=lambda place: -keys[place])
        return {self._names[place]: int(counts[place]) for place in order if counts[place]}

    @cached_property
    def _names(self) -> list[str]:
        return list(self.values)

    @cached_property
    def _ranks(self) -> NDArray[np.int64]:
        """The place of each value in the order of the alphabet."""
        ranks = np.empty(len(self.values), np.int64)
        ranks[sorted(range(len(self._names)), key=self._names.__getitem__)] = np.arange(len(self.values))
        return ranks


def _span(bound: Bound) -> tuple[float, float]:
    if not isinstance(bound, str):
        try:
            return float(bound), float(bound)
        except OverflowError:
            raise RecipeError(
                "a bound has more digits than a number can have", fix="write a smaller one"
            ) from None
    span = date_span(bound)
    if span is None:
        raise RecipeError(
            f"the bound {bound!r} is neither a number nor a date",
            fix='write 5, "2024", "2024-05" or "2024-05-31"',
        )
    return span


def _number(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        return np.nan


def seconds_of(value: str) -> float:
    """The time that a value of metadata names, in seconds; a plain number of more than four digits is seconds too.

    NaN where it is none, or not of the years 1 to 9999.
    """
    span = date_span(value)
    seconds = _number(value) if span is None else span[0]
    return seconds if EARLIEST <= seconds <= LATEST else np.nan


def dated(metadata: Mapping[str, str]) -> tuple[float, str]:
    """When a document is from, by the first of DATES that is one, in seconds and in words; else it is oldest."""
    dates = ((seconds_of(metadata[name]), metadata[name]) for name in DATES if name in metadata)
    return next((date for date in dates if not np.isnan(date[0])), (-np.inf, ""))


@dataclass(frozen=True)
class Owners:
    """The document of every passage, by the hash of its id, and the documents' fields."""

    hashes: NDArray[np.uint64]
    documents: NDArray[np.int32]
    order: NDArray[np.int64]  # the places of passages in the collection
    columns: dict[str, Column]
    _indexes: dict[str, NDArray[np.int32]] = field(default_factory=dict)
    _years: dict[str, Column] = field(default_factory=dict)  # of dates

    @classmethod
    def of(cls, collection: Collection) -> Owners:
        """Read a collection once."""
        numbers, columns = _columns(collection)
        pairs = ((hash64(p.id), numbers[p.doc or p.id]) for p in collection.passages())
        rows = np.fromiter(pairs, np.dtype((np.uint64, 2))).reshape(-1, 2)
        hashes, owners = rows[:, 0].astype(np.uint64), rows[:, 1].astype(np.int32)
        order = np.argsort(hashes)
        return cls(hashes[order], owners[order], order, columns)

    def passing(self, filters: Filters | None = None, fields: Sequence[FieldCondition] = ()) -> Passing:
        """The passages that pass filters and conditions of the query language."""
        filters = dict(filters or {})
        ids = filters.pop("id", None)
        documents = np.ones(self._count, bool)
        for name, value in filters.items():
            if isinstance(value, Mapping):
                documents &= self._dated(name).within(_bounds(name, value))
            else:
                documents &= self._column(name).among(_values(name, value))
        for condition in fields:
            documents &= self._matching(condition) ^ condition.excluded
        passages = documents[self.documents]
        if ids is not None:
            passages &= np.isin(np.arange(len(passages)), self.places(_values("id", ids)))
        return Passing(self, passages)

    def unknown(self, condition: FieldCondition) -> bool:
        """Whether no document says what a condition asks about."""
        return self._field_of(condition) is None

    def _field_of(self, condition: FieldCondition) -> Column | None:
        name = {"lang": "language", "before": "date", "after": "date"}.get(condition.name, condition.name)
        column = self._dated(name) if self.has(name) else None
        return column if column is not None and column.values else None

    @cached_property
    def _when(self) -> Column | None:
        """The first date of DATES that each document has; None where no document has one."""
        columns = [self.columns[name] for name in DATES if name in self.columns]
        return reduce(Column.or_else, columns) if columns else None

    def _dated(self, name: str) -> Column:
        """A field; a date is that of the file where a document has none of its own."""
        return self._when if name == "date" and self._when is not None else self._column(name)

    def _matching(self, condition: FieldCondition) -> NDArray[np.bool_]:
        column = self._field_of(condition)
        assert column is not None, "`unknown` was asked"
        value = condition.value.casefold()
        match condition.name:
            case "before":
                return column.within({"lt": condition.value})
            case "after":
                return column.within({"gte": condition.value})
            case "lang":
                return column.where(lambda own: folded("lang", own) == folded("lang", value))
            case "type":
                return column.where(lambda own: folded("type", own) == folded("type", value))
            case "path" if set(value) & set("*?["):
                return column.where(lambda own: fnmatchcase(own.casefold(), value))
            case "title":
                words = re.findall(r"\w+", value)
                return column.where(lambda own: _has_words(own, words))
            case _:
                return column.where(lambda own: value in own.casefold())

    def has(self, name: str) -> bool:
        """Whether there is such a field."""
        return name in self.columns or name in DERIVED or (name == "date" and self._when is not None)

    def counts(self, name: str, documents: NDArray[np.bool_]) -> dict[str, int]:
        """How many of some documents have each value of a field; those of a date are its years."""
        column = self._dated(name)
        if name in DATES:
            if name not in self._years:
                self._years[name] = column.mapped(_year)
            column = self._years[name]
        return column.counts(documents)

    @cached_property
    def dates(self) -> NDArray[np.float64]:
        """When each document was last changed, in seconds; NaN where it does not say so."""
        column = self._when
        return np.full(self._count, np.nan) if column is None else column.dates[column.codes]

    def places(self, ids: Iterable[str]) -> NDArray[np.int32]:
        """Where passages stand among the hashes; -1 for an id that no passage has."""
        keys = hash_all(ids)
        if not len(self.hashes):
            return np.full(len(keys), -1, np.int32)
        places = np.minimum(np.searchsorted(self.hashes, keys), len(self.hashes) - 1)
        return np.where(self.hashes[places] == keys, places, -1).astype(np.int32)

    def places_in(self, name: str, ids: Sequence[Ids], pieces: bool = False) -> NDArray[np.int32]:
        """The same for every number of an index, whose ids are those of passages or of their pieces; kept."""
        if name not in self._indexes:
            names = (id for part in ids for id in part.strings)
            self._indexes[name] = self.places(map(document_of, names) if pieces else names)
        return self._indexes[name]

    @property
    def _count(self) -> int:
        return len(self.columns["doc"].codes)

    def _column(self, name: str) -> Column:
        if name not in self.columns and name in DERIVED:
            source, change = DERIVED[name]
            self.columns[name] = self._column(source).mapped(change)
        if name not in self.columns:
            raise RecipeError(
                f"no document has the field {name!r}",
                fix=f"filter by {', '.join(sorted({*self.columns, *DERIVED, 'id'}))}",
            )
        return self.columns[name]


def _folder(path: str) -> str:
    parent = str(PurePosixPath(path).parent)
    return "" if parent == "." else parent


def _type(path: str) -> str:
    match = SUFFIX.fullmatch(PurePosixPath(path).suffix)
    return match[1].lower() if match else ""


# Fields that are computed where the metadata have none: from which field, and how.
DERIVED: Mapping[str, tuple[str, Callable[[str], str]]] = {
    "path": ("doc", str),
    "folder": ("path", _folder),
    "type": ("path", _type),
}


def _language(value: str) -> str:
    """A language by its name, in lower case; regions such as the US of en-US do not count."""
    code = value.casefold()
    return CODES.get(re.split("[-_]", code)[0], code)


def _has_words(text: str, words: list[str]) -> bool:
    own = re.findall(r"\w+", text.casefold())
    return any(own[i : i + len(words)] == words for i in range(len(own) - len(words) + 1))


def _year(value: str) -> str:
    seconds = seconds_of(value)
    return "" if np.isnan(seconds) else str(datetime.fromtimestamp(seconds, UTC).year)


def comparisons(filters: Filters) -> tuple[FilterCondition, ...]:
    """Filters as an engine evaluates them, with the meaning that `Owners.passing` gives them."""
    made: list[FilterCondition] = []
    for name, value in filters.items():
        if not isinstance(value, Mapping):
            values = tuple(_values(name, value))
            made.append(
                FilterCondition("passage", "", "in", values)
                if name == "id"
                else FilterCondition("fields", name, "in", values)
            )
            continue
        for bound, limit in _bounds(name, value).items():
            start, end = _span(limit)
            edges: dict[str, tuple[Operator, float]] = {
                "gt": (">", start) if start == end else (">=", end),
                "gte": (">=", start),
                "lt": ("<", start),
                "lte": ("<=", start) if start == end else ("<", end),
            }
            operator, edge = edges[bound]
            made.append(
                FilterCondition("dates" if isinstance(limit, str) else "numbers", name, operator, (edge,))
            )
    return tuple(made)


def filterable(fields: Mapping[str, str]) -> tuple[dict[str, str], dict[str, float], dict[str, float]]:
    """A document's fields for an engine: as text, with derived and folded ones; as numbers; and as dates.

    Like `Owners`, it dates a document without a date of its own by its file.
    """
    fields = {name: value for name, value in fields.items() if value}
    for name, (source, change) in DERIVED.items():
        if name not in fields and (value := change(fields[source])):
            fields[name] = value
    numbers = {name: _number(value) for name, value in fields.items()}
    dates = {name: seconds_of(value) for name, value in fields.items()}
    dates["date"] = next((dates[name] for name in DATES if np.isfinite(dates.get(name, np.nan))), np.nan)
    folds = {"lang": fields.get("language"), "type": fields.get("type")}
    fields |= {f"~{name}": folded(name, value) for name, value in folds.items() if value}
    return fields, _finite(numbers), _finite(dates)


def _finite(column: Mapping[str, float]) -> dict[str, float]:
    return {name: float(value) for name, value in column.items() if np.isfinite(value)}


def folded(name: str, value: str) -> str:
    """The value that `lang:` and `type:` compare."""
    return _language(value) if name == "lang" else value.casefold().lstrip(".")


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

    @property
    def documents(self) -> NDArray[np.bool_]:
        documents = np.zeros(len(self.owners.columns["doc"].codes), bool)
        documents[self.owners.documents[self.passages]] = True
        return documents

    def _of(self, places: NDArray[np.int32]) -> NDArray[np.bool_]:
        return np.append(self.passages, False)[places]  # -1 is the last


def _values(name: str, value: object) -> list[str]:
    values: list[Any] = (
        [value] if isinstance(value, str | Mapping) or not isinstance(value, Iterable) else list(value)
    )
    if not all(isinstance(one, str) for one in values):
        raise RecipeError(
            f"the filter {name} = {value!r} is not text",
            fix=f'write text, or a range such as {{"{name}": {{"gte": 5}}}}',
        )
    return values


def _bounds(name: str, bounds: Mapping[str, Bound]) -> Mapping[str, Bound]:
    numbers = (isinstance(bound, Bound) and not isinstance(bound, bool) for bound in bounds.values())
    if not bounds or set(bounds) - set(BOUNDS) or not all(numbers):
        raise RecipeError(
            f"the filter {name} = {dict(bounds)!r} is not a range",
            fix=f"name {', '.join(BOUNDS)}, each with a number or a date",
        )
    return bounds


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
