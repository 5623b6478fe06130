"""Queries cut from a corpus that has none: what an encoder is trained to answer before anybody has asked.

| kind     | query                                                        | what it is about                  |
| -------- | ------------------------------------------------------------ | --------------------------------- |
| title    | a title                                                      | the passages under it             |
| question | title and heading of a section, as people ask for it         | the passages of the section       |
| keywords | two to six salient words of a passage (tf-idf), in its order | the passage                       |
| claim    | a sentence, or a clause of it, that is taken out             | what is left of the passage       |
| span     | four to twelve words in a row                                | the passage                       |
| sentence | a sentence                                                   | the passage                       |
| titled   | a title, and some words of the text before or after it       | the passage                       |

One kind alone teaches the encoder that kind: diverse ones keep it general. Everything drawn depends on the seed and the
passage's id alone. Cost: one pass for the frequencies of words, one for the queries; memory: a count per word.

`ShortTexts` draws as many texts as one wants, whatever they are about: pieces of any length, and in English the same
behind a question's first words.
"""

from __future__ import annotations

import heapq
import math
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from liebig.base.records import Passage
from liebig.bm25.analysis import Analyzer, words
from liebig.builder.questions import SALIENT, SHARED, Question
from liebig.collection.lookup import hash64
from liebig.text.sentences import spans

KEYWORDS = (2, 6)  # words of a query
COMMON = 0.2  # share of the passages above which a word says nothing about one
CLAIM = (5, 25)  # words of a sentence or clause
SPAN = (4, 12)  # words
WITH_TITLE, ROW_WITH_TITLE = (1, 3), (2, 5)  # words beside a title: salient ones, or some in a row
ROUNDS = 16  # queries of a kind about one passage at most
UNDER = 16  # passages that a title or heading may be about at most
FORMS = (
    "{title} {heading}",
    "{heading} of {title}",
    "what is the {heading} of {title}?",
    "{title}: {heading}",
)
PIECE, ASKED = (2, 24), (1, 10)  # words of a piece, and of one behind a question's first words
OPENERS = {
    "english": (
        "what is", "what are", "what was", "what were", "what does", "what did", "what do", "what kind of",
        "what type of", "what causes", "what happens to", "what is the name of", "who", "who was", "who is",
        "who did", "when did", "when was", "when is", "where is", "where was", "where did", "where are", "why did",
        "why is", "why do", "how many", "how much", "how is", "how are", "how did", "how does", "how do", "how to",
        "how long", "how often", "which", "in what year", "in which", "on what", "to what", "what can",
        "what percentage of", "is", "are", "does", "do", "can", "did", "was", "has", "should", "is there",
        "are there",
    )
}  # fmt: skip
CLAUSE = re.compile(r"\s*[,;:–—]\s+")
LETTERS = re.compile(r"[^\W\d_]{3,}")


class Section(NamedTuple):
    """A headed section: its heading, and the ids of its passages."""

    heading: str
    passages: tuple[str, ...]


class Frequencies(NamedTuple):
    """In how many passages each word is, of how many."""

    having: Mapping[str, int]
    total: int

    @classmethod
    def of(cls, passages: Iterable[Passage]) -> Frequencies:
        """Counted in one pass."""
        having: Counter[str] = Counter()
        total = 0
        for total, passage in enumerate(passages, 1):  # noqa: B007, the last number is the count
            having.update(set(words(passage.text)))
        return cls(having, total)

    def idf(self, word: str) -> float:
        """How much a word tells; 0 for one of a single passage, which nobody would ask with, and for common ones."""
        count = self.having.get(word, 0)
        if count < 2 or count > max(2, COMMON * self.total):
            return 0.0
        return math.log(1 + self.total / count)


class Telling(dict[str, float]):
    """How much each word tells (idf); 0 for stop words, and for what is not letters alone."""

    def __init__(self, frequencies: Frequencies, analyzer: Analyzer) -> None:
        super().__init__()
        self._frequencies, self._analyzer = frequencies, analyzer

    def __missing__(self, word: str) -> float:
        is_term = LETTERS.fullmatch(word) and self._analyzer.term(word)
        self[word] = self._frequencies.idf(word) if is_term else 0.0
        return self[word]


