"""The check of a build: systems answer questions (`judge.py`), and one is chosen (`decide.py`).

`write_check` is the stage: it loads each model once and lets BM25, the encoders, their sentences and the reranker
answer the questions that were made from the corpus, and a user's own where there are any, each over their pool. It
writes `checks.json`: the choice, a row for each system with what it had on the questions, its expected gain over the
plain hybrid and the probability of one, its speed, and the reasons; the questions are kept beside it. `check_text.py`
puts the same in words.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from liebig.base.config import Config, InputPath
from liebig.base.pipeline import Stage
from liebig.base.records import Passage
from liebig.base.workspace import Folder
from liebig.builder.check_text import headline, percent, why
from liebig.builder.judge import (
    BASELINE,
    MEASURE,
    START,
    Decision,
    Reranking,
    SystemChoice,
    SystemJudge,
    Values,
    decided,
)
from liebig.builder.questions import MODEL, OWN, QUESTIONS, Question, kinds, read as read_questions
from liebig.collection import Collection
from liebig.formats.output import json_line, write_lines
from liebig.indexes import open_index
from liebig.indexes.base import Index
from liebig.queries.consistency import words as words_of
from liebig.search.retriever_folder import RERANK_DEPTH as RERANKED
from liebig.search.systems import Once, QueryEncoder, SentenceScores, System, of_texts, open_system

CHECKS, SPREAD = "checks.json", "spread.json"
CASES = 3  # questions shown that are won and lost
FEWEST = 10  # with fewer questions of a kind, systems cannot be told apart by it
ANSWERED = 0.05  # of the measure: a kind of question that no system answers better tells none from another
FAIR = 0.5  # share of BM25's value that an encoder reaches alone if it is a retriever already


class MadeConfig(Config):
    """Questions made from the corpus, and what answers them."""

    questions: InputPath = Field(description="Folder written by the questions stage.")
    bm25: InputPath = Field(description="BM25 index of the pool.")
    encoders: dict[str, InputPath] = Field(description="Vectors of the pool by encoder.")
    sentences: dict[str, InputPath] = Field({}, description="Vectors of the pool's sentences by encoder.")


class CheckConfig(Config):
    """Which encoder and which system answer the questions best."""

    questions: InputPath = Field(description="Folder written by the questions stage.")
    made: MadeConfig | None = Field(
        None, description="Questions made from the corpus that are asked beside a user's own."
    )
    bm25: InputPath = Field(description="BM25 index of the pool.")
    encoders: dict[str, InputPath] = Field(
        description="Vectors of the pool by encoder; start is the one before training."
    )
    query_models: dict[str, InputPath] = Field(
        {}, description="Models that encode the questions, where they are not those that made the vectors."
    )
    display_only: tuple[str, ...] = Field((), description="Encoders that are compared and never chosen.")
    sentences: dict[str, InputPath] = Field({}, description="Vectors of the pool's sentences by encoder.")
    parts: dict[str, tuple[InputPath, ...]] = Field(
        {},
        description="Vectors by encoders that were trained on all but one part of the questions, which each answers.",
    )
    sentence_parts: dict[str, tuple[InputPath, ...]] = Field(
        {}, description="Vectors of the pool's sentences by the same."
    )
    bundled: bool = Field(
        True, description="The encoder before training is the bundled one, with which the rule was fitted."
    )
    signs: dict[str, float] = Field({}, description="What the corpus looks like, by the names of signs.")
    spread: InputPath | None = Field(
        None,
        description="Folder of the score scale of the encoder before training [default: that of the pool].",
    )
    reranker: InputPath | None = Field(None, description="A cross-encoder that may order the hits anew.")
    depth: int = Field(RERANKED, ge=1, description="Hits that it orders.")


def is_fair(dense: float, words: float) -> bool:
    """Whether an encoder alone is good enough to be called a retriever."""
    return dense >= FAIR * words


def write_check(config: CheckConfig, folder: Folder) -> None:
    """Ask the questions, choose, and write the result to `checks.json`."""
    encoded = EncodedOnce()
    main = _judge(config, encoded, config.questions, config.bm25, config.encoders, config.sentences)
    if main.questions and config.reranker is not None:
        from liebig.methods.reranker import scorer
        from liebig.model.cross_encoder import CrossEncoder

        score = scorer([CrossEncoder.load(config.reranker, device="cpu")])  # where it will run
        main.rerank_with(Reranking(score, Collection(config.questions).passage, config.depth))
    judges = [main]
    if config.made is not None:
        made = config.made
        judges.insert(0, _judge(config, encoded, made.questions, made.bm25, made.encoders, made.sentences))
    # The unit of scores is measured with them (`spread.py`), by updates too, where the work folder was deleted.
    folders = [config.questions, *([] if config.made is None else [config.made.questions])]
    kept = [question for path in folders for question in read_questions(path)]
    write_lines(folder.path / QUESTIONS, (json_line(asdict(question)) for question in kept))
    judges = [judge for judge in judges if judge.questions]
    if not judges:
        folder.write_json(CHECKS, undecided(config))
        return
    checks = judged(judges, config.bundled, config.signs)
    examples = cases(judges[-1], SystemChoice(**checks["choice"]), Collection(config.questions).passage)
    folder.write_json(CHECKS, {**checks, "cases": examples})


def _judge(
    config: CheckConfig,
    encoded: EncodedOnce,
    questions: Path,
    bm25: Path,
    encoders: Mapping[str, Path],
    sentences: Mapping[str, Path],
    without: frozenset[str] = frozenset(),
) -> SystemJudge:
    """The systems after they answered the questions, but for kinds that are left out, or that none of them answers."""
    judge = SystemJudge(
        [one for one in enough(read_questions(questions)) if one.kind not in without],
        display_only=frozenset(config.display_only),
        scales={} if config.spread is None else {START: read_spread(config.spread)},
    )
    if judge.questions:
        judge.ask("bm25", open_system(bm25))
        for name, path in encoders.items():
            model = config.query_models.get(name)
            judge.ask_parts(name, [encoded.system(part, model) for part in config.parts.get(name, (path,))])
        for name, path in sentences.items():
            model, parts = config.query_models.get(name), config.sentence_parts.get(name, (path,))
            judge.ask_sentences(name, [encoded.sentences(part, model) for part in parts])
        if unanswered := unanswered_kinds(judge):
            return _judge(config, encoded, questions, bm25, encoders, sentences, without | unanswered)
    return judge


def unanswered_kinds(judge: SystemJudge) -> frozenset[str]:
    """Kinds of made-up questions that neither words nor meaning answers, such as those about the lines of a log.

    The rule would take their values for those of people's questions that flatter vectors or words as usual.
    """
    alone = [SystemChoice(system="bm25"), *(SystemChoice(encoder, "dense") for encoder in judge.encoders)]
    best: dict[str, float] = {}
    for system in alone:
        for kind, values in judge.by_kind(judge.values(system)).items():
            best[kind] = max(best.get(kind, 0.0), float(values.mean()))
    return frozenset(kind for kind, value in best.items() if kind not in (OWN, MODEL) and value < ANSWERED)


class EncodedOnce:
    """Systems of vectors that share models: each is loaded once, and encodes a question once for all of its indexes."""

    def __init__(self) -> None:
        self._vectors: dict[tuple[Any, ...], Once] = {}

    def system(self, path: Path, model: Path | None = None) -> System:
        index = open_index(path)
        return of_texts(index, self._questions(index, model))

    def sentences(self, path: Path, model: Path | None = None) -> SentenceScores:
        """Those of a folder of vectors of sentences."""
        index = open_index(path)
        return SentenceScores(index, self._questions(index, model))

    def _questions(self, index: Index, model: Path | None) -> Once:
        how = str(model or index.model), index.about.get("query_prompt"), index.about.get("unit"), index.width
        if how not in self._vectors:
            self._vectors[how] = Once(QueryEncoder(index, model))
        return self._vectors[how]


def enough(questions: Sequence[Question]) -> list[Question]:
    """A user's own questions, and those of the kinds that have FEWEST or more."""
    counts = kinds(questions)
    return [one for one in questions if one.kind in (OWN, MODEL) or counts[one.kind] >= FEWEST]


