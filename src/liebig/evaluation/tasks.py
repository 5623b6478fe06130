"""What is evaluated on: a collection folder, a BEIR folder or a plain file, read as one kind of task.

A task has what its kind needs: judgements, questions with answers, scored pairs, triplets or candidates. Passages
stay on disk and are streamed. The split is the one asked for, else the suite's, else `test`, else the only one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Literal

import numpy as np

from liebig.base.errors import DataError, RecipeError
from liebig.base.records import Document, Group, Judgement, Passage, Query, ScoredPair, Section, Tuple
from liebig.base.rng import below, key, permute
from liebig.collection import Collection
from liebig.formats import detect
from liebig.formats.items import Options, Where, as_score, split_in
from liebig.formats.on_disk import DiskSource
from liebig.formats.rows import text_lines
from liebig.measures.evaluator import Judgements, judgements_from_records
from liebig.text.sentences import split

# The sets people compare on, and the conventions each of them has.
#
# A suite says which split and measures are reported, whether a query's own id is taken out of its hits, and how many
# queries and passages the set has: the figures of papers are only shown beside a result on the same set. A set is
# recognised by the name of its folder or file, or named by the user.

Kind = Literal["judgements", "answers", "pairs", "triplets", "candidates"]


@dataclass(frozen=True, slots=True)
class Suite:
    """A set and its conventions; `queries` and `passages` are 0 where any number will do."""

    name: str
    kind: Kind
    split: str
    measures: tuple[str, ...]
    queries: int = 0
    passages: int = 0
    aliases: tuple[str, ...] = ()
    exclude_self: bool = False
    note: str = ""


BEIR_MEASURES = ("nDCG@10", "R@100")
DL_MEASURES = ("nDCG@10", "RR(rel=2)@10", "AP(rel=2)", "R(rel=2)@100", "R(rel=2)@1000")
MARCO_MEASURES = ("RR@10", "R@50", "R@100", "R@1000")
TOP_K = ("Answer@1", "Answer@5", "Answer@20", "Answer@100")
CORRELATIONS = ("Spearman", "Pearson")
FORUMS = (
    "android", "english", "gaming", "gis", "mathematica", "physics", "programmers", "stats", "tex", "unix",
    "webmasters", "wordpress",
)  # fmt: skip


def _beir(
    name: str, queries: int, passages: int, aliases: Sequence[str] = (), note: str = "", **rest: bool
) -> Suite:
    measures = BEIR_MEASURES + (("R_cap@100",) if name == "trec-covid" else ())
    names = (name, *aliases)
    return Suite(f"beir/{name}", "judgements", "test", measures, queries, passages, names, note=note, **rest)


def _dl(year: int, kind: str, queries: int, passages: int) -> Suite:
    short = "pass" if kind == "passage" else "docs"
    return Suite(
        f"trec-dl-{year}/{kind}", "judgements", "test", DL_MEASURES, queries, passages, (f"{year}qrels-{short}",),
        note="Grades of 2 and more count as relevant, except for nDCG.",
    )  # fmt: skip


SUITES: tuple[Suite, ...] = (
    _beir("trec-covid", 50, 171_332, note="BEIR reports capped recall here."),
    _beir("nfcorpus", 323, 3_633),
    _beir("nq", 3_452, 2_681_468),
    _beir("hotpotqa", 7_405, 5_233_329),
    _beir("fiqa", 648, 57_638, ("fiqa-2018",)),
    _beir(
        "arguana", 1_406, 8_674, exclude_self=True, note="One judged passage is not in the collection."
    ),
    _beir("webis-touche2020", 49, 382_545, ("touche-2020", "touche2020")),
    _beir("quora", 10_000, 522_931, exclude_self=True),
    _beir("dbpedia-entity", 400, 4_635_922, ("dbpedia",)),
    _beir("scidocs", 1_000, 25_657),
    _beir("fever", 6_666, 5_416_568),
    _beir("climate-fever", 1_535, 5_416_593),
    _beir("scifact", 300, 5_183),
    *(
        Suite(f"beir/cqadupstack/{forum}", "judgements", "test", BEIR_MEASURES, aliases=(f"cqadupstack/{forum}",))
        for forum in FORUMS
    ),
    Suite(
        "msmarco-passage/dev", "judgements", "dev", MARCO_MEASURES, 6_980, 8_841_823,
        ("msmarco", "msmarco-passage", "qrels.dev.small"), note="The small development set of 6,980 queries.",
    ),
    Suite(
        "msmarco-document/dev", "judgements", "dev", ("RR@100", "R@100"), 5_193, 3_213_835,
        ("msmarco-document", "msmarco-docs", "msmarco-docdev-qrels"),
    ),
    _dl(2019, "passage", 43, 8_841_823),
    _dl(2020, "passage", 54, 8_841_823),
    _dl(2019, "document", 43, 3_213_835),
    _dl(2020, "document", 45, 3_213_835),
    Suite("nq-open/test", "answers", "test", TOP_K, 3_610, 21_015_324, ("nq", "nq-open", "nq-test")),
    Suite("triviaqa-open/test", "answers", "test", TOP_K, 11_313, 21_015_324, ("triviaqa", "trivia-test")),
    Suite("stsb/test", "pairs", "test", CORRELATIONS, 1_379, aliases=("stsb", "stsbenchmark", "sts-b")),
    Suite(
        "wikisection/test", "triplets", "test", ("Accuracy",), aliases=("wikisection", "wikipedia-sections"),
        note="The triplets of Ein Dor et al. 2018.",
    ),
    Suite(
        "abs/dev", "candidates", "dev", ("RR@100",), 1_500, aliases=("abs-dev", "msmarco-passage-abs"),
        note="One positive and 99 candidates a query, ranked among themselves.",
    ),
    Suite("abs/full", "judgements", "test", ("RR@100",), 4_980, 3_128_597, note="The ABS paper's part of MS MARCO."),
)  # fmt: skip

FOURTEEN = tuple(
    suite.name for suite in SUITES if suite.name.startswith("beir/") and suite.name.count("/") == 1
)
GROUPS: dict[str, tuple[str, ...]] = {
    "beir/cqadupstack": tuple(f"beir/cqadupstack/{forum}" for forum in FORUMS),
    "beir/mean": (*FOURTEEN, "beir/cqadupstack"),
}
BY_NAME = {suite.name: suite for suite in SUITES}
DEFAULTS: dict[Kind, tuple[str, ...]] = {
    "judgements": ("nDCG@10", "RR@10", "R@10", "R@100"),
    "answers": TOP_K,
    "pairs": CORRELATIONS,
    "triplets": ("Accuracy",),
    "candidates": ("RR@100",),
}


def named(name: str) -> Suite:
    if name not in BY_NAME:
        raise RecipeError(f"no suite is called {name!r}", fix="use one of " + ", ".join(BY_NAME))
    return BY_NAME[name]


def recognise(path: Path, kinds: Iterable[Kind]) -> Suite | None:
    """The suite of a folder or file by its name, among those whose data it has."""
    short = path.name.lower().removesuffix(".xz").removesuffix(".gz")
    short = short.rsplit(".", 1)[0] if "." in short else short
    names = {path.name.lower(), short, f"{path.parent.name}/{path.name}".lower()}
    allowed = set(kinds)
    return next((suite for suite in SUITES if suite.kind in allowed and names & set(suite.aliases)), None)


def is_same(suite: Suite, queries: int, passages: int | None) -> bool:
    """Whether a collection has the numbers of the published one, as far as they are known."""
    same_queries = not suite.queries or queries == suite.queries
    return same_queries and (not suite.passages or passages is None or passages == suite.passages)


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
    queries = (
        {} if kind in ("pairs", "triplets") else _by_id(collection.queries(None if split == "all" else split))
    )
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


def _by_id(queries: Iterable[Query]) -> dict[str, Query]:
    return {query.id: query for query in queries}


# Sentence triplets after Ein Dor et al. (2018): anchor and positive come from one section, the negative from another
# section of the same document, so that topic alone does not separate them. The draw depends only on the seed and the
# document's position, so a collection always gives the same triplets.

LEFT_OUT = {
    "see also", "references", "external links", "notes", "further reading", "bibliography", "sources", "footnotes",
    "citations", "gallery", "discography", "filmography",
}  # fmt: skip
FEWEST_WORDS, MOST_WORDS = 5, 50
PER_DOCUMENT = 10  # triplets at the most


def build(documents: Iterable[Document], *, limit: int, seed: int) -> Iterator[Tuple]:
    """Up to `limit` triplets, at most PER_DOCUMENT of each document."""
    drawn = (_of_document(document, key(seed, place)) for place, document in enumerate(documents))
    return islice(chain.from_iterable(drawn), limit)


def usable_sentences(section: Section) -> list[str]:
    """The sentences of a section that can stand in a triplet."""
    if section.heading.strip().lower() in LEFT_OUT | {""}:
        return []
    sentences = [sentence.strip() for paragraph in section.paragraphs for sentence in split(paragraph)]
    return [sentence for sentence in sentences if FEWEST_WORDS <= len(sentence.split()) <= MOST_WORDS]


def _of_document(document: Document, document_key: np.uint64) -> Iterator[Tuple]:
    sections = [sentences for sentences in map(usable_sentences, document.sections) if sentences]
    rich = [i for i, sentences in enumerate(sections) if len(sentences) > 1]
    if len(sections) < 2 or not rich:
        return
    seen: set[tuple[str, str, str]] = set()
    for n in range(PER_DOCUMENT):
        here, first, second, other, third = (int(below(document_key, 5 * n + i, 1 << 30)) for i in range(5))
        home = rich[here % len(rich)]
        away = sections[(home + 1 + other % (len(sections) - 1)) % len(sections)]
        same = sections[home]
        i = first % len(same)
        j = (i + 1 + second % (len(same) - 1)) % len(same)
        chosen = (same[i], same[j], away[third % len(away)])
        if chosen not in seen and len(set(chosen)) == 3:
            seen.add(chosen)
            yield Tuple(chosen[0], chosen[1], (chosen[2],))


# The ABS paper's development protocol: one positive and 99 unjudged passages from a query's first 1,000 hits, ranked by
# RR@100. The draw depends only on the seed and the query's position.


CANDIDATES, CANDIDATES_DEPTH = 99, 1000  # others of a query, and the hits that they are drawn from


def draw_groups(ranked: Mapping[str, Sequence[str]], judgements: Judgements, *, seed: int) -> Iterator[Group]:
    """One group a judged query that has a positive: the first positive, and CANDIDATES others."""
    for place, query in enumerate(judgements.queries):
        grades = judgements.grades(query)
        positives = sorted(passage for passage, grade in grades.items() if grade > 0)
        others = [passage for passage in ranked.get(query, ()) if passage not in grades]
        if positives:
            order = permute(np.arange(len(others)), max(len(others), 1), key(seed, place)) if others else []
            yield Group(query, (positives[0],), tuple(others[i] for i in list(order)[:CANDIDATES]))


def records(path: Path) -> Iterator[object]:
    """Documents, or passages where there are none, of a collection or anything that can be read."""
    detected = detect(path)
    if [one.format.name for one in detected] == ["collection"]:
        collection = Collection(path)
        yield from collection.documents() if collection.has("documents") else collection.passages()
        return
    for one in detected:
        for item in one.items(Options()):
            yield item.record
