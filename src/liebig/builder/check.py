"""Which encoder and which system are better on this corpus: measured on known-item questions, with intervals.

One half of the questions chooses (encoder, system, weight of BM25 in the hybrid), the other half says what the choice
is worth, so that the numbers are not those it was chosen by. The trained encoder is taken where it is better than the
one it started from. Titles favour words more than real questions do, so an encoder that alone reaches FAIR of BM25 gets
the benefit of the doubt: of all weights within one standard error or DOUBT of the best the most even is taken, and the
fusion is kept unless one of its parts is better by more than that. An encoder that does not must prove itself: the
best weight counts, and the fusion has to win SIMPLER. A choice that another system beats on the judging half by more
than chance explains is overruled. The reasons for a choice are written as sentences, most of all where it is not the
largest number of the table. Cost: one search of the pool per system, and a fusion per weight.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from liebig.base.config import Config, InputPath
from liebig.base.pipeline import Stage
from liebig.base.records import Query
from liebig.base.statistics import bootstrap, compare
from liebig.base.workspace import Folder
from liebig.bm25.search import BM25
from liebig.builder.questions import Question, halves, kinds, read as read_questions
from liebig.indexes import open_index
from liebig.measures import parse
from liebig.measures.evaluator import (
    block_from_mapping as run_of,
    evaluate,
    judgements_from_mapping as from_mapping,
)
from liebig.search.retriever_folder import SystemName
from liebig.search.systems import Dense, Folded, Hits, Lexical, System, weighted_by

CHECKS = "checks.json"
MEASURE = parse("nDCG@10")
DEPTH = 100
FEWEST = 10  # with fewer questions in a half, systems cannot be told apart
FAIR = 0.5  # share of BM25's value that an encoder must reach alone to be trusted in a fusion
DOUBT = 0.01  # advantage that questions made from titles may give to BM25
STEPS = 20  # weights tried between 0 and 1
SIMPLER = 0.003  # what a hybrid must win over one of its parts to be worth its cost
PLAIN = 0.5  # weight where the questions do not decide
ALPHA = 0.05  # significance level
Values = NDArray[np.float64]


class CheckConfig(Config):
    """Which encoder and which system answer the known-item questions best."""

    questions: InputPath = Field(description="What the questions stage wrote.")
    bm25: InputPath = Field(description="BM25 index of the pool.")
    start: InputPath = Field(description="Vectors of the pool by the encoder before training.")
    trained: InputPath | None = Field(
        None, description="Vectors by the encoder after training on the corpus."
    )
    seed: int = Field(0, description="Divides the questions in two halves.")


@dataclass(frozen=True)
class Choice:
    """The encoder ("start" or "trained"), the system and BM25's weight in the hybrid."""

    encoder: str
    system: SystemName
    weight: float


@dataclass(frozen=True)
class Row:
    """A line of the table: a system on the judging half, with its interval."""

    name: str
    value: float
    low: float
    high: float


@dataclass
class Judge:
    """Questions, and the hits of each system for them."""

    questions: Sequence[Question]
    hits: dict[str, list[Hits]] = field(default_factory=dict)

    @cached_property
    def _judgements(self) -> Any:
        grades = {str(i): dict.fromkeys(q.passages, 1) for i, q in enumerate(self.questions)}
        return from_mapping(grades)

    def ask(self, name: str, system: System) -> None:
        """Let a system answer all questions."""
        self.hits[name] = system.search([Query("", q.text) for q in self.questions], DEPTH)

    def values(self, answers: Iterable[Hits]) -> NDArray[np.float64]:
        """nDCG@10 of every question; a passage that is found twice counts once, by its rank."""
        ranked = {str(i): {id: -float(r) for r, (id, _) in enumerate(hits)} for i, hits in enumerate(answers)}
        return evaluate([run_of(ranked)], self._judgements, [MEASURE]).of(MEASURE)

    def hybrid(self, encoder: str, weight: float) -> list[Hits]:
        """BM25 and an encoder fused."""
        fuse = weighted_by(weight, "minmax")
        return [fuse(pair) for pair in zip(self.hits["bm25"], self.hits[encoder])]

    def weight(self, encoder: str, numbers: Sequence[int]) -> float:
        """BM25's weight for some of the questions: the best, or the most even one that is not measurably worse."""
        tried = {
            step / STEPS: self.values(self.hybrid(encoder, step / STEPS))[numbers]
            for step in range(STEPS + 1)
        }
        best = max(tried, key=lambda w: (float(tried[w].mean()), -abs(w - PLAIN)))
        if not is_fair(tried[0.0], tried[1.0]):
            return best
        return min((w for w in tried if not beats(tried[best], tried[w])), key=lambda w: abs(w - PLAIN))


def is_fair(dense: Values, words: Values) -> bool:
    """Whether an encoder alone is good enough to be trusted in a fusion."""
    return float(dense.mean()) >= FAIR * float(words.mean())


