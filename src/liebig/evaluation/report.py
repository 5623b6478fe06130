"""The report: one HTML page about the finished stages below some folders.

The page answers first: a verdict in a sentence or two, the systems with their intervals, the most telling questions won
and lost. Then come data, training and costs; stages, commands and hashes are folded away at the end. The page has no
script, no font and makes no request; plots are inline SVG. Cost: about a second, most of it for the plots and the
randomisation tests.

`stage_runs` finds and reads the stages, `verdicts` and `training_log` make of them what is shown, `report.html.jinja`
puts it in order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from markupsafe import Markup, escape

from liebig.base.errors import DataError
from liebig.base.progress import counted, duration, quantity
from liebig.evaluation.stage_runs import StageRun
from liebig.evaluation.training_log import Training, training_of
from liebig.evaluation.verdicts import (
    Check,
    Matrix,
    TaskTable,
    check_of,
    matrices_of,
    stored_matrices,
    task_tables,
    verdict,
)

FOREIGN = re.compile(r"<script|<image|<foreignObject|\son\w+=|href=\"(?!#)", re.IGNORECASE)
CAPTIONS = {
    "attention": "Entropy of the attention from CLS by layer, averaged over heads and texts. Higher is broader; "
    "dashed lines are models after fine-tuning.",
    "neighbours": "How many of the second stage's top n the first stage already had among its top k.",
}


@dataclass(frozen=True)
class Plot:
    """A plot: file name, title, caption and SVG."""

    name: str
    title: str
    caption: str
    svg: str


@dataclass(frozen=True)
class Cost:
    """A stage's share of the time and of the disk: its folder, and what it did in words."""

    name: str
    what: str
    took: str
    size: str


@dataclass(frozen=True)
class Page:
    """Everything the template shows."""

    title: str
    about: str
    verdicts: Sequence[str]
    check: Check | None
    costs: Sequence[Cost]
    total: str
    stages: Sequence[StageRun]
    data: Sequence[tuple[str, Mapping[str, Any]]]
    training: Sequence[Training]
    tables: Sequence[TaskTable]
    matrices: Sequence[Matrix]
    plots: Sequence[Plot]
    spaces: Sequence[tuple[str, Mapping[str, Any]]]


def assemble(
    stages: Sequence[StageRun],
    *,
    title: str,
    about: str,
    samples: int,
    seed: int,
    words: Callable[[StageRun], str],
) -> Page:
    """Read the files of every stage; `words` says what one did."""
    tables = task_tables(stages)
    matrices = [matrix for stage in stages for matrix in stored_matrices(stage)]
    if not matrices:
        matrices = [matrix for table in tables for matrix in matrices_of(table, samples, seed)]
    check = check_of(stages)
    tested = {table.label: [m for m in matrices if m.label == table.label] or matrices for table in tables}
    said = {stage.name: words(stage) for stage in stages}
    titles = {name: f"{what[0].upper()}{what[1:]} ({name})" for name, what in said.items()}
    verdicts = [check.verdict] if check else []
    return Page(
        title=title,
        about=about,
        verdicts=[*verdicts, *(verdict(table, tested[table.label]) for table in tables)],
        check=check,
        costs=[_cost(stage, said[stage.name]) for stage in sorted(stages, key=lambda stage: -stage.seconds)],
        total=duration(sum(stage.seconds for stage in stages)),
        stages=stages,
        data=[
            (titles[stage.name], tree) for stage in stages if (tree := stage.json("summary.json")) is not None
        ],
        training=[log for stage in stages if (log := training_of(stage, titles[stage.name])) is not None],
        tables=tables,
        matrices=matrices,
        plots=[plot for stage in stages for plot in _stored_plots(stage)],
        spaces=[(stage.name, tree) for stage in stages if (tree := stage.json("space.json")) is not None],
    )


def _cost(stage: StageRun, words: str) -> Cost:
    size = sum(path.stat().st_size for path in stage.path.rglob("*") if path.is_file())
    return Cost(stage.name, words, stage.took, f"{quantity(size)}{'' if size >= 1000 else ' '}B")


def render(page: Page) -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("liebig.evaluation", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"svg": inline_svg, "mark": mark, "thousands": "{:,}".format, "counted": counted}
    style = (resources.files("liebig.evaluation") / "report.css").read_text(encoding="utf-8")
    # A file of this package, and no text of a user.
    own = Markup(style)  # nosec B704
    return environment.get_template("report.html.jinja").render(page=page, style=own)


def all_plots(page: Page) -> list[Plot]:
    """Every plot of the page, to be saved as files."""
    plots = [
        Plot(_slug(f"{t.name}-{title}"), title, "", svg) for t in page.training for title, svg in t.plots
    ]
    plots += [Plot("check", "Systems of the check", "", page.check.plot)] if page.check else []
    plots += [
        Plot(_slug(f"systems-{t.label}"), f"Systems on {t.label}", "", t.intervals) for t in page.tables
    ]
    plots += [
        Plot(_slug(f"recall-{t.label}"), f"Recall on {t.label}", "", t.plot) for t in page.tables if t.plot
    ]
    return [*plots, *page.plots]


def inline_svg(svg: str, label: str) -> Markup:
    """An SVG for the page: sized by its column, labelled for screen readers, with unique ids."""
    text = svg[svg.index("<svg") :]
    if FOREIGN.search(text):
        raise DataError(
            f"the plot {label!r} contains a script or an external link", fix="run its analysis again"
        )
    text = re.sub(r"<style.*?</style>", "", text, flags=re.DOTALL)
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"([^>]*?) width="[^"]*"', r"\1\2", text, count=1)
    text = re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{_slug(label)}-", text)
    labelled = text.replace("<svg", f'<svg role="img" aria-label="{escape(label)}"', 1)
    # Scripts, handlers and links were refused above.
    return Markup(labelled)  # nosec B704


def mark(text: str, words: Sequence[str]) -> Markup:
    if not words:
        return escape(text)
    longest_first = "|".join(map(re.escape, sorted(words, key=len, reverse=True)))
    pattern = re.compile(rf"\b({longest_first})\b", re.IGNORECASE)
    parts = pattern.split(text)
    return Markup("").join(
        Markup("<mark>{}</mark>").format(part) if i % 2 else escape(part) for i, part in enumerate(parts)
    )


def _stored_plots(stage: StageRun) -> list[Plot]:
    files = [(kind, stage.file(f"{kind}.svg")) for kind in CAPTIONS]
    return [
        Plot(
            _slug(f"{stage.name}-{kind}"),
            f"{kind.capitalize()} ({stage.name})",
            CAPTIONS[kind],
            path.read_text("utf-8"),
        )
        for kind, path in files
        if path
    ]


def _slug(text: str) -> str:
    return re.sub(r"\W+", "-", text).strip("-").lower()
