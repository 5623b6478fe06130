"""What the report says of systems: their table, the tests between them, and the verdict as a sentence.

Evaluations give a table per task, with a matrix of paired tests; the check of a build gives the system it chose, the
reasons, and what every system was worth on its questions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from liebig.base.progress import counted
from liebig.base.statistics import ALPHA, direction
from liebig.evaluation.comparison import compare_systems, gather, to_json
from liebig.evaluation.plots import Axes, Series, intervals, lines
from liebig.evaluation.results import RESULTS, Results, TaskResult, read_per_query, read_results
from liebig.evaluation.stage_runs import StageRun
from liebig.evaluation.tables import beside, published_notes, published_rows

CHECK = "check"  # the stage of a build that chooses


@dataclass(frozen=True)
class Entry:
    """One system on one task, and the stage it comes from."""

    system: str
    stage: StageRun
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
    intervals: str
    plot: str | None

    @property
    def best(self) -> Mapping[str, float]:
        highest = {}
        for measure in self.measures:
            values = [e.task.measures[measure].mean for e in self.entries if measure in e.task.measures]
            highest[measure] = max(values)
        return highest


@dataclass(frozen=True)
class Cell:
    """One system against another: the difference, its p-value, and the verdict in words."""

    difference: float
    p: float
    word: str


@dataclass(frozen=True)
class Matrix:
    """All pairs of systems on one measure of one task."""

    label: str
    measure: str
    systems: Sequence[str]
    cells: Mapping[tuple[str, str], Cell]
    test: str


def task_tables(stages: Sequence[StageRun]) -> list[TaskTable]:
    """One table per task, in the order of their first evaluation."""
    by_task: dict[str, list[Entry]] = {}
    for stage in stages:
        if stage.file(RESULTS):
            results: Results = read_results(stage.path)
            for task in results.tasks:
                by_task.setdefault(task.label, []).append(Entry(results.system, stage, task))
    return [_table(label, _distinct(entries)) for label, entries in by_task.items()]


def _distinct(entries: Sequence[Entry]) -> list[Entry]:
    """Add the stage to the names of systems that share one."""
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
    entries = sorted(entries, key=lambda entry: -_first(entry, measures[0]))
    notes = dict.fromkeys(f"{note.rstrip('.')}." for e in entries for note in (e.task.remarks, *e.task.notes))
    notes |= dict.fromkeys(published_notes(first) if first else [])
    return TaskTable(
        label=label,
        suite=entries[0].task.suite,
        queries=entries[0].task.queries,
        measures=measures,
        entries=entries,
        published=published,
        notes=list(notes),
        intervals=_interval_plot(label, measures[0], entries),
        plot=_recall_plot(label, entries),
    )


def _first(entry: Entry, measure: str) -> float:
    return entry.task.measures[measure].mean if measure in entry.task.measures else 0.0


def _interval_plot(label: str, measure: str, entries: Sequence[Entry]) -> str:
    """The systems on the first measure of a task, best first."""
    values = {entry.system: entry.task.measures.get(measure) for entry in entries}
    rows = [(system, value.mean, value.low, value.high) for system, value in values.items() if value]
    return intervals(f"systems-{label}", rows, Axes(measure, ""))


def _recall_plot(label: str, entries: Sequence[Entry]) -> str | None:
    series = [
        Series(entry.system, [int(cut) for cut in entry.task.recall], list(entry.task.recall.values()))
        for entry in entries
        if len(entry.task.recall) > 1
    ]
    return lines(f"recall-{label}", series, Axes("k", "recall at k", log_x=True)) if series else None


def matrices_of(table: TaskTable, samples: int, seed: int) -> list[Matrix]:
    """Paired tests between the systems of a task; none unless all have values for the same queries."""
    rows = {
        e.system: read_per_query(e.stage.path, e.task)
        for e in table.entries
        if e.task.kind != "pairs" and e.stage.file(e.task.values)
    }
    common = set.intersection(*(set(per_query.measures) for per_query in rows.values())) if rows else set()
    if len(rows) < 2 or not common or len({per_query.queries for per_query in rows.values()}) > 1:
        return []
    systems, queries = gather(list(rows), rows.values())
    comparison = compare_systems(systems, queries, baseline=None, samples=samples, seed=seed)
    return _matrices(table.label, to_json(comparison))


def stored_matrices(stage: StageRun) -> list[Matrix]:
    """The comparisons that `liebig compare` wrote; none for other stages."""
    tree: dict[str, Any] | None = stage.json("compare.json")
    return [] if tree is None else _matrices(stage.name, tree)


def _matrices(label: str, compared: Mapping[str, Any]) -> list[Matrix]:
    """The comparisons of each measure as a matrix."""
    by_measure: dict[str, dict[tuple[str, str], Cell]] = {}
    for pair in compared["pairs"]:
        a, b, p, difference = pair["a"], pair["b"], pair["adjusted"], pair["comparison"]["difference"]["mean"]
        cells = by_measure.setdefault(pair["measure"], {})
        cells[a, b] = Cell(difference, p, _word(difference, p))
        cells[b, a] = Cell(-difference, p, _word(-difference, p))
    systems, test = compared["systems"], compared["test"]
    return [Matrix(label, measure, systems, cells, test) for measure, cells in by_measure.items()]


def _word(difference: float, p: float) -> str:
    if p > ALPHA or difference == 0:
        return "no significant difference"
    return "better" if difference > 0 else "worse"


def verdict(table: TaskTable, matrices: Sequence[Matrix]) -> str:
    """Which system of a task is best by its first measure, and whom it beats beyond chance, as a sentence."""
    measure = table.measures[0]
    ranked = [entry for entry in table.entries if measure in entry.task.measures]
    ranked.sort(key=lambda entry: -entry.task.measures[measure].mean)
    first = ranked[0]
    value = first.task.measures[measure]
    said = f"{table.label}: {first.system} has {measure} {value.mean:.3f} ({value.low:.3f} to {value.high:.3f}) on "
    said += f"{counted(table.queries, 'queries')}"
    if len(ranked) == 1:
        return said + "."
    tested = next((m for m in matrices if m.measure == measure and first.system in m.systems), None)
    words: dict[str, list[str]] = {"better": [], "no significant difference": []}
    for entry in ranked[1:]:
        cell = tested.cells.get((first.system, entry.system)) if tested else None
        if cell is not None:
            words.setdefault(cell.word, []).append(f"{entry.system} ({cell.difference:+.3f})")
    beaten, equal = words["better"], words["no significant difference"]
    if beaten:
        said += f". It is better than {_listed(beaten)} beyond chance"
    if equal:
        said += (
            f"; its lead over {_listed(equal)} may be chance"
            if beaten
            else f". Its lead over {_listed(equal)} may be chance"
        )
    if not beaten and not equal:
        said += f", the highest of {len(ranked)}"
        said += "" if tested else "; the differences were not tested"
    return said + "."


def _listed(names: Sequence[str]) -> str:
    """a, b and c."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


