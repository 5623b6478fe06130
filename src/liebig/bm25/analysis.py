"""From text to terms: words in lower case, without stop words, stemmed by Snowball, without accents.

A word is two or more letters, digits and marks. Chinese, Japanese, Thai, Lao, Khmer and Burmese are written without
spaces and Korean attaches particles to its words, so a run of such characters becomes its single characters and its
overlapping pairs, which needs no dictionary and matches any word inside the run. Passages and queries go through the
same function; for ASCII text its result equals that of bm25s' tokenizer with the same stop words and stemmer. Cost:
about 5 million words per second and core, because each distinct word is stemmed once.

Accents: stemmers need them ("sécurité" loses its ending, "securite" does not), so they are folded behind the stemmer.
Where that differs from folding first, a word has a second term, its *alias*: a query's word without accents looks for
its own term and for the alias.

Several languages (`MixedAnalyzer`): a passage is analysed in its own language, and its terms carry the language's code,
so that a query's word, analysed in every language of the index, meets each passage as that passage was analysed.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import chain, pairwise

from liebig.base.errors import RecipeError
from liebig.text.languages import CODES, NAMES, stop_words

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
    """All combining marks, as ranges of a character class; between the two parts lie Han and what is not assigned."""
    planes = chain(range(0x300, 0x20000), range(0xE0000, 0xE1000))
    codes = [i for i in planes if unicodedata.category(chr(i))[0] == "M"]
    starts = [c for c, before in zip(codes, [-2, *codes]) if c != before + 1]
    ends = [c for c, after in zip(codes, [*codes[1:], -2]) if c + 1 != after]
    return "".join(f"{chr(a)}-{chr(b)}" for a, b in zip(starts, ends))


AUTO = "auto"  # the language of an index whose passages each have their own
UNSTEMMED = ("none", "chinese", "japanese", "korean", "thai")
CACHED_WORDS = 1 << 20  # distinct words cached before the cache is cleared


def language_name(language: str) -> str:
    """The name of a language given by name or code; an unknown one is a RecipeError that lists the known ones."""
    name = NAMES.get(language.lower(), language.lower())
    if name not in languages() and name != AUTO:
        raise RecipeError(
            f"there is no stemmer for {language!r}", fix=f"use one of {', '.join(sorted(languages()))}"
        )
    return name


def known_language(name: str) -> str:
    """The name itself, where texts of the language can be indexed."""
    if name not in languages() and name != AUTO:
        raise ValueError("there is no stemmer for this language")
    return name


@cache
def languages() -> frozenset[str]:
    import Stemmer

    return frozenset((*Stemmer.algorithms(), *UNSTEMMED))


def stemmer(language: str) -> Callable[[str], str]:
    """The Snowball stemmer of a language, or the identity if it has none."""
    if language in UNSTEMMED:
        return str
    import Stemmer

    return Stemmer.Stemmer(language, 0).stemWord  # type: ignore[no-any-return]  # the library has no types


@cache
def _without_accents() -> dict[int, str]:
    """Latin and Greek letters with accents, by code point; in other scripts marks tell words apart."""
    blocks = (range(0xC0, 0x250), range(0x386, 0x3D0), range(0x1E00, 0x2000))
    table = dict(zip(map(ord, "ßæœøłđðþıё"), ("ss", "ae", "oe", "o", "l", "d", "d", "th", "i", "е")))
    for code in (code for block in blocks for code in block):
        base = unicodedata.normalize("NFD", chr(code))
        if len(base) > 1 and base[0].isalpha():
            table[code] = base[0]
    return table


def fold(word: str) -> str:
    """A word without accents: "küche" -> "kuche"."""
    return word if word.isascii() else word.translate(_without_accents())


@dataclass(frozen=True)
class Analyzer:
    """Turns text of one language into terms; `tag` stands in front of each of them."""

    language: str = "english"
    stop: bool = True
    fold: bool = False
    tag: str = ""
    _terms: dict[str, tuple[str, ...]] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def _stop(self) -> frozenset[str]:
        words = stop_words(self.language) if self.stop else frozenset()
        return words.union(map(fold, words)) if self.fold else words

    @cached_property
    def _stem(self) -> Callable[[str], str]:
        return stemmer(self.language)

    @property
    def tags(self) -> tuple[str, ...]:
        """What may stand in front of a term."""
        return (self.tag,)

    def of(self, language: str) -> Analyzer:
        """The analyzer of a passage in a language, given by its code."""
        return self

    def is_stop(self, word: str) -> bool:
        return word in self._stop

    def term(self, word: str) -> str:
        """The term of a word; "" for a stop word."""
        if word in self._stop:
            return ""
        stem = self._stem(word) or word  # that of Greek leaves nothing of some words
        return self.tag + (fold(stem) if self.fold else stem)

    def alias(self, word: str) -> str:
        """The term by which a word is found without its accents; "" where its own term is the same."""
        if not self.fold or word.isascii() or (plain := fold(word)) == word or word in self._stop:
            return ""
        return (
            "" if self.tag + (stem := self._stem(plain) or plain) == self.term(word) else f"{self.tag}~{stem}"
        )

    def variants(self, word: str) -> tuple[str, ...]:
        """The terms that a query's word looks for; none for a stop word."""
        term = self.term(word)
        if not self.fold or not term:
            return (term,) if term else ()
        plain = self.tag + (self._stem(fold(word)) or fold(word))
        return (term, plain) if plain != term else (term, f"{self.tag}~{term[len(self.tag) :]}")

    def terms(self, text: str) -> list[str]:
        """The terms of a text, in order, each followed by its alias if it has one."""
        return [term for word in words(text) for term in self._known(word)]

    def _known(self, word: str) -> tuple[str, ...]:
        terms = self._terms.get(word)
        if terms is None:
            if len(self._terms) > CACHED_WORDS:
                self._terms.clear()
            terms = self._terms[word] = tuple(filter(None, (self.term(word), self.alias(word))))
        return terms

    def query_words(self, text: str) -> list[str]:
        """The words of a query, in order."""
        return words(text)


