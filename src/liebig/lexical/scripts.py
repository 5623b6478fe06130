"""Writing systems: where words stand in a text, and what to do where no spaces say it.

Chinese, Japanese, Thai, Lao, Khmer and Burmese write without spaces, Korean glues particles to its words: a run of
such characters becomes its single characters and its overlapping pairs, which needs no dictionary and matches any
word inside the run. Everywhere else a word is two or more letters, digits and marks. Cost: one regular expression.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from functools import cache
from itertools import pairwise

WORD = re.compile(r"\w{2,}")
UNSPACED = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f"  # Burmese
    "\u1100-\u11ff"  # Hangul jamo
    "\u1780-\u17ff"  # Khmer
    "\u3005-\u3007\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff"  # Japanese, Hangul jamo
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # Han
    "\ua960-\ua97f\uac00-\ud7ff"  # Hangul
    "\U0001b000-\U0001b16f"  # further kana
    "\U00020000-\U000323af"  # further Han
)
RUN = re.compile(f"[{UNSPACED}]+|[^{UNSPACED}]+")
HAS_UNSPACED = re.compile(f"[{UNSPACED}]")


def words(text: str) -> list[str]:
    """The words of a text in lower case, in order; pairs and single characters where there are no spaces."""
    if text.isascii():
        return WORD.findall(text.lower())
    text = unicodedata.normalize("NFKC", text).lower()
    found: list[str] = _any_word().findall(text)
    if HAS_UNSPACED.search(text) is None:
        return [word for word in found if len(word) > 1]
    return [piece for word in found for run in RUN.findall(word) for piece in _pieces(run)]


def _pieces(run: str) -> list[str]:
    if HAS_UNSPACED.match(run) is None:
        return [run] if len(run) > 1 else []
    return [*run, *map("".join, pairwise(run))]


@cache
def _any_word() -> re.Pattern[str]:
    """Letters, digits and the marks that belong to them; Python's own word class leaves the marks out."""
    return re.compile(rf"[\w{_marks()}]+")


def _marks() -> str:
    """All combining marks, as ranges of a character class."""
    codes = [i for i in range(0x300, sys.maxunicode + 1) if unicodedata.category(chr(i))[0] == "M"]
    starts = [c for c, before in zip(codes, [-2, *codes]) if c != before + 1]
    ends = [c for c, after in zip(codes, [*codes[1:], -2]) if c + 1 != after]
    return "".join(f"{chr(a)}-{chr(b)}" for a, b in zip(starts, ends))
