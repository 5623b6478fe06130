"""The tables and figures of the papers as runs: `evaluation/published.toml` names what makes each row, this plans it.

A row's run is a recipe with overrides. Stages whose configurations are the same share one folder, NAME-HASH, so rows,
tables and papers share collections, indexes, pre-trainings and retrievers. A folder that a recipe reads and nobody has
(`data/condenser`, `data/msmarco-queries`) is made by the run that `[specs]` names for it; one that is there is used.
Only stages that a row's results need are planned. Sets that only evaluate are left out, and named, where their data is
not there. `smoke` keeps every stage and makes it small.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from liebig.base import config, pipeline
from liebig.base.errors import DataError, RecipeError
from liebig.base.json_file import read_json_lines
from liebig.base.mistakes import nearest
from liebig.base.pipeline import Planned, Stage
from liebig.evaluation.results import read_results
from liebig.evaluation.suites import BY_NAME, GROUPS, recognise
from liebig.evaluation.tables import markdown, published
from liebig.stages import evaluate, init, retrieve

DATA = "data/"
HOMES = {"nq-open/test": "data/nq", "triviaqa-open/test": "data/triviaqa"}  # else data/ and the suite's name
MEAN = "beir/mean"  # of sets that have columns too
SMOKE = {  # the most that a smoke run has of each
    "batch": 4, "limit": 16, "max_length": 64, "length": 64, "passage_length": 48, "query_length": 16, "k": 100,
    "samples": 100, "window": 64, "queue": 64, "warmup_steps": 1, "negatives": 3, "steps": 2,
}  # fmt: skip
SMOKE_LOOP = ("batch", "seed", "clip")


@dataclass(frozen=True)
class PaperRow:
    """A row of a table: the runs that make it; a reason where it has none; neither if it is another system's."""

    paper: str
    table: str
    name: str
    columns: tuple[str, ...]
    printed: tuple[float | str, ...]
    runs: tuple[str, ...] = ()
    reason: str = ""

    @property
    def slug(self) -> str:
        return "/".join(map(slug, (self.paper, self.table, self.name)))


def slug(text: str) -> str:
    """`Table 5` is `table-5`."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def paper_rows() -> list[PaperRow]:
    """Every row of every table, in the order of the file."""
    made = []
    for table in published()["tables"]:
        for name, *printed in table["rows"]:
            runs = table.get("runs", {}).get(name, ())
            made.append(
                PaperRow(
                    table["paper"],
                    table["table"],
                    name,
                    tuple(table["columns"]),
                    tuple(printed),
                    (runs,) if isinstance(runs, str) else tuple(runs),
                    table.get("cannot", {}).get(name, ""),
                )
            )
    return made


def select(name: str) -> list[PaperRow]:
    """The rows that can be run of `paper`, `paper/table-5` or `paper/table-5/row`."""
    parts = name.strip("/").split("/")
    chosen = [row for row in paper_rows() if row.slug.split("/")[: len(parts)] == parts]
    if not chosen:
        tables = dict.fromkeys(row.slug.rsplit("/", 1)[0] for row in paper_rows())
        near = nearest(name, list(tables))
        raise RecipeError(
            f"no paper, table or row is called {name!r}", fix=f"{near}; liebig reproduce lists them"
        )
    if not any(row.runs for row in chosen):
        reasons = dict.fromkeys(row.reason or "Its rows are figures of other systems." for row in chosen)
        raise RecipeError(
            f"{name} cannot be run: {' '.join(reasons).rstrip('.')}", fix="choose another table"
        )
    return [row for row in chosen if row.runs]


def listing() -> Iterator[str]:
    """A line per table, and below it the names of rows that can be run; the rest are other systems' figures."""
    named: dict[tuple[str, str], str] = {}
    for table in published()["tables"]:
        named.setdefault((table["paper"], table["table"]), table["what"])
    for (paper, number), what in named.items():
        mine = [row for row in paper_rows() if (row.paper, row.table) == (paper, number)]
        runs = sum(bool(row.runs) for row in mine)
        reason = "".join(f" {reason}" for reason in dict.fromkeys(row.reason for row in mine if row.reason))
        name = f"{paper}/{slug(number)}"
        yield f"{name:<28} {runs:>2} of {len(mine):>2} rows  {what}{':' if reason else ''}{reason}"
        yield from (f"  {row.slug}" for row in mine if row.runs)


