"""A table of any columns: each row is a document, with text from the columns that hold text.

The first rows decide. A column of long values holds text if they are words; numbers, dates, codes and other short
values are metadata and stand in the text behind the name of their column. A short column named like a title is the
title. Columns of longer text become sections under their names. Which columns hold text is entered in the ledger.
Rows are numbered: `tickets.csv:7`. Cost: one pass, with SAMPLE rows in memory; a CSV file in another encoding than
UTF-8 is in memory as a whole, and is decoded for its first row, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any

from liebig.base.records import Document, Section
from liebig.formats.base import Format
from liebig.formats.documents import unless_read_before
from liebig.formats.encoding import UTF_8, in_utf_8
from liebig.formats.inputs import InputSource
from liebig.formats.items import Item, Options, Row, Where, as_id
from liebig.formats.markup import parse_plain
from liebig.formats.preview import Preview
from liebig.formats.rows import check_text, container_of, rows, tab_fields, text_lines

SAMPLE = 200  # rows that decide which columns hold text
SHARE = 0.5  # of a column's values that must be words
SHORT = 60  # characters up to which a value is metadata too
SHOWN = 12  # names of columns
TITLE = 200  # characters up to which a value can be a title
TITLES = ("title", "subject", "headline", "heading", "name", "question")
WORD = re.compile(r"[^\W\d_]{3,}|[\u2e80-\uffef]{2,}")  # the second: scripts without spaces
CODE = re.compile(r"\S*[\d_@/\\:]\S*|true|false|yes|no|null|none|nan|n/a", re.IGNORECASE)
ADDRESS = re.compile(r"\S*://\S*")
# Column names of which one at least must stand in the first line of a tab-separated file for it to be a header.
USUAL = frozenset(
    (
        "id", "title", "name", "subject", "text", "body", "content", "contents", "description", "summary", "comment",
        "comments", "message", "note", "notes", "question", "answer", "date", "time", "created", "author", "url",
        "email", "category", "type", "status", "language", "country", "city", "price", "number", "key", "label",
    )
)  # fmt: skip


@dataclass(frozen=True)
class TableColumns:
    """Which columns of a table are the title, longer text, and short text."""

    title: str | None
    long: tuple[str, ...]
    short: tuple[str, ...]

    def __str__(self) -> str:
        texts = (*((self.title,) if self.title else ()), *self.long, *self.short)
        more = f" and {len(texts) - SHOWN:,} more" if len(texts) > SHOWN else ""
        return f"text from the columns {', '.join(texts[:SHOWN])}{more}"


def is_table(preview: Preview) -> bool:
    """Rows of any columns, or tab-separated columns under a header; not a single object on one line."""
    if preview.row:
        return not (
            preview.source.suffix == ".json" and preview.container == "json lines" and len(preview.lines) == 1
        )
    return preview.source.suffix == ".tsv" and bool(_header(preview.tabs))


def _header(table: list[list[str]]) -> list[str]:
    """The first row of a tab-separated table if it names the columns; [] if it does not."""
    names = [cell.strip() for cell in table[0]] if len(table) > 1 else []
    are_names = all(name and len(name) <= 40 and len(name.split()) <= 3 for name in names)
    unlike_rows = not any(re.fullmatch(r"[\d.,:/+-]+|\S*//\S*", name) for name in names)
    usual = any(name.lower() in USUAL for name in names)
    return names if are_names and unlike_rows and usual and len(set(names)) == len(names) else []


def read_table(source: InputSource, options: Options) -> Iterator[Item]:
    """A document per row, with the line it begins on and what is known of its file."""
    name = source.subpath or source.plain.lstrip("-") or "row"
    return unless_read_before(source, "table", name, options, lambda: _read_rows(name, source, options))


def _read_rows(name: str, source: InputSource, options: Options) -> Iterator[Item]:
    stored, encoding = in_utf_8(source) if container_of(source) == "csv" else (source, UTF_8)
    if encoding != UTF_8:
        options.ledger.guessed[source.label] = encoding
    table = rows(stored, even=False) if container_of(stored) else _tab_rows(stored)
    sample = list(islice(table, SAMPLE))
    columns = choose_columns([row for _, row in sample])
    options.ledger.tables[source.label] = str(columns)
    about, has_lines = source.metadata(), container_of(source) not in ("parquet", "arrow")
    # where a hit is opened, whatever the columns say
    place = {name: about[name] for name in ("path", "folder")}
    for number, (where, row) in enumerate(chain(sample, table), 1):
        record = row_document(f"{name}:{number}", row, columns, where)
        sections = tuple(_placed(section, where.line) for section in record.sections)
        yield Item(
            replace(
                record,
                sections=sections if has_lines else record.sections,
                metadata={**about, **record.metadata, **place},
            ),
            where,
        )


def _placed(section: Section, line: int) -> Section:
    """A section of a row, which stands on one line or begins there."""
    return replace(section, unit="line", places=(line,) * len(section.paragraphs))


def _tab_rows(source: InputSource) -> Iterator[tuple[Where, Row]]:
    """Rows of a tab-separated file under the names of its first line."""
    _, first = next(text_lines(source), (0, ""))
    names = [name.strip() for name in first.split("\t")]
    table = tab_fields(source, len(names), ", ".join(names))
    next(table, None)
    return ((where, dict(zip(names, fields))) for where, fields in table)


def choose_columns(sample: Iterable[Row]) -> TableColumns:
    """The columns that hold text in these rows; all of them where none does."""
    values: dict[str, list[str]] = {}
    for row in sample:
        for name, value in row.items():
            values.setdefault(str(name), []).extend([text] if (text := _text(value)).strip() else [])
    worded = [name for name, texts in values.items() if sum(map(_is_worded, texts)) > SHARE * len(texts)]
    titles = [name for usual in TITLES for name in worded if name.lower() == usual]
    title = next((name for name in titles if max(map(len, values[name])) <= TITLE), None)
    others = [name for name in values if name != title]
    is_long = {name: max(map(len, values[name]), default=0) > SHORT for name in others}
    long = [name for name in others if is_long[name] and (name in worded or not worded)]
    short = [name for name in others if not is_long[name] and not all(map(ADDRESS.fullmatch, values[name]))]
    return TableColumns(title, tuple(long), tuple(short))


def _is_worded(text: str) -> bool:
    """Whether a value has a word besides codes, numbers and addresses."""
    return any(WORD.search(part) and not CODE.fullmatch(part) for part in text.split())


def _text(value: Any) -> str:
    """A value as a text; one that is neither a text nor a number as JSON, and texts of a list as paragraphs."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, list) and value and all(isinstance(text, str) for text in value):
        return "\n\n".join(value)
    return json.dumps(value, ensure_ascii=False, default=str)


