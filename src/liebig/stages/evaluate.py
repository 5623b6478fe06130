"""`liebig evaluate`: reads a run or a model and collections, writes results and the values of every query."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field

from liebig.base.config import Config, InputPath, ModelPath
from liebig.base.errors import DataError
from liebig.base.machine import computing_threads
from liebig.base.pipeline import Stage
from liebig.base.records import Title
from liebig.base.workspace import Folder
from liebig.collection import Collection
from liebig.evaluation.drawn_tasks import CANDIDATES_DEPTH, build, draw_groups
from liebig.evaluation.results import RESULTS, Results, TaskResult, query_lines
from liebig.evaluation.runs import needed_run, ranked_in, run_file
from liebig.evaluation.scoring import (
    Bootstrap,
    ScoredTask,
    first_ids,
    measures_for,
    refuse_disjoint,
    score_run,
    system_name,
)
from liebig.evaluation.suites import GROUPS, Suite, named
from liebig.evaluation.tables import results_markdown, show_results
from liebig.evaluation.tasks import Task, read_task, with_passages
from liebig.formats.output import write_lines
from liebig.measures.evaluator import RunBlock

if TYPE_CHECKING:
    from liebig.evaluation.encoders import ModelScorer


class EvaluateConfig(Config):
    """`liebig evaluate RUN|MODEL COLLECTION…`: measures with intervals, the values of every query kept."""

    system: ModelPath = Field(
        description="A run file, a folder with one run in it, a model folder, or org/name of the hub."
    )
    collections: tuple[InputPath, ...] = Field(
        description="Collections, BEIR folders or files to evaluate on."
    )
    passages: InputPath | None = Field(
        None, description="Collection with the passages, if the questions are in a separate file."
    )
    name: str | None = Field(None, description="Name of the system in tables [default: its file name].")
    split: str | None = Field(
        None, description="Split to evaluate [default: the suite's, else test, else the only one]."
    )
    data: Literal["judgements", "answers", "pairs", "triplets", "candidates"] | None = Field(
        None, description="Kind of data to use, if a collection has several."
    )
    suite: str | None = Field(
        None,
        description="Evaluation conventions to follow, such as beir/arguana [default: by the folder's name].",
    )
    measures: tuple[str, ...] = Field((), description="Measures, such as nDCG@10 [default: the suite's].")
    exclude_self: bool | None = Field(
        None, description="Remove a query's own id from its hits [default: as the suite says]."
    )
    sections: int = Field(
        0,
        ge=0,
        description="Number of section triplets to build from the collection's documents and evaluate on.",
    )
    candidates: InputPath | None = Field(
        None,
        description="Run to draw candidates from: rank one positive among 99 of its hits (the ABS paper).",
    )
    distance: Literal["euclidean", "cosine"] = Field(
        "euclidean", description="Distance between vectors for triplets."
    )
    depth: int = Field(1000, ge=1, description="Number of hits per query when evaluating a model.")
    title: Title | None = Field(
        None,
        description="Put the title before the text: with a space, with the separator token, or not at all [default: as "
        "in training, else space].",
    )
    max_length: int | None = Field(
        None,
        ge=8,
        description="Maximum length of a text in tokens [default: the length stored with the model].",
    )
    query_length: int | None = Field(
        None,
        ge=4,
        description="Maximum length of a query in tokens [default: as in training, else max_length].",
    )
    device: str = Field("auto", description="Device of a model: auto, cpu or cuda.")
    precision: Literal["fp32", "int8"] = Field(
        "fp32",
        description="Numbers that a model encodes passages with on a CPU; int8 is faster on a processor with "
        "int8 dot products (VNNI; asimddp on aarch64); measures differ in the third digit.",
    )
    level: float = Field(0.95, gt=0, lt=1, description="Confidence level of the intervals.")
    samples: int = Field(10_000, ge=100, description="Number of bootstrap samples for the intervals.")
    seed: int = Field(0, ge=0, description="Seed of the bootstrap and of the triplets.")


def run(config: EvaluateConfig, folder: Folder) -> None:
    suite = named(config.suite) if config.suite else None
    tasks = [_task(config, path, suite) for path in config.collections]
    file = _run_of(config.system)
    how = Bootstrap(config.level, config.samples, config.seed)
    scored = (
        [_score_run(config, file, task, how) for task in tasks]
        if file
        else _score_model(config, tasks, how, folder)
    )
    name = config.name or system_name(config.system)
    results = write(folder, name, scored)
    show_results(results)


def write(folder: Folder, system: str, scored: Sequence[ScoredTask]) -> Results:
    entries: list[TaskResult] = []
    for item, label in zip(scored, _labels(item.task for item in scored)):
        values = f"queries/{label}.jsonl"
        (folder.path / "queries").mkdir(exist_ok=True)
        write_lines(folder.path / values, query_lines(item.per_query, item.extra))
        entries.append(item.result(values))
    results = Results(system, entries, group_means(entries))
    folder.write_json(RESULTS, asdict(results))
    folder.write_text("results.md", results_markdown(results))
    return results


def group_means(entries: Sequence[TaskResult]) -> dict[str, dict[str, float]]:
    """Macro means of the groups that are whole: CQADupStack's twelve forums, then BEIR's fourteen sets."""
    by_suite = {
        entry.suite: {name: value.mean for name, value in entry.measures.items()} for entry in entries
    }
    means: dict[str, dict[str, float]] = {}
    for name, members in GROUPS.items():
        values = [by_suite.get(member) or means.get(member) for member in members]
        if all(values):
            shared = set.intersection(*(set(value or ()) for value in values))
            first = values[0] or {}
            means[name] = {m: float(np.mean([(v or {})[m] for v in values])) for m in first if m in shared}
    return means


def _task(config: EvaluateConfig, path: Path, suite: Suite | None) -> Task:
    if config.sections:
        triplets = list(build(Collection(path).documents(), limit=config.sections, seed=config.seed))
        if not triplets:
            raise DataError(
                "no section triplet can be built", file=path, fix="use a collection with sections"
            )
        return Task(path.name, path, "built-sections", "triplets", triplets=triplets)
    if config.candidates is not None:
        return _candidates(config, config.candidates, read_task(path, kind="judgements", split=config.split))
    task = read_task(path, kind=config.data, split=config.split, suite=suite)
    return task if config.passages is None else with_passages(task, config.passages)


def _candidates(config: EvaluateConfig, source: Path, task: Task) -> Task:
    """The task with candidates drawn from a run in the place of the whole collection."""
    assert task.judgements is not None
    run = needed_run(source)
    ranked = ranked_in(run, CANDIDATES_DEPTH, task.judgements.queries)
    groups = list(draw_groups(ranked, task.judgements, seed=config.seed))
    if not any(group.negatives for group in groups):
        refuse_disjoint(run, task, task.judgements.queries)
    return replace(task, kind="candidates", split=f"{task.split}-candidates", suite=None, groups=groups)


def _run_of(system: Path) -> Path | None:
    """The run file a system stands for; none if it is a model."""
    if (system / "config.json").is_file():
        return None
    file = run_file(system)
    if file is None:
        raise DataError(
            "the folder is neither a run nor a model: it has no .trec file and no config.json",
            file=system,
            fix="name a run file, or a model folder such as runs/condenser/model",
        )
    return file


def _score_run(
    config: EvaluateConfig, path: Path, task: Task, how: Bootstrap, blocks: Sequence[RunBlock] | None = None
) -> ScoredTask:
    measures, exclude = measures_for(task, config.measures), _exclude_self(config, task)
    return score_run(task, path, measures, exclude_self=exclude, how=how, blocks=blocks)


def _exclude_self(config: EvaluateConfig, task: Task) -> bool:
    by_suite = task.suite.exclude_self if task.suite else False
    return by_suite if config.exclude_self is None else config.exclude_self


def _score_model(
    config: EvaluateConfig, tasks: Sequence[Task], how: Bootstrap, folder: Folder
) -> list[ScoredTask]:
    from liebig.evaluation.encoders import ModelScorer  # loads torch, which a run file does not need

    scorer = ModelScorer(
        config.system,
        config.device,
        config.depth,
        title=config.title,
        max_length=config.max_length,
        query_length=config.query_length,
        precision=config.precision,
    )
    with computing_threads():
        return [
            _score_searched(config, scorer, task, how, folder.path / "runs" / f"{label}.trec")
            if task.kind in ("judgements", "answers")
            else scorer.score(task, measures_for(task, config.measures), config.distance, how)
            for task, label in zip(tasks, _labels(tasks))
        ]


def _score_searched(
    config: EvaluateConfig, scorer: ModelScorer, task: Task, how: Bootstrap, path: Path
) -> ScoredTask:
    """Search with the model, keep the run, and evaluate it like any other, but for reading it."""
    _need_texts(task)
    block = scorer.search(task, _exclude_self(config, task))
    scorer.write_run(block, path)
    return _score_run(config, path, task, how, [block])


def _need_texts(task: Task) -> None:
    """A model asks the texts of queries against those of passages; a run needs neither."""
    queries = tuple(task.queries) if task.judgements is None else task.judgements.queries
    if not any(query in task.queries for query in queries):
        raise DataError(
            f"none of the queries asked, which begin with {first_ids(queries)}, has a text here",
            file=task.path,
            fix="name a collection or BEIR folder whose queries have the same ids as its judgements",
        )
    if next(task.passages(), None) is None:
        raise DataError("there are no passages to search", file=task.path, fix="name some with --passages")


def _labels(tasks: Iterable[Task]) -> list[str]:
    """What the files of each task are called; sets of one name are numbered."""
    labels: list[str] = []
    for task in tasks:
        names = chain([task.label], (f"{task.label}-{n}" for n in count(2)))
        labels.append(next(name for name in names if name not in labels))
    return labels


STAGE = Stage(
    "evaluate",
    EvaluateConfig,
    run,
    "liebig evaluate runs/bm25/run.trec runs/collection --out runs/evaluation",
    positional="collections",
    first="system",
    document=RESULTS,
)
