"""What systems are worth on questions about a corpus, and which of them is chosen: measured, and hard to flatter.

Every system is compared as it would be served: with the same norm, weights, sentences and score scale. The baseline is
the plain hybrid, which anybody can put together: BM25 and the encoder before training, min-max scores, equal weights.

1. `accept_unless_harmful`: what gained on people's questions about other corpora is taken unless these questions show
   harm. That is the fusion by `spread`, and with the bundled encoder its sentences. Questions made from a text do not
   see all of their gain: a sentence that answers a question is taken out before it is asked.
2. Another encoder (trained, taught), or sentences of another encoder, must be better beyond chance than that, and than
   the untrained hybrid in either fusion: the interval of the difference excludes 0, a paired randomisation test agrees,
   and no kind of question loses beyond chance.
3. Nothing is served that is worse beyond chance than the plain hybrid, BM25 alone or vectors alone (`better_than`). If
   every hybrid is, the best of the parts is served. A part must be better by DOUBT: questions made from a corpus repeat
   its words, which favours BM25.
4. Questions of a user's own (`user_questions.py`) are what is really asked, so they may also tune norm and weight,
   where that is better when cross-fitted. An encoder that they train is cross-fitted, and accepted unless harmful: in
   23 builds about four corpora, with a hundred questions each, it was better than the untrained one, with sentences and
   without, while the best mean was often another's by chance.
5. The hybrid's hits are reranked, where there is a reranker, if that is better beyond chance.

Every kind of question counts the same, however many there are of it. The predicted value is cross-fitted: each fold is
answered by the system that the other folds choose. Beside its quality each system has its speed on questions that come
one by one, on the pool. Cost: one search of the pool per system, a fusion per weight, and with a reranker the scores of
`depth` passages per question and encoder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from time import perf_counter
from typing import Any, assert_never

import numpy as np
from numpy.typing import NDArray

from liebig.base.records import Passage, Query
from liebig.base.statistics import ALPHA, Interval, bootstrap_groups, randomisation_test
from liebig.builder.questions import OWN, Question, folds
from liebig.measures import parse
from liebig.measures.evaluator import (
    block_from_mapping as run_of,
    evaluate,
    judgements_from_mapping as from_mapping,
)
from liebig.methods.reranker import Scorer
from liebig.search.retriever_folder import SystemName
from liebig.search.systems import (
    SENTENCE_SHARE,
    SENTENCES,
    Hits,
    Hybrid,
    Norm,
    Recorded,
    Reranked,
    System,
    spread_at,
    weighted_by,
)

CUT = 10
MEASURE = parse(f"nDCG@{CUT}")
DEPTH = 100
FOLDS = 5
DOUBT = 0.01  # advantage that questions made from a corpus may give to one part of a hybrid
PLAIN = 0.5  # weight of BM25 beside one encoder
MADE_UP = 60  # questions of a user's own that the unit of made-up ones counts as much as
BESIDE_SENTENCES = 0.45  # weight of BM25 beside an encoder's passages and sentences
WEIGHTS = tuple(step / 10 for step in range(1, 10))  # of BM25, tried
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
Values = NDArray[np.float64]
Numbers = NDArray[np.int64]  # which questions


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
    def name(self) -> str:
        """For people."""
        label = LABELS.get(self.encoder, self.encoder) + (" and its sentences" if self.sentences else "")
        match self.system:
            case "bm25":
                return "BM25"
            case "dense":
                return LABELS.get(self.encoder, self.encoder)
            case "hybrid":
                plain = self.weight == PLAIN and self.norm == "minmax"
                fused = "" if self == self.as_deployed else ", plain" if plain else ", tuned"
                return f"BM25 + {label}{fused}"
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

    @property
    def significant(self) -> bool:
        """Whether chance does not explain that the first is better."""
        return self.low > 0 and self.p < ALPHA


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
    accept_unless_harmful: Sequence[str] = ()  # encoders, with any sentences; the last is preferred
    scales: Mapping[str, float] = field(
        default_factory=dict
    )  # of encoders' scores, measured over all passages
    speeds: dict[str, float] = field(default_factory=dict)  # questions per second, asked one by one
    reranking: Reranking | None = None
    sentences: dict[str, list[Hits]] = field(default_factory=dict)  # of the encoders' vectors of sentences
    _values: dict[SystemChoice, Values] = field(default_factory=dict)

    @cached_property
    def _judgements(self) -> Any:
        return from_mapping({str(i): dict.fromkeys(q.passages, 1) for i, q in enumerate(self.questions)})

    @cached_property
    def every(self) -> Numbers:
        """All questions."""
        return np.arange(len(self.questions))

    @property
    def encoders(self) -> list[str]:
        """The names of the encoders."""
        return [name for name in self.hits if name != "bm25"]

    @cached_property
    def _queries(self) -> list[Query]:
        return [Query(str(i), question.text) for i, question in enumerate(self.questions)]

    def _recorded(self, name: str, lists: Sequence[Hits]) -> Recorded:
        """A system with the hits it found before."""
        return Recorded(name, {query.id: hits for query, hits in zip(self._queries, lists)})

    @cached_property
    def real(self) -> bool:
        """Whether the questions are a user's own."""
        return all(question.kind == OWN for question in self.questions)

    def _anew(self, name: str) -> list[Query]:
        """The questions under other names, so that an encoder that remembers them (`Once`) encodes them: for timing."""
        return [replace(query, id=f"{name} {query.id}") for query in self._queries[: TIMED + 1]]

    def ask(self, name: str, system: System) -> None:
        """Let BM25 or an encoder answer all questions."""
        self.hits[name] = system.search(self._queries, DEPTH)
        self.speeds[name] = per_second(system, self._anew(name))

    def ask_sentences(self, name: str, system: System) -> None:
        """Let an encoder's vectors of sentences answer all questions, which are encoded for its passages already."""
        self.sentences[name] = system.search(self._queries, DEPTH)
        self.speeds[_sentences_of(name)] = per_second(system, self._queries)

    def rerank_with(self, reranking: Reranking) -> None:
        """Let a reranker take part."""
        self.reranking = reranking
        self.speeds[RERANKER] = per_second(self._reranked(BASELINE), self._queries)

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
        self.hits[name] = self._by_part(systems)
        self.speeds[name] = per_second(systems[0], self._anew(name))

    def ask_sentence_parts(self, name: str, systems: Sequence[System]) -> None:
        """The same with vectors of sentences."""
        self.sentences[name] = self._by_part(systems)
        self.speeds[_sentences_of(name)] = per_second(systems[0], self._queries)

    def _by_part(self, systems: Sequence[System]) -> list[Hits]:
        answers: list[Hits] = [[] for _ in self.questions]
        parts = folds(self.questions, len(systems))
        for number, system in enumerate(systems):
            here = [i for i, part in enumerate(parts) if part == number]
            hits = system.search([self._queries[i] for i in here], DEPTH) if here else []
            for i, of_question in zip(here, hits):
                answers[i] = of_question
        return answers

    def values(self, choice: SystemChoice) -> Values:
        """The measure of every question."""
        if choice not in self._values:
            self._values[choice] = self.measure(self.answers(choice))
        return self._values[choice]

    def answers(self, choice: SystemChoice) -> list[Hits]:
        """What a system finds."""
        match choice.system:
            case "bm25":
                return self.hits["bm25"]
            case "dense":
                return self.hits[choice.encoder]
            case "hybrid":
                parts = [self._recorded(name, self.hits[name]) for name in ("bm25", choice.encoder)]
                if choice.sentences:
                    parts.append(self._recorded(SENTENCES, self.sentences[choice.encoder]))
                share = SENTENCE_SHARE if choice.sentences else 0.0
                fuse = weighted_by(choice.weight, choice.norm, share, self.spread(choice.encoder))
                return Hybrid(parts, fuse).search(self._queries, DEPTH)
            case "reranked":
                return self._reranked(choice).search(self._queries, DEPTH)
            case _:
                assert_never(choice.system)

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

    def by_kind(self, values: Values, numbers: Numbers) -> dict[str, Values]:
        """Values of some of the questions, kind by kind."""
        return _by_kind([self.questions[number] for number in numbers], values[numbers])

    def mean(self, values: Values, numbers: Numbers) -> float:
        """The mean of the kinds' means."""
        return float(np.mean([of_kind.mean() for of_kind in self.by_kind(values, numbers).values()]))

    def interval(self, values: Values, numbers: Numbers) -> Interval:
        """The same, with its interval."""
        return bootstrap_groups(list(self.by_kind(values, numbers).values()), samples=SAMPLES)

    def difference(self, a: Values, b: Values, numbers: Numbers) -> Difference:
        """System a minus system b."""
        groups = list(self.by_kind(a - b, numbers).values())
        interval = bootstrap_groups(groups, samples=SAMPLES)
        weighed = np.concatenate([group / len(group) for group in groups])
        return Difference(
            interval.mean, interval.low, interval.high, randomisation_test(weighed, samples=SAMPLES)
        )

    def better(self, a: Values, b: Values, numbers: Numbers, margin: float = 0.0) -> bool:
        """Whether a is better than b beyond chance, and worse beyond chance on no kind of question."""
        difference = self.difference(a, b, numbers)
        if not difference.significant or difference.mean <= margin:
            return False
        lost = (of_kind for of_kind in self.by_kind(a - b, numbers).values() if of_kind.mean() < 0)
        return all(randomisation_test(of_kind, samples=SAMPLES) >= ALPHA for of_kind in lost)

    def better_than(self, choice: SystemChoice, numbers: Numbers) -> list[SystemChoice]:
        """Of the plain hybrid, BM25 alone and vectors alone, those that are better than a hybrid beyond chance."""
        better = []
        for other in (BASELINE, SystemChoice(system="bm25"), SystemChoice(choice.encoder, "dense")):
            doubt = 0.0 if self.real or other == BASELINE else DOUBT
            difference = self.difference(self.values(other), self.values(choice), numbers)
            if difference.significant and difference.mean > doubt:
                better.append(other)
        return better

    @property
    def accepted(self) -> list[SystemChoice]:
        """The hybrids that are taken unless they do harm, the preferred first; the plain one is the last resort."""
        encoders = reversed(self.accept_unless_harmful)
        hybrids = [SystemChoice(encoder, sentences=encoder in self.sentences) for encoder in encoders]
        return [*(hybrid.as_deployed for hybrid in (*hybrids, BASELINE)), BASELINE]

    def decision(self, choice: SystemChoice) -> tuple[Difference, bool]:
        """A system's difference to the plain hybrid, and whether it would be taken if there were only these two."""
        mine, base = self.values(choice), self.values(BASELINE)
        difference = self.difference(mine, base, self.every)
        if choice in self.accepted:
            return difference, BASELINE not in self.better_than(choice, self.every)
        part = choice.system in ("bm25", "dense")
        return difference, self.better(mine, base, self.every, DOUBT if part and not self.real else 0.0)

    def choose(self, numbers: Numbers) -> SystemChoice:
        """Encoder, system and fusion by some of the questions."""
        harmless = (hybrid for hybrid in self.accepted if not self.better_than(hybrid, numbers))
        others = (hybrid.as_deployed for hybrid in self.hybrids if hybrid.encoder not in self.display_only)
        hybrid = self._best(next(harmless, BASELINE), others, numbers)
        better = self.better_than(hybrid, numbers)
        chosen = max(better, key=lambda other: self.mean(self.values(other), numbers), default=hybrid)
        reranked = replace(hybrid, system="reranked")
        if self.reranking is not None and self._best(chosen, [reranked], numbers) == reranked:
            return reranked
        tunable = self.real and chosen == hybrid
        if tunable and self.better(self.tuned(hybrid, numbers), self.values(hybrid), numbers):
            return self.tune(hybrid, numbers)
        return chosen

    @property
    def hybrids(self) -> list[SystemChoice]:
        """The hybrids that are compared: of every encoder, without and with its sentences."""
        return [
            SystemChoice(encoder, sentences=sentences)
            for encoder in self.encoders
            for sentences in ((False, True) if encoder in self.sentences else (False,))
        ]

    @staticmethod
    def _has_sentences(choice: SystemChoice) -> bool:
        return choice.sentences and choice.system in ("hybrid", "reranked")

    def _best(self, base: SystemChoice, others: Iterable[SystemChoice], numbers: Numbers) -> SystemChoice:
        """Of the systems that beat the base and the untrained hybrid beyond chance the best; the base, if none does.

        Questions made from a text may underrate the base, so to beat it alone proves nothing.
        """
        beaten = [self.values(one) for one in dict.fromkeys((base, BASELINE, BASELINE.as_deployed))]
        better = [
            other for other in others if all(self.better(self.values(other), one, numbers) for one in beaten)
        ]
        return max(better, key=lambda other: self.mean(self.values(other), numbers), default=base)

    def tune(self, choice: SystemChoice, numbers: Numbers) -> SystemChoice:
        """The fusion that does best; of equal ones the most even."""
        norms: tuple[Norm, ...] = ("spread", "minmax", "zscore")
        with_them = (False, True) if choice.encoder in self.sentences else (False,)
        tried = [
            replace(choice, weight=weight, norm=norm, sentences=sentences)
            for norm in norms
            for weight in WEIGHTS
            for sentences in with_them
        ]
        return max(tried, key=lambda one: (self.mean(self.values(one), numbers), -abs(one.weight - PLAIN)))

    def tuned(self, choice: SystemChoice, numbers: Numbers) -> Values:
        """What a tuned fusion is worth on questions that did not tune it."""
        return self._cross_fitted(numbers, lambda others: self.tune(choice, others))

    def predicted(self) -> Values:
        """What the choice is worth on questions that did not choose."""
        return self._cross_fitted(self.every, self.choose)

    def _cross_fitted(self, numbers: Numbers, choose: Callable[[Numbers], SystemChoice]) -> Values:
        """Values of each fold by what is chosen on the others."""
        fold = np.array(folds([self.questions[n] for n in numbers], FOLDS))
        values = self.values(BASELINE).copy()
        for number in np.unique(fold):
            here, others = numbers[fold == number], numbers[fold != number]
            if len(others):
                values[here] = self.values(choose(others))[here]
        return values