@dataclass
class PaperRun:
    """A recipe with its overrides: stages by name, those that are shown, and the folders of those that are planned."""

    stages: dict[str, Any]
    targets: Sequence[str]
    folders: dict[str, Path] = field(default_factory=dict)


@dataclass
class Reproduction:
    """Rows as one list of stages, each planned once: `made` by folder; `shown` are the folders with a row's results."""

    table: Mapping[str, Stage]
    out: Path
    data: Path = Path("data")
    smoke: bool = False
    overrides: Sequence[str] = ()
    made: dict[Path, Planned] = field(default_factory=dict)
    shown: dict[PaperRow, list[Path]] = field(default_factory=dict)
    sources: dict[str, Path] = field(default_factory=dict)  # data/… that is read, and where it is
    left_out: dict[str, Path] = field(default_factory=dict)  # sets for evaluation that are not there
    known: dict[str, Path] = field(
        default_factory=dict
    )  # folders of stages by their fields, and of [specs] by name

    def add(self, row: PaperRow) -> None:
        """Plan what a row needs, and its evaluations on sets that its recipes do not evaluate on."""
        runs = [self.run_of(words) for spec in row.runs for words in self._variants(spec)]
        folders = [self.folder(run, target) for run in runs for target in run.targets]
        covered = {suite for run in runs for target in run.targets for suite in _suites(run.stages[target])}
        printed = dict.fromkeys(column.partition(" ")[0] for column in row.columns)
        suites = (suite for name in printed if name != MEAN for suite in _members(name))
        missing = [suite for suite in dict.fromkeys(suites) if suite in BY_NAME and suite not in covered]
        folders += [folder for run in runs for suite in missing for folder in self._evaluation(run, suite)]
        self.shown[row] = list(dict.fromkeys(folders))

    @property
    def missing(self) -> dict[str, Path]:
        """Data that has to be there before anything runs."""
        return {name: path for name, path in self.sources.items() if not path.exists()}

    def stages(self) -> list[Planned]:
        """All stages in order; DataError where data is missing."""
        if self.missing:
            names = ", ".join(map(str, self.missing.values()))
            raise DataError(
                f"{names}: not there", fix="docs/data.md says where to get each; --data names the folder"
            )
        unused = [
            one
            for one in self.overrides
            if one.split(".")[0] not in {p.name.rpartition("-")[0] for p in self.made.values()}
        ]
        if unused:
            raise RecipeError(
                f"{unused[0]} changes no stage of these rows", fix="name a stage, as --plan prints them"
            )
        return list(self.made.values())

    def _variants(self, spec: str) -> Iterator[list[str]]:
        """A run for each value of `key=4|8`; one alone in a smoke run, which cuts what they differ in."""
        words = [
            [f"{key}={value}" for value in values.split("|")] if "|" in values else [word]
            for word in shlex.split(spec)
            for key, _, values in [word.partition("=")]
        ]
        for variant in product(*words):
            yield list(variant)
            if self.smoke:
                return

    def run_of(self, words: Sequence[str]) -> PaperRun:
        """RECIPE KEY=VALUE… start=FOLDER @STAGE,…; a first word of `[specs]` stands for its words."""
        specs = published()["specs"]
        while words[0] in specs:
            words = [*shlex.split(specs[words[0]]), *words[1:]]
        recipe, targets = Path("recipes") / f"{words[0]}.toml", ["evaluation"]
        stages: dict[str, Any] = config.read_toml(recipe)["stages"]
        for word in words[1:]:
            if word.startswith("@"):
                targets = word[1:].split(",")
            elif word.startswith("start="):
                _start_from(stages, word.removeprefix("start="))
            else:
                config.assign(stages, word)
        for override in self.overrides:
            if override.split(".")[0] in stages:
                config.assign(stages, override)
        return PaperRun(
            {name: _small(fields) for name, fields in stages.items()} if self.smoke else stages, targets
        )

    def folder(self, run: PaperRun, target: str) -> Path:
        """The folder of a stage, or below it, after everything that it reads is planned."""
        name, _, rest = target.partition("/")
        if name not in run.folders:
            fields = self._placed(run, run.stages[name])
            key = json.dumps([name, fields])
            if key not in self.known:
                [item] = pipeline.plan_stages(self.table, {name: fields}, self.out)
                self.known[key] = self._keep(item)
            run.folders[name] = self.known[key]
        return run.folders[name] / rest if rest else run.folders[name]

    def _keep(self, item: Planned) -> Path:
        """The folder of a planned stage: the same for every run that has the same."""
        text = json.dumps([item.stage.name, config.recorded(item.config)]).replace(f"{self.out}/", "")
        folder = self.out / f"{item.name}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
        self.made.setdefault(folder, replace(item, name=folder.name, out=folder))
        return folder

    def _placed(self, run: PaperRun, value: Any) -> Any:
        """Folders in the place of @stage, and of data that is there or made."""
        if isinstance(value, dict):
            return {key: self._placed(run, inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self._placed(run, inner) for inner in value]
        if isinstance(value, str) and value.startswith("@"):
            return str(self.folder(run, value[1:]))
        if isinstance(value, str) and (value.startswith(DATA) or value in published()["specs"]):
            return str(self._source(value))
        return value

    def _source(self, name: str) -> Path:
        path = self._home(name)
        if name in published()["specs"] and not path.exists():
            if name not in self.known:
                made = self.run_of([name])
                self.known[name] = self.folder(made, made.targets[0])
            return self.known[name]
        self.sources[name] = path
        return path

    def _home(self, name: str) -> Path:
        return self.data / name.removeprefix(DATA) if name.startswith(DATA) else Path(name)

    def _evaluation(self, run: PaperRun, suite: str) -> list[Path]:
        """The last target of a run on another set; nothing where its data is not there."""
        convention, target = BY_NAME[suite], run.targets[-1]
        name = HOMES.get(suite, DATA + (suite if suite.startswith("beir/") else suite.replace("/", "-")))
        home = self._home(name)
        if not home.exists():
            self.left_out[name] = home
            return []
        self.sources[name] = home
        label = slug(suite.removesuffix("/test"))
        collection = self._add(label, init.STAGE, init.InitConfig(paths=(home,)))
        fields = run.stages[target]
        system = fields.get("system", f"@{target}/model")
        search = run.stages[system[1:].partition("/")[0]]
        if search["kind"] != "retrieve":
            search = None
        if search is not None and suite.startswith("trec-dl"):  # other queries, the same vectors
            fields = {**self._placed(run, search), "collection": str(collection), "split": None}
            fields.pop("kind")
            run_folder = self._add(
                f"{label}-run", retrieve.STAGE, retrieve.RetrieveConfig.model_validate(fields)
            )
            answers = run_folder / "dense.trec"
        else:
            answers = self.folder(run, (system if search is None else search["model"])[1:])
        chosen = {"suite": suite, "split": convention.split, "data": convention.kind}
        small = {"samples": SMOKE["samples"]} if self.smoke else {}
        made = evaluate.EvaluateConfig(system=answers, collections=(collection,), **chosen, **small)
        return [self._add(f"{label}-evaluation", evaluate.STAGE, made)]

    def _add(self, name: str, stage: Stage, made: config.Config) -> Path:
        return self._keep(Planned(name, stage, made, self.out))


def _start_from(stages: Mapping[str, Any], start: str) -> None:
    """Another pre-trained model in every training that starts from a folder no earlier stage made."""
    for fields in stages.values():
        model = fields.get("model")
        if fields.get("kind") in ("pretrain", "finetune") and not model.get("path", "@").startswith("@"):
            model["path"] = start


def _small(value: Any, key: str = "") -> Any:
    """A stage, or a part of one, as a smoke run has it."""
    if isinstance(value, dict):
        small = {name: _small(inner, name) for name, inner in value.items()}
        if key == "loop":
            return {name: one for name, one in small.items() if name in SMOKE_LOOP} | {
                "steps": SMOKE["steps"]
            }
        if small.get("kind") == "moco":
            small["queue"] = SMOKE["queue"]
        if "batching" in small:  # scheduled by epochs
            small["loop"] = {"batch": SMOKE["batch"], "epochs": 2}
        return small
    if isinstance(value, list):
        return [_small(inner) for inner in value]
    return min(value, SMOKE[key]) if type(value) is int and key in SMOKE else value


def _suites(fields: Mapping[str, Any]) -> Iterator[str]:
    """The sets that a stage of a recipe evaluates on."""
    if fields.get("evaluation", {}).get("over") == "candidates":
        yield "abs/dev"
    if fields.get("kind") == "evaluate" and "suite" in fields:
        yield fields["suite"]
    elif fields.get("kind") == "evaluate":
        named = (recognise(Path(path), ("judgements",)) for path in fields["collections"])
        yield from (suite.name for suite in named if suite is not None)


def _members(suite: str) -> Iterator[str]:
    """A set, or the sets of a group."""
    for member in GROUPS.get(suite, (suite,)):
        yield from _members(member) if member in GROUPS else (member,)


Measured = dict[tuple[str, str], list[float]]


def measured(folders: Sequence[Path]) -> Measured:
    """What a row's folders say, by set and measure; a value for each variant of its run."""
    values: Measured = {}
    for folder in folders:
        log = folder / "log.jsonl"
        if (folder / evaluate.RESULTS).exists():
            for task in read_results(folder).tasks:
                for name, value in task.measures.items():
                    values.setdefault((task.suite or "", name), []).append(value.mean)
        elif log.exists():
            best = [line for line in read_json_lines(log, dict[str, Any]) if line.get("best")]
            for name, value in best[-1]["evaluation"].items() if best else ():
                values.setdefault(("abs/dev", name), []).append(float(value))
    return values


def cell(values: Measured, column: str) -> str:
    """A row's own value in a column; that of a group where all of its sets are there."""
    suite, _, measure = column.partition(" ")
    members = [values.get((member, measure)) for member in _members(suite)]
    if not all(members):
        return ""
    several = zip(*(member for member in members if member))
    return " | ".join(f"{np.mean(one):.3f}" for one in several)


def beside_paper(rows: Sequence[PaperRow], shown: Mapping[PaperRow, Sequence[Path]]) -> str:
    """Tables in Markdown: each row as printed, and as measured here."""
    parts = []
    for paper, table in dict.fromkeys((row.paper, row.table) for row in rows):
        mine = [row for row in rows if (row.paper, row.table) == (paper, table)]
        lines = []
        scale = next(t["scale"] for t in published()["tables"] if (t["paper"], t["table"]) == (paper, table))
        for row in mine:
            values = measured(shown[row])
            lines.append([row.name, "paper", *(f"{p / scale:.3f}" if p != "" else "" for p in row.printed)])
            lines.append(["", "here", *(cell(values, column) for column in row.columns)])
            if not row.columns:
                lines[-2:] = [[row.name, ", ".join(map(str, shown[row]))]]
        head = ["", "from" if mine[0].columns else "folder", *mine[0].columns]
        parts.append(f"## {paper}, {table}\n\n{markdown(head, lines)}")
    return "\n".join(parts)