class Material:
    """A passage that queries are cut from; its words and sentences are looked for once, however often one is cut."""

    def __init__(self, passage: Passage, telling: Telling) -> None:
        self.passage, self._telling = passage, telling

    @cached_property
    def salient(self) -> list[str]:
        """The words that tell most about the passage (tf-idf), in the order of the text."""
        counts = Counter(words(self.passage.text))
        scores = [
            (count * weight, word) for word, count in counts.items() if (weight := self._telling[word]) > 0
        ]
        best = {word for _, word in heapq.nlargest(SALIENT, scores)}
        return [word for word in counts if word in best]

    @cached_property
    def parts(self) -> list[str]:
        """All of its sentences."""
        return [self.passage.text[a:b] for a, b in spans(self.passage.text)]

    @cached_property
    def sentences(self) -> list[str]:
        """Those that are long enough to ask something, and short enough."""
        return [part.strip() for part in self.parts if CLAIM[0] <= len(part.split()) <= CLAIM[1]]

    @cached_property
    def rows(self) -> list[str]:
        """Those that have enough words for a span."""
        return [part for part in self.parts if len(part.split()) >= SPAN[0]]


def drawn(seed: int, name: str) -> random.Random:
    """Random numbers that depend on a seed and a name alone."""
    return random.Random(hash64(f"{seed} {name}"))


def keywords(material: Material, seed: int = 0) -> str:
    """Some of a passage's most salient words in the order of the text; "" where it has too few."""
    known = material.salient
    if len(known) < KEYWORDS[0]:
        return ""
    by = drawn(seed, f"keywords {material.passage.id}")
    chosen = set(by.sample(sorted(known), min(by.randint(*KEYWORDS), len(known))))
    return " ".join(word for word in known if word in chosen)


def titled(material: Material, seed: int = 0) -> str:
    """A title, and some salient words or words in a row, before or after it; "" where there is no title or no word."""
    by, title = drawn(seed, f"titled {material.passage.id}"), material.passage.title
    if LETTERS.search(title) is None:
        return ""
    if by.random() < 0.6:
        known = material.salient
        some = by.sample(sorted(known), min(by.randint(*WITH_TITLE), len(known)))
    else:
        row = span(material, seed).split()
        some = row[: by.randint(*ROW_WITH_TITLE)]
    if not some:
        return ""
    parts = [title, " ".join(some)]
    return " ".join(parts if by.random() < 0.5 else reversed(parts))


def sentence(material: Material, seed: int = 0) -> str:
    """One of its sentences; "" where none is long or short enough."""
    own = material.sentences
    return drawn(seed, f"sentence {material.passage.id}").choice(own) if own else ""


def claim(material: Material, seed: int = 0) -> Question | None:
    """A sentence, or half of the time a clause of it, with the sentence to take out; None if nothing would be left."""
    own, id = material.sentences, material.passage.id
    if not own or len(material.parts) < 2:
        return None
    by = drawn(seed, f"claim {id}")
    sentence = by.choice(own)
    clauses = [part for part in CLAUSE.split(sentence) if len(part.split()) >= CLAIM[0]]
    text = by.choice(clauses) if clauses and by.random() < 0.5 else sentence
    return Question(text.strip(" .,;:"), (id,), "claim", sentence)


def span(material: Material, seed: int = 0) -> str:
    """Some words in a row, of one sentence where it has that many; "" where the passage is too short."""
    if not material.rows:
        return ""
    by = drawn(seed, f"span {material.passage.id}")
    part = by.choice(material.rows).split()
    count = min(by.randint(*SPAN), len(part))
    begin = by.randint(0, len(part) - count)
    return " ".join(part[begin : begin + count])


class ShortTexts:
    """Short texts without end, drawn from passages; memory: the words of all of them."""

    def __init__(self, passages: Sequence[Passage], analyzer: Analyzer, seed: int = 0) -> None:
        self._by, telling = random.Random(seed), Telling(Frequencies.of(passages), analyzer)
        self._openers = OPENERS.get(analyzer.language, ())
        self._some = []
        for material in (Material(passage, telling) for passage in passages):
            rows = [row for row in map(str.split, material.parts) if len(row) >= PIECE[0]]
            if rows:
                self._some.append((rows, material.salient, material.passage.title.strip()))

    def kinds(self) -> list[Callable[[], str]]:
        """What draws a text of each kind that there is; nothing where no passage has two words."""
        if not self._some:
            return []
        return [self.piece, self.question] if self._openers else [self.piece]

    def piece(self) -> str:
        """Words in a row, some with a title; a title; or words that tell a passage from others."""
        return self._piece(*PIECE)

    def question(self) -> str:
        """A shorter one behind a question's first words."""
        by = self._by
        opener = by.choice(self._openers)
        opener = opener if by.random() < 0.4 else opener.capitalize()
        return f"{opener} {self._piece(*ASKED)}" + ("?" if by.random() < 0.85 else "")

    def _piece(self, low: int, high: int) -> str:
        by = self._by
        rows, salient, title = by.choice(self._some)
        kind = by.random()
        if kind < 0.12 and title:
            return title
        if kind < 0.3 and len(salient) >= 2:
            some = by.sample(salient, min(len(salient), by.randint(1, 5)))
            return " ".join(some + ([title] if title and by.random() < 0.3 else []))
        row = by.choice(rows)
        count = min(len(row), by.randint(low, high))
        begin = by.randint(0, len(row) - count)
        text = " ".join(row[begin : begin + count]).strip(" .,;:()\"'")
        if title and by.random() < 0.2:
            text = f"{title} {text}" if by.random() < 0.5 else f"{text} {title}"
        return text


