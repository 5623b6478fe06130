"""The corpora that the check's rule is fitted on: sets with people's questions, and cuts of them.

A source is a BEIR folder (`corpus.jsonl.xz`, `queries.jsonl.xz`, `qrels/*.tsv`). A cut is a part of its passages, by
number, topic or length, without titles, in lower case, or two sources mixed; people's questions
are those that a passage of the cut answers.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liebig.base.records import Passage

LANGUAGES = {"fquad-fr": "french", "xquad-de": "german", "jsquad-ja": "japanese"}
MOST = {
    "scifact": 350,
    "nq-lead": 400,
    "nq-named": 400,
    "medquad": 400,
}  # passages of a source; 500 of others
SIZES = (300,)
TOPICS = 2
ASKED = 300  # people's questions of a corpus at most
FEWEST = 25  # people's questions of a corpus at least
MIXED = (
    ("squad", "fquad-fr"), ("squad", "jsquad-ja"), ("scifact", "fquad-fr"), ("cranfield", "xquad-de"),
    ("medquad", "jsquad-ja"), ("cosqa", "squad"), ("nq-lead", "jsquad-ja"), ("nq-lead", "fquad-fr"),
    ("semeval-cqa", "xquad-de"), ("fquad-fr", "xquad-de"), ("cosqa", "scifact"), ("medquad", "vaswani"),
)  # fmt: skip


@dataclass(frozen=True)
class PeopleQuestion:
    """A question and the grades of what answers it."""

    text: str
    grades: Mapping[str, int]


@dataclass(frozen=True)
class Corpus:
    """Passages, people's questions about them, and the sources they come from."""

    name: str
    sources: tuple[str, ...]
    texts: Sequence[Passage]
    asked: Sequence[PeopleQuestion]
    language: str = "english"

    # What `builder.questions` uses of a collection.
    splits: tuple[str, ...] = ()
    path: Path = Path("/nonexistent")

    @cached_property
    def _by_id(self) -> dict[str, Passage]:
        return {passage.id: passage for passage in self.texts}

    def passages(self) -> Sequence[Passage]:
        """All of them."""
        return self.texts

    def count(self, kind: str) -> int:
        """How many passages."""
        return len(self.texts)

    def passage(self, id: str) -> Passage:
        """A passage by its id."""
        return self._by_id[id]

    def part(self, name: str, numbers: Sequence[int] | NDArray[np.int64]) -> Corpus:
        """The passages of some numbers, and the questions that they answer."""
        passages = [self.texts[number] for number in sorted(numbers)]
        there = {passage.id for passage in passages}
        asked = []
        for question in self.asked:
            if any(grade > 0 and id in there for id, grade in question.grades.items()):
                grades = {id: grade for id, grade in question.grades.items() if id in there}
                asked.append(replace(question, grades=grades))
        return replace(self, name=f"{self.name}/{name}", texts=passages, asked=asked)


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """A file of compressed JSON lines."""
    with lzma.open(path, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def source(folder: Path, name: str, most: int | None = None) -> Corpus:
    """A whole set; of a large one `most` passages, half of them such as answer questions."""
    passages = [
        Passage(row["_id"], row["text"], row.get("title") or "", str(row.get("doc") or ""))
        for row in rows(folder / "corpus.jsonl.xz")
    ]
    there = {passage.id for passage in passages}
    texts = {row["_id"]: row["text"] for row in rows(folder / "queries.jsonl.xz")}
    grades: dict[str, dict[str, int]] = {}
    files = sorted((folder / "qrels").glob("*.tsv"))
    test = [file for file in files if file.stem == "test"]
    for file in test or files:
        for line in file.read_text(encoding="utf-8").splitlines()[1:]:
            query, passage, grade = line.split("\t")[:3]
            if passage in there:
                grades.setdefault(query, {})[passage] = int(grade)
    asked = [PeopleQuestion(texts[id], one) for id, one in grades.items() if max(one.values()) > 0]
    corpus = Corpus(name, (name,), passages, asked, LANGUAGES.get(name, "english"))
    most = MOST.get(name, 500) if most is None else most
    if len(passages) <= most:
        return corpus
    answers = {id for question in asked for id in question.grades}
    drawn = np.random.default_rng(0).permutation(len(passages))
    first = [number for number in drawn if passages[number].id in answers][: most // 2]
    order = [*first, *(number for number in drawn if number not in set(first))]
    return replace(corpus.part("", order[:most]), name=name)


def _bare(passage: Passage) -> Passage:
    return replace(passage, title="", text=passage.text or passage.title)


def _lower(passage: Passage) -> Passage:
    return replace(passage, title=passage.title.lower(), text=passage.text.lower())


def cuts(corpus: Corpus, vectors: NDArray[np.float32], seed: int) -> Iterator[Corpus]:
    """The set itself and its cuts; `vectors` of its passages group them by topic."""
    draw = np.random.default_rng(seed)
    count = len(corpus.texts)
    answers = {id for question in corpus.asked for id, grade in question.grades.items() if grade > 0}
    lengths = np.array([len(passage.text) for passage in corpus.texts])
    yield corpus
    answering = np.array([passage.id in answers for passage in corpus.texts])
    for size in (size for size in SIZES if size < 0.8 * count):
        for copy in range(1):
            # Half of a small cut answers questions, so that there are enough of them.
            first = draw.permutation(np.flatnonzero(answering))[: size // 2]
            rest = draw.permutation(np.setdiff1d(np.arange(count), first))[: size - len(first)]
            yield corpus.part(f"{size}-{copy}", np.concatenate((first, rest)))
    if count >= 300:
        topic = nearest_centre(vectors, TOPICS, draw)
        for number in range(TOPICS):
            yield corpus.part(f"topic-{number}", np.flatnonzero(topic == number))
    middle = np.median(lengths)
    yield corpus.part("short", np.flatnonzero(lengths <= middle))
    yield corpus.part("long", np.flatnonzero(lengths > middle))
    if any(passage.title for passage in corpus.texts):
        bare = [_bare(passage) for passage in corpus.texts]
        yield replace(corpus, name=f"{corpus.name}/untitled", texts=bare)
    yield replace(corpus, name=f"{corpus.name}/lower", texts=[_lower(passage) for passage in corpus.texts])


def nearest_centre(vectors: NDArray[np.float32], count: int, draw: np.random.Generator) -> NDArray[np.int64]:
    """The topic of every passage: k-means on unit vectors."""
    centres = vectors[draw.choice(len(vectors), count, replace=False)]
    for _ in range(15):
        nearest = np.argmax(vectors @ centres.T, axis=1)
        means = [vectors[nearest == number].mean(0) if (nearest == number).any() else centres[number]
                 for number in range(count)]  # fmt: skip
        centres = np.stack(means) / np.linalg.norm(means, axis=1, keepdims=True)
    return np.argmax(vectors @ centres.T, axis=1)


def mixed(a: Corpus, b: Corpus, seed: int) -> Iterator[Corpus]:
    """Two sources as one corpus, both alike, and three quarters of one; people ask about all of it."""
    for share in (0.5, 0.8):
        draw = np.random.default_rng(seed)
        size = int(min(500, len(a.texts) / share, len(b.texts) / (1 - share)))
        parts = []
        for corpus, part in ((a, share), (b, 1 - share)):
            drawn = draw.permutation(len(corpus.texts))[: int(part * size)]
            cut = corpus.part("mixed", drawn)
            order = draw.permutation(len(cut.asked))
            parts.append(replace(cut, asked=[cut.asked[number] for number in order]))
        # As many questions about each as it has of the passages.
        most = min(len(parts[0].asked) / share, len(parts[1].asked) / (1 - share), ASKED)
        parts = [
            replace(cut, asked=list(cut.asked)[: int(part * most)])
            for cut, part in zip(parts, (share, 1 - share))
        ]
        yield Corpus(
            f"{a.name}+{b.name}/{share:g}",
            (a.name, b.name),
            [replace(p, id=f"{cut.name} {p.id}") for cut in parts for p in cut.texts],
            [
                replace(question, grades={f"{cut.name} {id}": g for id, g in question.grades.items()})
                for cut in parts
                for question in cut.asked
            ],
        )
