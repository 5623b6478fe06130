"""From text to terms: words, without stop words, stemmed by Snowball.

Documents and queries go through the same function, so both sides agree. The result for ASCII text equals that of
bm25s' own tokenizer with the same stop words and stemmer. Cost: about 5 million words a second and core, because
every different word is looked up once and remembered.
"""

from __future__ import annotations

import importlib.util
import re
import runpy
import sys
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from liebig.base.errors import RecipeError

# Writing systems: where words stand in a text, and what to do where no spaces say it.
#
# Chinese, Japanese, Thai, Lao, Khmer and Burmese write without spaces, Korean glues particles to its words:
# a run of such characters becomes its single characters and its overlapping pairs, which needs no
# dictionary and matches any word inside the run. Everywhere else a word is two or more letters, digits and
# marks. Cost: one regular expression.

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


CODES = {
    "ar": "arabic", "da": "danish", "nl": "dutch", "en": "english", "fi": "finnish", "fr": "french", "de": "german",
    "el": "greek", "hi": "hindi", "hu": "hungarian", "id": "indonesian", "it": "italian", "no": "norwegian",
    "pt": "portuguese", "ro": "romanian", "ru": "russian", "es": "spanish", "sv": "swedish", "ta": "tamil",
    "tr": "turkish", "zh": "chinese", "ja": "japanese", "ko": "korean", "th": "thai",
}  # fmt: skip
UNSTEMMED = ("none", "chinese", "japanese", "korean", "thai")
REMEMBERED = 1 << 20  # different words of queries remembered before the memory is cleared


def language_name(language: str) -> str:
    """The full name of a language given by name or code; a RecipeError names those there are."""
    import Stemmer

    name = CODES.get(language.lower(), language.lower())
    known = {*Stemmer.algorithms(), *UNSTEMMED}
    if name not in known:
        raise RecipeError(
            f"there is no stemmer for {language!r}", fix=f"use one of {', '.join(sorted(known))}"
        )
    return name


def stop_words(language: str) -> frozenset[str]:
    """bm25s' stop words of a language; none where it has no list.

    Only that one file of bm25s is run: the package as a whole starts JAX where there is one, and JAX takes most of a
    GPU's memory for itself.
    """
    package = importlib.util.find_spec("bm25s")
    assert package is not None, "bm25s is a dependency"
    assert package.origin is not None, "it is a package with a file of its own"
    lists = runpy.run_path(str(Path(package.origin).with_name("stopwords.py")))
    name = "STOPWORDS_EN" if language == "english" else f"STOPWORDS_{language.upper()}"
    return frozenset(lists.get(name, ()))


def stemmer(language: str) -> Callable[[str], str]:
    """The language's Snowball stemmer, or the word itself."""
    if language in UNSTEMMED:
        return str
    import Stemmer

    return Stemmer.Stemmer(language, 0).stemWord  # type: ignore[no-any-return]  # the library has no types


@dataclass(frozen=True)
class Analyzer:
    """Terms of a text, for one language."""

    language: str = "english"
    stop: bool = True
    _terms: dict[str, str] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def _stop(self) -> frozenset[str]:
        return stop_words(self.language) if self.stop else frozenset()

    @cached_property
    def _stem(self) -> Callable[[str], str]:
        return stemmer(self.language)

    def term(self, word: str) -> str:
        """The term of a word; "" for a stop word."""
        return "" if word in self._stop else self._stem(word)

    def terms(self, text: str) -> list[str]:
        """The terms of a text, in order."""
        if len(self._terms) > REMEMBERED:
            self._terms.clear()
        known, found = self._terms, []
        for word in words(text):
            term = known.get(word)
            if term is None:
                term = known[word] = self.term(word)
            if term:
                found.append(term)
        return found


class Vocabulary(dict[str, int]):
    """Word -> number of its term, given out on first sight; -1 for a stop word. `terms` are in order of sight."""

    def __init__(self, analyzer: Analyzer) -> None:
        super().__init__()
        self._analyzer = analyzer
        self._numbers: dict[str, int] = {}

    def __missing__(self, word: str) -> int:
        term = self._analyzer.term(word)
        number = self._numbers.setdefault(term, len(self._numbers)) if term else -1
        self[word] = number
        return number

    @property
    def terms(self) -> list[str]:
        """Every term, by its number."""
        return list(self._numbers)

    def numbers(self, text: str) -> Iterable[int]:
        """The numbers of a text's words, stop words included as -1."""
        return map(self.__getitem__, words(text))


def settings(analyzer: Analyzer) -> dict[str, Any]:
    """What must be saved to make the same analyzer again."""
    return {"language": analyzer.language, "stop": analyzer.stop}
