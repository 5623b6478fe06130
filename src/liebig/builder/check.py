"""The check of a build: every system answers the questions, one is chosen (`judge.py`), and the result is put in words.

`write_check` is the stage: it loads each model once, lets BM25, the encoders, their sentences and the reranker answer
the questions of the pool, and writes `checks.json`: the choice, a row for each system with its interval, its difference
to the baseline, its speed and its value by kind of question, and the reasons; the questions are kept beside it.
`sentences` is the same for people.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from liebig.base.config import Config, InputPath
from liebig.base.pipeline import Stage
from liebig.base.records import Passage
from liebig.base.workspace import Folder
from liebig.builder.judge import (
    BASELINE,
    LABELS,
    MEASURE,
    START,
    TRAINED,
    Difference,
    Reranking,
    SystemChoice,
    SystemJudge,
    Values,
)
from liebig.builder.questions import OWN, QUESTIONS, Question, kinds, read as read_questions
from liebig.collection import Collection
from liebig.formats.output import json_line, write_lines
from liebig.indexes import open_index
from liebig.methods.reranker import scorer
from liebig.model.cross_encoder import CrossEncoder
from liebig.queries.consistency import words as words_of
from liebig.search.retriever_folder import RERANK_DEPTH as RERANKED
from liebig.search.systems import (
    SENTENCES,
    Once,
    QueryEncoder,
    System,
    of_texts,
    open_system,
)

CHECKS, SPREAD = "checks.json", "spread.json"
FUSED = "both fused as they would answer"
CASES = 3  # questions shown that are won and lost
FEWEST = 10  # with fewer questions of a kind, systems cannot be told apart by it
FAIR = 0.5  # share of BM25's value that an encoder reaches alone if it is a retriever already


class CheckConfig(Config):
    """Which encoder and which system answer the questions best."""

    questions: InputPath = Field(description="Folder written by the questions stage.")
    made: InputPath | None = Field(
        None, description="Folder of questions made from the corpus that are kept beside a user's own."
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
    accept_unless_harmful: tuple[str, ...] = Field(
        (),
        description="Encoders that gained on people's questions elsewhere; the best is last.",
    )
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
    questions = enough(read_questions(config.questions))
    judge = SystemJudge(
        questions,
        display_only=frozenset(config.display_only),
        accept_unless_harmful=config.accept_unless_harmful,
        scales={} if config.spread is None else {START: read_spread(config.spread)},
    )
    if judge.questions:
        judge.ask("bm25", open_system(config.bm25))
        encoded = EncodedOnce()
        for name, path in config.encoders.items():
            judge.ask(name, encoded.system(path, config.query_models.get(name)))
        for name, path in config.sentences.items():
            judge.ask_sentences(name, encoded.system(path, config.query_models.get(name), SENTENCES))
        for name, paths in config.parts.items():
            judge.ask_parts(name, [encoded.system(path) for path in paths])
        for name, paths in config.sentence_parts.items():
            judge.ask_sentence_parts(name, [encoded.system(path, name=SENTENCES) for path in paths])
        if config.reranker is not None:
            score = scorer([CrossEncoder.load(config.reranker, device="cpu")])  # where it will run
            judge.rerank_with(Reranking(score, Collection(config.questions).passage, config.depth))
    # The unit of scores is measured with them (`spread.py`), by updates too, where the work folder was deleted.
    kept = [
        question
        for path in filter(None, (config.questions, config.made))
        for question in read_questions(path)
    ]
    write_lines(folder.path / QUESTIONS, (json_line(asdict(question)) for question in kept))
    if not judge.questions:
        folder.write_json(CHECKS, undecided(config))
        return
    checks = judged(judge)
    examples = cases(judge, SystemChoice(**checks["choice"]), Collection(config.questions).passage)
    folder.write_json(CHECKS, {**checks, "cases": examples})


class EncodedOnce:
    """Systems of vectors that share models: each is loaded once, and encodes a question once for all of its indexes."""

    def __init__(self) -> None:
        self._vectors: dict[tuple[Any, ...], Once] = {}

    def system(self, path: Path, model: Path | None = None, name: str = "dense") -> System:
        """The system of a folder of vectors."""
        index = open_index(path)
        how = str(model or index.model), index.about.get("query_prompt"), index.about.get("unit"), index.width
        if how not in self._vectors:
            self._vectors[how] = Once(QueryEncoder(index, model))
        return of_texts(index, self._vectors[how], name)


def enough(questions: Sequence[Question]) -> list[Question]:
    """The questions of the kinds that have FEWEST or more."""
    counts = kinds(questions)
    return [question for question in questions if counts[question.kind] >= FEWEST]


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


def judged(judge: SystemJudge) -> dict[str, Any]:
    """The choice, what it is worth, and what every system is worth beside it."""
    every = judge.every
    choice = judge.choose(every)
    alone = [SystemChoice(encoder, "dense") for encoder in judge.encoders]
    systems = [
        SystemChoice(system="bm25"),
        *alone,
        BASELINE,
        *(hybrid.as_deployed for hybrid in judge.hybrids),
    ]
    if judge.reranking is not None:
        systems.append(replace(_hybrid(choice), system="reranked"))
    values = {system: judge.values(system) for system in systems}
    if choice not in values:  # a tuned fusion, whose value is told by questions that did not tune it
        values[choice] = judge.tuned(_hybrid(choice), every)
    baseline, predicted = values[BASELINE], judge.predicted()
    decided = {system: judge.decision(system) for system in systems}
    return {
        "questions": kinds(judge.questions),
        "measure": str(MEASURE),
        "choice": asdict(choice),
        "chosen": choice.name,
        "spread": judge.spread(choice.encoder),
        "baseline": BASELINE.name,
        "fair": is_fair(
            *(judge.mean(values[SystemChoice(system=part)], every) for part in ("dense", "bm25"))
        ),
        "rows": [
            {
                **row(judge, system.name, of_system, baseline),
                "per_second": judge.speed(system),
            }
            for system, of_system in values.items()
        ],
        "decided": {
            system.name: {"difference": asdict(difference), "taken": taken}
            for system, (difference, taken) in decided.items()
            if system != BASELINE
        },
        "predicted": row(judge, choice.name, predicted, baseline),
        "why": why(judge, choice),
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
    interval = judge.interval(values, judge.every)
    return {
        "name": name,
        "value": interval.mean,
        "low": interval.low,
        "high": interval.high,
        "difference": asdict(judge.difference(values, baseline, judge.every)),
        "kinds": {kind: float(v.mean()) for kind, v in judge.by_kind(values, judge.every).items()},
    }


def why(judge: SystemJudge, choice: SystemChoice) -> list[str]:
    """The reasons for a choice, as sentences."""
    return [
        *(_why_encoder(judge, name, choice) for name in judge.encoders if name != START),
        *([_why_sentences(judge, choice)] if choice.encoder in judge.sentences else []),
        _why_system(judge, choice),
        *([_why_not_reranked(judge, choice)] if judge.reranking and choice.system != "reranked" else []),
    ]


def _hybrid(choice: SystemChoice) -> SystemChoice:
    """The hybrid that a choice is, is compared with, or reranks, before it is tuned."""
    hybrid = replace(choice, system="hybrid")
    return hybrid if hybrid == BASELINE else hybrid.as_deployed


def _why_not_reranked(judge: SystemJudge, choice: SystemChoice) -> str:
    hybrid = _hybrid(choice)
    reranked = replace(hybrid, system="reranked")
    difference = judge.difference(judge.values(reranked), judge.values(hybrid), judge.every)
    return (
        f"The reranker is kept but not used by default: it has {formatted(difference)} to the hybrid that it reranks, "
        "which is not better beyond chance. --system reranked uses it."
    )


def _why_encoder(judge: SystemJudge, encoder: str, choice: SystemChoice) -> str:
    """Whether an encoder beside the start was taken."""
    hybrid = SystemChoice(encoder, sentences=encoder in judge.sentences).as_deployed
    values, untrained = judge.values(hybrid), judge.values(BASELINE.as_deployed)
    difference = judge.difference(values, untrained, judge.every)
    says = f"{hybrid.name} has {formatted(difference)} to the untrained hybrid, {FUSED}"
    labels = {TRAINED: "Training", OWN: "Training on your questions"}
    label = labels.get(encoder, f"The encoder {LABELS.get(encoder, encoder)!r}")
    if encoder in judge.display_only:
        return f"The teacher is there to compare with: {says}. To search with it: --model."
    better = judge.better(values, untrained, judge.every)
    if choice.encoder == encoder:
        if better:
            return f"{label} is kept: {says}, which chance does not explain."
        return f"{label} is kept: it gained on people's questions about other corpora, and does no harm here: {says}."
    if better:
        return f"{label} is not kept, although {says}: it is not better than {choice.name} beyond chance."
    if difference.significant:
        return f"{label} is not kept: {says}, but one kind of questions is answered worse beyond chance."
    used = " The untrained encoder is used." if choice.encoder == START else ""
    if difference.high < 0:
        return f"{label} is not kept, because it did harm: {says}.{used}"
    return f"{label} is not kept: {says}, which is within chance.{used}"


def _why_sentences(judge: SystemJudge, choice: SystemChoice) -> str:
    """Whether the vectors of sentences take part."""
    without, with_them = (
        judge.values(SystemChoice(choice.encoder, sentences=sentences).as_deployed)
        for sentences in (False, True)
    )
    difference = judge.difference(with_them, without, judge.every)
    says = f"beside those of passages they change {MEASURE} by {formatted(difference)}, {FUSED}"
    if not choice.sentences:
        return f"Vectors of sentences are not used: {says}."
    if judge.better(with_them, judge.values(BASELINE), judge.every):
        return f"Vectors of sentences are used: {says}."
    return (
        "Vectors of sentences are used: they helped with people's questions about other corpora and do no harm here; "
        f"{says}."
    )


def _why_system(judge: SystemJudge, choice: SystemChoice) -> str:
    """Why this system answers, and with which weight."""
    hybrid = BASELINE if choice.system in ("bm25", "dense") else _hybrid(choice)
    if choice.system != "hybrid":
        difference = judge.difference(judge.values(choice), judge.values(hybrid), judge.every)
        says = f"{formatted(difference)} to {hybrid.name}"
        return f"{choice.name} is chosen: it has {says}, which chance does not explain."
    if choice != hybrid:
        difference = judge.difference(judge.tuned(hybrid, judge.every), judge.values(hybrid), judge.every)
        return (
            f"BM25 has the weight {choice.weight:g} ({choice.norm}): tuned on other questions, the fusion has "
            f"{formatted(difference)} to the weight {hybrid.weight:g}, which chance does not explain."
        )
    if choice == BASELINE:
        refused = judge.accepted[0]
        better = next(iter(judge.better_than(refused, judge.every)), BASELINE)
        difference = judge.difference(judge.values(refused), judge.values(better), judge.every)
        says = f"{formatted(difference)} to {better.name}"
        return f"{choice.name} is chosen: {refused.name} does harm here, it has {says}."
    why = "no part of it alone is better beyond chance"
    return f"{choice.name} is chosen, with the weight {choice.weight:g} for BM25: {why}."


def formatted(difference: Difference) -> str:
    """A difference with its interval."""
    return f"{difference.mean:+.3f} [{difference.low:+.3f}, {difference.high:+.3f}]"


def sentences(checks: Mapping[str, Any]) -> list[str]:
    """The check for people: a table with intervals and differences, the reasons for the choice, and the prediction."""
    made = ", ".join(f"{count} by {kind}" for kind, count in checks["questions"].items()) or "none"
    if not checks["rows"]:
        return [f"Known-item questions from the corpus: {made}. Too few to tell systems apart: BM25 and the "
                "untrained encoder are used together, with equal weights."]  # fmt: skip
    if set(checks["questions"]) == {OWN}:
        lines = [f"Your {checks['questions'][OWN]} questions; {checks['measure']}:"]
    else:
        lines = [
            f"Known-item questions from the corpus: {made}; {checks['measure']}, each kind counts the same:"
        ]
    predicted = checks["predicted"]
    return [
        *lines,
        *_table(checks),
        *checks["why"],
        f"Expected {checks['measure']} (cross-validated): {predicted['value']:.3f} [{predicted['low']:.3f}, "
        f"{predicted['high']:.3f}], {formatted(Difference(**predicted['difference']))} to the untrained hybrid.",
    ]


def _table(checks: Mapping[str, Any]) -> list[str]:
    """A line for each system: value, interval, difference to the baseline, values by kind."""
    rows = checks["rows"]
    of_kinds = list(rows[0]["kinds"])
    width = max(len(row["name"]) for row in rows)
    head = "  ".join(f"{kind:>9}" for kind in of_kinds) if len(of_kinds) > 1 else ""
    lines = [f"  {'':<{width}}  value  95 %            to baseline  questions     latency  {head}".rstrip()]
    for row in rows:
        baseline = row["name"] == checks["baseline"]
        line = (
            f"  {row['name']:<{width}}  {row['value']:.3f}  [{row['low']:.3f}, {row['high']:.3f}]"
            + ("    baseline" if baseline else f"{row['difference']['mean']:>+12.3f}")
            + f"{row['per_second']:>9,.0f}/s{1000 / row['per_second']:>9.1f} ms"
        )
        if len(of_kinds) > 1:
            line += "   " + "  ".join(f"{row['kinds'][kind]:>9.3f}" for kind in of_kinds)
        lines.append(line + ("  <- chosen" if row["name"] == checks["chosen"] else ""))
    return lines


STAGE = Stage("check", CheckConfig, write_check, part_of="build")