@dataclass(frozen=True)
class Check:
    """What a build chose, and what every system was worth on the questions of its check."""

    verdict: str
    why: Sequence[str]
    measure: str
    questions: str
    kinds: Sequence[str]
    rows: Sequence[Mapping[str, Any]]
    chosen: str
    baseline: str
    plot: str
    cases: Mapping[str, Any] | None


def against_untrained(change: Mapping[str, float]) -> str:
    """The difference to the untrained hybrid in words, with its interval."""
    which = ("", "better", "worse")[direction(change["low"], change["high"])]
    if not which:
        return f"not measurably different from the untrained hybrid: {_interval(change)}"
    return f"{which} than the untrained hybrid by {_interval(change, sign='')}"


def _interval(change: Mapping[str, float], sign: str = "+") -> str:
    mean = change["mean"] if sign else abs(change["mean"])
    return f"{mean:{sign}.3f} ({change['low']:+.3f} to {change['high']:+.3f})"


def check_of(stages: Sequence[StageRun]) -> Check | None:
    """The check behind the newest choice of a build; None if there is no build, or if it had too few questions."""
    checks = [
        tree for stage in stages if stage.manifest.kind == CHECK and (tree := stage.json("checks.json"))
    ]
    if not checks or not checks[-1]["rows"]:
        return None
    tree = checks[-1]
    rows, chosen, measure = tree["rows"], tree["chosen"], tree["measure"]
    kinds = [f"{count:,} by {kind}" for kind, count in tree["questions"].items()]
    told = tree.get("predicted") or next(row for row in rows if row["name"] == chosen)
    said = (
        f"The retriever answers with {chosen}. On questions of this corpus it has {measure} {told['value']:.3f} "
        f"({told['low']:.3f} to {told['high']:.3f})"
    )
    change = told.get("difference")
    if change and chosen != tree.get("baseline"):
        said += f", {against_untrained(change)}"
    shown = sorted(rows, key=lambda row: -row["value"])
    svg = intervals("check", [(r["name"], r["value"], r["low"], r["high"]) for r in shown], Axes(measure, ""))
    return Check(
        said + ".",
        tree.get("why", []),
        measure,
        _listed(kinds),
        list(rows[0].get("kinds", {})),
        rows,
        chosen,
        tree.get("baseline", ""),
        svg,
        tree.get("cases"),
    )
