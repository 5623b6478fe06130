"""Lines, fields, JSON values and rows of a source, each with its place; anything malformed is refused with it.

Lines end at a line feed and nowhere else (a carriage return before it is dropped), are UTF-8 and have no NUL; a byte
order mark at the start is dropped. JSON lines are read line by line; one large array or object element by element,
through a buffer that grows to the largest element and no further. Rows are mappings from names to values, whatever
the container is: JSON lines, a JSON array or object, CSV with a header, Parquet or Arrow; so a format is written once
for all of them. The container is known by the suffix for tables and by the first value for JSON. Cost: one pass, with
one line, element or batch of a table in memory.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import json
import re
from collections.abc import Iterator
from typing import Any, BinaryIO, Literal

import orjson

from liebig.base.errors import DataError, MissingDependency
from liebig.formats.inputs import DAMAGE, InputSource
from liebig.formats.items import Row, Where, as_row

MAX_LINE = 1 << 28
MAX_FIELD = (1 << 31) - 1
MAX_QUOTED = 1 << 26
BOM = b"\xef\xbb\xbf"


def lines(source: InputSource) -> Iterator[tuple[int, str]]:
    """Every line with its number, from 1, without its end."""
    return ((number, line.removesuffix("\n").removesuffix("\r")) for number, line in whole_lines(source))


def whole_lines(source: InputSource) -> Iterator[tuple[int, str]]:
    number = 0
    try:
        with source.open() as stream:
            while raw := stream.readline(MAX_LINE + 1):
                number += 1
                yield number, decode(raw, Where(source.label, number))
    except DAMAGE as error:
        raise source.damaged(error, number + 1) from None


def decode(raw: bytes, where: Where) -> str:
    if len(raw) > MAX_LINE:
        where.refuse(f"the line is longer than {MAX_LINE >> 20} MiB", "is this the format you mean?")
    if where.line == 1:
        if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
            where.refuse("this is UTF-16, not UTF-8", "save it as UTF-8")
        raw = raw.removeprefix(BOM)
    if b"\0" in raw:
        where.refuse("the line contains a NUL byte", "is this file text? If so, remove the byte")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        byte = raw[error.start]
        where.refuse(
            f"byte {error.start + 1} of the line, {byte:#04x}, is not UTF-8",
            "convert the file, e.g. with iconv -f latin1 -t utf-8",
        )


def text_lines(source: InputSource) -> Iterator[tuple[int, str]]:
    """Lines that hold more than spaces and tabs."""
    return ((number, line) for number, line in lines(source) if line.strip(" \t\r"))


def tab_fields(
    source: InputSource, count: int, columns: str, last_takes_rest: bool = False
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


def csv_rows(source: InputSource, delimiter: str = ",") -> Iterator[tuple[Where, list[str]]]:
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

    def __init__(self, source: InputSource) -> None:
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


CHUNK = 1 << 20
MAX_ELEMENT = 1 << 30
HALF = re.compile(r"\\u[dD][89abAB]|\\u[dD][c-fC-F]")
DECODER = json.JSONDecoder()
# In these orjson may have rounded a whole number of more than 64 bits.
INEXACT = frozenset((float, list, dict))
SPACE = re.compile(r"[ \t\n\r]*")
NUMBER_GOES_ON = re.compile(r"[0-9.eE+-]*")


def parse(text: str, where: Where) -> Any:
    try:
        row = orjson.loads(text)
        if type(row) is dict and INEXACT.isdisjoint(map(type, row.values())):
            return row
    except ValueError:
        pass  # NaN is a number to Python, and it says what is wrong with anything else
    try:
        value = json.loads(text)
    except RecursionError:
        where.refuse("the JSON is nested too deeply")
    except ValueError as error:
        where.refuse(f"this is not valid JSON ({_reason(error)})")
    if HALF.search(text):
        check_surrogates(value, where)
    return value


def json_lines(source: InputSource) -> Iterator[tuple[Where, Any]]:
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
        where.refuse(f"a text contains half of a character (the lone surrogate U+{half:04X})", "remove it")


def elements(source: InputSource) -> Iterator[tuple[Where, str, Any]]:
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

    def __init__(self, source: InputSource, stream: BinaryIO) -> None:
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
            space = SPACE.match(self._text, self._at)
            assert space is not None, "the pattern matches nothing too"
            self._at = space.end()
            if self._at < len(self._text) or not self._grow():
                return self._text[self._at : self._at + 1]

    def expect(self, characters: str, what: str) -> str:
        character = self.skip()
        if not character:
            self.where().refuse(f"the JSON ends early, where {what} should stand")
        if character not in characters:
            self.where().refuse(f"this is not valid JSON (found {character!r} where {what} should stand)")
        self._at += 1
        return character

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


Container = Literal["parquet", "arrow", "csv", "json lines", "json array", "json object"]
TABLES: dict[str, Container] = {".parquet": "parquet", ".arrow": "arrow", ".feather": "arrow", ".csv": "csv"}
PROSE = frozenset((".txt", ".text"))
ROWS = re.compile(rb'(\[\s*)?\{\s*"')
HEAD = 1 << 20
BATCH = 1024


def container_of(source: InputSource) -> Container | None:
    """How the rows of a file are kept; None where it is none of these."""
    if source.suffix in TABLES:
        return TABLES[source.suffix]
    head = source.head(HEAD)
    start = head.removeprefix(BOM).lstrip()
    if head.startswith(b"PAR1"):
        return "parquet"
    if start[:1] not in (b"{", b"["):
        return None
    line = _complete(start.split(b"\n", 1)[0])
    if source.suffix in PROSE and line is None and not ROWS.match(start):
        return None  # a text, too, may begin with a bracket
    if start.startswith(b"["):
        is_row = isinstance(line, list) and bool(line) and all(isinstance(x, str | int) for x in line)
        return "json lines" if is_row else "json array"
    if isinstance(line, dict):
        return "json object" if _is_results(line) else "json lines"
    return "json object" if _spreads(start) else "json lines"


def _complete(line: bytes) -> Any:
    """The value of a whole line, or None."""
    with contextlib.suppress(ValueError, RecursionError):
        return json.loads(line)
    return None


def _is_results(value: dict[str, Any]) -> bool:
    """Whether it is one object of many results, as Pyserini writes them, and not one row of many."""
    inner = next(iter(value.values()), None)
    return isinstance(inner, dict) and bool({"contexts", "ctxs"} & set(inner))


def _spreads(start: bytes) -> bool:
    """Whether a first line that is no whole value begins a large object: it ends early, or its value is a result."""
    first, line_end, _ = start.partition(b"\n")
    if line_end and len(first.strip()) < 2:
        return True
    return b'"contexts"' in start[:HEAD] or b'"ctxs"' in start[:HEAD]


def values(source: InputSource) -> Iterator[tuple[Where, Any]]:
    """The JSON values of a file, from lines or from one large array."""
    if container_of(source) == "json array":
        return ((where, value) for where, _, value in elements(source))
    return json_lines(source)


def rows(source: InputSource, even: bool = True) -> Iterator[tuple[Where, Row]]:
    """The rows of a file. In CSV a row that is shorter or longer than the header is refused, unless not `even`: then
    missing cells are empty, and those that are too many belong to the last column."""
    kind = container_of(source)
    if kind == "parquet":
        return _parquet(source)
    if kind == "arrow":
        return _arrow(source)
    if kind == "csv":
        return _csv(source, even)
    return ((where, as_row(value, where)) for where, value in values(source))


SEPARATOR = re.compile(rb"(?:\xef\xbb\xbf)?sep=([,;\t|])")  # the first line of what Excel exports
DECIMAL = re.compile(r"[-+]?\d+[.,]\d+")


def _csv(source: InputSource, even: bool) -> Iterator[tuple[Where, Row]]:
    """Rows under a header; the mark that is most frequent in it parts the columns, as spreadsheets export them.

    Unless rows are `even`, a first row with a decimal number is data, and the columns are numbered.
    """
    names: list[str] = []
    first = source.head(HEAD).partition(b"\n")[0]
    said = SEPARATOR.fullmatch(first.strip())
    mark = said[1].decode() if said else max(",;\t|", key=lambda mark: first.count(mark.encode()))
    for number, (where, row) in enumerate(csv_rows(source, mark)):
        if said and not number:
            continue
        if not names:
            is_data = not even and any(map(DECIMAL.fullmatch, row))
            names = [f"column {n}" for n in range(1, len(row) + 1)] if is_data else row
            if len(set(names)) != len(names):
                where.refuse("two columns of the header have the same name")
            if not is_data:
                continue
        if not even:
            row += [""] * (len(names) - len(row))
            row = [*row[: len(names) - 1], " ".join(row[len(names) - 1 :])]
        if len(row) != len(names):
            where.refuse(f"the row has {len(row)} columns, the header {len(names)}")
        yield where, dict(zip(names, row))


def _parquet(source: InputSource) -> Iterator[tuple[Where, Row]]:
    with _as_sentences(source), source.seekable() as file:
        from pyarrow import parquet

        table = parquet.ParquetFile(file)
        yield from _batches(source, table.iter_batches(batch_size=BATCH))


def _arrow(source: InputSource) -> Iterator[tuple[Where, Row]]:
    """Both forms of Arrow files: the stream, which `datasets` writes, and the file with a table at its end."""
    with _as_sentences(source), source.seekable() as file:
        from pyarrow import ipc

        is_file = file.read(6) == b"ARROW1"
        file.seek(0)
        if is_file:
            table = ipc.open_file(file)
            yield from _batches(source, (table.get_batch(i) for i in range(table.num_record_batches)))
        else:
            yield from _batches(source, ipc.open_stream(file))


def _batches(source: InputSource, batches: Any) -> Iterator[tuple[Where, Row]]:
    """Rows of record batches, a thousand at a time; a row's number stands for its line.

    Every batch is checked whole before a value is looked at: offsets out of a damaged file would end the process.
    """
    number = 0
    for batch in batches:
        batch.validate(full=True)
        for start in range(0, batch.num_rows, BATCH):
            for row in batch.slice(start, BATCH).to_pylist():
                number += 1
                yield Where(source.label, number), row


def arrow_package() -> Any:
    """pyarrow, which reads and writes Parquet and Arrow files."""
    try:
        import pyarrow
    except ImportError:
        raise MissingDependency("pyarrow", "parquet", "reading or writing Parquet") from None
    return pyarrow


@contextlib.contextmanager
def _as_sentences(source: InputSource) -> Iterator[None]:
    pyarrow = arrow_package()
    try:
        yield
    except DataError:
        raise
    except (pyarrow.ArrowException, KeyError, TypeError, OverflowError, MemoryError, *DAMAGE) as error:
        raise source.damaged(error) from None
