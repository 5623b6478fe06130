"""`liebig curve`: how measures grow with the number of labels, from one evaluation for each size and system."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from liebig.base.config import Config, InputPath
from liebig.base.errors import RecipeError
from liebig.base.pipeline import Stage
from liebig.base.statistics import Interval
from liebig.base.workspace import Folder
from liebig.evaluation.plots import Axes, Series, lines, write_svg
from liebig.evaluation.scoring import Results, read_results
from liebig.evaluation.tables import markdown, number, rich_table, show
from liebig.measures import parse_all


class CurveConfig(Config):
    """`liebig curve`: how a measure grows with the number of labels, from one evaluation a size."""

    results: tuple[InputPath, ...] = Field(
        description="Folders written by liebig evaluate, one per size and system."
    )
    sizes: tuple[str, ...] = Field(
        description="Number of labels each was trained on, in the same order: 1000, 10000, full."
    )
    names: tuple[str, ...] = Field(
        (), description="Name of each system, in the same order [default: as evaluated]."
    )
    measures: tuple[str, ...] = Field((), description="Measures to show [default: all].")


@dataclass(frozen=True)
class Point:
    """One system trained on so many labels."""

    system: str
    size: str
    task: str
    measures: dict[str, Interval]


def run(config: CurveConfig, folder: Folder) -> None:
    """Read the evaluations, write and print the table of the curve."""
    for what, given in (("sizes", config.sizes), ("names", config.names)):
        if given and len(given) != len(config.results):
            raise RecipeError(
                f"{len(given)} {what} for {len(config.results)} results", fix=f"give one of {what} a result"
            )
    points = read_points(config.results, config.sizes, config.names)
    measures = [str(m) for m in parse_all(config.measures)] or list(points[0].measures)
    missing = [m for m in measures if not any(m in point.measures for point in points)]
    if missing:
        raise RecipeError(
            f"no result has {missing[0]}", fix="use measures such as " + ", ".join(points[0].measures)
        )
    header, rows = curve_rows(points, measures)
    folder.write_json(
        "curve.json",
        [
            {"system": p.system, "size": p.size, "task": p.task}
            | {"measures": {m: {"mean": v.mean, "low": v.low, "high": v.high} for m, v in p.measures.items()}}
            for p in points
        ],
    )
    folder.write_text("curve.md", markdown(header, rows, left=2))
    write_svg(folder.path / "curve.svg", curve_plot(points, measures[0]))
    show(rich_table("", header, rows))


def read_points(folders: Sequence[Path], sizes: Sequence[str], names: Sequence[str]) -> list[Point]:
    """The results of every folder with the size they belong to."""
    points: list[Point] = []
    for i, folder in enumerate(folders):
        results: Results = read_results(folder)
        system = names[i] if names else results.system
        points += [Point(system, sizes[i], task.label, dict(task.measures)) for task in results.tasks]
    places = [(point.system, point.size, point.task) for point in points]
    twice = next((place for place in places if places.count(place) > 1), None)
    if twice:
        raise RecipeError(
            f"{twice[0]} has two results of size {twice[1]} on {twice[2]}",
            fix="give one a size, or other names; liebig compare averages seeds",
        )
    return points


def curve_rows(points: Sequence[Point], measures: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """One row for each system and measure, one column for each size in the order given."""
    sizes = list(dict.fromkeys(point.size for point in points))
    by_point = {(p.system, p.task, p.size): p.measures for p in points}
    systems = list(dict.fromkeys((p.system, p.task) for p in points))
    rows = [
        [
            system,
            f"{task} {measure}",
            *(_cell(by_point.get((system, task, size), {}), measure) for size in sizes),
        ]
        for system, task in systems
        for measure in measures
    ]
    return ["system", "measure", *(f"{size} labels" for size in sizes)], rows


def curve_plot(points: Sequence[Point], measure: str) -> str:
    """The first measure against the size, one line for each system and task."""
    sizes = list(dict.fromkeys(point.size for point in points))
    groups: dict[tuple[str, str], list[Point]] = {}
    for point in points:
        if measure in point.measures:
            groups.setdefault((point.system, point.task), []).append(point)
    series = [
        Series(
            f"{system}, {task}",
            [sizes.index(point.size) for point in points_of],
            [point.measures[measure].mean for point in points_of],
            [point.measures[measure].low for point in points_of],
            [point.measures[measure].high for point in points_of],
        )
        for (system, task), points_of in groups.items()
    ]
    return lines("curve", series, Axes("labels", measure, ticks=tuple(sizes)))


def _cell(measures: dict[str, Interval], measure: str) -> str:
    return number(measures[measure]) if measure in measures else ""


STAGE = Stage(
    "curve",
    CurveConfig,
    run,
    "liebig curve runs/1k runs/10k runs/full sizes=['1000','10000','full'] --out runs/curve",
    positional="results",
)
