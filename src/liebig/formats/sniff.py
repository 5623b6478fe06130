"""A look at the start of a source, from which its format is told: its name, first row, first lines, columns.

Nothing is guessed from more than the first megabyte, and every rule is a short sentence that is printed with the
format it found.
"""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any, BinaryIO

from liebig.base.errors import DataError
from liebig.formats.inputs import Source
from liebig.formats.items import Row
from liebig.formats.rows import BOM, Container, container_of, rows, space_fields, values

HEAD = 1 << 20
QUERIES = re.compile(r"quer(y|ies)|questions?|topics", re.IGNORECASE)
NUMBER = re.compile(r"[-+]?((\d+\.?\d*|\.\d+)(e[-+]?\d+)?|inf(inity)?|nan)", re.ASCII | re.IGNORECASE)
LINES = 50


class Sample:
    """What can be seen of a source without reading it."""

    def __init__(self, source: Source) -> None:
        self.source = source

    @property
    def name(self) -> str:
        """The plain name, in lower case."""
        return self.source.plain.lower()

    @cached_property
    def container(self) -> Container | None:
        """How its rows are kept, where it has rows."""
        return None if self.source.is_folder else container_of(self.source)

    @cached_property
    def first(self) -> Any:
        """The first value of a file of rows: a row, or a list of texts; None where there is none."""
        if self.source.name == "-":
            return self._first_of_head()
        if self.container in (None, "json object"):
            return None
        found = rows(self.source) if self.container in ("parquet", "arrow", "csv") else values(self.source)
        return next((value for _, value in found), None)

    def _first_of_head(self) -> Any:
        """The same for standard input, of which only the head may be looked at."""
        if self.container in ("json lines", "json array"):
            try:
                return next((value for _, value in values(_Head(self.source))), None)
            except DataError:
                raise DataError(
                    "the format of standard input cannot be told from its start", fix="name it with --format"
                ) from None
        return None

    @property
    def row(self) -> Row:
        """The first row, empty where there is none."""
        return self.first if isinstance(self.first, Mapping) else {}

    def has(self, *names: str) -> bool:
        """Whether the first row has all these fields."""
        return all(name in self.row for name in names)

    @property
    def is_about_queries(self) -> bool:
        """Whether the name of the file or of its folder speaks of queries."""
        return bool(QUERIES.search(self.source.name) or QUERIES.fullmatch(self.source.parent))

    @property
    def is_named_qrels(self) -> bool:
        """Whether the name of the file or of its folder says judgements: their reader names a line that is none."""
        return "qrels" in self.name or self.source.parent.lower() == "qrels"

    @cached_property
    def lines(self) -> list[str]:
        """The first lines of a text file that are not blank."""
        return [line for line in self.raw_lines if line.strip()]

    @cached_property
    def raw_lines(self) -> list[str]:
        """The first lines of a text file, blank ones too; a last one that is cut is left out. None of a binary file."""
        head = self.source.head(HEAD).removeprefix(BOM)
        if b"\0" in head[:4096]:
            return []
        parts = head.decode("utf-8", "replace").split("\n")
        whole = parts if len(head) < HEAD or len(parts) == 1 else parts[:-1]
        return [line.removesuffix("\r") for line in whole[:LINES]]

    @cached_property
    def is_utf8(self) -> bool:
        """Whether the start of the file can be UTF-8; a character that is cut at the end of the look is no mistake."""
        head = self.source.head(HEAD)
        try:
            codecs.getincrementaldecoder("utf-8")().decode(head, final=len(head) < HEAD)
        except UnicodeDecodeError:
            return False
        return True

    @cached_property
    def tabs(self) -> list[list[str]]:
        """The lines cut at tabs, where most have the same number of columns, two at least."""
        return _even([line.split("\t") for line in self.lines])

    @cached_property
    def spaces(self) -> list[list[str]]:
        """The lines cut at white space, where most have the same number of columns, two at least."""
        return _even([space_fields(line) for line in self.lines])

    def numbers(self, table: list[list[str]], column: int, whole: bool = False) -> bool:
        """Whether a column of a table holds numbers only."""
        found = [row[column].strip(" ") for row in table]
        return bool(found) and all(
            NUMBER.fullmatch(x) and (not whole or x.lstrip("+-").isdigit()) for x in found
        )


class _Head(Source):
    """The head of a source that may only be read once."""

    def __init__(self, source: Source) -> None:
        self.name, self.label, self._source = source.name, source.label, source

    def raw(self) -> BinaryIO:
        return io.BytesIO(self._source.head(HEAD))


def _even(table: list[list[str]]) -> list[list[str]]:
    """The lines as wide as the first, where that is two columns at least and they are half of all or more."""
    width = len(table[0]) if table else 0
    same = [row for row in table if len(row) == width]
    return same if width > 1 and 2 * len(same) >= len(table) else []
