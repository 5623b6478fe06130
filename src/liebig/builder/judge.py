"""What systems are worth on questions about a corpus, each measured as it would be served.

`SystemJudge` has questions, the hits of BM25, of each encoder and of its sentences for them, and from these the value
of every system on every question: with the same norm, weights, sentences and score scale as when it is served. The
baseline is the plain hybrid, which anybody can put together: BM25 and the encoder before training, min-max scores,
equal weights. `decided` puts the differences to it into the rule of `decide.py`.

Of a system's value every kind of question counts the same, however many there are of it. Beside its quality each system
has its speed on questions that come one by one, on the pool. Cost: one search of the pool per system, a fusion per
candidate, and with a reranker the scores of `depth` passages per question.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from time import perf_counter
from typing import TYPE_CHECKING, Any, assert_never

import numpy as np
from numpy.typing import NDArray

from liebig.base.records import Passage, Query
from liebig.base.statistics import Interval, bootstrap_groups, prediction_powered, randomisation_test
from liebig.builder import decide
from liebig.builder.decide import Belief, Evidence
from liebig.builder.questions import MODEL, OWN, Question, folds
from liebig.measures import parse
from liebig.measures.evaluator import (
    block_from_mapping as run_of,
    evaluate,
    judgements_from_mapping as from_mapping,
)
from liebig.search.fusion import (
    SENTENCE_SHARE,
    SENTENCES,
    Comparable,
    Hits,
    exact_weight,
    shares_of,
    spread_at,
)
from liebig.search.retriever_folder import Norm, SystemName
from liebig.search.systems import Recorded, Reranked, SentenceScores, System

if TYPE_CHECKING:  # which imports torch
    from liebig.methods.reranker import Scorer

CUT = 10
MEASURE = parse(f"nDCG@{CUT}")
DEPTH = 100
PLAIN = 0.5  # weight of BM25 beside one encoder
BESIDE_SENTENCES = 0.45  # weight of BM25 beside an encoder's passages and sentences
HYBRIDS: dict[
    tuple[Norm, bool], tuple[float, ...]
] = {  # weights of BM25 that are compared, by norm and sentences
    ("minmax", False): (0.3, 0.5, 0.7),
    ("spread", False): (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
    ("spread", True): (0.15, 0.3, 0.45, 0.6, 0.75, 0.9),
}
RERANKER = "reranker"  # the name of its part in `SystemJudge.speeds`
TIMED, TIMED_SECONDS = 20, 1.0  # questions that are timed at most, and for how long
SAMPLES = 2000  # resamples of an interval and of a test
START, TRAINED = "start", "trained"
TEACHER, ASYMMETRIC = "teacher", "asymmetric"
LABELS = {
    START: "encoder before training",
    TRAINED: "encoder after training",
    TEACHER: "teacher",
    "student-50": "student, half way",
    "student-100": "student",
    ASYMMETRIC: "teacher's passages, student's questions",
    OWN: "encoder trained on your questions",
}
CHANGES = {TRAINED: "trained", OWN: "yours"}  # what made an encoder; others learned from a teacher
Values = NDArray[np.float64]
Search = Callable[[Sequence[Query], int], list[Hits]]


@dataclass(frozen=True)
class SystemChoice:
    """A system that may be chosen: its encoder, its kind, how a hybrid is fused, and whether sentences take part."""

    encoder: str = START
    system: SystemName = "hybrid"
    weight: float = PLAIN
    norm: Norm = "minmax"
    sentences: bool = False

    @property
    def as_deployed(self) -> SystemChoice:
        """The same, fused as it is served where no questions of people tune it."""
        return replace(self, weight=BESIDE_SENTENCES if self.sentences else PLAIN, norm="spread")

    @property
    def key(self) -> str:
        """The candidate of `decide.json` that it is, with whichever encoder."""
        if self.system in ("bm25", "dense"):
            return self.system
        return f"{SENTENCES if self.sentences else self.norm}-{self.weight:g}"

    @property
    def name(self) -> str:
        label = LABELS.get(self.encoder, self.encoder) + (" and its sentences" if self.sentences else "")
        match self.system:
            case "bm25":
                return "BM25"
            case "dense":
                return LABELS.get(self.encoder, self.encoder)
            case "hybrid":
                plain = ", plain" if self.norm == "minmax" else ""
                usual = PLAIN if plain else self.as_deployed.weight
                weight = "" if self.weight == usual else f", BM25 weighs {self.weight:g}"
                return f"BM25 + {label}{plain}{weight}"
            case "reranked":
                return f"BM25 + {label}, reranked"
            case _:
                assert_never(self.system)


BASELINE = SystemChoice()


@dataclass(frozen=True)
class Difference:
    """A system minus another on the same questions, every kind of question with the same weight."""

    mean: float
    low: float
    high: float
    p: float


@dataclass(frozen=True)
class Reranking:
    """What `Reranked` needs beside a system."""

    score: Scorer
    passage: Callable[[str], Passage]
    depth: int


@dataclass
class SystemJudge:
    """Questions, the hits of BM25 and of each encoder for them, and what systems made of these are worth."""

    questions: Sequence[Question]
    hits: dict[str, list[Hits]] = field(default_factory=dict)
    display_only: frozenset[str] = frozenset()  # encoders that are never chosen
    scales: Mapping[str, float] = field(
        default_factory=dict
    )  # of encoders' scores, measured over all passages
    speeds: dict[str, float] = field(default_factory=dict)  # questions per second, asked one by one
    reranking: Reranking | None = None
    sentences: dict[str, list[Hits]] = field(default_factory=dict)  # of the encoders' vectors of sentences
    _values: dict[SystemChoice, Values] = field(default_factory=dict)
    _parts: dict[SystemChoice, list[Comparable]] = field(default_factory=dict)

    @cached_property
    def _judgements(self) -> Any:
        return from_mapping({str(i): dict.fromkeys(q.passages, 1) for i, q in enumerate(self.questions)})

    @property
    def encoders(self) -> list[str]:
        return [name for name in self.hits if name != "bm25"]

    @cached_property
    def _queries(self) -> list[Query]:
        return [Query(str(i), question.text) for i, question in enumerate(self.questions)]

    def _recorded(self, name: str, lists: Sequence[Hits]) -> Recorded:
        return Recorded(name, {query.id: hits for query, hits in zip(self._queries, lists)})

    def _anew(self, name: str) -> list[Query]:
        """The questions under other names, so that an encoder that remembers them (`Once`) encodes them: for timing."""
        return [replace(query, id=f"{name} {query.id}") for query in self._queries[: TIMED + 1]]

    def ask(self, name: str, system: System) -> None:
        """Let BM25 or an encoder answer all questions."""
        self.ask_parts(name, [system])

    def rerank_with(self, reranking: Reranking) -> None:
        """Let a reranker take part."""
        self.reranking = reranking
        self.speeds[RERANKER] = per_second(self._reranked(BASELINE).search, self._queries)

    def _reranked(self, choice: SystemChoice) -> Reranked:
        assert self.reranking is not None, "a system that is reranked has a reranker"
        lists = self.answers(replace(choice, system="hybrid"))
        hybrid = self._recorded("hybrid", lists)
        return Reranked(hybrid, self.reranking.score, self.reranking.passage, self.reranking.depth)

    def speed(self, choice: SystemChoice) -> float:
        """Questions that a system answers in a second, if they come one by one."""
        parts = {
            "bm25": ["bm25"],
            "dense": [choice.encoder],
            "hybrid": ["bm25", choice.encoder],
            "reranked": ["bm25", choice.encoder, RERANKER],
        }
        more = [_sentences_of(choice.encoder)] if self._has_sentences(choice) else []
        return 1 / sum(1 / self.speeds[name] for name in (*parts[choice.system], *more))

    def ask_parts(self, name: str, systems: Sequence[System]) -> None:
        """Let each part of the questions be answered by the encoder that was not trained on it."""
        self.hits[name] = self._by_part([system.search for system in systems])
        self.speeds[name] = per_second(systems[0].search, self._anew(name))

    def ask_sentences(self, name: str, scores: Sequence[SentenceScores]) -> None:
        """The same with vectors of sentences, of the passages that BM25 and the encoder found."""
        lists = {query: found for query, *found in zip(self._queries, self.hits["bm25"], self.hits[name])}

        def asked(one: SentenceScores) -> Search:
            return lambda queries, k: one.search(queries, [lists[query] for query in queries], k)

        self.sentences[name] = self._by_part([asked(one) for one in scores])
        self.speeds[_sentences_of(name)] = per_second(asked(scores[0]), self._queries)

    def _by_part(self, searches: Sequence[Search]) -> list[Hits]:
        answers: list[Hits] = [[] for _ in self.questions]
        parts = folds(self.questions, len(searches))
        for number, search in enumerate(searches):
            here = [i for i, part in enumerate(parts) if part == number]
            hits = search([self._queries[i] for i in here], DEPTH) if here else []
            for i, of_question in zip(here, hits):
                answers[i] = of_question
        return answers

    def values(self, choice: SystemChoice) -> Values:
        if choice not in self._values:
            self._values[choice] = self.measure(self.answers(choice))
        return self._values[choice]

    def answers(self, choice: SystemChoice) -> list[Hits]:
        match choice.system:
            case "bm25":
                return self.hits["bm25"]
            case "dense":
                return self.hits[choice.encoder]
            case "hybrid":
                share = SENTENCE_SHARE if choice.sentences else 0.0
                return [
                    one.weighted(shares_of(max(choice.weight, exact_weight(query.text)), share), DEPTH)
                    for query, one in zip(self._queries, self._comparable(choice))
                ]
            case "reranked":
                return self._reranked(choice).search(self._queries, DEPTH)
            case _:
                assert_never(choice.system)

    def _comparable(self, choice: SystemChoice) -> list[Comparable]:
        """What the parts of a hybrid found, by question; hybrids that differ in their weights alone share it."""
        key = replace(choice, weight=PLAIN)
        if key not in self._parts:
            parts = [self.hits["bm25"], self.hits[choice.encoder]]
            parts += [self.sentences[choice.encoder]] if choice.sentences else []
            spreads = (None, *[self.spread(choice.encoder)] * (len(parts) - 1))
            self._parts[key] = [Comparable.of(lists, choice.norm, spreads) for lists in zip(*parts)]
        return self._parts[key]

    def spread(self, encoder: str) -> float:
        """The unit of an encoder's scores, with which it is compared and served; that of the pool unless given."""
        return self.scales.get(encoder) or unit_of(self.questions, self.hits[encoder])

    def measure(self, answers: Iterable[Hits]) -> Values:
        """nDCG@10 of every question; a passage that is found twice counts once, by its rank."""
        ranked = {
            str(i): {id: -float(rank) for rank, (id, _) in enumerate(hits[:CUT])}
            for i, hits in enumerate(answers)
        }
        return evaluate([run_of(ranked)], self._judgements, [MEASURE]).of(MEASURE)

    def by_kind(self, values: Values) -> dict[str, Values]:
        return _by_kind(self.questions, values)

    def mean(self, values: Values) -> float:
        return float(np.mean([of_kind.mean() for of_kind in self.by_kind(values).values()]))

    def interval(self, values: Values) -> Interval:
        """The same, with its interval; by the questions of a model, corrected by how far it is off on people's."""
        if self.corrects:
            people, same, others = (values[numbers] for numbers in self._twins)
            return prediction_powered(people, same, others)
        return bootstrap_groups(list(self.by_kind(values).values()), samples=SAMPLES)

    @cached_property
    def _twins(self) -> tuple[list[int], list[int], list[int]]:
        """The questions that people and a model judged, as both did, and those that only the model judged."""
        numbers = {(question.kind, question.text): n for n, question in enumerate(self.questions)}
        by_model = [(text, n) for (kind, text), n in numbers.items() if kind == MODEL]
        both = [(numbers[OWN, text], n) for text, n in by_model if (OWN, text) in numbers]
        others = [n for text, n in by_model if (OWN, text) not in numbers]
        return [mine for mine, _ in both], [n for _, n in both], others

    @property
    def corrects(self) -> bool:
        """Whether people judged enough of the questions that a model judged."""
        return len(self._twins[0]) >= decide.FEWEST_TWINS

    def difference(self, a: Values, b: Values) -> Difference:
        """System a minus system b."""
        groups = list(self.by_kind(a - b).values())
        interval = bootstrap_groups(groups, samples=SAMPLES)
        weighed = np.concatenate([group / len(group) for group in groups])
        return Difference(
            interval.mean, interval.low, interval.high, randomisation_test(weighed, samples=SAMPLES)
        )

    def candidates(self, encoder: str) -> list[SystemChoice]:
        """What may be served with an encoder: its vectors alone, and hybrids; with the first one BM25 alone too."""
        first = [SystemChoice(system="bm25")] if encoder == START else []
        hybrids = [
            SystemChoice(encoder, weight=weight, norm=norm, sentences=sentences)
            for (norm, sentences), weights in HYBRIDS.items()
            for weight in weights
            if not sentences or encoder in self.sentences
        ]
        return [*first, SystemChoice(encoder, "dense"), *(one for one in hybrids if one != BASELINE)]

    def evidence(self, choices: Sequence[SystemChoice], base: SystemChoice = BASELINE) -> list[Evidence]:
        """The differences of systems to another one, kind by kind."""
        rows = np.stack([self.values(choice) - self.values(base) for choice in choices], axis=1)
        return self._evidence(rows)

    def _evidence(self, rows: Values) -> list[Evidence]:
        """Differences, a row for each question, kind by kind; people's judgement corrects a model's if it can."""
        kinds = [question.kind for question in self.questions]
        corrected = []
        if self.corrects:
            corrected = [decide.corrected(*(rows[numbers] for numbers in self._twins))]
            kinds = ["" if kind in (OWN, MODEL) else kind for kind in kinds]
        each = [(kind, np.flatnonzero(np.array(kinds) == kind)) for kind in dict.fromkeys(kinds) if kind]
        return [*(Evidence.of(kind, rows[numbers]) for kind, numbers in each), *corrected]

    def changes(self, choices: Sequence[SystemChoice]) -> list[Evidence]:
        """What another encoder changes, kind by kind: the mean over systems, so that no lucky one is picked."""
        pairs = [(self.values(choice), self.values(replace(choice, encoder=START))) for choice in choices]
        return self._evidence(np.mean([mine - start for mine, start in pairs], axis=0)[:, None])

    @staticmethod
    def _has_sentences(choice: SystemChoice) -> bool:
        return choice.sentences and choice.system in ("hybrid", "reranked")


