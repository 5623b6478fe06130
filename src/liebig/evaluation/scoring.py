"""From a task and a run to scores, intervals and the notes that belong beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from liebig.base.errors import DataError, RecipeError
from liebig.base.hub import name_of
from liebig.base.progress import counted
from liebig.base.statistics import Interval, bootstrap_all, bootstrap_of
from liebig.evaluation.answer_scores import answer_scores, match_ranks
from liebig.evaluation.results import PerQuery, TaskResult
from liebig.evaluation.runs import found_in, of_run, open_run
from liebig.evaluation.suites import DEFAULTS, is_same
from liebig.evaluation.tasks import Task
from liebig.measures import Measure, parse_all
from liebig.measures.evaluator import RunBlock, Scores, evaluate, judgements_from_mapping
from liebig.measures.similarity import pearson, spearman

CUTS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
SHOWN = 3  # ids in a sentence


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """How intervals are made."""

    level: float = 0.95
    samples: int = 10_000
    seed: int = 0


@dataclass(frozen=True, eq=False)
class ScoredTask:
    """A task with the values of its queries, their means, and remarks."""

    task: Task
    per_query: PerQuery
    intervals: Mapping[str, Interval]
    remarks: str
    notes: tuple[str, ...] = ()
    extra: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    recall: Mapping[str, float] = field(default_factory=dict)
    missing: int = 0

    def result(self, values: str) -> TaskResult:
        """The entry of results.json; `values` names the file with the values per query."""
        task, same = self.task, self.is_published_set
        return TaskResult(
            task=task.name,
            split=task.split,
            kind=task.kind,
            queries=len(self.per_query.queries),
            measures=self.intervals,
            remarks=self.remarks,
            notes=self.notes,
            suite=task.suite.name if task.suite else None,
            same_as_published=same,
            values=values,
            recall=self.recall,
        )

    @property
    def is_published_set(self) -> bool:
        """Whether papers' figures may stand beside this; passages are only counted where the queries fit."""
        suite, queries = self.task.suite, len(self.per_query.queries)
        if suite is None or not is_same(suite, queries, None):
            return False
        if not suite.queries and suite.split != self.task.split:
            return False
        return not suite.passages or is_same(suite, queries, self.task.count_passages())


def measures_for(task: Task, names: Sequence[str]) -> tuple[Measure, ...]:
    """The measures asked for, else the suite's, else those usual for the kind of task; all must fit it."""
    chosen = tuple(names) or (task.suite.measures if task.suite else DEFAULTS[task.kind])
    measures = parse_all(chosen)
    needed = {"candidates": "judgements"}.get(task.kind, task.kind)
    for measure in measures:
        if measure.needs != needed:
            raise RecipeError(
                f"{measure} needs {measure.needs}, and {task.name} is evaluated by its {task.kind}",
                fix=f"use measures such as {', '.join(DEFAULTS[task.kind])}, or data={measure.needs}",
            )
    return measures


def score_run(
    task: Task,
    run: Path,
    measures: Sequence[Measure],
    *,
    exclude_self: bool,
    how: Bootstrap,
    blocks: Sequence[RunBlock] | None = None,
) -> ScoredTask:
    """A run file on a task with judgements or answers; recall at other cuts is computed on the way.

    `blocks` are its hits, where they are in memory.
    """
    probes = curve_measures(measures)
    every = (*measures, *(probe for probe in probes if probe not in measures))
    if task.kind == "judgements":
        scores, regrouped = _evaluate(run, task, every, exclude_self, blocks)
    elif task.kind == "answers":
        scores, regrouped = _match(run, task, every, blocks), False
    else:
        raise DataError(
            f"a run cannot be evaluated on {task.kind}",
            file=task.path,
            fix="evaluate a model, or use data=judgements",
        )
    if scores.missing.all():
        refuse_disjoint(run, task, scores.queries)
    chosen = scores.only(measures)
    notes = _notes(task, chosen) + (
        ["The hits of a query did not lie together; regrouped."] if regrouped else []
    )
    return replace(summarise(task, chosen, notes, how), recall=recall_curve(scores, probes))