def row_document(name: str, row: Row, columns: TableColumns, where: Where) -> Document:
    texts = {str(key): _text(value).strip() for key, value in row.items()}
    for text in texts.values():
        check_text(text, where)
    title = texts.get(columns.title or "", "")
    long = [(key, _paragraphs(texts[key])) for key in columns.long if texts.get(key)]
    short = "; ".join(f"{key}: {texts[key]}" for key in columns.short if texts.get(key))
    last = (short,) if short else ()
    if len(columns.long) == 1:
        sections = [Section("", (*(text for _, paragraphs in long for text in paragraphs), *last))]
    else:
        sections = [
            *(Section(key, paragraphs) for key, paragraphs in long),
            *([Section("", last)] if last else []),
        ]
    filled = tuple(section for section in sections if section.paragraphs)
    if title and not filled:  # a title alone is all there is to find
        filled = (Section("", (title,)),)
    return Document(as_id(name, where), title, filled, _metadata(texts, columns))


def _paragraphs(text: str) -> tuple[str, ...]:
    return tuple(paragraph for section in parse_plain(text).sections for paragraph in section.paragraphs)


def _metadata(texts: Mapping[str, str], columns: TableColumns) -> dict[str, str]:
    return {
        key: text for key, text in texts.items() if text and key != columns.title and key not in columns.long
    }


TABLE = Format(
    name="table",
    about="a table of any columns",
    fields="CSV, JSON lines, a JSON array, Parquet, Arrow, or `.tsv` under a header. Each row is a document: text from "
    "columns of longer text and, behind their names, short ones (title: `title`, `subject`, `name` …); short ones are "
    "metadata too",
    yields=("documents",),
    rule=is_table,
    read=read_table,
    sample={
        "tickets.csv": "ticket,subject,body\n71,Printer on fire,The printer in room 4 burns whenever it is asked for "
        "more than a dozen pages.\n72,Lost badge,I lost my badge somewhere between the lobby and the second floor.\n"
    },
)