def beats(a: Values, b: Values) -> bool:
    """Whether a is better than b by more than DOUBT, and than one standard error of their difference."""
    difference = a - b
    error = float(difference.std(ddof=1)) / len(difference) ** 0.5 if len(difference) > 1 else 0.0
    return float(difference.mean()) > max(error, DOUBT)


def write_check(config: CheckConfig, folder: Folder) -> None:
    """Ask the questions, choose, and write the result to `checks.json`."""
    judge = Judge(read_questions(config.questions))
    sides = halves(judge.questions, config.seed)
    indexes = {"start": config.start} | ({"trained": config.trained} if config.trained is not None else {})
    if min(map(len, sides)) < FEWEST:
        undecided = {
            "questions": kinds(judge.questions),
            "choice": asdict(Choice("start", "hybrid", PLAIN)),
            "rows": [],
            "compared": {},
            "why": [],
            "encoders": list(indexes),
            "fair": False,
        }
        folder.write_json(CHECKS, undecided)
        return
    judge.ask("bm25", Lexical(BM25.open(config.bm25)))
    for name, path in indexes.items():
        index = open_index(path)
        dense = Dense(index)
        judge.ask(name, Folded(dense, "max") if index.about.get("pieces") else dense)
    folder.write_json(CHECKS, _judged(judge, list(indexes), *sides))


def read(folder: Path) -> dict[str, Any]:
    """What `write_check` wrote."""
    checks: dict[str, Any] = json.loads((folder / CHECKS).read_text(encoding="utf-8"))
    return checks


def _judged(
    judge: Judge, names: Sequence[str], choosing: Sequence[int], judging: Sequence[int]
) -> dict[str, Any]:
    weights = {name: judge.weight(name, choosing) for name in names}
    answers: dict[str, list[Hits]] = {"BM25": judge.hits["bm25"]}
    for name in names:
        answers[_dense(name)] = judge.hits[name]
        answers[_hybrid(name)] = judge.hybrid(name, weights[name])
    values = {name: judge.values(hits) for name, hits in answers.items()}
    chose = {name: v[choosing] for name, v in values.items()}
    judged = {name: v[judging] for name, v in values.items()}
    first = _choose(chose, names, weights)
    choice = _overruled(first, judged, names, weights)
    return {
        "questions": kinds(judge.questions),
        "judging": len(judging),
        "measure": str(MEASURE),
        "encoders": list(names),
        "fair": is_fair(values[_dense("start")][choosing], values["BM25"][choosing]),
        "weights": weights,
        "choice": asdict(choice),
        "chosen": _name(choice),
        "rows": [asdict(_row(name, v)) for name, v in judged.items()],
        "compared": _compared(judged, _name(choice), names),
        "why": _why(first, choice, chose, judged),
    }


def _choose(values: dict[str, Values], names: Sequence[str], weights: dict[str, float]) -> Choice:
    """Encoder and system by the choosing half."""
    means = {name: float(v.mean()) for name, v in values.items()}
    encoder = "trained" if "trained" in names and _helped(means) else "start"
    single: SystemName = "bm25" if means["BM25"] >= means[_dense(encoder)] else "dense"
    alone, both = (
        values[name] for name in ("BM25" if single == "bm25" else _dense(encoder), _hybrid(encoder))
    )
    worth = float(both.mean() - alone.mean()) >= SIMPLER
    if is_fair(values[_dense(encoder)], values["BM25"]) and 0 < weights[encoder] < 1:
        worth = not beats(alone, both)
    return Choice(encoder, "hybrid" if worth else single, weights[encoder])


def _overruled(
    choice: Choice, judged: dict[str, Values], names: Sequence[str], weights: dict[str, float]
) -> Choice:
    """The choice, or the best system of the judging half, where chance does not explain that it is better."""
    best = max(judged, key=lambda name: float(judged[name].mean()))
    if not _sure(judged[best], judged[_name(choice)]):
        return choice
    systems: tuple[SystemName, ...] = ("bm25", "dense", "hybrid")
    every = [Choice(name, system, weights[name]) for system in systems for name in names]
    return next(other for other in every if _name(other) == best)


def _sure(a: Values, b: Values) -> bool:
    """Whether a is better than b by more than chance explains."""
    return float((a - b).mean()) > 0 and compare(a, b, samples=2000).p_randomisation < ALPHA


