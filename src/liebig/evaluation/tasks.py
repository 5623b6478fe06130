"""What is evaluated on: a collection folder, a BEIR folder or a plain file, read as one kind of task.

A task has what its kind needs: judgements, questions with answers, scored pairs, triplets or candidates. Passages
stay on disk and are streamed. The split is the one asked for, else the suite's, else `test`, else the only one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from liebig.base.errors import DataError
from liebig.base.records import Group, Judgement, Passage, Query, ScoredPair, Tuple
from liebig.collection import Collection
from liebig.evaluation.suites import Kind, Suite, recognise
from liebig.formats import detect
from liebig.formats.items import Options, Where, as_score, split_in
from liebig.formats.on_disk import DiskSource
from liebig.formats.rows import text_lines
from liebig.measures.evaluator import Judgements, judgements_from_records


def is_benchmark(path: Path) -> bool:
    """Whether a path is a file of STS benchmark as published: genre, file, year, number, score, two sentences, by tabs.

    The csv of sentence, sentence and score is one of `formats/`.
    """
    if not path.is_file() or path.suffix != ".csv":
        return False
    with path.open("rb") as file:
        head = file.readline(1 << 16).decode("utf-8", "replace").split("\t")
    return len(head) >= 7 and head[0].startswith("main-")


def read_benchmark(path: Path) -> Iterator[ScoredPair]:
    for number, line in text_lines(DiskSource(path)):
        fields, where = line.split("\t"), Where(str(path), number)
        if len(fields) < 7:
            where.refuse(f"the line has {len(fields)} columns instead of 7", "copy the file again")
        yield ScoredPair(fields[5], fields[6], as_score(fields[4], where))


@dataclass(frozen=True, eq=False)
class Task:
    """One set of questions to put to a system; `passages()` streams the texts, where the source has them.

    A question without an answer cannot be judged by answers: it is left out and counted as `unanswered`.
    """

    name: str
    path: Path
    split: str
    kind: Kind
    suite: Suite | None = None
    judgements: Judgements | None = None
    queries: Mapping[str, Query] = field(default_factory=dict)
    pairs: Sequence[ScoredPair] = ()
    triplets: Sequence[Tuple] = ()
    groups: Sequence[Group] = ()
    unanswered: int = 0
    passages: Callable[[], Iterator[Passage]] = lambda: iter(())
    count_passages: Callable[[], int | None] = lambda: None

    @property
    def label(self) -> str:
        """`scifact-test`, which names its files too."""
        return f"{self.name}-{self.split}".replace("/", "-")


@dataclass(eq=False)
class _Records:
    """Everything of a source but its passages, by split."""

    judgements: dict[str, list[Judgement]] = field(default_factory=dict)
    pairs: dict[str, list[ScoredPair]] = field(default_factory=dict)
    tuples: dict[str, list[Tuple]] = field(default_factory=dict)
    groups: dict[str, list[Group]] = field(default_factory=dict)
    queries: dict[str, Query] = field(default_factory=dict)
    question_splits: dict[str, set[str]] = field(default_factory=dict)
    unanswered: dict[str, int] = field(default_factory=dict)


def read_task(
    path: Path, *, kind: Kind | None = None, split: str | None = None, suite: Suite | None = None
) -> Task:
    """The task a path holds; of several kinds the one asked for, else judgements before answers before pairs."""
    if is_benchmark(path):
        pairs = list(read_benchmark(path))
        return Task(
            path.name, path, split or "test", "pairs", suite or recognise(path, ["pairs"]), pairs=pairs
        )
    if _is_collection(path):
        return _collection_task(Collection(path), kind, split, suite)
    return _file_task(path, kind, split, suite)


def _is_collection(path: Path) -> bool:
    return path.is_dir() and [source.format.name for source in detect(path)] == ["collection"]


def _collection_task(
    collection: Collection, kind: Kind | None, split: str | None, suite: Suite | None
) -> Task:
    path = collection.path
    kinds: dict[Kind, tuple[str, ...]] = {
        "judgements": collection.splits_of("judgements"),
        "pairs": collection.splits_of("pairs"),
        "triplets": collection.splits_of("tuples"),
        "candidates": collection.splits_of("groups"),
    }
    if any(query.answers for query in collection.queries()):
        kinds["answers"] = collection.splits_of("splits") or ("all",)
    kind, split, suite = _choose(path, {k: v for k, v in kinds.items() if v}, kind, split, suite)
    asked = [] if kind in ("pairs", "triplets") else collection.queries(None if split == "all" else split)
    queries = {query.id: query for query in asked}
    answerable = {name: query for name, query in queries.items() if query.answers or kind != "answers"}
    return Task(
        name=path.name,
        path=path,
        split=split,
        kind=kind,
        suite=suite,
        queries=answerable,
        unanswered=len(queries) - len(answerable),
        judgements=judgements_from_records(collection.judgements(split)) if kind == "judgements" else None,
        pairs=list(collection.pairs(split)) if kind == "pairs" else (),
        triplets=list(collection.tuples(split)) if kind == "triplets" else (),
        groups=list(collection.groups(split)) if kind == "candidates" else (),
        passages=collection.passages,
        count_passages=lambda: collection.count("passages"),
    )


def _file_task(path: Path, kind: Kind | None, split: str | None, suite: Suite | None) -> Task:
    """A BEIR folder, qrels, questions, pairs or triplets: all records but the passages are held in memory."""
    records = _read(path)
    kinds: dict[Kind, tuple[str, ...]] = {
        "judgements": tuple(records.judgements),
        "answers": tuple(records.question_splits),
        "pairs": tuple(records.pairs),
        "triplets": tuple(records.tuples),
        "candidates": tuple(records.groups),
    }
    kind, split, suite = _choose(path, {k: v for k, v in kinds.items() if v}, kind, split, suite)
    judgements = records.judgements.get(split, []) if kind == "judgements" else []
    judged = {judgement.query for judgement in judgements} | records.question_splits.get(split, set())
    unanswered = records.unanswered.get(split, 0) if kind == "answers" else 0
    return Task(
        name=_name(path),
        path=path,
        split=split,
        kind=kind,
        suite=suite,
        queries={name: query for name, query in records.queries.items() if name in judged},
        unanswered=unanswered,
        judgements=judgements_from_records(judgements) if kind == "judgements" else None,
        pairs=records.pairs.get(split, ()) if kind == "pairs" else (),
        triplets=records.tuples.get(split, ()) if kind == "triplets" else (),
        groups=records.groups.get(split, ()) if kind == "candidates" else (),
        passages=lambda: _passages(path),
        count_passages=lambda: sum(1 for _ in _passages(path)) or None,
    )


def _read(path: Path) -> _Records:
    records = _Records()
    for detected in detect(path):
        if not detected.format.is_corpus:
            for item in detected.items(Options(passages=False)):
                _keep(records, item.record, item.split or split_in(detected.source.name) or "test")
    return records


def _keep(records: _Records, record: object, split: str) -> None:
    if isinstance(record, Judgement):
        records.judgements.setdefault(split, []).append(record)
    elif isinstance(record, ScoredPair):
        records.pairs.setdefault(split, []).append(record)
    elif isinstance(record, Tuple) and record.negatives:
        records.tuples.setdefault(split, []).append(record)
    elif isinstance(record, Group):
        records.groups.setdefault(split, []).append(record)
    elif isinstance(record, Query):
        records.queries[record.id] = record
        if record.answers:
            records.question_splits.setdefault(split, set()).add(record.id)
        else:
            records.unanswered[split] = records.unanswered.get(split, 0) + 1


def with_passages(task: Task, path: Path) -> Task:
    """The task with its passages read from elsewhere: questions and passages often come in different files."""
    if _is_collection(path):
        collection = Collection(path)
        return replace(
            task, passages=collection.passages, count_passages=lambda: collection.count("passages")
        )
    return replace(
        task, passages=lambda: _passages(path), count_passages=lambda: sum(1 for _ in _passages(path))
    )


def _passages(path: Path) -> Iterator[Passage]:
    for detected in detect(path):
        for item in detected.items(Options()):
            if isinstance(item.record, Passage):
                yield item.record


def _choose(
    path: Path,
    kinds: Mapping[Kind, tuple[str, ...]],
    kind: Kind | None,
    split: str | None,
    suite: Suite | None,
) -> tuple[Kind, str, Suite | None]:
    if kind is None and suite is not None:
        kind = suite.kind
    if not kinds or (kind is not None and kind not in kinds):
        has = f"no {kind or ''} here, but {', '.join(kinds)}" if kinds else "nothing here to evaluate on"
        fix = "name a set with judgements, answers, scored pairs or triplets"
        raise DataError(f"there {'are' if kinds else 'is'} {has}", file=path, fix=fix)
    suite = suite or recognise(path, [kind] if kind else kinds)
    chosen = kind if kind is not None else suite.kind if suite is not None else next(iter(kinds))
    return chosen, _split(path, kinds[chosen], split, suite), suite


def _split(path: Path, splits: Sequence[str], given: str | None, suite: Suite | None) -> str:
    usual = [f"{suite.split}.small", suite.split] if suite else []
    chosen = given or next((split for split in usual if split in splits), None)
    if chosen is None:
        chosen = "test" if "test" in splits else splits[0] if len(splits) == 1 else None
    if chosen is None or chosen not in splits:
        has = f"it has {', '.join(splits)}"
        raise DataError(
            f"which split? {has}" if chosen is None else f"there is no split {chosen!r}; {has}",
            file=path,
            fix=f"split={splits[0]}",
        )
    return chosen


def _name(path: Path) -> str:
    """The name of a folder or file; a file that is named after its split goes by its folder: stsb/test.csv is stsb."""
    name = path.name if path.is_dir() else path.name.split(".")[0]
    return path.absolute().parent.name if not path.is_dir() and split_in(name) == name else name
