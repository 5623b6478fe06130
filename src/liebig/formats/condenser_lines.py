"""Pre-training lines of Condenser ({"text": …}) and coCondenser ({"spans": […]}).

A line is a document: its text is one paragraph, its spans are its paragraphs. Lines have no ids; a document is named
after its file and line.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from liebig.base.records import Document, Section
from liebig.formats.base import Format
from liebig.formats.inputs import InputSource
from liebig.formats.items import Item, Options, Where, as_list, as_text, field
from liebig.formats.preview import Preview
from liebig.formats.rows import rows


def is_text(preview: Preview) -> bool:
    """Rows with text and nothing else."""
    return set(preview.row) == {"text"}


def read_text(source: InputSource, options: Options) -> Iterator[Item]:
    for where, row in rows(source):
        text = _text(field(row, ("text",), where), where)
        yield Item(_document(source, where, [text] if text else []), where)


def is_spans(preview: Preview) -> bool:
    """Rows with spans."""
    return preview.has("spans")


def read_spans(source: InputSource, options: Options) -> Iterator[Item]:
    for where, row in rows(source):
        spans = as_list(field(row, ("spans",), where), where, "spans")
        yield Item(_document(source, where, [_text(span, where) for span in spans]), where)


def _document(source: InputSource, where: Where, paragraphs: list[str]) -> Document:
    return Document(
        f"{source.stem.lstrip('-') or 'line'}:{where.line}", "", (Section("", tuple(paragraphs)),)
    )


def _text(value: Any, where: Where) -> str:
    if isinstance(value, list):
        where.refuse("the line contains token ids", "start from the texts that they were made of")
    return as_text(value, where)


CONDENSER = Format(
    name="condenser",
    about="Condenser's lines of text",
    fields="{`text`: text}; a line is a document",
    yields=("documents",),
    rule=is_text,
    read=read_text,
    sample={"wiki.jsonl": '{"text": "One paragraph."}\n{"text": "Another."}\n'},
)
COCONDENSER = Format(
    name="cocondenser",
    about="coCondenser's lines of spans",
    fields="{`spans`: [text, …]}; a line is a document",
    yields=("documents",),
    rule=is_spans,
    read=read_spans,
    sample={"marco.jsonl": '{"spans": ["One sentence.", "Another one."]}\n'},
)
