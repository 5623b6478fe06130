"""The judged passages of each query, laid out for fast lookup by id.

Judgements of a query lie together, sorted by the hash of the passage id; a hit is found by binary search and then
compared byte by byte. Building them is one pass in Python over the judgements.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from liebig.errors import DataError
from liebig.measures.arrays import Table
from liebig.measures.strings import hash_all, pack, unpack
from liebig.records import Judgement


@dataclass(frozen=True, eq=False)
class Judgements:
    """Grades of passages by query: the ids of the queries, and their judgements as arrays."""

    queries: tuple[str, ...]
    table: Table

    def __len__(self) -> int:
        return len(self.queries)

    @cached_property
    def index(self) -> dict[bytes, int]:
        """Row of a query by its id in UTF-8."""
        return {query.encode(): i for i, query in enumerate(self.queries)}

    def grades(self, query: str) -> dict[str, int]:
        """Grades of one query by passage id; empty for a query that is not judged."""
        row = self.index.get(query.encode())
        if row is None:
            return {}
        table = self.table
        rows = range(int(table.first[row]), int(table.first[row + 1]))
        return {
            unpack(table.data, int(table.starts[i]), int(table.ends[i])): int(table.grades[i]) for i in rows
        }


def from_records(judgements: Iterable[Judgement]) -> Judgements:
    """Judgements of any order; one given twice must have the same grade both times."""
    grades: dict[str, dict[str, int]] = {}
    for judgement in judgements:
        of_query = grades.setdefault(judgement.query, {})
        if of_query.setdefault(judgement.passage, judgement.relevance) != judgement.relevance:
            raise DataError(
                f"passage {judgement.passage!r} of query {judgement.query!r} is judged {of_query[judgement.passage]} "
                f"and {judgement.relevance}",
                fix="keep one of the two judgements",
            )
    return from_mapping(grades)


def from_mapping(grades: Mapping[str, Mapping[str, int]]) -> Judgements:
    """Judgements as {query: {passage: grade}}."""
    counts = np.array([len(of_query) for of_query in grades.values()], dtype=np.int64)
    first = np.zeros(counts.size + 1, dtype=np.int64)
    np.cumsum(counts, out=first[1:])
    data, offsets = pack(passage for of_query in grades.values() for passage in of_query)
    flat = np.fromiter((grade for of_query in grades.values() for grade in of_query.values()), dtype=np.int32)
    hashes = hash_all(data, offsets[:-1], offsets[1:])
    owner = np.repeat(np.arange(counts.size), counts)
    order = np.lexsort((hashes, owner))
    table = Table(
        first=first,
        data=data,
        starts=offsets[:-1][order],
        ends=offsets[1:][order],
        hashes=hashes[order],
        grades=flat[order],
        pool=flat[np.lexsort((-flat.astype(np.int64), owner))],
    )
    return Judgements(tuple(grades), table)
