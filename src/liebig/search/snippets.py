"""The part of a passage that answers: the window of words with the most of the question's terms, terms marked.

Terms are matched after stemming, so "running" marks "runs"; where text has no spaces, characters are matched. Every
different term counts once in a window, so one that repeats a word does not win. Cost: one pass over the words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from liebig.lexical.analysis import Analyzer
from liebig.lexical.scripts import UNSPACED

WORD = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+|\S")
WINDOW = 40  # words shown


@dataclass(frozen=True)
class Piece:
    """A stretch of text, marked or not."""

    text: str
    marked: bool


def snippet(text: str, question: str, analyzer: Analyzer, window: int = WINDOW) -> list[Piece]:
    """The best window of a text as pieces; an ellipsis where text was left out."""
    wanted = set(analyzer.terms(question))
    spans = [(found.start(), found.end()) for found in WORD.finditer(text)]
    matches = [_match(text[a:b], wanted, analyzer) for a, b in spans]
    start = _best_start(matches, window)
    end = min(start + window, len(spans))
    if not spans:
        return []
    pieces = list(_pieces(text, spans[start:end], matches[start:end]))
    ahead = [Piece("… ", False)] if start > 0 else []
    return ahead + pieces + ([Piece(" …", False)] if end < len(spans) else [])


def _match(word: str, wanted: set[str], analyzer: Analyzer) -> str:
    """The term of the question that a word matches; "" for none."""
    return next((term for term in analyzer.terms(word) if term in wanted), "")


def _best_start(matches: list[str], window: int) -> int:
    """The first start of a window with the most different terms."""
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


def _pieces(text: str, spans: list[tuple[int, int]], matches: list[str]) -> Iterable[Piece]:
    """Neighbouring words of one kind together, with what stands between them."""
    for marked, group in groupby(range(len(spans)), key=lambda i: bool(matches[i])):
        places = list(group)
        first, last = places[0], places[-1]
        end = spans[last][1] if marked or last + 1 == len(spans) else spans[last + 1][0]
        begin = spans[first][0] if marked or first == 0 else spans[first - 1][1]
        yield Piece(text[begin:end], marked)
