"""From text to terms: words in lower case, without stop words, stemmed by Snowball.

A word is two or more letters, digits and marks. Chinese, Japanese, Thai, Lao, Khmer and Burmese are written without
spaces and Korean attaches particles to its words, so a run of such characters becomes its single characters and its
overlapping pairs, which needs no dictionary and matches any word inside the run. Passages and queries go through the
same function; for ASCII text its result equals that of bm25s' tokenizer with the same stop words and stemmer. Cost:
about 5 million words per second and core, because each distinct word is stemmed once.

stop_words.json has the stop words of bm25s 0.3 (MIT license, copyright 2024 Xing Han Lu), by language.
"""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import resources
from itertools import pairwise

from liebig.base.errors import RecipeError

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
    """The words of a text in lower case, in order; characters and pairs of scripts without spaces."""
    if text.isascii():
        return WORD.findall(text.lower())
    text = unicodedata.normalize("NFKC", text).lower()
    matches: list[str] = _any_word().findall(text)
    if HAS_UNSPACED.search(text) is None:
        return [word for word in matches if len(word) > 1]
    return [piece for word in matches for run in RUN.findall(word) for piece in _pieces(run)]


def _pieces(run: str) -> list[str]:
    if HAS_UNSPACED.match(run) is None:
        return [run] if len(run) > 1 else []
    return [*run, *map("".join, pairwise(run))]


@cache
def _any_word() -> re.Pattern[str]:
    """Letters, digits and combining marks, which `\\w` leaves out."""
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
CACHED_WORDS = 1 << 20  # distinct words cached before the cache is cleared


def language_name(language: str) -> str:
    """The name of a language given by name or code; an unknown one is a RecipeError that lists the known ones."""
    name = CODES.get(language.lower(), language.lower())
    if name not in languages():
        raise RecipeError(
            f"there is no stemmer for {language!r}", fix=f"use one of {', '.join(sorted(languages()))}"
        )
    return name


def known_language(name: str) -> str:
    """The name itself, where texts of the language can be indexed."""
    if name not in languages():
        raise ValueError("there is no stemmer for this language")
    return name


@cache
def languages() -> frozenset[str]:
    """The names of all languages."""
    import Stemmer

    return frozenset((*Stemmer.algorithms(), *UNSTEMMED))


def stop_words(language: str) -> frozenset[str]:
    """The stop words of a language; none if there is no list."""
    lists = json.loads(resources.files("liebig.bm25").joinpath("stop_words.json").read_text(encoding="utf-8"))
    return frozenset(lists.get(language, ()))


def stemmer(language: str) -> Callable[[str], str]:
    """The Snowball stemmer of a language, or the identity if it has none."""
    if language in UNSTEMMED:
        return str
    import Stemmer

    return Stemmer.Stemmer(language, 0).stemWord  # type: ignore[no-any-return]  # the library has no types


@dataclass(frozen=True)
class Analyzer:
    """Turns text of one language into terms."""

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
        if len(self._terms) > CACHED_WORDS:
            self._terms.clear()
        known, terms = self._terms, []
        for word in words(text):
            term = known.get(word)
            if term is None:
                term = known[word] = self.term(word)
            if term:
                terms.append(term)
        return terms


class Vocabulary(dict[str, int]):
    """Word -> number of its term, in order of first occurrence; -1 for a stop word."""

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
        """Every term, in the order of their numbers."""
        return list(self._numbers)

    def numbers(self, text: str) -> Iterable[int]:
        """The term numbers of a text's words, -1 for stop words."""
        return map(self.__getitem__, words(text))