def titles(passages: Iterable[Passage]) -> Iterator[Question]:
    """Titles with letters that few documents share, each with its passages."""
    owners: dict[str, set[str]] = {}
    ids: dict[str, list[str]] = {}
    for passage in passages:
        title = " ".join(passage.title.split())
        if LETTERS.search(title):
            owners.setdefault(title, set()).add(passage.doc or passage.id)
            ids.setdefault(title, []).append(passage.id)
    for title, under in ids.items():
        if len(owners[title]) <= SHARED and len(under) <= UNDER:
            yield Question(title, tuple(under), "title")


def headings(
    sections: Iterable[Section], passages: Mapping[str, Passage], seed: int = 0
) -> Iterator[Question]:
    """Title and heading of every section whose passages are all here, in one of the forms people ask in."""
    for section in sections:
        if len(section.passages) > UNDER or not all(id in passages for id in section.passages):
            continue
        first = passages[section.passages[0]]
        inside = first.title.casefold() in section.heading.casefold()
        form = drawn(seed, f"heading {first.id}").choice(FORMS)
        text = section.heading if inside else form.format(title=first.title, heading=section.heading)
        if first.title and LETTERS.search(section.heading):
            yield Question(text, section.passages, "question")


def cut_queries(
    passages: Sequence[Passage], analyzer: Analyzer, shares: Mapping[str, float], most: int, seed: int = 0
) -> list[Question]:
    """At most so many queries of some kinds, each about one passage, no text twice; kinds as often as they can be made.

    A kind that the corpus does not have (titles) leaves its share to the others.
    """
    telling = Telling(Frequencies.of(passages), analyzer)
    makers = {"titled": titled, "keywords": keywords, "sentence": sentence}
    chosen = heapq.nsmallest(most, passages, key=lambda p: hash64(f"{seed} {p.id}"))
    some = [Material(passage, telling) for passage in chosen]
    made: dict[str, list[Question]] = {kind: [] for kind in shares}
    seen: set[str] = set()
    for number in range(ROUNDS):
        lacking = [kind for kind in shares if len(made[kind]) < most]
        if sum(map(len, made.values())) >= most * len(shares):
            break
        for kind in lacking:
            for material in some:
                text = makers[kind](material, seed + number)
                if text and text.casefold() not in seen:
                    seen.add(text.casefold())
                    made[kind].append(Question(text, (material.passage.id,), kind))
    there = {kind: share for kind, share in shares.items() if made[kind]}
    total = sum(there.values())
    kept = [q for kind, share in there.items() for q in made[kind][: math.ceil(most * share / total)]]
    return sorted(kept, key=lambda q: hash64(f"{seed} {q.text}"))[:most]


def pseudo_queries(
    passages: Sequence[Passage], sections: Iterable[Section], analyzer: Analyzer, seed: int = 0
) -> list[Question]:
    """Queries of every kind, no text twice; one of each kind about a passage alone."""
    telling = Telling(Frequencies.of(passages), analyzer)
    made = [*titles(passages), *headings(sections, {p.id: p for p in passages}, seed)]
    for passage in passages:
        material, about = Material(passage, telling), (passage.id,)
        if text := keywords(material, seed):
            made.append(Question(text, about, "keywords"))
        if (found := claim(material, seed)) is not None:
            made.append(found)
        if text := span(material, seed):
            made.append(Question(text, about, "span"))
        if text := sentence(material, seed):
            made.append(Question(text, about, "sentence"))
    seen: set[str] = set()
    return [q for q in made if not (q.text.casefold() in seen or seen.add(q.text.casefold()))]  # type: ignore[func-returns-value]
