"""The published figures of the five papers, to stand beside a result on the same set.

They ship as `published.toml`: one table a table of a paper, with the set and measure of each column, what the rows
are, and notes where papers disagree or misprint. Values are given out as fractions of 1.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any


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
    """Every published figure."""
    return tuple(figure for table in _tree()["tables"] for figure in _of_table(table))


def papers() -> dict[str, dict[str, str | int]]:
    """Title, authors and year of each paper, by its short name."""
    return dict(_tree()["papers"])


def beside(suite: str, measures: Iterable[str]) -> list[Figure]:
    """The figures of a set for some measures, in the order of the papers."""
    wanted = set(measures)
    return [figure for figure in figures() if figure.suite == suite and figure.measure in wanted]


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
def _tree() -> dict[str, Any]:
    return tomllib.loads((resources.files("liebig.evaluate") / "published.toml").read_text(encoding="utf-8"))
