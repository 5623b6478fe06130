"""The corpus of the demo: a collection to search, one to learn from, and the questions with judged answers.

To search: every document cut into passages of at most 64 tokens, its name before each, with the questions and their
judgements, which name documents. To learn from: a passage without its name, and the name in words ("collections
ordered dict move to end") as the query that should find it. No question and no judgement is learnt from.

`questions.jsonl` has a line per question: {"id", "text", "answers": {document: grade}, "also": {document: grade}}.
Grade 2 answers the question, 1 helps. `answers` are documents that Python 3.11 and 3.12 both have, `also` those that
only some versions have. docs/questions.md says how they were written.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pydantic import Field

from liebig.base.config import Config, InputPath
from liebig.base.pipeline import Stage
from liebig.base.records import Document, Judgement, Passage, Query
from liebig.base.workspace import Folder
from liebig.collection import GENERATED, Collection
from liebig.collection.writer import CollectionWriter
from liebig.formats.items import Item, Where
from liebig.queries.labelled_pairs import GENERATION
from liebig.text.passages import by_tokens, cut_documents
from liebig.text.tokenizer import Tokenizer

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


def questions_for(documents: Container[str]) -> list[Question]:
    """The questions that these documents answer; grades of documents that are not there are left out."""
    kept = (replace(q, grades={d: g for d, g in q.grades.items() if d in documents}) for q in questions())
    return [question for question in kept if ANSWERS in question.grades.values()]


HERE = Where("liebig demo")
SPECIAL = 2  # tokens that a model puts around a text


class DemoConfig(Config):
    """Passages of documents, and what belongs to them."""

    documents: InputPath = Field(description="A collection of documents.")
    tokenizer: InputPath = Field(description="Tokenizer that counts the tokens.")
    length: int = Field(
        64, ge=8, description="Maximum number of tokens in a passage, including its name and special tokens."
    )


def write_collection(config: DemoConfig, folder: Folder) -> None:
    """Documents, passages, questions and judgements."""
    names = set()
    with CollectionWriter(folder.path) as writer:
        for document in Collection(config.documents).documents():
            writer.add(Item(document, HERE))
            names.add(document.id)
        for passage in passages(config):
            writer.add(Item(passage, HERE))
        for question in questions_for(names):
            writer.add(Item(Query(question.id, question.text), HERE, question.split))
            for name, grade in question.grades.items():
                writer.add(Item(Judgement(question.id, name, grade), HERE, question.split))
    folder.write_json("summary.json", {"counts": dict(writer.counts)})


def write_pairs(config: DemoConfig, folder: Folder) -> None:
    """Passages without their names, and the names as queries."""
    with CollectionWriter(folder.path) as writer:
        for passage in passages(config):
            writer.add(Item(Passage(passage.id, passage.text, doc=passage.doc), HERE))
            writer.add(Item(Query(passage.doc, in_words(passage.doc)), HERE))
            writer.add(Item(Judgement(passage.doc, passage.id, 1), HERE, GENERATED))
    folder.write_json(GENERATION, {"of_the_corpus": True})
    folder.write_json("summary.json", {"counts": dict(writer.counts)})


STAGES = (
    Stage("demo collection", DemoConfig, write_collection, part_of="demo"),
    Stage("demo pairs", DemoConfig, write_pairs, part_of="demo"),
)


def passages(config: DemoConfig) -> Iterator[Passage]:
    """Documents cut at sentences; the name is a passage's title, and counts. The first has its document's id."""
    tokenizer = Tokenizer.from_folder(config.tokenizer)
    cutter = by_tokens(tokenizer, config.length - SPECIAL)
    documents: Iterable[Document] = Collection(config.documents).documents()
    for cut in cut_documents(documents, cutter, prefix="title", separator=" "):
        id = cut.doc if cut.id == f"{cut.doc}-0" else cut.id
        yield Passage(id, cut.text.removeprefix(f"{cut.title} "), cut.title, cut.doc)


def in_words(name: str) -> str:
    """collections.OrderedDict.move_to_end: the words a person would say."""
    parts = re.sub(r"[._]+", " ", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name))
    return parts.strip().lower()
