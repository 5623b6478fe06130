"""Where a passage stands in its document: character ranges of the paragraphs it was cut from.

A passage is whole sentences with single spaces between them, perhaps with a heading before, so words are compared,
not characters: first the whole passage, else the longest run of its words. Cost: one pass over the document's words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

WORD = re.compile(r"\S+")
FEWEST = 3  # words of a run that counts as found


@dataclass(frozen=True)
class Mark:
    """Characters of a paragraph."""

    paragraph: int
    start: int
    end: int


def locate(passage: str, paragraphs: Sequence[str]) -> list[Mark]:
    """The parts of paragraphs that a passage covers; none where it is not found."""
    places = [
        (m.group(), p, m.start(), m.end()) for p, text in enumerate(paragraphs) for m in WORD.finditer(text)
    ]
    first, count = _find(passage.split(), [word for word, *_ in places])
    marks: dict[int, Mark] = {}
    for _, paragraph, start, end in places[first : first + count]:
        begin = marks[paragraph].start if paragraph in marks else start
        marks[paragraph] = Mark(paragraph, begin, end)
    return list(marks.values())


def _find(wanted: list[str], words: list[str]) -> tuple[int, int]:
    """First word and number of words of the passage, or of its longest run."""
    if not wanted:
        return 0, 0
    text, needle = f" {' '.join(words)} ", f" {' '.join(wanted)} "
    at = text.find(needle)
    if at >= 0:
        return text.count(" ", 0, at + 1) - 1, len(wanted)
    run = SequenceMatcher(None, wanted, words, autojunk=False).find_longest_match()
    return (run.b, run.size) if run.size >= min(FEWEST, len(wanted)) else (0, 0)