@dataclass(frozen=True)
class Decision:
    """The candidates, what is known of their gains over the plain hybrid (the first), and which one is served."""

    choices: tuple[SystemChoice, ...]
    belief: Belief
    least: float = 0.0  # weight of BM25 beside the bundled encoder

    @property
    def choice(self) -> SystemChoice:
        """The candidate with the highest expected gain, of the eligible; of equal ones the first."""
        return self.choices[max(self.eligible, key=lambda number: self.belief.mean[number])]

    @property
    def eligible(self) -> list[int]:
        """The candidates that may be chosen: never vectors alone, which miss an identifier that a question names.

        Over 297 corpora that costs nothing: a hybrid in which BM25 weighs a tenth is as good (experiments/check).
        """
        weights = [
            1.0 if one.system == "bm25" or one.encoder != START else one.weight for one in self.choices
        ]
        return [
            number
            for number, weight in enumerate(weights)
            if weight >= self.least and self.choices[number].system != "dense"
        ]


def decided(
    judges: Sequence[SystemJudge], bundled: bool = True, signs: Mapping[str, float] | None = None
) -> Decision:
    """What is served, by questions made from the corpus, a user's own, or both (a judge each), and its signs.

    The rule was fitted with the bundled encoder; with another one its prior counts for less.
    """
    grid = [
        choice
        for choice in judges[-1].candidates(START)
        if all(choice in one.candidates(START) for one in judges)
    ]
    known = decide.constants().only([choice.key for choice in grid])
    known = known if bundled else known.doubted
    least = decide.least_weight((signs or {}).get("abroad", 0.0)) if bundled else 0.0
    evidence = [one for judge in judges for one in judge.evidence(grid)]
    choices = [BASELINE, *grid]
    belief = decide.believe(evidence, known, signs).with_baseline()

    for encoder in dict.fromkeys(name for judge in judges for name in judge.encoders if name != START):
        able = [judge for judge in judges if encoder in judge.hits]
        if any(encoder in judge.display_only for judge in able):
            continue
        there = [
            choice
            for choice in able[-1].candidates(encoder)
            if replace(choice, encoder=START) in choices
            and all(choice in one.candidates(encoder) for one in able)
        ]
        for system in ("hybrid", "dense"):
            some = [choice for choice in there if choice.system == system]
            measured = [one for judge in able for one in judge.changes(some)]
            gain = decide.change(measured, known.changes[CHANGES.get(encoder, "taught")])
            for choice in some:
                belief = belief.extended(choices.index(replace(choice, encoder=START)), *gain)
            choices += some
    if judges[-1].reranking is not None:
        eligible = Decision(tuple(choices), belief, least).eligible
        hybrids = [number for number in eligible if choices[number].system == "hybrid"]
        parent = max(hybrids, key=lambda number: belief.mean[number])
        reranked = replace(choices[parent], system="reranked")
        measured = judges[-1].evidence([reranked], choices[parent])
        belief = belief.extended(parent, *decide.change(measured, known.changes["reranked"]))
        choices.append(reranked)
    return Decision(tuple(choices), belief, least)


