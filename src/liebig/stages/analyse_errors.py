"""`liebig analyse errors`: which queries one system wins and loses against another, and what kinds of queries they are.

Queries are grouped by their length, by how many of their words stand in the best relevant passage, and by question
word; each group shows both systems' means and their difference. A few wins and losses come with their texts.
"""

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

QUESTION_WORDS = ("who", "what", "when", "where", "which", "why", "how", "whose", "whom")
AUXILIARIES = frozenset((
    "is", "are", "was", "were", "do", "does", "did", "can", "could", "will", "would", "should", "has", "have", "had",
))  # fmt: skip
LENGTHS = (4, 8, 16, 32)
OVERLAPS = (0.25, 0.5, 0.75)
STOP = frozenset((
    "a", "an", "and", "are", "as", "at", "be", "by", "did", "do", "does", "for", "from", "has", "have", "how", "in",
    "is", "it", "its", "of", "on", "or", "that", "the", "their", "this", "to", "was", "were", "with",
))  # fmt: skip


@dataclass(frozen=True, slots=True)
class QueryGroup:
    """The queries of one kind: how many, both means, and how often each system is ahead."""

    by: str
    name: str
    queries: int
    mean_a: float
    mean_b: float
    wins: int
    losses: int

    @property
    def difference(self) -> float:
        return self.mean_a - self.mean_b


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


def question_word(text: str) -> str:
    """`who`, `what`, …, `yes/no` for a question that opens with a verb, else `none`."""
    words = words_of(text)
    if words and words[0] in AUXILIARIES:
        return "yes/no"
    return next((word for word in words[:3] if word in QUESTION_WORDS), "none")


def length_group(text: str) -> str:
    count, low = len(words_of(text)), 1
    for high in LENGTHS:
        if count <= high:
            return f"{low}-{high} words"
        low = high + 1
    return f"more than {LENGTHS[-1]} words"


def overlap(query: str, passage: str) -> float:
    """Share of the query's content words that stand in the passage."""
    query_words = content_words(query)
    return len(query_words & content_words(passage)) / len(query_words) if query_words else 0.0


def overlap_group(share: float) -> str:
    """`up to 25 %` of the query's words stand in the passage, `up to 50 %`, …"""
    bound = next((limit for limit in OVERLAPS if share <= limit), 1.0)
    return f"up to {100 * bound:.0f} %"


def group_by(
    by: str, names: Sequence[str], a: NDArray[np.float64], b: NDArray[np.float64], order: Sequence[str] = ()
) -> list[QueryGroup]:
    """Both systems over the queries of each name, in the given order or by size."""
    labels = np.array(names)
    groups = []
    for name in dict.fromkeys(names):
        mask = labels == name
        x, y = a[mask], b[mask]
        wins, losses = int(np.sum(x > y)), int(np.sum(x < y))
        groups.append(QueryGroup(by, name, int(mask.sum()), float(x.mean()), float(y.mean()), wins, losses))
    rank = {name: i for i, name in enumerate(order)}
    return sorted(groups, key=lambda group: (rank.get(group.name, len(rank)), -group.queries, group.name))


def all_groups(
    texts: Sequence[str], relevant: Sequence[str], a: NDArray[np.float64], b: NDArray[np.float64]
) -> list[QueryGroup]:
    """Groups by length, by overlap with the relevant passage (queries that have one), and by question word."""
    lengths = [length_group(text) for text in texts]
    order = [length_group("x " * high) for high in (*LENGTHS, LENGTHS[-1] + 1)]
    groups = group_by("length", lengths, a, b, order)
    known = np.array([bool(passage) for passage in relevant])
    if known.any():
        shares = [overlap_group(overlap(q, p)) for q, p in zip(texts, relevant) if p]
        order = [overlap_group(limit) for limit in (*OVERLAPS, 1.0)]
        groups += group_by("overlap", shares, a[known], b[known], order)
    return groups + group_by("question word", [question_word(text) for text in texts], a, b)


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
) -> tuple[list[QueryGroup], list[Example], list[Example]]:
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
    firsts = {side.first(query) for side in (a, b) for query in queries}
    texts = _texts(task, firsts | set(relevant))
    questions = [task.queries[query].text for query in queries]
    groups = all_groups(questions, [texts[name] for name in relevant], a.values, b.values)
    wins, losses = extremes(a.values, b.values, count)
    shown = {i: _example(task, i, relevant[i], a, b, texts) for i in (*wins, *losses)}
    return groups, [shown[i] for i in wins], [shown[i] for i in losses]


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
    """`liebig analyse errors A B`: which queries A wins and loses against B, with the texts, by kind of query."""

    runs: tuple[InputPath, InputPath] = Field(description="The runs of A and of B.")
    collection: InputPath = Field(description="Collection that was searched.")
    split: str | None = Field(None, description="Split of the collection.")
    measure: str = Field("nDCG@10", description="Measure that decides which system wins.")
    names: tuple[str, ...] = Field((), description="Names of A and B.")
    examples: int = Field(20, ge=0, description="Number of wins and of losses to show.")


def run(config: ErrorsConfig, folder: Folder) -> None:
    names = system_names(config.runs, config.names)
    task = read_task(config.collection, split=config.split, kind="judgements")
    groups, wins, losses = compare_runs(task, config.runs, config.measure, config.examples)
    tree = {
        "names": names,
        "measure": config.measure,
        "groups": [asdict(group) for group in groups],
        "wins": [asdict(example) for example in wins],
        "losses": [asdict(example) for example in losses],
    }
    folder.write_json("errors.json", tree)
    rows = [
        [group.by, group.name, str(group.queries), f"{group.mean_a:.4f}", f"{group.mean_b:.4f}",
         f"{group.difference:+.4f}", f"{group.wins} / {group.losses}"]
        for group in groups
    ]  # fmt: skip
    header = ["by", "queries that are", "n", *names, "difference", "wins / losses"]
    write_table(folder, "errors.md", header, rows)


STAGE = Stage(
    "analyse errors",
    ErrorsConfig,
    run,
    "liebig analyse errors runs/a/run.trec runs/b/run.trec --collection runs/collection --out runs/errors",
    positional="runs",
)
