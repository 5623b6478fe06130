"""The report: find the finished stages below some folders, read their files, and render one HTML page.

The page answers first: a verdict in a sentence or two, the systems with their intervals, the most telling questions won
and lost. Then come data, training and costs; stages, commands and hashes are folded away at the end. The page has no
script, no font and makes no request; plots are inline SVG. Cost: about a second, most of it for the plots and the
randomisation tests.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import NDArray

from liebig.base.config import as_literal
from liebig.base.errors import DataError
from liebig.base.progress import duration, quantity
from liebig.base.statistics import ALPHA
from liebig.base.workspace import MANIFEST, Manifest, digest, read_manifest
from liebig.evaluation.comparison import TaskComparison, compare_systems, gather
from liebig.evaluation.plots import Axes, Series, bars, intervals, lines
from liebig.evaluation.scoring import RESULTS, Results, TaskResult, read_per_query, read_results
from liebig.evaluation.tables import beside, published_notes, published_rows

SKIPPED = {"report"}
DEPTH = 4


@dataclass(frozen=True)
class StageRun:
    """A finished stage: its folder and its manifest."""

    name: str
    path: Path
    manifest: Manifest

    @property
    def seconds(self) -> float:
        """How long it took."""
        begin, end = (
            datetime.fromisoformat(text) for text in (self.manifest.started, self.manifest.finished)
        )
        return (end - begin).total_seconds()

    @property
    def took(self) -> str:
        """How long it took, in words."""
        return duration(self.seconds)

    @property
    def by(self) -> str:
        """The command that ran it: its own, or the one it is part of."""
        return f"liebig {self.manifest.part_of or self.manifest.kind}"

    @property
    def command(self) -> str | None:
        """The command that reproduces this folder, with every value; None for a part of another command."""
        if self.manifest.part_of:
            return None
        words = [f"{key}={as_literal(value)}" for key, value in _leaves(self.manifest.recipe)]
        return " ".join(
            ["liebig", self.manifest.kind, *map(shlex.quote, words), "--out", shlex.quote(self.name)]
        )

    def file(self, name: str) -> Path | None:
        """The path of a file in the folder, None if there is none; its hash is checked against the manifest."""
        path = self.path / name
        if not path.is_file():
            return None
        digest(path)
        return path

    def json(self, name: str) -> Any:
        """The content of a JSON file in the folder, None if there is none."""
        path = self.file(name)
        return json.loads(path.read_text(encoding="utf-8")) if path else None

    def lines(self, name: str) -> list[dict[str, Any]]:
        """The rows of a JSON lines file, empty if there is none; an incomplete last line is dropped."""
        path = self.file(name)
        if path is None:
            return []
        text = path.read_text(encoding="utf-8")
        return [
            json.loads(line)
            for line in text.splitlines(keepends=True)
            if line.endswith("\n") and line.strip()
        ]


def find_stages(folders: Iterable[Path]) -> list[StageRun]:
    """Every stage at or below the folders, by start time."""
    found = {path.resolve(): _name(path, root) for root in folders for path in _folders(root)}
    stages = [StageRun(name, path, read_manifest(path)) for path, name in found.items()]
    kept = [stage for stage in stages if stage.manifest.kind not in SKIPPED]
    if not kept:
        raise DataError(
            "no finished stage found here", file=next(iter(folders), None), fix="run a stage first"
        )
    return sorted(kept, key=lambda stage: (stage.manifest.started, stage.name))


def _folders(root: Path) -> Iterator[Path]:
    if (root / MANIFEST).is_file():
        yield root
        return
    for path in sorted(root.rglob(MANIFEST)):
        folder = path.parent
        deep = len(folder.relative_to(root).parts) > DEPTH
        if not deep and not any(part.endswith((".partial", ".old")) for part in folder.parts):
            yield folder


def _name(path: Path, root: Path) -> str:
    return path.name if path == root else path.relative_to(root).as_posix()


def _leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        elif value is not None and value != [] and value != "":
            yield prefix + key, value


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
        """The highest mean of each measure."""
        found = {}
        for measure in self.measures:
            values = [e.task.measures[measure].mean for e in self.entries if measure in e.task.measures]
            found[measure] = max(values)
        return found


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
        intervals=_interval_plot(label, measures[0], entries),
        plot=_recall_plot(label, entries),
    )


def _interval_plot(label: str, measure: str, entries: Sequence[Entry]) -> str:
    """The systems on the first measure of a task, best first."""
    values = [
        (entry.system, entry.task.measures[measure]) for entry in entries if measure in entry.task.measures
    ]
    rows = [(system, value.mean, value.low, value.high) for system, value in values]
    return intervals(f"systems-{label}", sorted(rows, key=lambda row: -row[1]), Axes(measure, ""))


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
    found = compare_systems(systems, queries, test="randomisation", baseline=None, samples=samples, seed=seed)
    return matrices(table.label, found, "randomisation")


def matrices(label: str, found: TaskComparison, test: str) -> list[Matrix]:
    """The comparisons of each measure as a matrix."""
    pairs = [
        (pair.measure, pair.a, pair.b, pair.comparison.difference.mean, pair.adjusted) for pair in found.pairs
    ]
    return _matrices(label, list(found.systems), pairs, test)


def stored_matrices(stage: StageRun) -> list[Matrix]:
    """The comparisons that `liebig compare` wrote; none for other stages."""
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


def verdict(table: TaskTable, matrices: Sequence[Matrix]) -> str:
    """Which system of a task is best by its first measure, and whom it beats beyond chance, as a sentence."""
    measure = table.measures[0]
    ranked = [entry for entry in table.entries if measure in entry.task.measures]
    ranked.sort(key=lambda entry: -entry.task.measures[measure].mean)
    first = ranked[0]
    value = first.task.measures[measure]
    said = f"{table.label}: {first.system} has {measure} {value.mean:.3f} ({value.low:.3f} to {value.high:.3f}) on "
    said += f"{table.queries:,} queries"
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
        said += f", the highest of {len(ranked)}; the differences were not tested"
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
    plot: str


def against_untrained(change: Mapping[str, float]) -> str:
    """The difference to the untrained hybrid in words, with its interval."""
    interval = f"({change['low']:+.3f} to {change['high']:+.3f})"
    if change["low"] <= 0 <= change["high"]:
        return f"not measurably different from the untrained hybrid: {change['mean']:+.3f} {interval}"
    which = "better" if change["mean"] > 0 else "worse"
    return f"{which} than the untrained hybrid by {abs(change['mean']):.3f} {interval}"


def check_of(stages: Sequence[StageRun]) -> Check | None:
    """The check behind the newest choice of a build; None if there is no build, or if it had too few questions."""
    found = [tree for stage in stages if stage.manifest.kind == CHECK and (tree := stage.json("checks.json"))]
    if not found or not found[-1]["rows"]:
        return None
    tree = found[-1]
    rows, chosen, measure = tree["rows"], tree["chosen"], tree["measure"]
    kinds = [f"{count:,} by {kind}" for kind, count in tree["questions"].items()]
    told = tree.get("predicted") or next(row for row in rows if row["name"] == chosen)
    said = (
        f"{chosen} answers. On questions of this corpus it has {measure} {told['value']:.3f} "
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
        svg,
    )


POINTS = 400  # most points of a training curve
FEWEST = 3  # with fewer, a curve is a sentence


@dataclass(frozen=True)
class Training:
    """One training run: its plots by title, the events of its log, and its speed."""

    name: str
    plots: Sequence[tuple[str, str]]
    events: Sequence[str]
    speed: Sequence[tuple[str, str]]


def training_of(stage: StageRun) -> Training | None:
    """The training run of a stage; None if it has no log."""
    log = stage.lines("log.jsonl")
    if not log:
        return None
    events = _few_losses(log)
    events += [f"step {line['step']}: {line['event']}" for line in log if "event" in line]
    events += _single_evaluation(log)
    return Training(stage.name, _plots(stage.name, log), events, speed_of(stage.lines("timing.jsonl")))


def _few_losses(log: Sequence[dict[str, Any]]) -> list[str]:
    """One or two logged losses as sentences, because they make no curve."""
    steps = [line for line in log if "loss" in line]
    return [f"step {line['step']}: loss {line['loss']:.4g}" for line in steps] if len(steps) < FEWEST else []


def _single_evaluation(log: Sequence[dict[str, Any]]) -> list[str]:
    """A single evaluation as a sentence, because one point makes no plot."""
    measured = [line for line in log if "evaluation" in line]
    if len(measured) != 1:
        return []
    values = ", ".join(f"{term} {value:.4g}" for term, value in measured[0]["evaluation"].items())
    return [f"step {measured[0]['step']}: evaluation {values}"]


def _plots(name: str, log: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    steps = [line for line in log if "loss" in line]
    measured = [line for line in log if "evaluation" in line]
    found = []
    if len(steps) >= FEWEST:
        terms = _columns(steps, "losses")
        series = [_thin("loss", [line["step"] for line in steps], [line["loss"] for line in steps])]
        series += [_thin(term, x, y) for term, (x, y) in terms.items() if len(terms) > 1]
        found.append(("Loss", lines(f"loss-{name}", series, Axes("step", "loss"), markers=False)))
    if len(measured) > 1:
        series = [Series(term, x, y) for term, (x, y) in _columns(measured, "evaluation").items()]
        found.append(("Evaluation while training", lines(f"dev-{name}", series, Axes("step", "value"))))
    return found


def _columns(log: Sequence[dict[str, Any]], key: str) -> dict[str, tuple[list[int], list[float]]]:
    """The series under a key: steps and values by name."""
    found: dict[str, tuple[list[int], list[float]]] = {}
    for line in log:
        for name, value in line.get(key, {}).items():
            steps, values = found.setdefault(name, ([], []))
            steps.append(line["step"])
            values.append(value)
    return found


def _thin(name: str, steps: Sequence[float], values: Sequence[float]) -> Series:
    """A series of at most POINTS points; neighbours are averaged."""
    x, y = np.asarray(steps, dtype=np.float64), np.asarray(values, dtype=np.float64)
    if len(x) > POINTS:
        bins = np.array_split(np.arange(len(x)), POINTS)
        x, y = (np.array([column[part].mean() for part in bins]) for column in (x, y))
    return Series(name, x, y)


def speed_of(timing: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    """Median rates and peak memory."""
    found: list[tuple[str, str]] = []
    rate = _values(timing, "tokens_per_second")
    if rate.size:
        found.append(("tokens per second (median)", quantity(float(np.median(rate)))))
    seconds = _values(timing, "seconds_per_step")
    if seconds.size:
        found.append(("seconds per step (median)", f"{np.median(seconds):.3g}"))
    waiting = _values(timing, "waiting")
    if waiting.size:
        found.append(("share of time waiting for data", f"{waiting.mean():.1%}"))
    peak = _values(timing, "peak_gib")
    if peak.size:
        found.append(("peak memory of the device", f"{peak.max():.1f} GiB"))
    return found


def _values(timing: Sequence[dict[str, Any]], key: str) -> NDArray[np.float64]:
    return np.array([line[key] for line in timing if key in line], dtype=np.float64)


FOREIGN = re.compile(r"<script|<image|<foreignObject|\son\w+=|href=\"(?!#)", re.IGNORECASE)
INSPECT, CHECK = "queries inspect", "check"
TELLING = 3  # wins and losses shown at the top
CAPTIONS = {
    "attention": "Entropy of the attention from CLS by layer, averaged over heads and texts. Higher is broader; "
    "dashed lines are models after fine-tuning.",
    "neighbours": "How many of the second stage's top n the first stage already had among its top k.",
    "curve": "How the measure grows with the number of labels.",
}


@dataclass(frozen=True)
class Plot:
    """A plot: file name, title, caption and SVG."""

    name: str
    title: str
    caption: str
    svg: str


@dataclass(frozen=True)
class Errors:
    """Wins and losses of one system against another."""

    stage: str
    names: Sequence[str]
    measure: str
    groups: Sequence[Mapping[str, Any]]
    wins: Sequence[Mapping[str, Any]]
    losses: Sequence[Mapping[str, Any]]
    plot: Plot


@dataclass(frozen=True)
class Cost:
    """A stage's share of the time and of the disk."""

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
    errors: Sequence[Errors]
    queries: Sequence[tuple[str, Mapping[str, Any]]]
    plots: Sequence[Plot]
    spaces: Sequence[tuple[str, Mapping[str, Any]]]
    leaks: Sequence[tuple[str, Mapping[str, Any]]]