def _why(first: Choice, choice: Choice, chose: dict[str, Values], judged: dict[str, Values]) -> list[str]:
    """The reasons for a choice, as sentences: by the half that chose, and by the other where it says otherwise."""
    name = _name(choice)
    if choice != first:
        ahead = float((judged[name] - judged[_name(first)]).mean())
        return [
            f"{name} was chosen: half of the questions preferred {_name(first)}, but on the other half {name} is ahead "
            f"by {ahead:.3f}, which chance does not explain."
        ]
    means = {other: float(v.mean()) for other, v in chose.items()}
    best = max(means, key=lambda other: (means[other], other == name))
    count = len(chose[name])
    if best == name:
        others = ", ".join(f"{other} {mean:.3f}" for other, mean in means.items() if other != name)
        lines = [
            f"{name} was chosen: it did best on the {count} questions that choose ({means[name]:.3f}; {others})."
        ]
    else:
        lines = [
            f"{name} was chosen although {best} had more on the {count} questions that choose ({means[best]:.3f} to "
            f"{means[name]:.3f}): {_preferred(choice, best)}."
        ]
    value = {other: float(v.mean()) for other, v in judged.items()}
    top = max(value, key=lambda other: (value[other], other == name))
    if top != name:
        lines.append(
            f"In the table {top} is ahead by {value[top] - value[name]:.3f}, which is within chance, so it does not "
            "change the choice."
        )
    return lines


def _preferred(choice: Choice, best: str) -> str:
    """Why a choice stands against a system that had a little more."""
    if best in (_dense(_other(choice)), _hybrid(_other(choice))):
        kept = "is better alone" if choice.encoder == "trained" else "is as good without training"
        return f"the difference is small, and the {_dense(choice.encoder)} {kept}"
    if choice.system != "hybrid":
        return f"a hybrid has to win at least {SIMPLER} to be worth its cost"
    if best == "BM25":
        return (
            "the difference is small, and questions made from titles repeat the words of the text more often than "
            "people do, which favours BM25"
        )
    return "the difference is small, and words and vectors fail on different questions"


def _other(choice: Choice) -> str:
    return "start" if choice.encoder == "trained" else "trained"


def _helped(means: dict[str, float]) -> bool:
    """Whether the trained encoder is better in the fusion, or as good there and better alone."""
    gain = {
        kind: means[name("trained")] - means[name("start")]
        for kind, name in (("both", _hybrid), ("alone", _dense))
    }
    return gain["both"] > DOUBT or (gain["both"] >= -DOUBT and gain["alone"] > 0)


def _dense(encoder: str) -> str:
    return {"start": "encoder before training", "trained": "encoder after training"}[encoder]


def _hybrid(encoder: str) -> str:
    return f"BM25 + {_dense(encoder)}"


def _name(choice: Choice) -> str:
    if choice.system == "bm25":
        return "BM25"
    return _hybrid(choice.encoder) if choice.system == "hybrid" else _dense(choice.encoder)


def _row(name: str, values: NDArray[np.float64]) -> Row:
    interval = bootstrap(values, samples=2000)
    return Row(name, interval.mean, interval.low, interval.high)


def _compared(judged: dict[str, NDArray[np.float64]], chosen: str, names: Sequence[str]) -> dict[str, Any]:
    """Differences that people want to know: the choice against BM25, and training against none."""
    pairs = {"chosen - BM25": (chosen, "BM25")} if chosen != "BM25" else {}
    if "trained" in names:
        pairs["trained - untrained"] = (_dense("trained"), _dense("start"))
    compared = {}
    for name, (a, b) in pairs.items():
        c = compare(judged[a], judged[b], samples=2000)
        compared[name] = {**asdict(c.difference), "p": c.p_randomisation, "wins": c.wins, "losses": c.losses}
    return compared


def sentences(checks: Mapping[str, Any]) -> list[str]:
    """The check for people: a table with intervals, differences, and the reasons for the choice."""
    made = ", ".join(f"{count} by {kind}" for kind, count in checks["questions"].items()) or "none"
    if not checks["rows"]:
        return [f"Known-item questions from the corpus: {made}. Too few to tell systems apart: BM25 and the "
                "untrained encoder are used together, with equal weights."]  # fmt: skip
    lines = [
        f"Known-item questions from the corpus: {made}; "
        f"{checks['measure']} on the {checks['judging']} that were not used to choose:"
    ]
    width = max(len(row["name"]) for row in checks["rows"])
    for row in checks["rows"]:
        mark = "  <- chosen" if row["name"] == checks["chosen"] else ""
        lines.append(
            f"  {row['name']:<{width}}  {row['value']:.3f}  [{row['low']:.3f}, {row['high']:.3f}]{mark}"
        )
    lines += [_difference(name, c) for name, c in checks["compared"].items()]
    return [*lines, *checks.get("why", [])]  # folders of earlier versions have no reasons


def _difference(name: str, c: dict[str, Any]) -> str:
    sure = "statistically significant" if c["p"] < ALPHA else "not statistically significant"
    return f"  {name}: {c['mean']:+.3f} [{c['low']:+.3f}, {c['high']:+.3f}], {sure}"


STAGE = Stage("check", CheckConfig, write_check, part_of="build")
