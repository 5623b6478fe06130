"""A collection whose documents are cut into passages that fit the model, with the section each one comes from.

Passages are whole sentences of one section, up to a number of tokens; their title stands beside them. Passages that
the source brought along are kept as they are, and documents that have some are not cut. `sections.jsonl` says which
passages each headed section became. Cost: one pass over the documents, a tokenisation, and the ids of documents
that came with passages in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from liebig.corpus.config import PassagesConfig
from liebig.data.collection import Collection
from liebig.data.collection_writer import CollectionWriter
from liebig.data.items import Item, Where
from liebig.data.output import json_line
from liebig.errors import DataError
from liebig.progress import track
from liebig.records import Document, Passage
from liebig.text.passages import Cutter, Text, by_tokens
from liebig.text.tokenizer import Tokenizer
from liebig.workspace import Folder

SECTIONS = "sections.jsonl"
GENERATED = "generated"  # the split of queries that were made from passages


class Cut(NamedTuple):
    """A passage, and the heading it stands under."""

    passage: Passage
    heading: str


def run(config: PassagesConfig, folder: Folder) -> None:
    """Write the collection."""
    source = Collection(config.collection)
    cutter = by_tokens(Tokenizer.from_folder(config.tokenizer), config.length, language=config.language)
    for name in ("documents", "passages", "queries"):
        (folder.path / f"{name}.jsonl").unlink(missing_ok=True)
    where = Where(str(source.path))
    with (
        CollectionWriter(folder.path) as writer,
        (folder.path / SECTIONS).open("w", encoding="utf-8") as sections,
    ):
        covered = _keep_passages(source, writer, where)
        for document in track(source.documents(), "passages", unit="documents"):
            writer.add(Item(document, where))
            if document.id not in covered:
                for line in _write(cut(document, cutter), writer, where):
                    sections.write(line + "\n")
        _keep_generated(source, writer, where)
    if not writer.counts["passages"]:
        raise DataError("there is no text in it", file=source.path, fix="look at it with liebig init")


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