def unit_of(questions: Sequence[Question], lists: Sequence[Hits]) -> float:
    """The unit of an encoder's scores (`systems.weighted` with the norm `spread`), by its hits for every question.

    1 without any. Of a user's own questions the mean counts. A passage has the title or the sentence that a made-up
    question is, and may stand out further than answers to people's questions do; so of each kind of these the median
    counts, and each kind the same. The mean of 20 questions is off by a tenth; where made-up ones are asked too, they
    count as much as MADE_UP. `experiments/adaptation` has how near these come to people's questions on seven corpora.
    """
    by_kind = _by_kind(questions, np.array([spread_at(hits) for hits in lists]))
    own = by_kind.pop(OWN, np.empty(0))
    medians = [float(np.median(of_kind)) for of_kind in by_kind.values()]
    weight = MADE_UP if medians else 0
    total = own.sum() + weight * (np.mean(medians) if medians else 0)
    unit = float(total / max(1, len(own) + weight))
    return unit if unit > 0 else 1.0


def _by_kind(questions: Sequence[Question], values: Values) -> dict[str, Values]:
    """Values of questions, kind by kind."""
    by_kind: dict[str, list[float]] = {}
    for question, value in zip(questions, values):
        by_kind.setdefault(question.kind, []).append(value)
    return {kind: np.array(of_kind) for kind, of_kind in by_kind.items()}


def _sentences_of(encoder: str) -> str:
    """The name of an encoder's sentences in `SystemJudge.speeds`."""
    return f"{encoder} {SENTENCES}"


def per_second(system: System, queries: Sequence[Query]) -> float:
    """Questions that a system answers in a second, one after the other, after one that loads what it needs."""
    system.search(queries[:1], DEPTH)
    began, count = perf_counter(), 0
    for count, query in enumerate(queries[1 : TIMED + 1] or queries, 1):  # noqa: B007, the last number is the count
        system.search([query], DEPTH)
        if perf_counter() - began > TIMED_SECONDS:
            break
    return count / max(perf_counter() - began, 1e-9)
