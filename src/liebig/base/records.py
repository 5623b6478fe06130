"""The values that flow through Liebig: small, frozen, and free of imports from the rest of the package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Title = Literal["space", "separator", "no"]
"""What stands between title and text when a model reads them (`text/layout.py`)."""


Unit = Literal["", "page", "slide", "line"]
"""What the places of a section count; also the name of a passage's metadata field."""
UNITS: tuple[Unit, ...] = ("page", "slide", "line")


@dataclass(frozen=True, slots=True)
class Section:
    """A heading (may be empty) and its paragraphs.

    `places` has the page, slide or line each paragraph begins on, from 1; sections that say the same are equal.
    """

    heading: str
    paragraphs: tuple[str, ...]
    unit: Unit = field(default="", compare=False)
    places: tuple[int, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Document:
    """A whole document, with the structure its source has; a source without any gives one section."""

    id: str
    title: str
    sections: tuple[Section, ...]
    metadata: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def text(self) -> str:
        """All paragraphs, one per line, headings left out."""
        return "\n".join(paragraph for section in self.sections for paragraph in section.paragraphs)


@dataclass(frozen=True, slots=True)
class Passage:
    """What is retrieved: a piece of text, the title it carries, and the document it comes from ("" if none).

    `metadata` has what is not the same for its whole document: the page, slide or line it begins on.
    `language` is a code ("de"), "" where it is not known.
    """

    id: str
    text: str
    title: str = ""
    doc: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict, hash=False)
    language: str = ""


@dataclass(frozen=True, slots=True)
class Query:
    """A question; `answers` only where the source has answer strings (NQ, TriviaQA, SQuAD)."""

    id: str
    text: str
    answers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Judgement:
    """How relevant a passage (or document) is to a query; negative grades are allowed, as in TREC."""

    query: str
    passage: str
    relevance: int


@dataclass(frozen=True, slots=True)
class Hit:
    """One line of a run: a passage found for a query. Rank counts from 1."""

    query: str
    passage: str
    score: float
    rank: int


@dataclass(frozen=True, slots=True)
class Group:
    """Training data of one query: ids of its positives and negatives, with teacher scores where there are any."""

    query: str
    positives: tuple[str, ...]
    negatives: tuple[str, ...] = ()
    positive_scores: tuple[float, ...] = ()
    negative_scores: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class ScoredPair:
    """Two texts and how similar they are (STS)."""

    a: str
    b: str
    score: float


@dataclass(frozen=True, slots=True)
class Tuple:
    """An anchor, a positive and any number of negatives as texts (the columns sentence-transformers users have)."""

    anchor: str
    positive: str
    negatives: tuple[str, ...] = ()