def read(folder: Path) -> dict[str, Any]:
    """What `write_check` wrote."""
    checks: dict[str, Any] = json.loads((folder / CHECKS).read_text(encoding="utf-8"))
    return checks


def read_spread(folder: Path) -> float:
    """The score scale that `spread.py` measured."""
    return float(json.loads((folder / SPREAD).read_text(encoding="utf-8"))["spread"])


def undecided(config: CheckConfig) -> dict[str, Any]:
    """A check without enough questions."""
    return {
        "questions": kinds(read_questions(config.questions)),
        "choice": asdict(BASELINE),
        "chosen": BASELINE.name,
        "spread": 1.0,
        "rows": [],
        "why": [],
        "fair": False,
    }


class UnreadConfig(Config):
    """An encoder that cannot read the corpus."""

    model: InputPath = Field(description="The encoder.")
    unread: float = Field(ge=0, le=1, description="Share of the corpus' pieces that it cannot read.")
    named: str | None = Field(None, description="What the user called it; nothing if it is the bundled one.")


def write_unread(config: UnreadConfig, folder: Folder) -> None:
    """Write that words alone answer, and why."""
    choice = SystemChoice(system="bm25")
    encoder = "the bundled encoder" if config.named is None else f"the encoder {config.named}"
    said = (
        f"Words alone (BM25) answer: {encoder} cannot read {percent(config.unread)} of these texts, so nothing was "
        "encoded. To search by meaning too, name an encoder of this language: --model FOLDER."
    )
    empty = {"questions": {}, "spread": 1.0, "rows": [], "why": [], "fair": False}
    folder.write_json(CHECKS, {**empty, "choice": asdict(choice), "chosen": choice.name, "headline": said})
    write_lines(folder.path / QUESTIONS, [])


