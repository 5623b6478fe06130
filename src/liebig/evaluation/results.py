"""An evaluation folder. Reports and comparisons read only these files, so nothing is evaluated twice.

results.json          what was evaluated, one entry per task, with the means
queries/TASK.jsonl    {"query": id, "hits": n, "nDCG@10": 0.63, …}, one line per judged query
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liebig.base.errors import AGAIN, CorruptError, DataError
from liebig.base.json_file import read_json, read_json_lines
from liebig.base.statistics import Interval

RESULTS = "results.json"


@dataclass(frozen=True)
class TaskResult:
    """Means of one task with their intervals, and what a reader must know beside them.

    `recall` is a curve: mean recall (for answers, accuracy) by cut, as deep as the run goes.
    """

    task: str
    split: str
    kind: str
    queries: int
    measures: Mapping[str, Interval]
    remarks: str
    notes: Sequence[str] = ()
    suite: str | None = None
    same_as_published: bool = False
    values: str = ""
    recall: Mapping[str, float] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """`scifact test`."""
        return f"{self.task} {self.split}"


@dataclass(frozen=True)
class Results:
    """All tasks of one system."""

    system: str
    tasks: Sequence[TaskResult]
    means: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class PerQuery:
    """Values per query: rows are queries, columns measures."""

    queries: tuple[str, ...]
    measures: tuple[str, ...]
    values: NDArray[np.float64]

    def of(self, measure: str) -> NDArray[np.float64]:
        return self.values[:, self.measures.index(measure)]


def read_results(folder: Path) -> Results:
    """The results an evaluation left in a folder."""
    path = folder / RESULTS
    return read_json(path, Results, error=DataError, fix="run liebig evaluate first")


def query_lines(per_query: PerQuery, extra: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    """The lines of queries/TASK.jsonl; `extra` are columns beside the measures."""
    for i, query in enumerate(per_query.queries):
        row = {"query": query} | {name: column[i] for name, column in extra.items()}
        row |= dict(zip(per_query.measures, map(float, per_query.values[i])))
        yield json.dumps(row, ensure_ascii=False)


def read_per_query(folder: Path, task: TaskResult) -> PerQuery:
    path, names = folder / task.values, tuple(task.measures)
    rows = list(read_json_lines(path, dict[str, Any]))
    try:
        values = np.array([[row[name] for name in names] for row in rows], dtype=np.float64)
        queries = tuple(str(row["query"]) for row in rows)
    except (KeyError, TypeError, ValueError):
        raise CorruptError("a line lacks its query or a measure", file=path, fix=AGAIN) from None
    return PerQuery(queries, names, values.reshape(len(rows), len(names)))
