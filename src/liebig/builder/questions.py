"""Known-item questions made from the corpus itself, and the passages they are asked against.

| kind      | question                                              | what should be found            |
| --------- | ----------------------------------------------------- | ------------------------------- |
| generated | a query that was generated for a passage              | that passage                    |
| heading   | title and heading of a section                        | the section's passages          |
| title     | a title                                               | the passages under it           |
| sentence  | a sentence, taken out of its passage                  | what is left of the passage     |
| keywords  | two to six salient words of a passage, in any order   | that passage                    |
| claim     | a sentence, taken out of its passage, a third of its  | what is left of the passage     |
|           | words dropped and its halves exchanged                |                                 |
| related   | two salient words of a passage, and two or three that | that passage                    |
|           | it lacks, of passages that share its salient words    |                                 |

One kind alone flatters something: titles what was trained on titles, sentences vectors, keywords BM25. So all kinds
that a corpus has are asked; `decide.py` knows by how much each misjudges what. Questions come from documents that are
held out: nothing of them is trained on (`write_rest` copies the others). Questions are also held out of the text they
are asked against: passages are asked without titles and headings, and without the sentence. (Taking titles out of the
text as well was tried on MedQuAD, and is further from its real questions.) The pool is what should be found and other
passages, drawn evenly, until it is full; it is the same for every system. Cost: a few passes over the collection;
memory: titles of at most MOST passages, words of RELATED, and the passages that are held out.
"""

from __future__ import annotations

import heapq
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import Field

from liebig.base.config import Config, InputPath
from liebig.base.json_file import FileModel, read_json_lines
from liebig.base.pipeline import Stage
from liebig.base.records import Judgement, Passage, Query
from liebig.base.workspace import Folder
from liebig.bm25.analysis import HAS_UNSPACED, UNSPACED
from liebig.collection import Collection
from liebig.collection.lookup import hash64
from liebig.collection.writer import CollectionWriter
from liebig.formats.items import Item, Where
from liebig.formats.output import json_line, write_lines
from liebig.stages.passages import GENERATED, SECTIONS
from liebig.text.sentences import spans

QUESTIONS, PAIRS, HELD = "questions.jsonl", "pairs", "held-out.txt"
LEAST = 100  # pairs of a title and its passages that are worth training on
MOST = 200_000  # passages whose titles are used at most
DOCUMENTS = 300  # held out at most, and never more than half
FEW = 8  # of fewer documents passages are held out
SHARED = 3  # a title that more documents have is not a question
LONGEST = 64  # a title or heading over more passages says too little about each
WORDS = (5, 25)  # of a sentence that is a question; BM25 knows which scripts have no spaces between them
KEYWORDS = (2, 6)
OWN = "yours"  # the kind of a user's own questions (user_questions.py), judged by people
MODEL = "model"  # those that a language model judged, whoever else did
SMALL_POOL, SHARE_OF_ALL = (
    1000,
    3,
)  # passages that are asked in any case, and beyond them no more than a third of all
SALIENT = 12  # words of a passage that keywords are drawn from
RELATED = 10_000  # passages at most whose words are related to each other
NEAR, TELLING = 5, 8  # passages that share salient words, and how many salient words of each
WORD = re.compile(rf"[{UNSPACED}]+|[^\W\d_{UNSPACED}]{{3,}}")
PIECE = re.compile(rf"[{UNSPACED}]{{1,2}}|[^\s{UNSPACED}]+")
InSample = Callable[[str], bool]


class QuestionsConfig(Config):
    """Known-item questions made from the corpus itself."""

    collection: InputPath  # collection with passages
    each: int = Field(100, ge=0)  # maximum number of questions of a kind
    pool: int = Field(3000, ge=1)  # maximum number of passages they are asked against
    seed: int = Field(0, ge=0)  # draws documents, questions and pool