def refuse_disjoint(run: Path, task: Task, queries: Sequence[str]) -> None:
    """A run with other queries than those asked is a mistake; one without any hits may be."""
    in_run = [query.decode(errors="replace") for block in open_run(run) for query in block.queries]
    if in_run and set(queries).isdisjoint(in_run):
        raise DataError(
            f"the run has none of the queries of {task.path}, split {task.split}: its own begin "
            f"with {first_ids(in_run)}, those asked there with {first_ids(queries)}",
            file=run,
            fix="name the collection and the split that the run was searched for; the ids must be the same",
        )


def first_ids(ids: Sequence[str]) -> str:
    """`'q1', 'q2', 'q3'`."""
    return ", ".join(map(repr, ids[:SHOWN]))


def missing_note(missing: int, queries: int) -> list[str]:
    """That queries without hits count as 0, where there are some."""
    if not missing:
        return []
    which = (
        "none has hits" if missing == queries else f"{missing} {'has' if missing == 1 else 'have'} no hits"
    )
    return [f"Of {counted(queries, 'queries')} {which} in the run: they count as 0."]


def curve_measures(measures: Sequence[Measure]) -> tuple[Measure, ...]:
    """Recall at many cuts, with the threshold that the measures have; for answers, accuracy."""
    if measures[0].needs == "answers":
        return tuple(Measure("Answer", cut) for cut in CUTS if cut <= 100)
    rel = next((measure.rel for measure in measures if measure.kind in ("R", "RR", "AP")), 1)
    return tuple(Measure("R", cut, rel) for cut in CUTS)


def recall_curve(scores: Scores, probes: Sequence[Measure]) -> dict[str, float]:
    """Means by cut, as deep as the run goes."""
    deepest, means = int(scores.hits.max(initial=0)), scores.means()
    return {str(probe.cut): means[str(probe)] for probe in probes if probe.cut and probe.cut <= deepest}


def score_candidates(task: Task, block: RunBlock, measures: Sequence[Measure], how: Bootstrap) -> ScoredTask:
    """Candidates that a model ranked; the positives of each group are what is relevant."""
    judgements = judgements_from_mapping(
        {group.query: dict.fromkeys(group.positives, 1) for group in task.groups}
    )
    scores = evaluate([block], judgements, measures)
    return summarise(task, scores, _notes(task, scores), how)


def score_pairs(
    task: Task, similarities: np.ndarray[Any, Any], measures: Sequence[Measure], how: Bootstrap
) -> ScoredTask:
    """Correlation of similarities with the gold scores; intervals resample pairs."""
    gold = np.array([pair.score for pair in task.pairs])
    for what, values in (("scores of the pairs", gold), ("similarities that the model gives", similarities)):
        if np.ptp(values) == 0:
            raise DataError(
                f"all {len(gold)} {what} are equal, so there is no correlation",
                file=task.path,
                fix="evaluate pairs with different scores by a model that tells texts apart",
            )
    functions = {"Spearman": spearman, "Pearson": pearson}
    intervals = {
        str(measure): bootstrap_of(
            lambda rows, f=functions[measure.kind]: f(similarities[rows], gold[rows]),  # type: ignore[misc]  # f is bound now
            len(gold), samples=min(how.samples, 1000), level=how.level, seed=how.seed,
        )
        for measure in measures
    }  # fmt: skip
    names = tuple(str(i) for i in range(len(gold)))
    per_query = PerQuery(names, (), np.empty((len(gold), 0)))
    extra = {"similarity": similarities.tolist(), "gold": gold.tolist()}
    return ScoredTask(task, per_query, intervals, f"{len(gold)} pairs", _suite_note(task), extra)


