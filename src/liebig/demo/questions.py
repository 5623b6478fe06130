"""The demo's own questions about Python's standard library, with judged answers.

`questions.jsonl` has a line a question: {"id", "text", "answers": {document: grade}, "also": {document: grade}}.
Grade 2 answers the question, 1 helps. `answers` are documents that Python 3.11 and 3.12 both have; `also` names those
that only some versions have. How they were written is told in docs/questions.md.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

FILE = Path(__file__).with_name("questions.jsonl")
ANSWERS = 2  # the grade of a document that answers the question

Split = Literal["dev", "test"]


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and the grade of every document that answers it or helps."""

    id: str
    text: str
    grades: Mapping[str, int]

    @property
    def split(self) -> Split:
        """Half of the questions choose among settings (dev), the other half is reported (test)."""
        return "dev" if hashlib.sha256(self.id.encode()).digest()[0] % 2 else "test"


def questions() -> list[Question]:
    """All questions, with every document that was judged."""
    with FILE.open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return [Question(row["id"], row["text"], {**row["answers"], **row.get("also", {})}) for row in rows]


def questions_for(documents: Collection[str]) -> list[Question]:
    """The questions that these documents answer; grades of documents that are not there are left out."""
    kept = (replace(q, grades={d: g for d, g in q.grades.items() if d in documents}) for q in questions())
    return [question for question in kept if ANSWERS in question.grades.values()]
