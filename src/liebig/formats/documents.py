"""Structured documents as JSON lines, and plain text with one paragraph per line.

{"id", "title", "sections": [{"heading", "paragraphs"}]}, headings and paragraphs also as `h` and `p`; or {"id",
"title", "text"}, whose text is parsed as the id's suffix says (.md, .rst, .html), else as plain paragraphs. Other
fields with a plain value become metadata.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from liebig.base.records import UNITS, Document, Section, Unit
from liebig.formats.base import Export, Format
from liebig.formats.inputs import InputSource
from liebig.formats.items import (
    Item,
    Options,
    Row,
    Where,
    as_grade,
    as_id,
    as_list,
    as_row,
    as_text,
    as_texts,
    field,
)
from liebig.formats.output import json_line
from liebig.formats.parsers import parse_as
from liebig.formats.preview import TEXTS, Preview
from liebig.formats.rows import parse, rows, text_lines

IDS = ("id", "_id", "docid", "doc_id")
OWN = frozenset((*IDS, *TEXTS, "title", "sections", "metadata"))


def is_documents(preview: Preview) -> bool:
    """Rows with sections, or with id and text."""
    return preview.has("sections") or (preview.has("id") and any(preview.has(name) for name in TEXTS))


def read_documents(source: InputSource, options: Options) -> Iterator[Item]:
    columns = options.columns
    return (Item(document(_renamed(row, columns, where), where), where) for where, row in rows(source))


def _renamed(row: Row, columns: Mapping[str, str], where: Where) -> Row:
    """The row with the columns that hold id, title and text under these names; what they hide becomes metadata."""
    if not columns:
        return row
    for name in columns.values():
        if name not in row:
            where.refuse(f"there is no column {name!r}", f"name one of {', '.join(map(str, row))}")
    rest = {name: value for name, value in row.items() if name not in columns.values()}
    return {f"{name}_" if name in columns else name: value for name, value in rest.items()} | {
        own: row[name] for own, name in columns.items()
    }


def document(row: Row, where: Where) -> Document:
    name = as_id(field(row, IDS, where), where)
    title = as_text(row.get("title"), where, "title")
    if "sections" in row:
        entries = as_list(row["sections"], where, "sections")
        sections = tuple(_section(as_row(entry, where, "a section"), where) for entry in entries)
    else:
        parsed = parse_as(name, as_text(field(row, (*TEXTS, "sections"), where), where), where)
        title, sections = title or parsed.title, parsed.unplaced
    return Document(name, title, sections, _metadata(row, where))


def unless_read_before(
    source: InputSource, format: str, name: str, options: Options, read: Callable[[], Iterator[Item]]
) -> Iterator[Item]:
    """The documents of a file, as an earlier reading left them where the file has not changed."""
    options.log.opened(source, format, name)
    lines = options.before.lines(source, format, name, options.ledger)
    if lines is None:
        yield from read()
        return
    where = Where(source.label)
    for line in lines:
        made = document(as_row(parse(line.decode("utf-8"), where), where), where)
        yield Item(made, where, read_before=True)


def _section(row: Row, where: Where) -> Section:
    heading = as_text(row.get("heading", row.get("h")), where, "heading")
    paragraphs = as_texts(field(row, ("paragraphs", "p"), where), where, "paragraphs")
    unit: Unit = next((unit for unit in UNITS if unit in row), "")
    if not unit:
        return Section(heading, paragraphs)
    places = tuple(as_grade(place, where) for place in as_list(row[unit], where, unit))
    if len(places) != len(paragraphs):
        where.refuse(f"a section has {len(paragraphs)} paragraphs but {len(places)} values of {unit!r}")
    return Section(heading, paragraphs, unit, places)


def _metadata(row: Row, where: Where) -> Mapping[str, str]:
    """Other fields of the row, as strings."""
    fields = dict(as_row(row["metadata"], where, "metadata")) if row.get("metadata") else {}
    fields |= {name: value for name, value in row.items() if name not in OWN}
    return {name: _plain(value) for name, value in fields.items() if value is not None}


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def document_row(record: Document) -> dict[str, Any]:
    sections = [section_row(section) for section in record.sections]
    return {"id": record.id, "title": record.title, "sections": sections, "metadata": dict(record.metadata)}


def section_row(section: Section) -> dict[str, Any]:
    """The row of a section; the places of its paragraphs stand under the name of their unit."""
    row = {"heading": section.heading, "paragraphs": section.paragraphs}
    return row | ({section.unit: section.places} if section.places else {})


def document_lines(documents: Iterable[Document]) -> Iterator[str]:
    return (json_line(document_row(record)) for record in documents)


def write_documents(export: Export) -> None:
    """documents.jsonl, with sections and paragraphs."""
    export.lines("documents.jsonl", document_lines(export.documents()))


def is_paragraphs(preview: Preview) -> bool:
    """A .txt file, or other lines of text, that fits no other format and is not named qrels."""
    plain = preview.source.suffix in (".txt", ".text", "") and preview.container is None
    if preview.is_named_qrels:
        return False
    return plain and bool(preview.lines) and "\0" not in preview.lines[0] and "\ufffd" not in preview.lines[0]


def read_paragraphs(source: InputSource, options: Options) -> Iterator[Item]:
    """Plain text, one paragraph per line: each is a document of its own, named after file and line."""
    for number, line in text_lines(source):
        name = f"{source.stem.lstrip('-') or 'line'}:{number}"
        yield Item(Document(name, "", (Section("", (line,)),)), Where(source.label, number))


DOCUMENTS = Format(
    name="documents",
    about="documents, with sections or without",
    fields="{`id`, `title`, `sections`: [{`heading` or `h`, `paragraphs` or `p`}]}, or {`id`, `title`, `text`} whose "
    "text is parsed as the id's suffix says (.md, .rst, .html, else paragraphs between blank lines). Other fields "
    "become metadata",
    yields=("documents",),
    rule=is_documents,
    read=read_documents,
    write=write_documents,
    sample={
        "articles.jsonl": '{"id": "55397", "title": "Hadean", "sections": [{"h": "", "p": ["The Hadean."]}, '
        '{"h": "Name", "p": []}]}\n'
    },
)
LINES = Format(
    name="lines",
    about="one paragraph per line",
    fields="every line is a document of one paragraph, named after file and line",
    yields=("documents",),
    rule=is_paragraphs,
    read=read_paragraphs,
    sample={"paragraphs.txt": "One paragraph.\nAnother paragraph.\n"},
)