def score_triplets(
    task: Task, values: np.ndarray[Any, Any], measures: Sequence[Measure], how: Bootstrap
) -> ScoredTask:
    """The share of triplets whose positive is nearer."""
    names = tuple(str(i) for i in range(len(values)))
    columns = np.repeat(values[:, None], len(measures), axis=1)
    per_query = PerQuery(names, tuple(map(str, measures)), columns)
    return ScoredTask(
        task, per_query, intervals_of(per_query, how), f"{len(values)} triplets", _suite_note(task)
    )


def summarise(task: Task, scores: Scores, notes: Sequence[str], how: Bootstrap) -> ScoredTask:
    per_query = PerQuery(scores.queries, tuple(map(str, scores.measures)), scores.values)
    extra = {"hits": scores.hits.tolist()}
    return ScoredTask(
        task,
        per_query,
        intervals_of(per_query, how),
        scores.remarks(),
        tuple(notes),
        extra,
        missing=int(scores.missing.sum()),
    )


def intervals_of(per_query: PerQuery, how: Bootstrap) -> dict[str, Interval]:
    """The mean of each measure and its interval."""
    if not per_query.queries:
        raise DataError("there is no query to evaluate", fix="choose a split that has queries")
    columns = list(per_query.values.T)
    intervals = bootstrap_all(columns, samples=how.samples, level=how.level, seed=how.seed)
    return dict(zip(per_query.measures, intervals))


def _evaluate(
    run: Path, task: Task, measures: Sequence[Measure], exclude_self: bool, blocks: Sequence[RunBlock] | None
) -> tuple[Scores, bool]:
    judgements = task.judgements
    assert judgements is not None
    return of_run(run, lambda hits: evaluate(hits, judgements, measures, exclude_self=exclude_self), blocks)


def _match(run: Path, task: Task, measures: Sequence[Measure], blocks: Sequence[RunBlock] | None) -> Scores:
    depth = max(measure.cut or 0 for measure in measures)
    first_hits = found_in(run, depth, task.queries, blocks)
    ranked = {query: hits.ids for query, hits in first_hits.items()}
    ranks = match_ranks(ranked, task.queries, task.passages())
    return answer_scores(ranks, first_hits, tuple(task.queries), measures)


def _notes(task: Task, scores: Scores) -> list[str]:
    notes = [*_suite_note(task), *missing_note(int(scores.missing.sum()), len(scores.queries))]
    if task.unanswered:
        notes.append(
            f"Left out, because they have no answer to match: {counted(task.unanswered, 'questions')}."
        )
    own = int(scores.found_self.sum())
    if scores.excluded_self:
        notes.append("A query's own id is taken out of its hits.")
    elif own:
        notes.append(
            f"Queries with their own id among their hits: {own:,}. If ids of queries and passages name "
            "the same texts, evaluate with exclude_self=true."
        )
    deepest = int(scores.hits.max(initial=0))
    too_deep = [str(measure) for measure in scores.measures if measure.cut and measure.cut > deepest]
    if too_deep and deepest:
        notes.append(f"No query has more than {deepest} hits: {', '.join(too_deep)} cannot look deeper.")
    return notes


def _suite_note(task: Task) -> tuple[str, ...]:
    return (f"{task.suite.name}: {task.suite.note}",) if task.suite and task.suite.note else ()


def system_name(path: Path) -> str:
    """What to call a system by default: its file's name without suffix, or its folder's."""
    return path.parent.name if path.name == "run.trec" else path.stem if path.is_file() else name_of(path)


def system_names(paths: Sequence[Path], given: Sequence[str]) -> list[str]:
    """The names given, else those of the files; they must differ."""
    names = list(given) or [system_name(path) for path in paths]
    if len(names) != len(paths) or len(set(names)) != len(names):
        raise RecipeError(
            f"{len(paths)} systems need as many different names, not {names}", fix="give names=[...]"
        )
    return names
