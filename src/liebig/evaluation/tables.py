"""Tables of results, for the terminal and as Markdown; numbers with their intervals, papers' figures beneath."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from rich.console import Console
from rich.table import Table

from liebig.base.statistics import Interval
from liebig.base.workspace import Folder
from liebig.evaluation.results import Results, TaskResult

# `published.toml` has one table per table of a paper, with the set and measure of each column and notes where papers
# disagree or misprint, and names the runs that make a row (`reproduce.py`). Values are read as fractions of 1.


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a paper."""

    suite: str
    measure: str
    system: str
    value: float
    paper: str
    table: str
    note: str

    @property
    def source(self) -> str:
        """`coCondenser paper, Table 1` in short."""
        return f"{self.paper}, {self.table}"


@cache
def figures() -> tuple[Figure, ...]:
    return tuple(figure for table in published()["tables"] for figure in _of_table(table))


def papers() -> dict[str, dict[str, str | int]]:
    """Title, authors and year of each paper, by its short name."""
    return dict(published()["papers"])


def beside(suite: str, measures: Iterable[str]) -> list[Figure]:
    """The figures of a set for some measures, in the order of the papers."""
    names = set(measures)
    return [figure for figure in figures() if figure.suite == suite and figure.measure in names]


def _of_table(table: dict[str, Any]) -> Iterable[Figure]:
    columns, rows = table["columns"], table["rows"]
    notes, column_notes = table.get("notes", {}), table.get("column_notes", {})
    scale = float(table["scale"])
    for system, *values in rows:
        for column, value in zip(columns, values, strict=True):
            if value != "":
                suite, _, measure = column.partition(" ")
                said = (notes.get(system), column_notes.get(column), table.get("note"))
                note = " ".join(filter(None, said))
                yield Figure(suite, measure, system, value / scale, table["paper"], table["table"], note)


@cache
def published() -> dict[str, Any]:
    """The file: papers, tables with the runs of their rows, and what those runs share."""
    return tomllib.loads(
        (resources.files("liebig.evaluation") / "published.toml").read_text(encoding="utf-8")
    )


Rows = Sequence[Sequence[str]]
WORDS = 14  # of a column of words this much is always shown
WIDE = 240  # columns where there is no terminal: a file has room for a whole table


def show(text_or_table: str | Table) -> None:
    """Print a result to standard output, which is for results alone."""
    width = None if sys.stdout.isatty() else WIDE
    console = Console(highlight=False, soft_wrap=isinstance(text_or_table, str), width=width)
    console.print(text_or_table, markup=False)


def number(interval: Interval) -> str:
    """`0.4321 [0.4102, 0.4540]`."""
    return f"{interval.mean:.4f} [{interval.low:.4f}, {interval.high:.4f}]"


def rich_table(title: str, header: Sequence[str], rows: Rows, left: int = 2) -> Table:
    """A table for the terminal; the first `left` columns are words."""
    table = Table(title=title, title_justify="left", show_edge=False)
    for i, column in enumerate(header):
        if i < left:
            table.add_column(column, min_width=min(WORDS, max(map(len, (column, *(row[i] for row in rows))))))
        else:
            table.add_column(column, justify="right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def markdown(header: Sequence[str], rows: Rows, left: int = 2) -> str:
    """The same as Markdown."""
    lines = [header, ["---"] * left + ["---:"] * (len(header) - left), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def task_rows(system: str, task: TaskResult) -> tuple[list[str], list[list[str]]]:
    """Header and rows of one task: the system, then published figures where the set is the same."""
    names = list(task.measures)
    header = [f"{task.label} ({task.queries})", "from", *names]
    rows = [[system, "this run", *(number(task.measures[name]) for name in names)]]
    if task.suite and task.same_as_published:
        rows += published_rows(beside(task.suite, names), names)
    return header, rows


def published_rows(figures: Iterable[Figure], names: Sequence[str]) -> list[list[str]]:
    """One row for each system of each paper; tables of a paper that disagree keep rows of their own."""
    rows: list[tuple[Figure, dict[str, float], list[str]]] = []
    for figure in figures:
        for first, values, tables in rows:
            same = (first.system, first.paper) == (figure.system, figure.paper)
            if same and values.get(figure.measure, figure.value) == figure.value:
                values[figure.measure] = figure.value
                tables += [figure.table] if figure.table not in tables else []
                break
        else:
            rows.append((figure, {figure.measure: figure.value}, [figure.table]))
    return [
        [first.system, f"{first.paper}, {', '.join(tables)}", *(_cell(values.get(name)) for name in names)]
        for first, values, tables in rows
    ]


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def published_notes(task: TaskResult) -> list[str]:
    """The notes of the figures shown, each once."""
    if not (task.suite and task.same_as_published):
        return []
    figures = beside(task.suite, task.measures)
    return list(dict.fromkeys(f"{figure.source}: {figure.note}" for figure in figures if figure.note))


def show_results(results: Results) -> None:
    for task in results.tasks:
        header, rows = task_rows(results.system, task)
        show(rich_table("", header, rows))
        show(f"{task.remarks}.")
        for note in task.notes:
            show(f"Note: {note}")
        if notes := published_notes(task):
            show(
                f"Note: results.md has {len(notes)} notes on the papers' figures: other corpora, what does not agree."
            )
    for name, means in results.means.items():
        show(f"{name}: " + ", ".join(f"{measure} {value:.4f}" for measure, value in means.items()))


def results_markdown(results: Results) -> str:
    parts = [f"# {results.system}\n"]
    for task in results.tasks:
        header, rows = task_rows(results.system, task)
        notes = [*task.notes, *published_notes(task)]
        parts += [f"## {task.label}\n", markdown(header, rows), f"{task.remarks}.\n"]
        parts += ["".join(f"- {note}\n" for note in notes)] if notes else []
    for name, means in results.means.items():
        parts.append(
            f"**{name}**: " + ", ".join(f"{measure} {value:.4f}" for measure, value in means.items()) + "\n"
        )
    return "\n".join(parts)


def write_table(folder: Folder, name: str, header: list[str], rows: list[list[str]], left: int = 2) -> None:
    folder.write_text(name, markdown(header, rows, left=left))
    show(rich_table("", header, rows, left=left))