def assemble(stages: Sequence[StageRun], *, title: str, about: str, samples: int, seed: int) -> Page:
    """Read the files of every stage."""
    tables = task_tables(stages)
    matrices = [matrix for stage in stages for matrix in stored_matrices(stage)]
    if not matrices:
        matrices = [matrix for table in tables for matrix in matrices_of(table, samples, seed)]
    check = check_of(stages)
    tested = {table.label: [m for m in matrices if m.label == table.label] or matrices for table in tables}
    verdicts = [check.verdict] if check else []
    return Page(
        title=title,
        about=about,
        verdicts=[*verdicts, *(verdict(table, tested[table.label]) for table in tables)],
        check=check,
        costs=[_cost(stage) for stage in sorted(stages, key=lambda stage: -stage.seconds)],
        total=duration(sum(stage.seconds for stage in stages)),
        stages=stages,
        data=_json(stages, "summary.json"),
        training=[found for found in map(training_of, stages) if found is not None],
        tables=tables,
        matrices=matrices,
        errors=[_errors(name, tree) for name, tree in _json(stages, "errors.json")],
        queries=_json([stage for stage in stages if stage.manifest.kind == INSPECT], "queries.json"),
        plots=[plot for stage in stages for plot in _stored_plots(stage)],
        spaces=_json(stages, "space.json"),
        leaks=_json(stages, "leakage.json"),
    )


