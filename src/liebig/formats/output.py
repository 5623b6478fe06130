"""Helpers of writers: files of lines, JSON lines, one JSON array, CSV, Parquet; compressed as the file's suffix says.

The same records always give the same bytes.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from liebig.base.errors import DataError
from liebig.formats.compressed import create
from liebig.formats.rows import arrow_package

BATCH = 16384  # rows of a Parquet file written at once
ENCODER = json.JSONEncoder(ensure_ascii=False)


def write_lines(path: Path, lines: Iterable[str]) -> int:
    """Write lines, each with a line feed; returns how many."""
    count = 0
    with create(path) as file:
        for line in lines:
            file.write(line.encode("utf-8") + b"\n")
            count += 1
    return count


def write_parquet(path: Path, rows: Iterable[Mapping[str, Any]], schema: Mapping[str, str]) -> int:
    """A Parquet file, written in batches; `schema` gives the type of each column; returns how many rows."""
    pyarrow = arrow_package()
    from pyarrow import parquet

    types = {name: getattr(pyarrow, kind)() for name, kind in schema.items()}
    arrow, count = pyarrow.schema(list(types.items())), 0
    with create(path) as file, parquet.ParquetWriter(file, arrow, compression="zstd") as writer:
        batch: list[Mapping[str, Any]] = []
        for row in rows:
            batch.append(row)
            count += 1
            if len(batch) == BATCH:
                writer.write_table(pyarrow.Table.from_pylist(batch, arrow))
                batch = []
        if batch:
            writer.write_table(pyarrow.Table.from_pylist(batch, arrow))
    return count


def json_line(row: Mapping[str, Any] | Sequence[Any]) -> str:
    """A value as one line of JSON, characters written as themselves."""
    return ENCODER.encode(row)


def json_array(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """The lines of one JSON array, one element per line."""
    ahead = "["
    for row in rows:
        yield ahead + json_line(row)
        ahead = ","
    yield "]" if ahead == "," else "[]"


def csv_line(row: Iterable[str], delimiter: str = ",") -> str:
    """A row of CSV, quoted where necessary; it may span several lines."""
    row = list(row)
    if any("\0" in text for text in row):
        raise DataError(
            "a text contains a NUL character, which this format cannot store",
            fix="choose a format of JSON lines",
        )
    buffer = io.StringIO()
    csv.writer(buffer, delimiter=delimiter).writerow(row)
    return buffer.getvalue().removesuffix("\r\n")


def tab_line(*fields: str) -> str:
    """Fields with tabs between them; one that holds a tab or a line break is refused."""
    for text in fields:
        if "\t" in text or "\n" in text or "\r" in text or "\0" in text:
            raise DataError(
                f"a field contains a tab or a line break, which this format cannot store: {text[:60]!r}",
                fix="give --collapse, which replaces every run of white space by one space",
            )
    return "\t".join(fields)


def space_line(*fields: str) -> str:
    """Fields with spaces between them; one that is empty or holds a space is refused."""
    line = " ".join(fields)
    raw = line.encode("utf-8")
    parts = raw.split()
    if len(parts) != len(fields) or b" ".join(parts) != raw:
        wrong = next(text for text in fields if text.encode("utf-8").split() != [text.encode("utf-8")])
        raise DataError(
            f"the id {wrong[:60]!r} is empty or contains white space, which this format cannot store",
            fix="choose a format of JSON lines, such as beir",
        )
    return line


def collapse(text: str) -> str:
    """Every run of white space as one space."""
    return " ".join(text.split())
