"""Why a passage matched: the part of it that answers, and what its score loses when a word of it is left out.

`snippet` gives the window of words with the most of the question's terms, terms marked. Terms are matched after
stemming, so "running" marks "runs"; where text has no spaces, characters are matched. Mark-up (`**`, backticks, links)
is left out. Cost: one pass over the words.

`locate` finds a passage in its document by words, not characters: a passage is whole sentences with single spaces
between them, perhaps after a heading. It looks for the whole passage, then for the longest run of its words.

`leave_one_out` scores the passage without each of its words. Dense: the passage is encoded once for each word left out,
so a word counts with all it does to its neighbours. BM25: the formula with the word's count and the length one lower.
Words beyond the model's length have no part. Cost, dense: one batch of as many texts as the passage has words; past
MOST words neighbours are left out together.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import groupby

import numpy as np

from liebig.base.records import Passage
from liebig.bm25.analysis import UNSPACED, Analyzer
from liebig.bm25.search import TermStatistics
from liebig.search.query_language import parse

WORD = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+|\S")
WINDOW = 40  # words shown
# Marks of Markdown and reStructuredText, only in pairs around words: `2**8` and `__init__` are no mark-up.
MARKUP = [
    (re.compile(r"(?:```|~~~)(?:\w+(?: title=\"[^\"\n]*\")?)?[ \t]*\n?"), ""),
    (re.compile(r"^[ \t]*(?:#{1,6}[ \t]+|>[ \t]?)", re.M), ""),
    (re.compile(r"\|(?:[ \t]*(?::-+|-{3,}):?[ \t]*\|)+[ \t]*"), ""),  # the line below the head of a table
    (re.compile(r"!?\[([^\[\]\n]*)\]\([^()\s]*(?:[ \t]+\"[^\"\n]*\")?\)"), r"\1"),
    (
        re.compile(r":[a-z][a-z:]{0,40}:(?=`[^`\s])"),
        "",
    ),  # without a bound, it would look at ":a:a:a" again and again
    (re.compile(r"(`{1,2})([^`\s](?:[^`\n]*[^`\s])?)\1"), r"\2"),
    (re.compile(r"(?<![\w*])(\*{1,3})(?![\s*])([^*\n]+?)(?<![\s*])\1(?![\w*])"), r"\2"),
    # Half of a pair whose other half is in the next passage.
    (re.compile(r"(?<![\w*])\*\*(?=[A-Z])|(?<=[.?!:])\*\*(?![\w*])"), ""),
    (re.compile(r"(?<![\w_])_(?![\s_])([^_\n]+?)(?<![\s_])_(?![\w_])"), r"\1"),
]


@dataclass(frozen=True)
class SnippetPart:
    """A stretch of text, marked or not."""

    text: str
    marked: bool


def without_markup(text: str) -> str:
    """A text as a reader sees it, without the marks of Markdown and reStructuredText."""
    for pattern, replacement in MARKUP:
        text = pattern.sub(replacement, text)
    return text


def snippet(text: str, question: str, analyzer: Analyzer, window: int = WINDOW) -> list[SnippetPart]:
    """The best window of a text as pieces; an ellipsis where text was left out."""
    text = without_markup(text)
    terms = set(analyzer.terms(parse(question).text))  # names of fields and excluded words are not looked for
    spans = [(match.start(), match.end()) for match in WORD.finditer(text)]
    matches = [_match(text[a:b], terms, analyzer) for a, b in spans]
    start = _best_start(matches, window)
    end = min(start + window, len(spans))
    if not spans:
        return []
    pieces = list(_pieces(text, spans[start:end], matches[start:end]))
    ahead = [SnippetPart("… ", False)] if start > 0 else []
    return ahead + pieces + ([SnippetPart(" …", False)] if end < len(spans) else [])


def _match(word: str, terms: set[str], analyzer: Analyzer) -> str:
    """The term of the question that a word matches; "" for none."""
    return next((term for term in analyzer.terms(word) if term in terms), "")


def _best_start(matches: list[str], window: int) -> int:
    """The first start of a window with the most different terms; a window that repeats one term does not win."""
    counts: dict[str, int] = {}
    best, best_start = -1, 0
    for place, term in enumerate(matches):
        if term:
            counts[term] = counts.get(term, 0) + 1
        left = matches[place - window] if place >= window else ""
        if left:
            counts[left] -= 1
            if not counts[left]:
                del counts[left]
        if len(counts) > best:
            best, best_start = len(counts), max(0, place - window + 1)
    first = next((i for i in range(best_start, len(matches)) if matches[i]), best_start)
    return max(0, min(first - window // 4, len(matches) - window)) if best > 0 else 0


def _pieces(text: str, spans: list[tuple[int, int]], matches: list[str]) -> Iterable[SnippetPart]:
    """Neighbouring words of one kind together, with what stands between them."""
    for marked, group in groupby(range(len(spans)), key=lambda i: bool(matches[i])):
        places = list(group)
        first, last = places[0], places[-1]
        end = spans[last][1] if marked or last + 1 == len(spans) else spans[last + 1][0]
        begin = spans[first][0] if marked or first == 0 else spans[first - 1][1]
        yield SnippetPart(text[begin:end], marked)


MARK_WORD = re.compile(r"\S+")
LOOKED = 1 << 20  # pairs of equal words in passage and document; more of them would take seconds
FEWEST = 3  # a shorter run of words is not a match


@dataclass(frozen=True)
class Mark:
    """A range of characters in a paragraph."""

    paragraph: int
    start: int
    end: int


def locate(passage: str, paragraphs: Sequence[str]) -> list[Mark]:
    """The parts of paragraphs that a passage covers; empty if it is not found."""
    places = [
        (m.group(), p, m.start(), m.end())
        for p, text in enumerate(paragraphs)
        for m in MARK_WORD.finditer(text)
    ]
    first, count = _find(passage.split(), [word for word, *_ in places])
    marks: dict[int, Mark] = {}
    for _, paragraph, start, end in places[first : first + count]:
        begin = marks[paragraph].start if paragraph in marks else start
        marks[paragraph] = Mark(paragraph, begin, end)
    return list(marks.values())


def _find(wanted: list[str], words: list[str]) -> tuple[int, int]:
    """Index of the first word and number of words of the passage, or of its longest run."""
    if not wanted:
        return 0, 0
    text, needle = f" {' '.join(words)} ", f" {' '.join(wanted)} "
    at = text.find(needle)
    if at >= 0:
        return text.count(" ", 0, at + 1) - 1, len(wanted)
    counts = Counter(words)
    if sum(counts[word] for word in wanted) > LOOKED:
        return 0, 0
    run = SequenceMatcher(None, wanted, words, autojunk=False).find_longest_match()
    return (run.b, run.size) if run.size >= min(FEWEST, len(wanted)) else (0, 0)


Contribution = tuple[int, int, float]  # of the passage's text: start, end, what it adds to the score
MOST = 256
Score = Callable[[Sequence[Passage]], Sequence[float]]


def leave_one_out(passage: Passage, score: Score) -> list[Contribution]:
    spans = word_spans(passage.text)
    text = passage.text
    left = [replace(passage, text=text[:a] + text[b:]) for a, b in spans]
    whole, *parts = score([passage, *left])
    return [(a, b, float(whole - part)) for (a, b), part in zip(spans, parts)]


def word_spans(text: str) -> list[tuple[int, int]]:
    """Where words begin and end; neighbours together where there are more than MOST."""
    spans = [(m.start(), m.end()) for m in WORD.finditer(text) if m.group()[0].isalnum()]
    size = math.ceil(len(spans) / MOST) or 1
    groups = [spans[i : i + size] for i in range(0, len(spans), size)]
    return [(group[0][0], group[-1][1]) for group in groups]


def dense_score(encode: Callable[[Sequence[Passage]], np.ndarray], query: np.ndarray) -> Score:
    """Scores of passages by their vectors, made as those of the index are."""

    def score(passages: Sequence[Passage]) -> list[float]:
        return (encode(passages).astype(np.float64) @ query.astype(np.float64)).tolist()

    return score


def bm25_score(index: TermStatistics, query: str) -> Score:
    """Scores of passages by BM25, as if each stood in the index in its own place."""
    settings, analyzer = index.settings, index.settings.analyzer
    # A query's word stands for all of its spellings: they share one idf (`bm25.search.TermTable`).
    words = [analyzer.variants(word) for word in analyzer.query_words(query)]
    idf = [index.idf(*variants) for variants in words]
    average = index.average

    def one(passage: Passage) -> float:
        counts: Counter[str] = Counter()
        for text, weight in ((passage.title, settings.title_weight), (passage.text, settings.body_weight)):
            for term in analyzer.of(passage.language).terms(text):
                counts[term] += weight  # type: ignore[assignment]  # weights are no whole numbers
        norm = settings.k1 * (1 - settings.b + settings.b * sum(counts.values()) / average)
        return sum(
            weight * counts[term] / (counts[term] + norm)
            for weight, variants in zip(idf, words)
            for term in variants
            if counts[term]
        )

    return lambda passages: [one(passage) for passage in passages]
