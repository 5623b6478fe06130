"""JSON, read a line or an element at a time, with every way it can be wrong said as a sentence.

A file of JSON lines gives its values line by line; one large array or object gives its elements one by one,
through a buffer that grows to the largest element and no further. Numbers too long, nesting too deep and lone
surrogates (halves of a character, which no file can hold as UTF-8) are refused.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any, BinaryIO

from liebig.data.items import Where
from liebig.data.lines import BOM, text_lines
from liebig.data.sources import DAMAGE, Source

CHUNK = 1 << 20
MAX_ELEMENT = 1 << 30
HALF = re.compile(r"\\u[dD][89abAB]|\\u[dD][c-fC-F]")
DECODER = json.JSONDecoder()
SPACE = re.compile(r"[ \t\n\r]*")
NUMBER_GOES_ON = re.compile(r"[0-9.eE+-]*")


def parse(text: str, where: Where) -> Any:
    """The value of a JSON text."""
    try:
        value = json.loads(text)
    except RecursionError:
        where.refuse("the JSON is nested too deeply")
    except ValueError as error:
        where.refuse(f"this is not valid JSON ({_reason(error)})")
    if HALF.search(text):
        check_surrogates(value, where)
    return value


def json_lines(source: Source) -> Iterator[tuple[Where, Any]]:
    """The value of every line that is not blank."""
    for number, line in text_lines(source):
        where = Where(source.label, number)
        yield where, parse(line, where)


def check_surrogates(value: Any, where: Where) -> None:
    """Refuse strings, however deep, that hold half of a character."""
    if isinstance(value, str):
        check_text(value, where)
    elif isinstance(value, dict):
        for key, inner in value.items():
            check_text(key, where)
            check_surrogates(inner, where)
    elif isinstance(value, list):
        for inner in value:
            check_surrogates(inner, where)


def check_text(text: str, where: Where) -> None:
    """Refuse a text with a lone surrogate."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        half = ord(text[error.start])
        where.refuse(f"a text holds half of a character (the lone surrogate U+{half:04X})", "remove it")


def elements(source: Source) -> Iterator[tuple[Where, str, Any]]:
    """The elements of one large array, or the members of one large object with their keys."""
    with source.open() as stream:
        text = _Buffer(source, stream)
        opening = text.expect("[{", "an array or object")
        closing = "]" if opening == "[" else "}"
        if text.skip() != closing:
            while True:
                text.skip()
                where, key = text.where(), ""
                if opening == "{":
                    key = text.value(where)
                    if not isinstance(key, str):
                        where.refuse("a key of the JSON object is not a string")
                    text.expect(":", "a colon")
                    text.skip()
                value = text.value(where)
                if text.has_half:
                    check_surrogates([key, value], where)
                    text.has_half = False
                yield where, key, value
                if text.expect("," + closing, f"a comma or {closing}") == closing:
                    break
        else:
            text.expect(closing, closing)
        if text.skip():
            text.where().refuse("there is more after the end of the JSON")


class _Buffer:
    """The part of a JSON text that is being looked at."""

    def __init__(self, source: Source, stream: BinaryIO) -> None:
        self._source, self._stream = source, stream
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._text, self._at, self._ended, self._first = "", 0, False, True
        self._line, self._counted = 1, 0
        self.has_half = False

    def where(self) -> Where:
        """The place the next value starts at."""
        self._line += self._text.count("\n", self._counted, self._at)
        self._counted = self._at
        return Where(self._source.label, self._line)

    def skip(self) -> str:
        """Go to the next character that is not white space, and tell it; "" at the end."""
        while True:
            found = SPACE.match(self._text, self._at)
            assert found is not None, "the pattern matches nothing too"
            self._at = found.end()
            if self._at < len(self._text) or not self._grow():
                return self._text[self._at : self._at + 1]

    def expect(self, characters: str, what: str) -> str:
        """Take one of these characters."""
        found = self.skip()
        if not found:
            self.where().refuse(f"the JSON ends early, where {what} should stand")
        if found not in characters:
            self.where().refuse(f"this is not valid JSON (found {found!r} where {what} should stand)")
        self._at += 1
        return found

    def value(self, where: Where) -> Any:
        """Take one whole value, reading on while it is not complete."""
        while True:
            try:
                value, end = DECODER.raw_decode(self._text, self._at)
            except RecursionError:
                where.refuse("the JSON is nested too deeply")
            except ValueError as error:
                if not self._may_be_cut(error) or not self._grow():
                    where.refuse(f"this is not valid JSON ({_reason(error)})")
                continue
            if not self._ended and NUMBER_GOES_ON.fullmatch(self._text, end):
                self._grow()
                continue
            self.has_half |= HALF.search(self._text, self._at, end) is not None
            self._at = end
            return value

    def _may_be_cut(self, error: ValueError) -> bool:
        """Whether more text could mend it: the error stands at the end of what was read, or in an open string."""
        if not isinstance(error, json.JSONDecodeError):
            return False
        return error.msg.startswith("Unterminated") or error.pos >= len(self._text) - 16

    def _grow(self) -> bool:
        """Forget what was taken and read as much again as is left; False at the end of the source."""
        if self._ended:
            return False
        where = self.where()
        self._text, self._at, self._counted = self._text[self._at :], 0, 0
        if len(self._text) > MAX_ELEMENT:
            where.refuse(f"one element of the JSON is longer than {MAX_ELEMENT >> 20} MiB")
        try:
            data = self._stream.read(max(CHUNK, len(self._text)))
        except DAMAGE as error:
            raise self._source.damaged(error, self._line) from None
        self._ended = not data
        if self._first:
            data, self._first = data.removeprefix(BOM), False
        try:
            self._text += self._decoder.decode(data, final=self._ended)
        except UnicodeDecodeError:
            where.refuse("the JSON is not UTF-8 from here on", "convert the file to UTF-8")
        return not self._ended


def _reason(error: ValueError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg}, column {error.colno}"
    return str(error).split(";")[0].split(":")[0]