def _cost(stage: StageRun) -> Cost:
    size = sum(path.stat().st_size for path in stage.path.rglob("*") if path.is_file())
    return Cost(stage.name, stage.by, stage.took, f"{quantity(size)}{'' if size >= 1000 else ' '}B")


def render(page: Page) -> str:
    """Render the page as HTML."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("liebig.evaluation", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["telling"] = TELLING
    environment.filters |= {"svg": inline_svg, "mark": mark, "thousands": "{:,}".format}
    style = (resources.files("liebig.evaluation") / "report.css").read_text(encoding="utf-8")
    return environment.get_template("report.html.jinja").render(page=page, style=Markup(style))  # nosec B704: the package's own file


def all_plots(page: Page) -> list[Plot]:
    """Every plot of the page, to be saved as files."""
    found = [
        Plot(_slug(f"{t.name}-{title}"), title, "", svg) for t in page.training for title, svg in t.plots
    ]
    found += [Plot("check", "Systems of the check", "", page.check.plot)] if page.check else []
    found += [
        Plot(_slug(f"systems-{t.label}"), f"Systems on {t.label}", "", t.intervals) for t in page.tables
    ]
    found += [
        Plot(_slug(f"recall-{t.label}"), f"Recall on {t.label}", "", t.plot) for t in page.tables if t.plot
    ]
    return [*found, *(errors.plot for errors in page.errors), *page.plots]


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
    return Markup(text.replace("<svg", f'<svg role="img" aria-label="{escape(label)}"', 1))  # nosec B704: checked above


def mark(text: str, words: Sequence[str]) -> Markup:
    """A text with the given words marked."""
    if not words:
        return escape(text)
    longest_first = "|".join(map(re.escape, sorted(words, key=len, reverse=True)))
    pattern = re.compile(rf"\b({longest_first})\b", re.IGNORECASE)
    parts = pattern.split(text)
    return Markup("").join(
        Markup("<mark>{}</mark>").format(part) if i % 2 else escape(part) for i, part in enumerate(parts)
    )


def _errors(name: str, tree: Mapping[str, Any]) -> Errors:
    groups = tree["groups"]
    labels = [f"{group['by']}: {group['name']} ({group['queries']})" for group in groups]
    values = [group["mean_a"] - group["mean_b"] for group in groups]
    a, b = tree["names"]
    svg = bars(f"errors-{name}", labels, values, Axes(f"difference in {tree['measure']}", ""))
    plot = Plot(_slug(f"errors-{name}"), f"{a} against {b} by kind of query", "", svg)
    return Errors(name, tree["names"], tree["measure"], groups, tree["wins"], tree["losses"], plot)


def _stored_plots(stage: StageRun) -> list[Plot]:
    """The plots that an analysis wrote."""
    found = [(kind, stage.file(f"{kind}.svg")) for kind in CAPTIONS]
    return [
        Plot(
            _slug(f"{stage.name}-{kind}"),
            f"{kind.capitalize()} ({stage.name})",
            CAPTIONS[kind],
            path.read_text("utf-8"),
        )
        for kind, path in found
        if path
    ]


def _json(stages: Sequence[StageRun], name: str) -> list[tuple[str, Mapping[str, Any]]]:
    return [(stage.name, tree) for stage in stages if (tree := stage.json(name)) is not None]


def _slug(text: str) -> str:
    return re.sub(r"\W+", "-", text).strip("-").lower()
