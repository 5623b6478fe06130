"""`liebig analyse errors`: which queries one system wins and loses against another by most, with their texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from liebig.base.config import Config, InputPath
from liebig.base.errors import DataError
from liebig.base.pipeline import Stage
from liebig.base.workspace import Folder
from liebig.evaluation.runs import needed_run, ranked_in
from liebig.evaluation.scoring import Bootstrap, measures_for, score_run, system_names
from liebig.evaluation.tables import write_table
from liebig.evaluation.tasks import Task, read_task
from liebig.queries.consistency import words as words_of

STOP = frozenset((
    "a", "an", "and", "are", "as", "at", "be", "by", "did", "do", "does", "for", "from", "has", "have", "how", "in",
    "is", "it", "its", "of", "on", "or", "that", "the", "their", "this", "to", "was", "were", "with",
))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Example:
    """A query that the systems differ on, with the texts one needs to see why."""

    query: str
    text: str
    value_a: float
    value_b: float
    relevant: str
    found_a: str
    found_b: str
    words: tuple[str, ...]


def content_words(text: str) -> set[str]:
    """Words that are not among the commonest."""
    return set(words_of(text)) - STOP


def extremes(a: NDArray[np.float64], b: NDArray[np.float64], count: int) -> tuple[list[int], list[int]]:
    """The queries A wins by most, and those it loses by most; ties in the order of the queries."""
    difference = a - b
    wins = [int(i) for i in np.argsort(-difference, kind="stable")[:count] if difference[i] > 0]
    losses = [int(i) for i in np.argsort(difference, kind="stable")[:count] if difference[i] < 0]
    return wins, losses


def first_relevant(grades: Mapping[str, int], rank: Callable[[str], int]) -> str:
    """The relevant passage found best, else the one with the highest grade; "" where nothing is relevant."""
    relevant = [passage for passage, grade in grades.items() if grade > 0]
    return min(relevant, key=lambda passage: (rank(passage), -grades[passage], passage), default="")


HITS_READ = 1000  # per query of a run
SHOWN = 120  # characters of a passage in the table


@dataclass(frozen=True, eq=False)
class ComparedRun:
    """One of the two systems: its value for each query, and what it found."""

    values: NDArray[np.float64]
    ranked: Mapping[str, Sequence[str]]

    def first(self, query: str) -> str:
        hits = self.ranked.get(query, ())
        return hits[0] if hits else ""


def compare_runs(
    task: Task, runs: Sequence[Path], measure: str, count: int
) -> tuple[list[Example], list[Example]]:
    """Wins and losses of the first run against the second."""
    assert task.judgements is not None
    queries = task.judgements.queries
    missing = [query for query in queries if query not in task.queries]
    if missing:
        raise DataError(
            f"the text of query {missing[0]!r} is missing", file=task.path, fix="use the whole collection"
        )
    a, b = (_side(task, needed_run(path), measure) for path in runs)
    relevant = [_relevant(task, query, a, b) for query in queries]
    firsts = {side.first(query) for side in (a, b) for query in queries}
    texts = _texts(task, firsts | set(relevant))
    wins, losses = extremes(a.values, b.values, count)
    shown = {i: _example(task, i, relevant[i], a, b, texts) for i in (*wins, *losses)}
    return [shown[i] for i in wins], [shown[i] for i in losses]


def _side(task: Task, file: Path, measure: str) -> ComparedRun:
    exclude = task.suite.exclude_self if task.suite else False
    measures = measures_for(task, [measure])
    scored = score_run(task, file, measures, exclude_self=exclude, how=Bootstrap(samples=100))
    ranked = ranked_in(file, HITS_READ, scored.per_query.queries)
    if exclude:
        ranked = {query: [name for name in ids if name != query] for query, ids in ranked.items()}
    return ComparedRun(scored.per_query.values[:, 0], ranked)


def _relevant(task: Task, query: str, a: ComparedRun, b: ComparedRun) -> str:
    """The relevant passage that either of them found best."""
    assert task.judgements is not None
    places = [{name: rank for rank, name in enumerate(side.ranked.get(query, ()))} for side in (a, b)]
    return first_relevant(
        task.judgements.grades(query), lambda name: min(p.get(name, HITS_READ) for p in places)
    )


def _texts(task: Task, ids: set[str]) -> dict[str, str]:
    """The texts of these passages; "" for those the collection does not have."""
    texts = {
        passage.id: f"{passage.title.rstrip('.')}. {passage.text}" if passage.title else passage.text
        for passage in task.passages()
        if passage.id in ids
    }
    return dict.fromkeys(ids, "") | texts


def _example(
    task: Task, i: int, relevant: str, a: ComparedRun, b: ComparedRun, texts: Mapping[str, str]
) -> Example:
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


class ErrorsConfig(Config):
    """`liebig analyse errors A B`: which queries A wins and loses against B, with the texts."""

    runs: tuple[InputPath, InputPath] = Field(description="The runs of A and of B.")
    collection: InputPath = Field(description="Collection that was searched.")
    split: str | None = Field(None, description="Split of the collection.")
    measure: str = Field("nDCG@10", description="Measure that decides which system wins.")
    names: tuple[str, ...] = Field((), description="Names of A and B.")
    examples: int = Field(20, ge=0, description="Number of wins and of losses to show.")


def run(config: ErrorsConfig, folder: Folder) -> None:
    names = system_names(config.runs, config.names)
    task = read_task(config.collection, split=config.split, kind="judgements")
    wins, losses = compare_runs(task, config.runs, config.measure, config.examples)
    tree = {
        "names": names,
        "measure": config.measure,
        "wins": [asdict(example) for example in wins],
        "losses": [asdict(example) for example in losses],
    }
    folder.write_json("errors.json", tree)
    rows = [
        [example.text, f"{example.value_a:.4f}", f"{example.value_b:.4f}", example.relevant[:SHOWN]]
        for example in (*wins, *losses)
    ]
    write_table(folder, "errors.md", ["query", *names, "relevant passage"], rows, left=1)


STAGE = Stage(
    "analyse errors",
    ErrorsConfig,
    run,
    "liebig analyse errors runs/a/run.trec runs/b/run.trec --collection runs/collection --out runs/errors",
    positional="runs",
)
