"""`liebig compare`: which systems differ on the same queries, by paired tests with Holm's correction.

Reads run files (evaluated here, on one collection) or folders that `liebig evaluate` wrote. Runs of one name are seeds
of one system: their values are averaged query by query before systems are compared, and how far they differ is said.
The correction covers all comparisons of one measure. A letter behind a mean names a system that is significantly worse.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from liebig.base.config import Config, InputPath
from liebig.base.errors import DataError, RecipeError
from liebig.base.statistics import ALPHA, Comparison, Seeds, compare, holm, over_seeds
from liebig.evaluation.results import RESULTS, PerQuery, read_per_query, read_results
from liebig.evaluation.runs import needed_run
from liebig.evaluation.scoring import (
    SHOWN,
    Bootstrap,
    first_ids,
    measures_for,
    missing_note,
    score_run,
    system_name,
)
from liebig.evaluation.tables import show
from liebig.evaluation.tasks import Task, read_task


class CompareConfig(Config):
    """`liebig compare RUN…`: which systems differ, with paired tests and Holm's correction."""

    runs: tuple[InputPath, ...] = Field(
        description="Two or more run files, or folders written by liebig evaluate."
    )
    qrels: InputPath | None = Field(None, description="Collection or judgements to evaluate run files on.")
    names: tuple[str, ...] = Field(
        (),
        description="Names of the runs, in order; runs with the same name are seeds of one system and are averaged.",
    )
    split: str | None = Field(None, description="Split of the collection.")
    measures: tuple[str, ...] = Field((), description="Measures to compare [default: the suite's].")
    baseline: str | None = Field(None, description="Compare every system with this one [default: all pairs].")
    samples: int = Field(
        10_000, ge=100, description="Number of samples for the bootstrap and the randomisation test."
    )
    seed: int = Field(0, ge=0, description="Seed of the bootstrap and the randomisation test.")


@dataclass(frozen=True, eq=False)
class ComparedSystem:
    """A system by name, with the values of its runs: seeds × queries, by measure."""

    name: str
    values: dict[str, NDArray[np.float64]]

    def mean_over_seeds(self, measure: str) -> NDArray[np.float64]:
        """One value a query."""
        return self.values[measure].mean(axis=0)


@dataclass(frozen=True)
class Pair:
    """Two systems on one measure; `p` is the test's, `adjusted` after Holm over all pairs of the measure."""

    measure: str
    a: str
    b: str
    comparison: Comparison
    p: float
    adjusted: float


@dataclass(frozen=True, eq=False)
class TaskComparison:
    """The whole comparison."""

    queries: int
    systems: Sequence[str]
    seeds: dict[str, dict[str, Seeds]]
    pairs: Sequence[Pair]


def gather(
    names: Sequence[str], runs: Iterable[PerQuery], chosen: Sequence[str] = ()
) -> tuple[list[ComparedSystem], int]:
    """Runs put together by name; all must have the same queries and the measures asked for, or one in common."""
    listed = list(runs)
    queries, measures = (
        listed[0].queries,
        [m for m in listed[0].measures if all(m in r.measures for r in listed)],
    )
    for name, other in zip(names, listed):
        if other.queries != queries:
            raise DataError(
                f"the runs were evaluated on different queries: {names[0]} on {_asked(queries)}, "
                f"{name} on {_asked(other.queries)}",
                fix="evaluate all of them on the same split",
            )
    missing = [measure for measure in chosen if measure not in measures]
    if missing or not measures:
        raise DataError(
            f"the runs do not all have {missing[0]}" if missing else "the runs have no measure in common",
            fix="evaluate them with the same measures",
        )
    measures = list(chosen) or measures
    by_name: dict[str, list[PerQuery]] = {}
    for name, per_query in zip(names, listed):
        by_name.setdefault(name, []).append(per_query)
    systems = [
        ComparedSystem(name, {m: np.stack([r.of(m) for r in seeds]) for m in measures})
        for name, seeds in by_name.items()
    ]
    return systems, len(queries)


def _asked(queries: Sequence[str]) -> str:
    return f"{len(queries):,} ({first_ids(queries)}{', …' if len(queries) > SHOWN else ''})"


def compare_systems(
    systems: Sequence[ComparedSystem],
    queries: int,
    *,
    baseline: str | None,
    samples: int,
    seed: int,
) -> TaskComparison:
    """All pairs, or all against the baseline."""
    by_name = {system.name: system for system in systems}
    if baseline is not None and baseline not in by_name:
        raise RecipeError(f"no run is called {baseline!r}", fix="use one of " + ", ".join(by_name))
    pairs = [
        (a, b) if baseline is None else (a, baseline)
        for a, b in (
            combinations(by_name, 2) if baseline is None else ((n, "") for n in by_name if n != baseline)
        )
    ]
    measures = list(systems[0].values)
    tested: list[Pair] = []
    for measure in measures:
        compared = [
            compare(
                by_name[a].mean_over_seeds(measure),
                by_name[b].mean_over_seeds(measure),
                samples=samples,
                seed=seed,
            )
            for a, b in pairs
        ]
        p_values = [c.p_randomisation for c in compared]
        tested += [
            Pair(measure, a, b, comparison, p, adjusted)
            for (a, b), comparison, p, adjusted in zip(pairs, compared, p_values, holm(p_values))
        ]
    seeds = {
        system.name: {
            m: over_seeds(values, samples=samples, seed=seed) for m, values in system.values.items()
        }
        for system in systems
    }
    return TaskComparison(queries, list(by_name), seeds, tested)


