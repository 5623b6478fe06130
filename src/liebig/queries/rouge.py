"""ROUGE-L (Lin, 2004): how much of two texts is one common subsequence of words; F1, best of several references."""

from __future__ import annotations

import re
from collections.abc import Sequence

WORD = re.compile(r"\w+")


def words(text: str) -> list[str]:
    """Lower-case words."""
    return WORD.findall(text.lower())


def rouge_l(found: str, references: Sequence[str]) -> float:
    """F1 of the longest common subsequence of words, with the reference that fits best."""
    return max((_f1(words(found), words(reference)) for reference in references), default=0.0)


def _f1(a: Sequence[str], b: Sequence[str]) -> float:
    common = _common(a, b)
    return 2 * common / (len(a) + len(b)) if common else 0.0


def _common(a: Sequence[str], b: Sequence[str]) -> int:
    """Length of the longest common subsequence."""
    row = [0] * (len(b) + 1)
    for one in a:
        last = 0
        for j, other in enumerate(b, 1):
            last, row[j] = row[j], last + 1 if one == other else max(row[j], row[j - 1])
    return row[-1]
