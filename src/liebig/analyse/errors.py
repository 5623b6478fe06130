"""Which queries one system wins and loses against another, and what kinds of queries those are.

Queries are grouped by their length, by how many of their words stand in the best relevant passage, and by question
word; each group shows both systems' means and their difference. A few wins and losses come with their texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

WORD = re.compile(r"\w+")
QUESTION_WORDS = ("who", "what", "when", "where", "which", "why", "how", "whose", "whom")
AUXILIARIES = frozenset(
    (
        "is",
        "are",
        "was",
        "were",
        "do",
        "does",
        "did",
        "can",
        "could",
        "will",
        "would",
        "should",
        "has",
        "have",
        "had",
    )
)
LENGTHS = (4, 8, 16, 32)
OVERLAPS = (0.25, 0.5, 0.75)
STOP = frozenset(
    (
        "a", "an", "and", "are", "as", "at", "be", "by", "did", "do", "does", "for", "from", "has", "have", "how", "in",
        "is", "it", "its", "of", "on", "or", "that", "the", "their", "this", "to", "was", "were", "with",
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Group:
    """The queries of one kind: how many, both means, and how often each system is ahead."""

    by: str
    name: str
    queries: int
    mean_a: float
    mean_b: float
    wins: int
    losses: int

    @property
    def difference(self) -> float:
        """Mean of A minus mean of B."""
        return self.mean_a - self.mean_b


@dataclass(frozen=True, slots=True)
class Example:
    """A query that the systems differ on, with the texts one needs to see why."""

    query: str
    text: str
    value_a: float
    value_b: float
    relevant: str
    found_a: str
    found_b: str
    words: tuple[str, ...]


def words_of(text: str) -> list[str]:
    """Words in lower case."""
    return WORD.findall(text.lower())


def content_words(text: str) -> set[str]:
    """Words that are not among the commonest."""
    return set(words_of(text)) - STOP


def question_word(text: str) -> str:
    """`who`, `what`, …, `yes/no` for a question that opens with a verb, else `none`."""
    words = words_of(text)
    if words and words[0] in AUXILIARIES:
        return "yes/no"
    return next((word for word in words[:3] if word in QUESTION_WORDS), "none")


def length_group(text: str) -> str:
    """`1-4 words`, `5-8 words`, …"""
    count, low = len(words_of(text)), 1
    for high in LENGTHS:
        if count <= high:
            return f"{low}-{high} words"
        low = high + 1
    return f"more than {LENGTHS[-1]} words"


def overlap(query: str, passage: str) -> float:
    """Share of the query's content words that stand in the passage."""
    asked = content_words(query)
    return len(asked & content_words(passage)) / len(asked) if asked else 0.0


def overlap_group(share: float) -> str:
    """`up to 25 %` of the query's words stand in the passage, `up to 50 %`, …"""
    bound = next((limit for limit in OVERLAPS if share <= limit), 1.0)
    return f"up to {100 * bound:.0f} %"


def group_by(
    by: str, names: Sequence[str], a: NDArray[np.float64], b: NDArray[np.float64], order: Sequence[str] = ()
) -> list[Group]:
    """Both systems over the queries of each name, in the given order or by size."""
    labels = np.array(names)
    found = []
    for name in dict.fromkeys(names):
        mask = labels == name
        x, y = a[mask], b[mask]
        found.append(
            Group(
                by,
                name,
                int(mask.sum()),
                float(x.mean()),
                float(y.mean()),
                int(np.sum(x > y)),
                int(np.sum(x < y)),
            )
        )
    rank = {name: i for i, name in enumerate(order)}
    return sorted(found, key=lambda group: (rank.get(group.name, len(rank)), -group.queries, group.name))


def all_groups(
    texts: Sequence[str], relevant: Sequence[str], a: NDArray[np.float64], b: NDArray[np.float64]
) -> list[Group]:
    """Groups by length, by overlap with the relevant passage (queries that have one), and by question word."""
    lengths = [length_group(text) for text in texts]
    order = [length_group("x " * high) for high in (*LENGTHS, LENGTHS[-1] + 1)]
    groups = group_by("length", lengths, a, b, order)
    known = np.array([bool(passage) for passage in relevant])
    if known.any():
        shares = [overlap_group(overlap(q, p)) for q, p in zip(texts, relevant) if p]
        order = [overlap_group(limit) for limit in (*OVERLAPS, 1.0)]
        groups += group_by("overlap", shares, a[known], b[known], order)
    return groups + group_by("question word", [question_word(text) for text in texts], a, b)


def extremes(a: NDArray[np.float64], b: NDArray[np.float64], count: int) -> tuple[list[int], list[int]]:
    """The queries A wins by most, and those it loses by most; ties in the order of the queries."""
    difference = a - b
    wins = [int(i) for i in np.argsort(-difference, kind="stable")[:count] if difference[i] > 0]
    losses = [int(i) for i in np.argsort(difference, kind="stable")[:count] if difference[i] < 0]
    return wins, losses


def first_relevant(grades: Mapping[str, int], rank: Callable[[str], int]) -> str:
    """The relevant passage found best, else the one with the highest grade; "" where nothing is relevant."""
    relevant = [passage for passage, grade in grades.items() if grade > 0]
    return min(relevant, key=lambda passage: (rank(passage), -grades[passage], passage), default="")
