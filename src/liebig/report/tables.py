"""Results as tables of the page: one table a task, and who beats whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from liebig.evaluate.compare import Compared, compare_systems, gather
from liebig.evaluate.plots import Axes, Series, lines
from liebig.evaluate.published import beside
from liebig.evaluate.results import RESULTS, Results, TaskResult, read_per_query, read_results
from liebig.evaluate.table import published_notes, published_rows
from liebig.report.gather import Ran

ALPHA = 0.05


@dataclass(frozen=True)
class Entry:
    """One system on one task, and the stage it comes from."""

    system: str
    stage: Ran
    task: TaskResult


@dataclass(frozen=True)
class TaskTable:
    """All systems on one task."""

    label: str
    suite: str | None
    queries: int
    measures: Sequence[str]
    entries: Sequence[Entry]
    published: Sequence[Sequence[str]]
    notes: Sequence[str]
    plot: str | None

    @property
    def best(self) -> Mapping[str, float]:
        """The largest mean of each measure."""
        found = {}
        for measure in self.measures:
            values = [e.task.measures[measure].mean for e in self.entries if measure in e.task.measures]
            found[measure] = max(values)
        return found


@dataclass(frozen=True)
class Cell:
    """A system against another: the difference, its p, and a word for it."""

    difference: float
    p: float
    word: str


@dataclass(frozen=True)
class Matrix:
    """Who beats whom on one measure of one task."""

    label: str
    measure: str
    systems: Sequence[str]
    cells: Mapping[tuple[str, str], Cell]
    test: str


def task_tables(stages: Sequence[Ran]) -> list[TaskTable]:
    """One table a task, in the order the tasks were first evaluated."""
    by_task: dict[str, list[Entry]] = {}
    for stage in stages:
        if stage.file(RESULTS):
            results: Results = read_results(stage.path)
            for task in results.tasks:
                by_task.setdefault(task.label, []).append(Entry(results.system, stage, task))
    return [_table(label, _distinct(entries)) for label, entries in by_task.items()]


def _distinct(entries: Sequence[Entry]) -> list[Entry]:
    """Systems of one name are told apart by their stage."""
    names = [entry.system for entry in entries]
    return [
        entry
        if names.count(entry.system) == 1
        else replace(entry, system=f"{entry.system} ({entry.stage.name})")
        for entry in entries
    ]


def _table(label: str, entries: Sequence[Entry]) -> TaskTable:
    measures = list(dict.fromkeys(name for entry in entries for name in entry.task.measures))
    first = next((e.task for e in entries if e.task.suite and e.task.same_as_published), None)
    published = published_rows(beside(first.suite or "", measures), measures) if first else []
    notes = dict.fromkeys(note for entry in entries for note in (entry.task.remarks, *entry.task.notes))
    notes |= dict.fromkeys(published_notes(first) if first else [])
    return TaskTable(
        label=label,
        suite=entries[0].task.suite,
        queries=entries[0].task.queries,
        measures=measures,
        entries=entries,
        published=published,
        notes=list(notes),
        plot=_recall_plot(label, entries),
    )


def _recall_plot(label: str, entries: Sequence[Entry]) -> str | None:
    series = [
        Series(entry.system, [int(cut) for cut in entry.task.recall], list(entry.task.recall.values()))
        for entry in entries
        if len(entry.task.recall) > 1
    ]
    return lines(f"recall-{label}", series, Axes("k", "recall at k", log_x=True)) if series else None


def matrices_of(table: TaskTable, samples: int, seed: int) -> list[Matrix]:
    """Paired tests between the systems of a task, where all have values of a measure for the same queries."""
    rows = {
        e.system: read_per_query(e.stage.path, e.task)
        for e in table.entries
        if e.task.kind != "pairs" and e.stage.file(e.task.values)
    }
    common = set.intersection(*(set(per_query.measures) for per_query in rows.values())) if rows else set()
    if len(rows) < 2 or not common or len({per_query.queries for per_query in rows.values()}) > 1:
        return []
    systems, queries = gather(list(rows), rows.values())
    found = compare_systems(systems, queries, test="randomisation", baseline=None, samples=samples, seed=seed)
    return matrices(table.label, found, "randomisation")


def matrices(label: str, found: Compared, test: str) -> list[Matrix]:
    """The comparisons of all measures as matrices."""
    pairs = [
        (pair.measure, pair.a, pair.b, pair.comparison.difference.mean, pair.adjusted) for pair in found.pairs
    ]
    return _matrices(label, list(found.systems), pairs, test)


def stored_matrices(stage: Ran) -> list[Matrix]:
    """The comparisons that `liebig compare` left; none if it did not run."""
    tree: dict[str, Any] | None = stage.json("compare.json")
    if tree is None:
        return []
    pairs = [
        (p["measure"], p["a"], p["b"], p["comparison"]["difference"]["mean"], p["adjusted"])
        for p in tree["pairs"]
    ]
    return _matrices(stage.name, tree["systems"], pairs, tree["test"])


def _matrices(
    label: str, systems: Sequence[str], pairs: Sequence[tuple[str, str, str, float, float]], test: str
) -> list[Matrix]:
    by_measure: dict[str, dict[tuple[str, str], Cell]] = {}
    for measure, a, b, difference, p in pairs:
        cells = by_measure.setdefault(measure, {})
        cells[a, b] = Cell(difference, p, _word(difference, p))
        cells[b, a] = Cell(-difference, p, _word(-difference, p))
    return [Matrix(label, measure, systems, cells, test) for measure, cells in by_measure.items()]


def _word(difference: float, p: float) -> str:
    if p > ALPHA or difference == 0:
        return "no significant difference"
    return "better" if difference > 0 else "worse"
