"""Known-item questions made from the corpus itself, and the passages they are asked against.

| kind      | question                                   | what should be found                        |
| --------- | ------------------------------------------ | ------------------------------------------- |
| generated | a query that was generated for a passage   | that passage                                |
| heading   | title and heading of a section             | the section's passages                      |
| title     | a title                                    | the passages under it                       |
| sentence  | a sentence, taken out of its passage       | what is left of the passage                 |

The best kinds that a corpus has are used, sentences only where there are fewer than LEAST others. Questions are held
out of the text they are asked against: passages are asked without titles and headings, and without the sentence. So
the words of a question are in the right passage only as far as its author repeats them. (Taking titles out of the text
as well was tried on MedQuAD, and is further from its real questions.) The pool is what should be found and other
passages, drawn evenly, until it is full; it is the same for every system. Cost: a few passes over the collection;
memory: titles of at most MOST passages.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import Field

from liebig.base.config import Config, InputPath
from liebig.base.pipeline import Stage
from liebig.base.records import Judgement, Passage, Query
from liebig.base.workspace import Folder
from liebig.builder.cutting import GENERATED, SECTIONS
from liebig.collection.collection import Collection
from liebig.collection.lookup import hash64
from liebig.collection.writer import CollectionWriter
from liebig.evaluation.label_origin import GENERATION
from liebig.formats.items import Item, Where
from liebig.formats.output import json_line, write_lines
from liebig.text.sentences import spans

QUESTIONS, PAIRS = "questions.jsonl", "pairs"
LEAST = 100
MOST = 200_000  # passages whose titles are used at most
SHARED = 3  # a title that more documents have is not a question
LONGEST = 64  # a title or heading over more passages says too little about each
WORDS = (5, 25)  # of a sentence that is a question
InSample = Callable[[str], bool]


class QuestionsConfig(Config):
    """Known-item questions made from the corpus itself."""

    collection: InputPath = Field(description="A collection with passages.")
    most: int = Field(400, ge=0, description="Maximum number of questions.")
    pool: int = Field(2000, ge=1, description="Maximum number of passages they are asked against.")
    seed: int = Field(0, description="Draws questions and pool.")


@dataclass(frozen=True)
class Question:
    """A question, the passages that answer it, and the text that is taken out of them first."""

    text: str
    passages: tuple[str, ...]
    kind: str
    cut: str = ""


def write_questions(config: QuestionsConfig, folder: Folder) -> None:
    """Write questions, the pool as a collection of its own, and what is left to train on as another."""
    collection = Collection(config.collection)
    chosen, rest = choose(collection, config.most, config.seed)
    cuts: dict[str, list[str]] = defaultdict(list)
    for question in chosen:
        for id in question.passages if question.cut else ():
            cuts[id].append(question.cut)
    write_lines(folder.path / QUESTIONS, (json_line(asdict(question)) for question in chosen))
    with CollectionWriter(folder.path) as writer:
        for passage in _pool(collection, {id for q in chosen for id in q.passages}, config):
            writer.add(Item(bare(passage, cuts[passage.id]), Where(str(collection.path))))
    if len(rest) >= LEAST:
        _write_pairs(folder.path / PAIRS, rest, collection)


def _write_pairs(path: Path, questions: Sequence[Question], collection: Collection) -> None:
    """Titles and headings that are not asked, each with the passages under it."""
    where, written = Where(str(collection.path)), set[str]()
    with CollectionWriter(path) as writer:
        for number, question in enumerate(questions):
            writer.add(Item(Query(f"q{number}", question.text), where, GENERATED))
            for id in question.passages:
                writer.add(Item(Judgement(f"q{number}", id, 1), where, GENERATED))
                if id not in written:
                    writer.add(Item(bare(collection.passage(id)), where))
                    written.add(id)
    if all(question.kind != GENERATED for question in questions):  # a generator may have seen labels
        write_lines(path / GENERATION, [json_line({"of_the_corpus": True})])


def read(folder: Path) -> list[Question]:
    """The questions that `write_questions` wrote."""
    return [Question(**row | {"passages": tuple(row["passages"])}) for row in _rows(folder / QUESTIONS)]


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        yield from map(json.loads, file)


def bare(passage: Passage, cuts: Sequence[str] = ()) -> Passage:
    """A passage without its title, and without what is taken out of it; one that would be empty keeps its text."""
    text = passage.text
    for cut in sorted(cuts, key=len, reverse=True):
        text = re.sub(re.escape(cut), " ", text, flags=re.IGNORECASE)
    return replace(passage, title="", text=text.strip() or passage.text)


def choose(collection: Collection, most: int, seed: int) -> tuple[list[Question], list[Question]]:
    """Up to `most` questions of the best kinds there are, and those that are left; never one text in both."""
    chosen: list[Question] = []
    rest: list[Question] = []
    in_sample = _sample(collection, seed)
    for make in (_generated, _headings, _titles):
        made = sorted(make(collection, in_sample), key=lambda q: _place(seed, q.text))
        count = max(0, min(most - len(chosen), len(made) // 2 if len(made) > 2 * LEAST else len(made)))
        chosen += made[:count]
        rest += made[count:]
    if len(chosen) < min(LEAST, most):
        made = sorted(_sentences(collection, in_sample, seed), key=lambda q: _place(seed, q.text))
        chosen += made[: most - len(chosen)]
    texts = {question.text for question in chosen}
    return chosen, [question for question in rest if question.text not in texts]


def _sample(collection: Collection, seed: int) -> InSample:
    """Which texts are used: all, or about MOST of a large collection, so that memory stays bounded."""
    limit = 2**64 * MOST // max(MOST, collection.count("passages"))
    return lambda text: _place(seed, text) < limit


def _place(seed: int, text: str) -> int:
    """A place in an order that depends on the text alone."""
    return hash64(f"{seed} {text}")


def _generated(collection: Collection, in_sample: InSample) -> Iterator[Question]:
    if GENERATED not in collection.splits:
        return
    texts = {query.id: query.text for query in collection.queries(GENERATED) if in_sample(query.id)}
    for judgement in collection.judgements(GENERATED):
        if judgement.relevance > 0 and judgement.query in texts:
            yield Question(texts[judgement.query], (judgement.passage,), "generated")


def _headings(collection: Collection, in_sample: InSample) -> Iterator[Question]:
    path = collection.path / SECTIONS
    for row in _rows(path) if path.is_file() else ():
        if not in_sample(row["passages"][0]):
            continue
        first = collection.passage(row["passages"][0])
        title = "" if first.title.casefold() in row["heading"].casefold() else first.title
        if first.title and len(row["passages"]) <= LONGEST:
            yield Question(f"{title} {row['heading']}".strip(), tuple(row["passages"]), "heading")


def _titles(collection: Collection, in_sample: InSample) -> Iterator[Question]:
    """Titles that few documents share; a title without letters, or one that is a file name, is skipped."""
    owners: dict[str, set[int]] = defaultdict(set)
    passages: dict[str, list[str]] = defaultdict(list)
    for passage in collection.passages():
        title = " ".join(passage.title.split())
        if (
            in_sample(title)
            and any(c.isalpha() for c in title)
            and title != PurePosixPath(passage.doc or passage.id).stem
        ):
            owners[title].add(hash64(passage.doc or passage.id))
            passages[title].append(passage.id)
    for title, ids in passages.items():
        if len(owners[title]) <= SHARED and len(ids) <= LONGEST:
            yield Question(title, tuple(ids), "title")


def _sentences(collection: Collection, in_sample: InSample, seed: int) -> Iterator[Question]:
    """One sentence of every passage that has another one besides."""
    for passage in collection.passages():
        if not in_sample(passage.id):
            continue
        places = spans(passage.text)
        fit = [(a, b) for a, b in places if WORDS[0] <= len(passage.text[a:b].split()) <= WORDS[1]]
        if len(places) > 1 and fit:
            a, b = fit[_place(seed, passage.id) % len(fit)]
            yield Question(passage.text[a:b], (passage.id,), "sentence", passage.text[a:b])


def _pool(collection: Collection, answers: set[str], config: QuestionsConfig) -> list[Passage]:
    """The answers, and other passages drawn by hash, in the order of the collection."""
    others = collection.count("passages") - len(answers)
    limit = int(2**64 * max(0, config.pool - len(answers)) / max(1, others))
    return [p for p in collection.passages() if p.id in answers or _place(config.seed + 1, p.id) < limit]


def halves(questions: Sequence[Question], seed: int) -> tuple[list[int], list[int]]:
    """Indices of the questions that choose, and of those that judge the choice."""
    sides = [_place(seed + 2, question.text) % 2 for question in questions]
    return [i for i, side in enumerate(sides) if side == 0], [i for i, side in enumerate(sides) if side == 1]


def kinds(questions: Iterable[Question]) -> dict[str, int]:
    """How many of each kind."""
    return dict(Counter(question.kind for question in questions))


STAGE = Stage("questions", QuestionsConfig, write_questions, part_of="build")