@dataclass(frozen=True)
class MixedAnalyzer(Analyzer):
    """Turns queries into the terms of all languages of an index, and gives the analyzer of each."""

    languages: tuple[str, ...] = ()

    @cached_property
    def _each(self) -> dict[str, Analyzer]:
        return {name: self._of_name(name) for name in self.languages}

    def _of_name(self, name: str) -> Analyzer:
        tag = "" if name == "english" else f"{CODES.get(name, name)}:"
        return Analyzer(name, self.stop, self.fold, tag)

    def of(self, language: str) -> Analyzer:
        name = analyzed_as(language)
        return self._each.get(name) or self._of_name(name)

    def is_stop(self, word: str) -> bool:
        return any(one.is_stop(word) for one in self._each.values())

    @property
    def tags(self) -> tuple[str, ...]:
        return tuple(one.tag for one in self._each.values())

    def term(self, word: str) -> str:
        return next(iter(self.variants(word)), "")

    def variants(self, word: str) -> tuple[str, ...]:
        return tuple(variant for one in self._each.values() for variant in one.variants(word))

    def terms(self, text: str) -> list[str]:
        """The terms of a text in every language, for marking what a query matches."""
        return [variant for word in self.query_words(text) for variant in self.variants(word)]

    def query_words(self, text: str) -> list[str]:
        """The words of a query, without stop words of the language that has the most of them.

        In passages of other languages these are words like any other, and rare ones: "la" in English, "die" in French.
        """
        every = words(text)
        if len(self._each) < 2 or not self.stop:
            return every
        counts = Counter({name: sum(map(one.is_stop, every)) for name, one in self._each.items()})
        most = max(counts.values())
        likely = [self._each[name] for name, count in counts.items() if count == most]
        return [word for word in every if not all(one.is_stop(word) for one in likely)]


def untagged(term: str) -> str:
    """A term without its language and the mark of an alias: a beginning of the words it stands for, mostly."""
    return term.rpartition(":")[2].removeprefix("~")


def analyzed_as(code: str) -> str:
    """The name of the language that a passage is analysed as: its own, `none` without a stemmer, English if unknown."""
    name = NAMES.get(code, "none") if code else "english"
    return name if name in languages() else "none"


class Vocabulary(dict[str, int]):
    """Word -> number of its term, in order of first occurrence; -1 for a stop word.

    `numbers` has the numbers of all terms, and is shared by the vocabularies of several languages.
    """

    def __init__(self, analyzer: Analyzer, numbers: dict[str, int]) -> None:
        super().__init__()
        self._analyzer, self._numbers = analyzer, numbers
        self._aliases: dict[str, int] = {}

    def __missing__(self, word: str) -> int:
        term, alias = self._analyzer.term(word), self._analyzer.alias(word)
        number = self._numbers.setdefault(term, len(self._numbers)) if term else -1
        if alias:
            self._aliases[word] = self._numbers.setdefault(alias, len(self._numbers))
        self[word] = number
        return number

    def numbers(self, text: str) -> Iterable[int]:
        """The term numbers of a text's words, -1 for stop words; those of aliases behind them."""
        every = words(text)
        numbers = map(self.__getitem__, every)
        if text.isascii() or not self._analyzer.fold:
            return numbers
        listed = list(numbers)
        return listed + [self._aliases[word] for word in every if word in self._aliases]
