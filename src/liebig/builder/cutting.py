"""A collection whose documents are cut into passages that fit the model, with the section each one comes from.

Passages are whole sentences of one section, up to a number of tokens; their title stands beside them. Passages that
the source brought along are kept as they are, and documents that have some are not cut. `sections.jsonl` says which
passages each headed section became. Cost: one pass over the documents, a tokenisation, and the ids of documents
that came with passages in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pydantic import Field

from liebig.base.config import Config, InputPath
from liebig.base.records import Document, Passage
from liebig.collection.collection import Collection
from liebig.collection.writer import CollectionWriter
from liebig.formats.items import Item, Where
from liebig.formats.output import json_line
from liebig.text.passages import Cutter, Text


class PassagesConfig(Config):
    """Documents to passages that fit the model; passages that came as such are kept."""

    collection: InputPath = Field(description="What liebig init wrote.")
    tokenizer: InputPath = Field(description="A folder with the model's tokenizer.")
    length: int = Field(100, ge=8, description="At most that many tokens in a passage.")
    language: str | None = Field(None, description="Language of the text, for its abbreviations.")


SECTIONS = "sections.jsonl"
GENERATED = "generated"  # the split of queries that were made from passages


class Cut(NamedTuple):
    """A passage, and the heading it stands under."""

    passage: Passage
    heading: str


def _keep_passages(source: Collection, writer: CollectionWriter, where: Where) -> set[str]:
    covered = set()
    for passage in source.passages() if source.has("passages") else ():
        if passage.text.strip() or passage.title.strip():
            writer.add(Item(passage, where))
            covered.add(passage.doc)
    return covered


def cut(document: Document, cutter: Cutter) -> Iterator[Cut]:
    """The passages of a document, section by section; one whose text is empty is its title."""
    number = 0
    pieces = cutter([Text(section.paragraphs) for section in document.sections])
    for section, texts in zip(document.sections, pieces):
        for text in texts:
            yield Cut(Passage(f"{document.id}-{number}", text, document.title, document.id), section.heading)
            number += 1
    if number == 0 and document.title.strip():
        yield Cut(Passage(f"{document.id}-0", document.title, "", document.id), "")


def _write(cuts: Iterator[Cut], writer: CollectionWriter, where: Where) -> Iterator[str]:
    """Write passages; gives a line for each headed section."""
    heading, ids = "", list[str]()
    for passage, of_section in cuts:
        writer.add(Item(passage, where))
        if of_section != heading:
            if heading and ids:
                yield json_line({"heading": heading, "passages": ids})
            heading, ids = of_section, []
        ids.append(passage.id)
    if heading and ids:
        yield json_line({"heading": heading, "passages": ids})


def _keep_generated(source: Collection, writer: CollectionWriter, where: Where) -> None:
    """Queries generated for the passages, where the source has them."""
    if GENERATED not in source.splits:
        return
    for query in source.queries(GENERATED):
        writer.add(Item(query, where, GENERATED))
    for judgement in source.judgements(GENERATED):
        writer.add(Item(judgement, where, GENERATED))