def beaten(comparison: TaskComparison, measure: str, name: str) -> list[str]:
    """The systems that a system is significantly better than."""
    worse = []
    for pair in comparison.pairs:
        if pair.measure == measure and pair.adjusted <= ALPHA and name in (pair.a, pair.b):
            difference = pair.comparison.difference.mean
            better = pair.a if difference > 0 else pair.b
            if better == name and difference != 0:
                worse.append(pair.b if name == pair.a else pair.a)
    return worse


def mean_rows(comparison: TaskComparison) -> tuple[list[str], list[list[str]]]:
    """Means with intervals, and letters of the systems that are significantly worse."""
    letters = {name: chr(ord("a") + i % 26) for i, name in enumerate(comparison.systems)}
    measures = list(next(iter(comparison.seeds.values())))
    rows = []
    for name in comparison.systems:
        cells = []
        for measure in measures:
            seeds = comparison.seeds[name][measure]
            marks = "".join(letters[other] for other in beaten(comparison, measure, name))
            spread = f" ±{seeds.deviation:.4f}" if len(seeds.means) > 1 else ""
            interval = seeds.interval
            cells.append(
                f"{interval.mean:.4f}{spread} [{interval.low:.4f}, {interval.high:.4f}] {marks}".strip()
            )
        count = len(next(iter(comparison.seeds[name].values())).means)
        rows.append([f"{letters[name]}  {name}" + (f" ({count} seeds)" if count > 1 else ""), *cells])
    return ["system", *measures], rows


def pair_rows(comparison: TaskComparison) -> tuple[list[str], list[list[str]]]:
    """One row for each comparison."""
    header = ["measure", "A", "B", "A - B", "interval", "p", "p (Holm)", "effect d", "wins / ties / losses"]
    rows = []
    for pair in comparison.pairs:
        c = pair.comparison
        interval = f"[{c.difference.low:+.4f}, {c.difference.high:+.4f}]"
        numbers = [
            f"{c.difference.mean:+.4f}",
            interval,
            f"{pair.p:.4f}",
            f"{pair.adjusted:.4f}",
            f"{c.effect:+.2f}",
        ]
        rows.append([pair.measure, pair.a, pair.b, *numbers, f"{c.wins} / {c.ties} / {c.losses}"])
    return header, rows


def to_json(comparison: TaskComparison) -> dict[str, Any]:
    """A tree for compare.json."""
    return {
        "queries": comparison.queries,
        "test": "randomisation",
        "alpha": ALPHA,
        "systems": list(comparison.systems),
        "seeds": {name: {m: asdict(s) for m, s in of.items()} for name, of in comparison.seeds.items()},
        "pairs": [asdict(pair) for pair in comparison.pairs],
    }


def _names(config: CompareConfig) -> list[str]:
    if config.names and len(config.names) != len(config.runs):
        raise RecipeError(f"{len(config.names)} names for {len(config.runs)} runs", fix="give one name a run")
    if config.names:
        return list(config.names)
    evaluated = [read_results(path).system for path in config.runs if (path / RESULTS).is_file()]
    if len(set(evaluated)) == len(config.runs):  # the names given to liebig evaluate
        return evaluated
    return _distinct([system_name(path) for path in config.runs])


def _distinct(names: Sequence[str]) -> list[str]:
    """Names that differ, so that two files of one name are not taken for seeds."""
    return [
        name if names.count(name) == 1 else f"{name} {names[: i + 1].count(name)}"
        for i, name in enumerate(names)
    ]


def _read_all(config: CompareConfig) -> list[PerQuery]:
    task = read_task(config.qrels, split=config.split) if config.qrels is not None else None
    return [_read(config, path, task) for path in config.runs]


def _read(config: CompareConfig, path: Path, task: Task | None) -> PerQuery:
    if path.is_dir() and (path / RESULTS).is_file():
        return _read_folder(path, config.split)
    if task is None:
        raise RecipeError(
            "run files need judgements to be compared", file=path, fix="give --qrels COLLECTION"
        )
    file = needed_run(path)
    exclude = task.suite.exclude_self if task.suite else False
    scored = score_run(
        task, file, measures_for(task, config.measures),
        exclude_self=exclude, how=Bootstrap(samples=100),
    )  # fmt: skip
    for note in missing_note(scored.missing, len(scored.per_query.queries)):
        show(f"Note: {file}: {note}")
    return scored.per_query


def _read_folder(path: Path, split: str | None) -> PerQuery:
    tasks = [
        task for task in read_results(path).tasks if split in (None, task.split) and task.kind != "pairs"
    ]
    if len(tasks) != 1:
        raise DataError(
            f"the folder has {len(tasks)} results to compare",
            file=path,
            fix="evaluate one collection, or name its split",
        )
    return read_per_query(path, tasks[0])
