"""Two runs on one task: groups of queries, and wins and losses with their texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from liebig.analyse.errors import Example, Group, all_groups, content_words, extremes, first_relevant
from liebig.errors import DataError
from liebig.evaluate.questions import ranked_in
from liebig.evaluate.runfile import needed_run
from liebig.evaluate.scoring import Bootstrap, Matching, measures_for, score_run
from liebig.evaluate.task import Task

DEPTH = 1000


@dataclass(frozen=True, eq=False)
class Side:
    """One of the two systems: its value for each query, and what it found."""

    values: NDArray[np.float64]
    ranked: Mapping[str, Sequence[str]]

    def first(self, query: str) -> str:
        """The passage it ranks first, or ""."""
        hits = self.ranked.get(query, ())
        return hits[0] if hits else ""


def compare_runs(
    task: Task, runs: Sequence[Path], measure: str, count: int
) -> tuple[list[Group], list[Example], list[Example]]:
    """Groups, wins and losses of the first run against the second."""
    assert task.judgements is not None
    queries = task.judgements.queries
    missing = [query for query in queries if query not in task.queries]
    if missing:
        raise DataError(
            f"the text of query {missing[0]!r} is missing", file=task.path, fix="use the whole collection"
        )
    a, b = (_side(task, needed_run(path), measure) for path in runs)
    relevant = [_relevant(task, query, a, b) for query in queries]
    found = {side.first(query) for side in (a, b) for query in queries}
    texts = _texts(task, found | set(relevant))
    asked = [task.queries[query].text for query in queries]
    groups = all_groups(asked, [texts[name] for name in relevant], a.values, b.values)
    wins, losses = extremes(a.values, b.values, count)
    shown = {i: _example(task, i, relevant[i], a, b, texts) for i in (*wins, *losses)}
    return groups, [shown[i] for i in wins], [shown[i] for i in losses]


def _side(task: Task, file: Path, measure: str) -> Side:
    exclude = task.suite.exclude_self if task.suite else False
    scored = score_run(
        task,
        file,
        measures_for(task, [measure]),
        exclude_self=exclude,
        matching=Matching(),
        how=Bootstrap(samples=100),
    )
    ranked = ranked_in(file, DEPTH, scored.per_query.queries)
    if exclude:
        ranked = {query: [name for name in ids if name != query] for query, ids in ranked.items()}
    return Side(scored.per_query.values[:, 0], ranked)


def _relevant(task: Task, query: str, a: Side, b: Side) -> str:
    """The relevant passage that either of them found best."""
    assert task.judgements is not None
    places = [{name: rank for rank, name in enumerate(side.ranked.get(query, ()))} for side in (a, b)]
    return first_relevant(task.judgements.grades(query), lambda name: min(p.get(name, DEPTH) for p in places))


def _texts(task: Task, wanted: set[str]) -> dict[str, str]:
    """The texts of these passages; "" for those the collection does not have."""
    found = {
        passage.id: f"{passage.title.rstrip('.')}. {passage.text}" if passage.title else passage.text
        for passage in task.passages()
        if passage.id in wanted
    }
    return dict.fromkeys(wanted, "") | found


def _example(task: Task, i: int, relevant: str, a: Side, b: Side, texts: Mapping[str, str]) -> Example:
    assert task.judgements is not None
    query = task.queries[task.judgements.queries[i]]
    return Example(
        query=query.id,
        text=query.text,
        value_a=float(a.values[i]),
        value_b=float(b.values[i]),
        relevant=texts[relevant],
        found_a=texts[a.first(query.id)],
        found_b=texts[b.first(query.id)],
        words=tuple(sorted(content_words(query.text))),
    )
