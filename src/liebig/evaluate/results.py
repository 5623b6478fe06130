"""What an evaluation leaves: `results.json` with the means, and the values of every query beside it.

    results.json          what was evaluated, one entry a task
    queries/TASK.jsonl    {"query": id, "hits": n, "nDCG@10": 0.63, …}, all judged queries in order

Everything a report or a comparison needs is read from these, so nothing is ever evaluated twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liebig.errors import DataError
from liebig.statistics import Interval

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
        """The values of a measure."""
        return self.values[:, self.measures.index(measure)]


def to_json(results: Results) -> dict[str, Any]:
    """A tree for results.json."""
    return asdict(results)


def read_results(folder: Path) -> Results:
    """The results an evaluation left in a folder."""
    path = folder / RESULTS
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError("there are no results to read", file=path, fix="run liebig evaluate first") from error
    tasks = [
        TaskResult(
            **{**task, "measures": {name: Interval(**value) for name, value in task["measures"].items()}}
        )
        for task in tree["tasks"]
    ]
    return Results(tree["system"], tasks, tree["means"])


def query_lines(per_query: PerQuery, extra: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    """The lines of queries/TASK.jsonl; `extra` are columns beside the measures."""
    for i, query in enumerate(per_query.queries):
        row = {"query": query} | {name: column[i] for name, column in extra.items()}
        row |= dict(zip(per_query.measures, map(float, per_query.values[i])))
        yield json.dumps(row, ensure_ascii=False)


def read_per_query(folder: Path, task: TaskResult) -> PerQuery:
    """The values of a task's queries."""
    path, names = folder / task.values, tuple(task.measures)
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    values = np.array([[row[name] for name in names] for row in rows], dtype=np.float64)
    return PerQuery(tuple(row["query"] for row in rows), names, values.reshape(len(rows), len(names)))