def unit_of(questions: Sequence[Question], lists: Sequence[Hits]) -> float:
    """The unit of an encoder's scores (`fusion.weighted` with the norm `spread`), by its hits for every question.

    1 without any. A passage has the title or the sentence that a question made from it is, and may stand out further
    than answers to people's questions do; so of each kind the median counts, and each kind the same. A user's own
    questions count where there are no others: the rule was fitted with the unit of made-up ones, and finds by people's
    questions which weight goes with it.
    """
    by_kind = _by_kind(questions, np.array([spread_at(hits) for hits in lists]))
    made = {kind: values for kind, values in by_kind.items() if kind not in (OWN, MODEL)} or by_kind
    unit = float(np.mean([np.median(values) for values in made.values()])) if made else 0.0
    return unit if unit > 0 else 1.0


def _by_kind(questions: Sequence[Question], values: Values) -> dict[str, Values]:
    by_kind: dict[str, list[float]] = {}
    for question, value in zip(questions, values):
        by_kind.setdefault(question.kind, []).append(value)
    return {kind: np.array(of_kind) for kind, of_kind in by_kind.items()}


def _sentences_of(encoder: str) -> str:
    """The name of an encoder's sentences in `SystemJudge.speeds`."""
    return f"{encoder} {SENTENCES}"


def per_second(search: Search, queries: Sequence[Query]) -> float:
    """Questions that a system answers in a second, one after the other, after one that loads what it needs."""
    search(queries[:1], DEPTH)
    began, count = perf_counter(), 0
    for count, query in enumerate(queries[1 : TIMED + 1] or queries, 1):  # noqa: B007, the last number is the count
        search([query], DEPTH)
        if perf_counter() - began > TIMED_SECONDS:
            break
    return count / max(perf_counter() - began, 1e-9)
