"""The query language: `"exact phrase"`, `-word`, `title:`, `path:`, `type:`, `lang:`, `before:`, `after:`, `word*`.

`parse` splits what a person typed into the text that ranks and the conditions a passage must meet; `matching.py` and
`filters.py` evaluate those. The terminal, the page, the API, MCP and the library all call it through `Retriever`.

- A phrase needs its words next to each other, in any case; one word in quotes is matched without stemming.
- `-` before a word, a phrase or a field excludes it. One letter (`python -m`), a number and `--flag` stay words.
- `before:2024-05` is before that month; `after:2024-05` is that month or later.
- What looks like syntax and is not understood is searched as words, and a note says so.

A query without any of this is handed on unchanged. Cost: one pass over its characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

FIELDS = {
    "title": "title",
    "path": "path",
    "type": "type",
    "lang": "lang",
    "language": "lang",
    "before": "before",
    "after": "after",
}
HELP = '"exact phrase", -word, title:, path:, type:, lang:, before:, after: and word*'
QUOTES = str.maketrans("“”„«»", '"""""')
TOKEN = re.compile(
    r'(?P<minus>-?)(?:(?P<field>[^\W\d_]+):)?(?:"(?P<phrase>[^"]*)"(?=[\s,.;:?!)]|$)|(?P<word>\S*))'
)
PREFIX = re.compile(r"(\w+)\*")
FIELD_LIKE = re.compile(r"[^\W\d_]{2,}:[^\s:/\\]\S*")
DATE = re.compile(r"(\d{4})(?:[-/.](\d{1,2})(?:[-/.](\d{1,2}))?)?")
MOST_CONDITIONS = 32  # each may take a look at every document
SHORTEST_PREFIX = 3  # letters: a shorter one stands for too many words


@dataclass(frozen=True, slots=True)
class WordCondition:
    """Words that a passage must have, or must not have."""

    kind: Literal["word", "phrase", "prefix"]
    text: str
    excluded: bool = False

    def __str__(self) -> str:
        shown = {"word": self.text, "phrase": f'"{self.text}"', "prefix": f"{self.text}*"}[self.kind]
        return f"-{shown}" if self.excluded else shown


@dataclass(frozen=True, slots=True)
class FieldCondition:
    """What a field of the passage's document must say, or must not say."""

    name: str
    value: str
    excluded: bool = False

    def __str__(self) -> str:
        value = f'"{self.value}"' if " " in self.value else self.value
        return f"{'-' if self.excluded else ''}{self.name}:{value}"


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """The text that ranks, the conditions, and sentences about what was not understood."""

    text: str
    words: tuple[WordCondition, ...] = ()
    fields: tuple[FieldCondition, ...] = ()
    notes: tuple[str, ...] = ()
    typed: str = ""  # the whole query

    @property
    def restricts(self) -> bool:
        return bool(self.words or self.fields)


def parse(query: str) -> ParsedQuery:
    """Read a query; nothing a person can type is an error."""
    text: list[str] = []
    words: list[WordCondition] = []
    fields: list[FieldCondition] = []
    notes: list[str] = []
    for token in _tokens(query.translate(QUOTES)):
        excluded, name = bool(token["minus"]), (token["field"] or "").lower()
        phrase, word, whole = token["phrase"], token["word"] or "", token.group()
        value = word if phrase is None else phrase.strip()
        if len(words) + len(fields) == MOST_CONDITIONS:
            notes.append(f"Only the first {MOST_CONDITIONS} conditions count.")
            text.append(value)
            continue
        if name in FIELDS:
            condition = FieldCondition(FIELDS[name], value, excluded)
            problem = _wrong(condition)
            if problem is None:
                fields.append(condition)
            elif value or len(query.split()) > 1:
                notes.append(problem)  # and not searched as a word, which few passages would have
            continue
        if name:  # not a field: the words around the colon
            if FIELD_LIKE.fullmatch(whole.lstrip("-")):
                notes.append(f"{name}: is not a field, so it was searched as words; there are {HELP}.")
            text.append(whole)
        elif phrase is not None:
            if re.search(r"\w", phrase):
                words.append(WordCondition("phrase", value, excluded))
                text += [] if excluded else [value]
            else:
                notes.append(f'The phrase "{phrase}" has no word to look for.')
        elif match := PREFIX.fullmatch(word):
            if len(match[1]) < SHORTEST_PREFIX:
                notes.append(f"{word} is too short; a beginning needs at least {SHORTEST_PREFIX} letters.")
                text.append(match[1])
            else:
                words.append(WordCondition("prefix", match[1], excluded))
                text += [] if excluded else [match[1]]
        elif excluded and re.match(r"[^\W\d_]\w", word):
            parts = re.findall(r"\w+", word)
            words.append(WordCondition("phrase" if len(parts) > 1 else "word", " ".join(parts), True))
        else:
            if word.startswith('"'):
                notes.append("A quotation mark is not closed, so its words were searched without it.")
            elif re.fullmatch(r"\+\w{2,}", word):
                notes.append(f'+ is not an operator; write "{word[1:]}" for a word that must be there.')
            elif word in ("AND", "OR", "NOT") and query.upper() != query:
                notes.append(f"{word} is not an operator, so it was searched as a word; there are {HELP}.")
            text.append(whole.replace('"', "") if word.startswith('"') else whole)
    if not (words or fields or notes):
        return ParsedQuery(query, typed=query)
    if not text:  # a title is the best that there is to rank by
        text = [field.value for field in fields if field.name == "title" and not field.excluded]
    if not (text or words or fields):
        text = [query]
    return ParsedQuery(" ".join(text), tuple(words), tuple(fields), tuple(dict.fromkeys(notes)), query)


def _tokens(query: str) -> Iterator[re.Match[str]]:
    place = 0
    while place < len(query):
        if query[place].isspace():
            place += 1
            continue
        match = TOKEN.match(query, place)
        assert match is not None, "a token may be any run of characters"
        place = max(match.end(), place + 1)
        yield match


def _wrong(condition: FieldCondition) -> str | None:
    """Why a condition on a field cannot be used; None if it can."""
    name, value = condition.name, condition.value
    if not value:
        return f"{name}: has no value; write it behind the colon without a space."
    if name in ("before", "after") and date_span(value) is None:
        return f"{name}:{value} is not a date; write {name}:2024, {name}:2024-05 or {name}:2024-05-31."
    return None


def date_span(value: str) -> tuple[float, float] | None:
    """The first second of a year, month or day, and the first one after it; None where it is not a date.

    A time of day makes a span of nothing: both ends are that time. Times without a zone are in UTC.
    """
    if match := DATE.fullmatch(value.strip()):
        year, month, day = (None if part is None else int(part) for part in match.groups())
        try:
            start = datetime(year or 1, month or 1, day or 1, tzinfo=UTC)
            if day is not None:
                return start.timestamp(), start.timestamp() + 86_400
            if month is not None:
                end = start.replace(year=start.year + month // 12, month=month % 12 + 1)
            else:
                end = start.replace(year=start.year + 1)
        except ValueError:
            return None
        return start.timestamp(), end.timestamp()
    try:
        moment = datetime.fromisoformat(value.strip())
    except ValueError:
        return None
    seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return seconds, seconds
