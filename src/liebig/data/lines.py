"""Lines, tab-separated fields and CSV rows of a source, each with its line number.

A line ends at a line feed and nowhere else (a carriage return before it goes with it), is UTF-8 and has no NUL;
a byte order mark at the start is dropped. What is not so is refused with file and line. Cost: one pass, one line
in memory.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator

from liebig.data.items import Where
from liebig.data.sources import DAMAGE, Source
from liebig.errors import DataError

MAX_LINE = 1 << 28
MAX_FIELD = (1 << 31) - 1
MAX_QUOTED = 1 << 26
BOM = b"\xef\xbb\xbf"


def lines(source: Source) -> Iterator[tuple[int, str]]:
    """Every line with its number, from 1, without its end."""
    return ((number, line.removesuffix("\n").removesuffix("\r")) for number, line in whole_lines(source))


def whole_lines(source: Source) -> Iterator[tuple[int, str]]:
    """Every line with its number, from 1, and with its end."""
    number = 0
    try:
        with source.open() as stream:
            while raw := stream.readline(MAX_LINE + 1):
                number += 1
                yield number, decode(raw, Where(source.label, number))
    except DAMAGE as error:
        raise source.damaged(error, number + 1) from None


def decode(raw: bytes, where: Where) -> str:
    """The text of a line."""
    if len(raw) > MAX_LINE:
        where.refuse(f"the line is longer than {MAX_LINE >> 20} MiB", "is this the format you mean?")
    if where.line == 1:
        if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
            where.refuse("this is UTF-16, not UTF-8", "save it as UTF-8")
        raw = raw.removeprefix(BOM)
    if b"\0" in raw:
        where.refuse("the line holds a NUL byte", "is this file text? If so, remove the byte")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        byte = raw[error.start]
        where.refuse(
            f"byte {error.start + 1} of the line, {byte:#04x}, is not UTF-8",
            "convert the file, e.g. with iconv -f latin1 -t utf-8",
        )


def text_lines(source: Source) -> Iterator[tuple[int, str]]:
    """Lines that hold more than spaces and tabs."""
    return ((number, line) for number, line in lines(source) if line.strip(" \t\r"))


def tab_fields(
    source: Source, count: int, columns: str, last_takes_rest: bool = False
) -> Iterator[tuple[Where, list[str]]]:
    """Lines cut at tabs, quotes being ordinary characters; a line with another number of columns is refused."""
    for number, line in text_lines(source):
        fields = line.split("\t", count - 1) if last_takes_rest else line.split("\t")
        if len(fields) != count:
            where = Where(source.label, number)
            where.refuse(
                f"the line has {len(fields)} tab-separated columns instead of {count} ({columns})",
                "give the right --format, or remove tabs inside the text",
            )
        yield Where(source.label, number), fields


def space_fields(line: str) -> list[str]:
    """A line cut at runs of ASCII white space, as trec_eval does; other spaces belong to an id."""
    return [field.decode("utf-8") for field in line.encode("utf-8").split()]


def csv_rows(source: Source, delimiter: str = ",") -> Iterator[tuple[Where, list[str]]]:
    """Rows of CSV as Python's csv module writes it; quoted fields may run over several lines."""
    csv.field_size_limit(MAX_FIELD)
    feed = _Feed(source)
    reader = csv.reader(feed, delimiter=delimiter, strict=True)
    while True:
        feed.started = feed.number + 1
        feed.quoted = 0
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            where = Where(source.label, feed.started)
            where.refuse(f"the row is not valid CSV ({error})", 'double the quotes inside a quoted field: ""')
        if row:
            yield Where(source.label, feed.started), row


class _Feed(Iterator[str]):
    """Lines for the csv module, which know where the present row began and refuse a quote that never closes."""

    def __init__(self, source: Source) -> None:
        self._label = source.label
        self._lines = whole_lines(source)
        self.number, self.started, self.quoted = 0, 1, 0

    def __next__(self) -> str:
        self.number, line = next(self._lines)
        self.quoted += len(line)
        if self.quoted > MAX_QUOTED and self.number > self.started:
            raise DataError(
                "a quote is opened here and not closed within 64 MiB",
                file=self._label,
                line=self.started,
                fix="close the quote, or double it",
            )
        return line
