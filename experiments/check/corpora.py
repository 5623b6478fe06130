"""The corpora that the check's rule is fitted on: sets with people's questions, and hundreds of cuts of them.

A source is a folder of DATA: `corpus.jsonl.xz`, `queries.jsonl.xz`, `qrels/*.tsv` (BEIR), or a file of `general/` whose
titles were written by people as questions or descriptions of the text (`TITLED`). A cut is a part of its documents, by
number, topic or length, with passages of a build's length, without titles, in lower case, among passages of another
source, or two sources mixed; people's questions are those that a passage of the cut answers.
"""

from __future__ import annotations

import json
import lzma
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liebig.base.records import Passage
from liebig.text.sentences import spans

Ints = NDArray[np.int64]
SOURCES = (
    "medquad", "scifact", "cranfield", "squad", "cosqa", "vaswani", "trec-dl21", "semeval-cqa", "fquad-fr", "xquad-de",
    "jsquad-ja", "nq-lead", "nq-articles", "nq-named", "stackexchange", "textbooks", "shell", "docstrings",
)  # fmt: skip
LANGUAGES = {"fquad-fr": "fr", "xquad-de": "de", "jsquad-ja": "ja"}
# Files of `general/`, and the kinds of rows whose title is a question, and of rows that are passages.
TITLED = {
    "stackexchange": ("stackexchange_posts", ("passage",), ()),  # a forum's question, and its heading
    "textbooks": ("openstax_textbooks", ("question",), ("passage",)),  # the section that a question is about
    "shell": ("web_and_knowledge_questions", ("code",), ()),  # what a command does
    "docstrings": ("python_code", ("code",), ()),  # what a function does
}
MOST, LARGE = 12_000, {"nq-articles": 30_000, "medquad": 30_000}  # passages of a source
SIZES = ((300, 2), (1_000, 2), (3_000, 1), (10_000, 1), (20_000, 1))  # documents of random cuts, and how many
TOPICS = 4
ASKED = 1_000  # people's questions of a corpus at most
FEWEST, FEWEST_PASSAGES = 25, 100
CUT = 80  # words of a passage as a build cuts them
PAIRS = (
    ("squad", "fquad-fr"), ("squad", "xquad-de"), ("scifact", "fquad-fr"), ("cranfield", "xquad-de"),
    ("medquad", "fquad-fr"), ("cosqa", "squad"), ("nq-lead", "jsquad-ja"), ("nq-lead", "fquad-fr"),
    ("semeval-cqa", "xquad-de"), ("fquad-fr", "xquad-de"), ("cosqa", "scifact"), ("medquad", "vaswani"),
    ("trec-dl21", "docstrings"), ("textbooks", "nq-named"), ("stackexchange", "cosqa"), ("shell", "stackexchange"),
    ("medquad", "semeval-cqa"), ("trec-dl21", "xquad-de"), ("squad", "jsquad-ja"), ("textbooks", "vaswani"),
)  # fmt: skip
AMONG = (
    ("squad", "nq-articles"), ("fquad-fr", "nq-lead"), ("scifact", "medquad"), ("cranfield", "vaswani"),
    ("semeval-cqa", "stackexchange"), ("cosqa", "docstrings"), ("trec-dl21", "nq-articles"), ("xquad-de", "nq-named"),
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

    # What `builder.questions` uses of a collection.
    splits: tuple[str, ...] = ()
    path: Path = Path("/nonexistent")

    def write(self, path: Path) -> None:
        """Lines of JSON: what it is, its passages, the questions."""
        head = {"name": self.name, "sources": self.sources, "passages": len(self.texts)}
        with path.open("w", encoding="utf-8") as file:
            for row in (head, *map(asdict, self.texts), *map(asdict, self.asked)):
                file.write(json.dumps(row, ensure_ascii=False) + "\n")

    @classmethod
    def read(cls, path: Path) -> Corpus:
        """What `write` wrote."""
        with path.open(encoding="utf-8") as file:
            head = json.loads(next(file))
            texts = [Passage(**json.loads(next(file))) for _ in range(head["passages"])]
            asked = [PeopleQuestion(**json.loads(line)) for line in file]
        return cls(head["name"], tuple(head["sources"]), texts, asked)

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

    @cached_property
    def documents(self) -> dict[str, list[int]]:
        """The numbers of every document's passages."""
        owned: dict[str, list[int]] = defaultdict(list)
        for number, passage in enumerate(self.texts):
            owned[passage.doc or passage.id].append(number)
        return owned

    @cached_property
    def answering(self) -> set[str]:
        """The passages that answer a question."""
        return {id for question in self.asked for id, grade in question.grades.items() if grade > 0}

    def part(self, name: str, numbers: Sequence[int] | Ints) -> Corpus:
        """The passages of some numbers, and the questions that they answer."""
        passages = [self.texts[number] for number in sorted(numbers)]
        there = {passage.id for passage in passages}
        asked = []
        for question in self.asked:
            if any(grade > 0 and id in there for id, grade in question.grades.items()):
                grades = {id: grade for id, grade in question.grades.items() if id in there}
                asked.append(replace(question, grades=grades))
        return replace(self, name=f"{self.name}/{name}", texts=passages, asked=asked)

    def drawn(self, name: str, size: int, draw: np.random.Generator) -> Corpus:
        """Documents of about `size` passages, half of them such as answer questions."""
        names = list(self.documents)
        answers = [any(self.texts[n].id in self.answering for n in self.documents[doc]) for doc in names]
        order = draw.permutation(len(names))
        first = [number for number in order if answers[number]]
        rest = [number for number in order if not answers[number]]
        taken: list[int] = []
        for some, most in ((first, size // 2 if rest else size), (rest, size)):
            for number in some:
                if len(taken) >= most:
                    break
                taken += self.documents[names[number]]
        return self.part(name, taken)

    def changed(self, name: str, texts: Sequence[Passage]) -> Corpus:
        """The same questions about other forms of the passages."""
        return replace(self, name=f"{self.name}/{name}", texts=texts)


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """A file of compressed JSON lines."""
    with lzma.open(path, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def source(data: Path, name: str, most: int | None = None, *, dev: bool = True) -> Corpus:
    """A whole set, or of a large one about `most` passages; `dev` is for cosqa's development questions, too."""
    most = LARGE.get(name, MOST) if most is None else most
    passages, asked = _titled(data, name) if name in TITLED else _beir(data / name, name, dev=dev)
    corpus = Corpus(name, (name,), passages, asked)
    if len(passages) <= most:
        return corpus
    return replace(corpus.drawn("", most, np.random.default_rng(0)), name=name)


def _beir(folder: Path, name: str, *, dev: bool) -> tuple[list[Passage], list[PeopleQuestion]]:
    language = LANGUAGES.get(name, "en")
    passages = [
        Passage(row["_id"], row["text"], row.get("title") or "", str(row.get("doc") or ""), language=language)
        for row in rows(folder / "corpus.jsonl.xz")
    ]
    there = {passage.id for passage in passages}
    texts = {row["_id"]: row["text"] for row in rows(folder / "queries.jsonl.xz")}
    grades: dict[str, dict[str, int]] = {}
    files = sorted((folder / "qrels").glob("*.tsv"))
    test = [file for file in files if file.stem == "test"]
    for file in files if name == "cosqa" and dev else test or files:
        for line in file.read_text(encoding="utf-8").splitlines()[1:]:
            query, passage, grade = line.split("\t")[:3]
            if passage in there:
                grades.setdefault(query, {})[passage] = int(grade)
    return passages, [PeopleQuestion(texts[id], one) for id, one in grades.items() if max(one.values()) > 0]


def _titled(data: Path, name: str) -> tuple[list[Passage], list[PeopleQuestion]]:
    """Rows under a title that people wrote, without it: what has the same title answers."""
    file, asking, answering = TITLED[name]
    passages: list[Passage] = []
    by_title: dict[str, list[str]] = defaultdict(list)
    asked: list[tuple[str, str]] = []  # questions, and the title of what answers them
    known: set[str] = set()
    for number, row in enumerate(rows(data / "general" / f"{file}.jsonl.xz")):
        title, text = row.get("title"), row["text"]
        if not title or text in known:
            continue
        if row["kind"] in asking and answering:
            asked.append((text, title))
        elif row["kind"] in (answering or asking) and title.casefold() not in text.casefold():
            known.add(text)
            passages.append(Passage(f"{name}{number}", text, doc=title if answering else ""))
            by_title[title].append(passages[-1].id)
    if not answering:
        asked = [(title, title) for title in by_title if len(title.split()) >= 3]
    unique = dict(asked)
    return passages, [
        PeopleQuestion(text, dict.fromkeys(by_title[title], 1))
        for text, title in unique.items()
        if 0 < len(by_title[title]) <= 20
    ]


def _bare(passage: Passage) -> Passage:
    return replace(passage, title="", text=passage.text or passage.title)


def _lower(passage: Passage) -> Passage:
    return replace(passage, title=passage.title.lower(), text=passage.text.lower())


def in_pieces(corpus: Corpus) -> Corpus:
    """Passages of whole sentences, up to CUT words, as a build cuts documents; all those of an answer answer."""
    texts: list[Passage] = []
    pieces: dict[str, list[str]] = {}
    for passage in corpus.texts:
        parts: list[list[str]] = [[]]
        for a, b in spans(passage.text):
            if parts[-1] and len(" ".join([*parts[-1], passage.text[a:b]]).split()) > CUT:
                parts.append([])
            parts[-1].append(passage.text[a:b])
        made = [
            replace(passage, id=f"{passage.id}-{number}", text=" ".join(part), doc=passage.doc or passage.id)
            for number, part in enumerate(parts)
            if part
        ] or [passage]
        pieces[passage.id] = [one.id for one in made]
        texts += made
    asked = [
        replace(question, grades={id: g for whole, g in question.grades.items() for id in pieces[whole]})
        for question in corpus.asked
    ]
    return replace(corpus, name=f"{corpus.name}/pieces", texts=texts, asked=asked)


def cuts(corpus: Corpus, topics: Ints | None, seed: int) -> Iterator[Corpus]:
    """The set itself and its cuts; `topics` has the topic of every passage."""
    draw = np.random.default_rng(seed)
    count = len(corpus.texts)
    yield corpus
    small = corpus if count <= 2_000 else corpus.drawn("2000-0", 2_000, draw)
    for size, copies in SIZES:
        for copy in range(copies if size < 0.75 * count else 0):
            yield corpus.drawn(f"{size}-{copy}", size, draw)
    if topics is not None:
        for number in np.unique(topics):
            some = corpus.part(f"topic-{number}", np.flatnonzero(topics == number))
            yield some if len(some.texts) <= 3_000 else replace(some.drawn("", 3_000, draw), name=some.name)
    lengths = np.array([len(passage.text) for passage in small.texts])
    middle = np.median(lengths)
    yield small.part("short", np.flatnonzero(lengths <= middle))
    yield small.part("long", np.flatnonzero(lengths > middle))
    if any(passage.title for passage in corpus.texts):
        yield small.changed("untitled", [_bare(passage) for passage in small.texts])
        if count > 5_000:
            yield corpus.changed("untitled", [_bare(passage) for passage in corpus.texts])
    yield small.changed("lower", [_lower(passage) for passage in small.texts])
    pieces = in_pieces(small)
    if len(pieces.texts) > 1.3 * len(small.texts):
        yield pieces
        tiny = in_pieces(corpus.drawn("tiny", 200, draw))
        yield tiny


def topics_of(vectors: NDArray[np.float32], count: int = TOPICS, seed: int = 0) -> Ints:
    """The topic of every passage: k-means on unit vectors."""
    draw = np.random.default_rng(seed)
    centres = vectors[draw.choice(len(vectors), count, replace=False)]
    for _ in range(10):
        nearest = np.argmax(vectors @ centres.T, axis=1)
        means = [vectors[nearest == number].mean(0) if (nearest == number).any() else centres[number]
                 for number in range(count)]  # fmt: skip
        centres = np.stack(means) / np.linalg.norm(means, axis=1, keepdims=True)
    return np.argmax(vectors @ centres.T, axis=1)


def _named(corpus: Corpus) -> Corpus:
    """With ids and documents that no other source has."""
    texts = [
        replace(p, id=f"{corpus.name} {p.id}", doc=f"{corpus.name} {p.doc}" if p.doc else "")
        for p in corpus.texts
    ]
    asked = [
        replace(question, grades={f"{corpus.name} {id}": g for id, g in question.grades.items()})
        for question in corpus.asked
    ]
    return replace(corpus, texts=texts, asked=asked)


def mixed(a: Corpus, b: Corpus, seed: int) -> Iterator[Corpus]:
    """Two sources as one corpus, in two proportions and sizes; people ask about both in the same proportion."""
    for share, size in ((0.5, 600), (0.8, 2_000)):
        draw = np.random.default_rng(seed)
        size = int(min(size, len(a.texts) / share, len(b.texts) / (1 - share)))
        parts = [
            _named(replace(corpus.drawn("", int(part * size), draw), name=corpus.name))
            for corpus, part in ((a, share), (b, 1 - share))
        ]
        most = min(len(parts[0].asked) / share, len(parts[1].asked) / (1 - share), ASKED)
        asked = []
        for cut, part in zip(parts, (share, 1 - share)):
            order = draw.permutation(len(cut.asked))[: int(part * most)]
            asked += [cut.asked[number] for number in order]
        texts = [passage for cut in parts for passage in cut.texts]
        yield Corpus(f"{a.name}+{b.name}/{share:g}", (a.name, b.name), texts, asked)


def among(a: Corpus, b: Corpus, seed: int) -> Iterator[Corpus]:
    """A source among passages of another, about which nobody asks."""
    draw = np.random.default_rng(seed)
    for most, others in ((500, 2_000), (3_000, 10_000)):
        parts = [
            _named(
                replace(
                    corpus if len(corpus.texts) <= size else corpus.drawn("", size, draw), name=corpus.name
                )
            )
            for corpus, size in ((a, most), (b, others))
        ]
        texts = [passage for cut in parts for passage in cut.texts]
        yield Corpus(f"{a.name}/among-{others}", (a.name, b.name), texts, parts[0].asked)