class SectionPassages(FileModel):
    """A line of `sections.jsonl`."""

    heading: str
    passages: Annotated[tuple[str, ...], Field(min_length=1)]


@dataclass(frozen=True)
class Question:
    """A question, the passages that answer it, the text that is taken out of them first, and passages that do not."""

    text: str
    passages: tuple[str, ...]
    kind: str
    cut: str = ""
    against: tuple[str, ...] = ()


def write_questions(config: QuestionsConfig, folder: Folder) -> None:
    """Write questions, the pool as a collection of its own, what is held out, and pairs of the rest to train on."""
    collection = Collection(config.collection)
    in_sample = _sample(collection, config.seed)
    held = hold_out(collection, in_sample, config.seed)
    questions, rest = choose(collection, held, in_sample, config)
    cuts: dict[str, list[str]] = defaultdict(list)
    for question in questions:
        for id in question.passages if question.cut else ():
            cuts[id].append(question.cut)
    write_lines(folder.path / QUESTIONS, (json_line(asdict(question)) for question in questions))
    write_lines(folder.path / HELD, sorted(held))
    with CollectionWriter(folder.path) as writer:
        answers = {id for question in questions for id in question.passages}
        size = pool_size(collection.count("passages"), config.pool)
        for passage in draw_pool(collection, answers, size, config.seed):
            writer.add(Item(bare(passage, cuts[passage.id]), Where(str(collection.path))))
    if len(rest) >= LEAST:
        _write_pairs(folder.path / PAIRS, rest, collection)


class RestConfig(Config):
    """The passages of a collection that are not held out for questions."""

    collection: InputPath  # collection with passages
    questions: InputPath  # folder written by the questions stage


def write_rest(config: RestConfig, folder: Folder) -> None:
    """Copy the passages to train on: those of documents about which nothing is asked."""
    held = set((config.questions / HELD).read_text(encoding="utf-8").splitlines())
    collection = Collection(config.collection)
    with CollectionWriter(folder.path) as writer:
        for passage in collection.passages():
            if not _is_held(passage, held):
                writer.add(Item(passage, Where(str(collection.path))))


