"""The judged questions of the demo, and what the systems of a build about Python's documentation are worth on them.

`questions.jsonl` has a line per question: {"id", "text", "answers": {document: grade}, "also": {document: grade}}.
Grade 2 answers the question, 1 helps. `answers` are documents that Python 3.11 and 3.12 both have, `also` those that
only some versions have. docs/questions.md says how they were written. A build sees none of this.

Documents are judged, passages are searched: a document counts by its best passage.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from liebig.base.records import Query
from liebig.base.statistics import bootstrap, compare, direction
from liebig.builder import check
from liebig.builder.judge import BASELINE, DEPTH, PLAIN, SystemChoice
from liebig.measures import parse
from liebig.measures.evaluator import block_from_mapping, evaluate, judgements_from_mapping
from liebig.search.fusion import Hits, weighted_by
from liebig.search.retriever import Retriever
from liebig.search.retriever_folder import WORK
from liebig.search.systems import Hybrid, open_system

FILE = Path(__file__).with_name("questions.jsonl")
ANSWERS = 2  # the grade of a document that answers the question
MEASURES = [parse(name) for name in ("nDCG@10", "RR@10", "R@10")]
Split = Literal["dev", "test"]
Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class JudgedQuestion:
    """A question, and the grade of every document that answers it or helps."""

    id: str
    text: str
    grades: Mapping[str, int]

    @property
    def split(self) -> Split:
        """Half of the questions served to choose settings (dev), the other half is reported (test)."""
        return "dev" if hashlib.sha256(self.id.encode()).digest()[0] % 2 else "test"


def questions() -> list[JudgedQuestion]:
    with FILE.open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return [JudgedQuestion(row["id"], row["text"], {**row["answers"], **row.get("also", {})}) for row in rows]


def questions_for(documents: Container[str]) -> list[JudgedQuestion]:
    """The questions that these documents answer; grades of documents that are not there are left out."""
    kept = (replace(q, grades={d: g for d, g in q.grades.items() if d in documents}) for q in questions())
    return [question for question in kept if ANSWERS in question.grades.values()]


@dataclass(frozen=True)
class JudgedBuild:
    """The values of every test question: of BM25, of the untrained hybrid, and of what the build chose."""

    questions: int
    documents: int
    passages: int
    chosen: str
    systems: Mapping[str, Mapping[str, Values]]  # by the names of systems, then of measures

    def lines(self) -> list[str]:
        """What the chosen system is worth against the untrained hybrid, and the table behind it."""
        first, baseline = str(MEASURES[0]), self.systems[BASELINE.name]
        lines = [
            f"{self.questions} judged questions that nothing was tuned on, {self.documents:,} documents in "
            f"{self.passages:,} passages:"
        ]
        width = max(map(len, self.systems))
        names = "".join(f"  {measure!s:>6}" for measure in MEASURES[1:])
        lines.append(f"  {'':<{width}}  {first}  95 %          {names}  to baseline  95 %")
        for name, values in self.systems.items():
            interval = bootstrap(values[first])
            others = "".join(f"  {values[str(measure)].mean():>6.3f}" for measure in MEASURES[1:])
            line = (
                f"  {name:<{width}}  {interval.mean:>7.3f}  {interval.low:.3f} to {interval.high:.3f}{others}"
            )
            if values is baseline:
                line += f"  {'baseline':>11}"
            else:
                change = compare(values[first], baseline[first]).difference
                line += f"  {change.mean:>+11.3f}  {change.low:+.3f} to {change.high:+.3f}"
            lines.append(line + ("  <- chosen" if name == self.chosen else ""))
        return [*lines, *self._verdict()]

    def _verdict(self) -> list[str]:
        """Whether the chosen system is better than the untrained hybrid, as a sentence; it says so if it may not be."""
        if self.chosen == BASELINE.name:
            return []
        first = str(MEASURES[0])
        compared = compare(self.systems[self.chosen][first], self.systems[BASELINE.name][first])
        change = compared.difference
        verbs = "makes no measurable difference to", "improves on", "is worse than"
        return [
            f"What the build chose {verbs[direction(change.low, change.high)]} the untrained hybrid: {first} "
            f"{change.mean:+.3f} ({change.low:+.3f} to {change.high:+.3f}), {compared.wins} questions better and "
            f"{compared.losses} worse."
        ]


def judge(folder: Path) -> JudgedBuild:
    """Ask the test questions of the systems of a build about `stdlib:`, which has no questions of its own."""
    generation = Retriever.from_folder(folder).current
    now = generation.description
    passages = {passage.id: passage.doc for passage in generation.collection.passages()}
    documents = set(passages.values())
    test_questions = [question for question in questions_for(documents) if question.split == "test"]
    queries = [Query(question.id, question.text) for question in test_questions]
    judgements = judgements_from_mapping({question.id: question.grades for question in test_questions})
    systems = generation.systems()
    before = open_system(folder / WORK / "vectors-start")
    chosen = check.read(folder / str(now.checks))["chosen"]
    compared = {
        SystemChoice(system="bm25").name: systems["bm25"],
        BASELINE.name: Hybrid([systems["bm25"], before], lambda _: weighted_by(PLAIN, "minmax")),
    }
    compared.setdefault(chosen, systems[now.system])
    values = {}
    for name, system in compared.items():
        hits = zip(queries, system.search(queries, DEPTH))
        run = block_from_mapping({query.id: by_document(of_query, passages) for query, of_query in hits})
        scores = evaluate([run], judgements, MEASURES)
        values[name] = {str(measure): scores.of(measure) for measure in MEASURES}
    return JudgedBuild(len(test_questions), len(documents), len(passages), chosen, values)


def by_document(hits: Hits, documents: Mapping[str, str]) -> dict[str, float]:
    """Documents in the order of their best passages."""
    ranked: Iterable[str] = dict.fromkeys(documents[id] for id, _ in hits)
    return {document: -float(rank) for rank, document in enumerate(ranked)}
