"""Pre-training lines of Condenser ({"text": …}) and coCondenser ({"spans": […]}), as texts or as token ids.

A line is a document: its text is one paragraph, its spans are its paragraphs. Lines have no ids; a document is named
after its file and line. Token ids need the tokenizer that made them, and come back as that tokenizer decodes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

from liebig.base.records import Document, Section
from liebig.formats.base import Format
from liebig.formats.inputs import InputSource
from liebig.formats.items import Item, Options, Where, as_list, as_text, field
from liebig.formats.preview import Preview
from liebig.formats.rows import rows

Decode = Callable[[list[int]], str]


def is_text(preview: Preview) -> bool:
    """Rows with text and nothing else."""
    return set(preview.row) == {"text"}


def read_text(source: InputSource, options: Options) -> Iterator[Item]:
    decode = _decoder(options.tokenizer)
    for where, row in rows(source):
        text = _text(field(row, ("text",), where), where, decode)
        yield Item(_document(source, where, [text] if text else []), where)


def is_spans(preview: Preview) -> bool:
    """Rows with spans."""
    return preview.has("spans")


def read_spans(source: InputSource, options: Options) -> Iterator[Item]:
    decode = _decoder(options.tokenizer)
    for where, row in rows(source):
        spans = as_list(field(row, ("spans",), where), where, "spans")
        yield Item(_document(source, where, [_text(span, where, decode) for span in spans]), where)


def _document(source: InputSource, where: Where, paragraphs: list[str]) -> Document:
    return Document(
        f"{source.stem.lstrip('-') or 'line'}:{where.line}", "", (Section("", tuple(paragraphs)),)
    )


def _text(value: Any, where: Where, decode: Decode | None) -> str:
    if not isinstance(value, list):
        return as_text(value, where)
    if decode is None:
        where.refuse("the line contains token ids", "give the folder of their tokenizer with --tokenizer")
    if not all(
        isinstance(token, int) and not isinstance(token, bool) and 0 <= token < 1 << 31 for token in value
    ):
        where.refuse("token ids must be whole numbers from 0")
    return decode(value)


def _decoder(folder: Path | None) -> Decode | None:
    if folder is None:
        return None
    from liebig.text.tokenizer import Tokenizer

    return cast(Decode, Tokenizer.from_folder(folder).decode)


CONDENSER = Format(
    name="condenser",
    about="Condenser's lines of text",
    fields="{`text`: text} or token ids (needs `--tokenizer`); a line is a document",
    yields=("documents",),
    rule=is_text,
    read=read_text,
    sample={"wiki.jsonl": '{"text": "One paragraph."}\n{"text": "Another."}\n'},
)
COCONDENSER = Format(
    name="cocondenser",
    about="coCondenser's lines of spans",
    fields="{`spans`: [text, …]} or lists of token ids (needs `--tokenizer`); a line is a document",
    yields=("documents",),
    rule=is_spans,
    read=read_spans,
    sample={"marco.jsonl": '{"spans": ["One sentence.", "Another one."]}\n'},
)