def judged(
    judges: Sequence[SystemJudge], bundled: bool = True, signs: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """The choice, what is expected of it, and what every system is worth beside it.

    Of several judges the last has the questions that are shown: a user's own.
    """
    decision, judge = decided(judges, bundled, signs), judges[-1]
    choice = decision.choice
    alone = [SystemChoice(encoder, "dense") for encoder in judge.encoders]
    usual = [
        SystemChoice(encoder, sentences=sentences).as_deployed
        for encoder in judge.encoders
        for sentences in ((False, True) if encoder in judge.sentences else (False,))
    ]
    reranked = [one for one in decision.choices if one.system == "reranked"]
    systems = dict.fromkeys([SystemChoice(system="bm25"), *alone, BASELINE, *usual, *reranked, choice])
    baseline = judge.values(BASELINE)
    first = judges[0]
    return {
        "questions": {kind: count for one in judges for kind, count in kinds(one.questions).items()},
        "measure": str(MEASURE),
        "choice": asdict(choice),
        "chosen": choice.name,
        "spread": judge.spread(choice.encoder),
        "baseline": BASELINE.name,
        "bundled": bundled and choice.encoder == START,
        "fair": is_fair(*(first.mean(first.values(SystemChoice(system=part))) for part in ("dense", "bm25"))),
        "headline": headline(decision),
        "rows": [
            {
                **row(judge, system.name, judge.values(system), baseline),
                **expected(decision, system),
                "per_second": judge.speed(system),
            }
            for system in systems
        ],
        "why": why(decision, judge),
    }


def expected(decision: Decision, system: SystemChoice) -> dict[str, float]:
    """A system's expected gain over the plain hybrid, its error, the probability that it is better than the plain
    hybrid, what it costs on average if it is not, and the probability that it is better than what is served."""
    if system not in decision.choices:  # it is compared and never chosen
        return {}
    place, best = (decision.choices.index(one) for one in (system, decision.choice))
    mean, error = decision.belief.difference(place, 0)
    better = decision.belief.probability(place, 0)
    return {
        "expected": mean,
        "error": error if place else 0.0,
        "better": better if place else 0.5,
        "loss": decision.belief.loss(place, 0) / max(1 - better, 1e-9) if place else 0.0,
        "best": decision.belief.probability(place, best) if place != best else 1.0,
    }


def cases(judge: SystemJudge, choice: SystemChoice, passage: Callable[[str], Passage]) -> dict[str, Any]:
    """The questions that the choice wins and loses by most against the untrained hybrid (or BM25), with their texts."""
    other = SystemChoice(system="bm25") if choice == BASELINE else BASELINE
    a, b = (judge.values(system) for system in (choice, other))
    hits_a, hits_b = (judge.answers(system) for system in (choice, other))

    def case(number: int) -> dict[str, Any]:
        question = judge.questions[number]
        return {
            "text": question.text,
            "kind": question.kind,
            "value_a": float(a[number]),
            "value_b": float(b[number]),
            "relevant": _shown_text(question.passages[:1], passage),
            "found_a": _shown_text([id for id, _ in hits_a[number][:1]], passage),
            "found_b": _shown_text([id for id, _ in hits_b[number][:1]], passage),
            "words": [word for word in dict.fromkeys(words_of(question.text)) if len(word) > 3],
        }

    order = np.argsort(b - a, kind="stable")
    return {
        "names": ["The chosen system", "the untrained hybrid" if other == BASELINE else other.name],
        "wins": [case(number) for number in order[:CASES] if a[number] > b[number]],
        "losses": [case(number) for number in order[::-1][:CASES] if a[number] < b[number]],
        "better": int((a > b).sum()),
        "worse": int((a < b).sum()),
    }


def _shown_text(ids: Sequence[str], passage: Callable[[str], Passage]) -> str:
    """Title and text of the first passage; nothing where there is none."""
    return " | ".join(filter(None, (passage(ids[0]).title, passage(ids[0]).text))) if ids else ""


def row(judge: SystemJudge, name: str, values: Values, baseline: Values) -> dict[str, Any]:
    """A line of the table: a system with its interval, its difference to the baseline, and its value by kind."""
    interval = judge.interval(values)
    return {
        "name": name,
        "value": interval.mean,
        "low": interval.low,
        "high": interval.high,
        "difference": asdict(judge.difference(values, baseline)),
        "kinds": {kind: float(v.mean()) for kind, v in judge.by_kind(values).items()},
    }


STAGE = Stage("check", CheckConfig, write_check, part_of="build")
UNREAD = Stage("unread", UnreadConfig, write_unread, part_of="build")
