"""The start of a source, from which its format is detected: its name, first row, first lines, columns.

Rules of formats are functions of a `Preview`; none looks at more than the first megabyte or the first row.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any, BinaryIO

from liebig.base.errors import DataError
from liebig.formats.encoding import HEAD, in_utf_8, is_utf_8
from liebig.formats.inputs import InputSource
from liebig.formats.items import Row
from liebig.formats.rows import BOM, Container, container_of, rows, space_fields, values

QUERIES = re.compile(r"quer(y|ies)|questions?|topics", re.IGNORECASE)
NUMBER = re.compile(r"[-+]?((\d+\.?\d*|\.\d+)(e[-+]?\d+)?|inf(inity)?|nan)", re.ASCII | re.IGNORECASE)
LINES = 50
TEXTS = ("text", "contents", "content")  # fields that hold a text
ID_LENGTH = 80


class Preview:
    """What a rule may look at: a source's name, and the start of its contents, read once and kept."""

    def __init__(self, source: InputSource) -> None:
        self.source = source

    @property
    def name(self) -> str:
        """The plain name, in lower case."""
        return self.source.plain.lower()

    @cached_property
    def container(self) -> Container | None:
        """How its rows are stored, if it has rows."""
        return None if self.source.is_folder else container_of(self.source)

    @cached_property
    def first(self) -> Any:
        """The first value of a file of rows: a row, or a list of texts; None if there is none."""
        if self.source.name == "-":
            return self._first_of_head()
        if self.container in (None, "json object"):
            return None
        if self.container == "csv":
            stored = rows(in_utf_8(self.source)[0], even=False)
        else:
            stored = rows(self.source) if self.container in ("parquet", "arrow") else values(self.source)
        return next((value for _, value in stored), None)

    def _first_of_head(self) -> Any:
        """The same for standard input, which can be read only once: a value out of its head."""
        if self.container in ("json lines", "json array"):
            try:
                return next((value for _, value in values(_Head(self.source))), None)
            except DataError:
                raise DataError(
                    "cannot detect the format of standard input from its start", fix="name it with --format"
                ) from None
        return None

    @property
    def row(self) -> Row:
        """The first row; empty if there is none."""
        return self.first if isinstance(self.first, Mapping) else {}

    def has(self, *names: str) -> bool:
        """Whether the first row has all these fields."""
        return all(name in self.row for name in names)

    @property
    def is_about_queries(self) -> bool:
        """Whether the name of the file or of its folder mentions queries."""
        return bool(QUERIES.search(self.source.name) or QUERIES.fullmatch(self.source.parent))

    @property
    def is_named_qrels(self) -> bool:
        """Whether the file or its folder is named qrels: then a bad line is an error, not a sign of another format."""
        return "qrels" in self.name or self.source.parent.lower() == "qrels"

    @cached_property
    def lines(self) -> list[str]:
        """The first lines of a text file that are not blank."""
        return [line for line in self.raw_lines if line.strip()]

    @cached_property
    def raw_lines(self) -> list[str]:
        """The first lines of a text file, blank ones too, without a last one that is cut off; none of a binary file."""
        head = self.source.head(HEAD).removeprefix(BOM)
        if b"\0" in head[:4096]:
            return []
        parts = head.decode("utf-8", "replace").split("\n")
        whole = parts if len(head) < HEAD or len(parts) == 1 else parts[:-1]
        return [line.removesuffix("\r") for line in whole[:LINES]]

    @cached_property
    def is_utf8(self) -> bool:
        """Whether the start of the file is valid UTF-8."""
        return is_utf_8(self.source)

    @cached_property
    def tabs(self) -> list[list[str]]:
        """The lines split at tabs, if at least half of them have as many columns as the first, and at least two."""
        return _even([line.split("\t") for line in self.lines])

    @cached_property
    def spaces(self) -> list[list[str]]:
        """The lines split at white space, under the same condition."""
        return _even([space_fields(line) for line in self.lines])

    def numbers(self, table: list[list[str]], column: int, whole: bool = False) -> bool:
        cells = [row[column].strip(" ") for row in table]
        return bool(cells) and all(
            NUMBER.fullmatch(x) and (not whole or x.lstrip("+-").isdigit()) for x in cells
        )


class _Head(InputSource):
    """The head of a source that can be read only once."""

    def __init__(self, source: InputSource) -> None:
        self.name, self.label, self._source = source.name, source.label, source

    def raw(self) -> BinaryIO:
        return io.BytesIO(self._source.head(HEAD))


def _even(table: list[list[str]]) -> list[list[str]]:
    """The lines as wide as the first, if that is at least two columns and they are at least half of all."""
    width = len(table[0]) if table else 0
    same = [row for row in table if len(row) == width]
    return same if width > 1 and 2 * len(same) >= len(table) else []


def are_ids(table: list[list[str]]) -> bool:
    """Whether the first column looks like ids: no spaces, not long, no two the same."""
    first = [row[0] for row in table]
    plain = all(name and len(name) <= ID_LENGTH and len(name.split()) == 1 for name in first)
    return plain and len(set(first)) == len(first)


def are_ranks(table: list[list[str]]) -> bool:
    """Whether the third column counts 1, 2, 3, … anew for every query, and some query has several lines."""
    expected, query = 0, ""
    for row in table:
        expected = expected + 1 if row[0] == query else 1
        query = row[0]
        if row[2].strip() != str(expected):
            return False
    return len(table) > len({row[0] for row in table})