def hold_out(collection: Collection, in_sample: InSample, seed: int) -> set[str]:
    """Ids of documents that are asked about and not trained on; of passages, where there are few documents."""
    documents = dict.fromkeys(p.doc or p.id for p in collection.passages() if in_sample(p.doc or p.id))
    if len(documents) < FEW:
        documents = dict.fromkeys(p.id for p in collection.passages() if in_sample(p.id))
    count = min(DOCUMENTS, len(documents) // 2)
    return set(heapq.nsmallest(count, documents, key=lambda id: _place(seed, id)))


def _is_held(passage: Passage, held: set[str]) -> bool:
    return passage.id in held or passage.doc in held


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


def read(folder: Path) -> list[Question]:
    """The questions that `write_questions` wrote."""
    return list(read_json_lines(folder / QUESTIONS, Question))


def bare(passage: Passage, cuts: Sequence[str] = ()) -> Passage:
    """A passage without its title, and without what is taken out of it; one that would be empty keeps its text."""
    text = passage.text
    for cut in sorted(cuts, key=len, reverse=True):
        text = re.sub(re.escape(cut), " ", text, flags=re.IGNORECASE)
    return replace(passage, title="", text=text.strip() or passage.text)


def choose(
    collection: Collection, held: set[str], in_sample: InSample, config: QuestionsConfig
) -> tuple[list[Question], list[Question]]:
    """Up to `each` questions of every kind about what is held out, and titles and headings of the rest."""
    passages = {p.id: p for p in collection.passages() if _is_held(p, held)}
    questions: list[Question] = []
    rest: list[Question] = []

    def ask(made: Iterable[Question]) -> None:
        questions.extend(heapq.nsmallest(config.each, made, key=lambda q: _place(config.seed, q.text)))

    for make in (_generated, _headings, _titles):
        made = list(make(collection, in_sample))
        about = [any(id in passages for id in question.passages) for question in made]
        ask(question for question, is_held in zip(made, about) if is_held)
        rest += [question for question, is_held in zip(made, about) if not is_held]
    # A passage is asked about once by its text, so that no question takes away what another one needs.
    shares: list[list[Passage]] = [[], [], []]
    for passage in passages.values():
        shares[_place(config.seed + 3, passage.id) % 3].append(passage)
    ask(_sentences(shares[0], config.seed))
    ask(_claims(shares[1], config.seed))
    ask(_keywords(shares[2], collection, in_sample, config.seed))
    ask(_related(list(passages.values()), collection, config.each, config.seed))
    texts = {question.text for question in questions}
    return questions, [question for question in rest if question.text not in texts]


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
    for section in read_json_lines(path, SectionPassages) if path.is_file() else ():
        if not in_sample(section.passages[0]):
            continue
        first = collection.passage(section.passages[0])
        title = first.title.removesuffix(f": {section.heading}")
        if title and len(section.passages) <= LONGEST:
            text = title if section.heading.casefold() in title.casefold() else f"{title} {section.heading}"
            yield Question(text, section.passages, "heading")


def _titles(collection: Collection, in_sample: InSample) -> Iterator[Question]:
    """Titles that few documents share; a title without letters, or one that is a file name, is skipped."""
    owners: dict[str, set[int]] = defaultdict(set)
    passages: dict[str, list[str]] = defaultdict(list)
    documents = collection.documents() if collection.has("documents") else ()
    titles = {document.id: document.title for document in documents if in_sample(document.title)}
    for passage in collection.passages():
        title = " ".join((titles.get(passage.doc, "") if titles else passage.title).split())
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


def _sentences(passages: Iterable[Passage], seed: int) -> Iterator[Question]:
    for passage in passages:
        places = spans(passage.text)
        fit = [(a, b) for a, b in places if WORDS[0] <= len(_pieces(passage.text[a:b])) <= WORDS[1]]
        if len(places) > 1 and fit:
            a, b = fit[_place(seed, passage.id) % len(fit)]
            yield Question(passage.text[a:b], (passage.id,), "sentence", passage.text[a:b])


def _claims(passages: Iterable[Passage], seed: int) -> Iterator[Question]:
    """The same in other words, as far as that can be had without a model: fewer, and in another order."""
    for question in _sentences(passages, seed):
        words = _pieces(question.text)
        dropped = heapq.nsmallest(
            len(words) // 3, range(len(words)), key=lambda i: _place(seed, f"{i} {question.text}")
        )
        kept = [word for i, word in enumerate(words) if i not in dropped]
        half, space = len(kept) // 2, " " if " " in question.text else ""
        yield replace(question, text=space.join(kept[half:] + kept[:half]).strip(" .,;:。、"), kind="claim")


def _keywords(
    passages: Sequence[Passage], collection: Collection, in_sample: InSample, seed: int
) -> Iterator[Question]:
    """Two to six of the words that tell a passage from others (tf-idf); words of one passage only are too easy."""
    counts = {passage.id: Counter(_words(passage.text)) for passage in passages}
    known = {word for of_passage in counts.values() for word in of_passage}
    having: Counter[str] = Counter()
    total = 0
    for passage in collection.passages():
        if in_sample(passage.id):
            total += 1
            having.update(known.intersection(_words(passage.text)))
    for id, of_passage in counts.items():
        scores = {w: n * math.log(1 + total / having[w]) for w, n in of_passage.items() if having[w] > 1}
        salient = heapq.nlargest(SALIENT, scores, key=lambda word: (scores[word], word))
        count = KEYWORDS[0] + _place(seed, id) % (KEYWORDS[1] - KEYWORDS[0] + 1)
        if len(salient) >= count:
            drawn = heapq.nsmallest(count, salient, key=lambda word: _place(seed, f"{id} {word}"))
            yield Question(" ".join(drawn), (id,), "keywords")


def _related(about: Sequence[Passage], collection: Collection, each: int, seed: int) -> Iterator[Question]:
    """Words of a passage with words of passages like it, which it lacks: not all that people ask is in the text."""
    limit = 2**64 * RELATED // max(RELATED, collection.count("passages"))
    subjects = heapq.nsmallest(each, about, key=lambda passage: _place(seed + 4, passage.id))
    drawn = {p.id: p for p in collection.passages() if _place(seed + 5, p.id) < limit}
    drawn |= {passage.id: passage for passage in subjects}
    counts = {id: Counter(_words(passage.text)) for id, passage in drawn.items()}
    having = Counter(word for of_passage in counts.values() for word in of_passage)
    common = 0.2 * len(drawn) + 2
    idf = {w: math.log(1 + len(drawn) / n) for w, n in having.items() if 1 < n < common}
    postings: dict[str, list[str]] = defaultdict(list)
    for id, of_passage in counts.items():
        for word in of_passage.keys() & idf.keys():
            postings[word].append(id)

    def salient(id: str) -> list[str]:
        scores = {word: n * idf[word] for word, n in counts[id].items() if word in idf}
        return heapq.nsmallest(TELLING, scores, key=lambda word: (-scores[word], word))

    for passage in subjects:
        own = salient(passage.id)
        near: dict[str, float] = defaultdict(float)
        for word in own:
            for id in postings[word]:
                near[id] += idf[word]
        near.pop(passage.id, None)
        lacking: dict[str, float] = defaultdict(float)
        for id in heapq.nsmallest(NEAR, near, key=lambda id: (-near[id], id)):
            for word in salient(id):
                if word not in counts[passage.id]:
                    lacking[word] += near[id] * idf[word]
        new = heapq.nsmallest(6, lacking, key=lambda word: (-lacking[word], word))
        if len(own) >= 4 and len(new) >= 3:
            words = heapq.nsmallest(2, own[:6], key=lambda word: _place(seed, f"{passage.id} {word}"))
            count = 2 + _place(seed, passage.id) % 2
            words += heapq.nsmallest(count, new, key=lambda word: _place(seed, f"{passage.id} {word}"))
            yield Question(" ".join(words), (passage.id,), "related")


def _words(text: str) -> list[str]:
    """Words that can stand in a query: letters, three of them at least; pairs of them in scripts without spaces."""
    parts: list[str] = []
    for word in WORD.findall(text.casefold()):
        unspaced = HAS_UNSPACED.match(word) is not None
        parts += map("".join, pairwise(word)) if unspaced else [word]
    return parts


def _pieces(text: str) -> list[str]:
    """A text cut into words; in scripts without spaces into two characters each, about the length of a word there."""
    pieces: list[str] = PIECE.findall(text)
    return pieces


def pool_size(passages: int, most: int) -> int:
    """A thousand of few passages, so that a check costs little beside encoding them all; else a third, up to `most`."""
    return min(most, max(SMALL_POOL, passages // SHARE_OF_ALL))


def draw_pool(collection: Collection, answers: set[str], size: int, seed: int) -> list[Passage]:
    """The answers, and other passages drawn by hash, in the order of the collection."""
    others = collection.count("passages") - len(answers)
    limit = int(2**64 * max(0, size - len(answers)) / max(1, others))
    return [p for p in collection.passages() if p.id in answers or _place(seed + 1, p.id) < limit]


def folds(questions: Sequence[Question], count: int) -> list[int]:
    """The fold of every question, 0 … count - 1, by its text."""
    return [_place(count, question.text) % count for question in questions]


def kinds(questions: Iterable[Question]) -> dict[str, int]:
    return dict(Counter(question.kind for question in questions))


STAGE = Stage("questions", QuestionsConfig, write_questions, part_of="build")
REST = Stage("rest", RestConfig, write_rest, part_of="build")
