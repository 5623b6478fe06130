"""`liebig passages`: documents cut into passages that fit a model, with the section each one comes from.

Passages are whole sentences of one section, up to a number of tokens; their title stands beside them. Passages that
the source brought along are kept as they are, and documents that have some are not cut. `sections.jsonl` says which
passages each headed section became. Cost: one pass over the documents, a tokenisation, and the ids of documents
that came with passages in memory.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, groupby
from pathlib import Path
from typing import NamedTuple

from pydantic import Field

from liebig.base.config import Config, InputPath, ModelPath
from liebig.base.errors import DataError
from liebig.base.pipeline import Stage
from liebig.base.progress import track
from liebig.base.records import Document, Passage, Section
from liebig.base.workspace import Folder
from liebig.collection import GENERATED, Collection
from liebig.collection.writer import CollectionWriter
from liebig.formats.items import Item, Where
from liebig.formats.output import json_line
from liebig.text.languages import code_of
from liebig.text.passages import Cutter, Text, by_tokens
from liebig.text.sentences import LANGUAGES
from liebig.text.tokenizer import Tokenizer

LENGTH = 100  # tokens of a passage at most
SECTIONS = "sections.jsonl"
AUTO = "auto"  # the language of every document is its own
COPIES, COPIES_SHOWN = "copies.json", 20  # how many copies there are; paths that an original names
LETTERS = re.compile(r"[^\W_]+")
RARE = 1e-3  # share of the documents below which a language is more often a mistake than a language


class PassagesConfig(Config):
    """Cut a collection's documents into passages of whole sentences; passages it already has are kept."""

    collection: InputPath = Field(description="Collection to cut.")
    tokenizer: ModelPath = Field(description="Folder with the model's tokenizer.")
    length: int = Field(LENGTH, ge=8, description="Maximum number of tokens in a passage.")
    language: str | None = Field(
        None,
        description="Language of the text, whose abbreviations do not end a sentence; auto: that of every document"
        " [default: English].",
    )

    copies: bool = Field(
        False,
        description="Cut nearly identical documents once; the first names the others in its metadata (also_in).",
    )


class HeadedPassage(NamedTuple):
    """A passage, and the heading it stands under."""

    passage: Passage
    heading: str


def cut(document: Document, cutter: Cutter, language: str = "") -> Iterator[HeadedPassage]:
    """The passages of a document, section by section; one whose text is empty is its title."""
    number = 0
    pieces = cutter([Text(section.paragraphs) for section in document.sections])
    for section, texts in zip(document.sections, pieces):
        for text, place in zip(texts, places_of(section, texts)):
            metadata = {str(section.unit): str(place)} if place else {}
            passage = Passage(
                f"{document.id}-{number}", text, document.title, document.id, metadata, language
            )
            yield HeadedPassage(passage, section.heading)
            number += 1
    if number == 0 and document.title.strip():
        yield HeadedPassage(
            Passage(f"{document.id}-0", document.title, "", document.id, language=language), ""
        )


def places_of(section: Section, texts: Sequence[str]) -> list[int]:
    """The page, slide or line that each passage of a section begins on; zeros where the section has no places.

    Passages are the section's text in order but for its white space, so other characters say how far each one goes.
    """
    if not section.places:
        return [0] * len(texts)
    ends, numbers = list[int](), list[int]()  # of every line: the characters up to its end, and its place
    total = 0
    for paragraph, place in zip(section.paragraphs, section.places):
        for below, line in enumerate(paragraph.split("\n")):
            total += _printed(line)
            ends.append(total)
            numbers.append(place + below if section.unit == "line" else place)
    starts = accumulate(map(_printed, texts[:-1]), initial=0)
    return [numbers[min(bisect_right(ends, start), len(numbers) - 1)] for start in starts][: len(texts)]


def _printed(text: str) -> int:
    """How many characters are not white space."""
    return sum(map(len, text.split()))


class LanguageCutters:
    """Cutters by language.

    Documents whose language is not known, or is that of very few, are taken to be in the language of most documents.
    """

    def __init__(self, config: PassagesConfig) -> None:
        self._tokenizer, self._length = Tokenizer.from_folder(config.tokenizer), config.length
        self._detected = config.language == AUTO
        self._language = None if self._detected else config.language
        counts = Collection(config.collection).languages if self._detected else {}
        self._main = next(iter(counts), "")
        self._known = {c for c, count in counts.items() if c and count >= RARE * sum(counts.values())}
        self._cutters: dict[str | None, Cutter] = {}

    def language_of(self, record: Document | Passage) -> str:
        """The code of a record's language; "" where languages were not detected."""
        own = record.language if isinstance(record, Passage) else record.metadata.get("language", "")
        if not self._detected:
            return own if isinstance(record, Passage) else ""
        code = code_of(own)
        return code if code in self._known else self._main

    def of(self, language: str) -> Cutter:
        """The cutter of texts in a language."""
        known = (language if language in LANGUAGES else None) if self._detected else self._language
        if known not in self._cutters:
            self._cutters[known] = by_tokens(self._tokenizer, self._length, language=known)
        return self._cutters[known]


class CopyFilter:
    """Knows which documents are copies, and drops the passages of a copy that its original has word for word."""

    def __init__(self, source: Collection) -> None:
        from liebig.collection.copies import find_copies  # late: compiled

        self._source, self.found = source, find_copies(source.documents())
        self._original, self._letters = "", ""

    def described(self, document: Document) -> Document:
        """The document; metadata name the copies of an original, and the original of a copy."""
        more = {}
        if copies := self.found.copies.get(document.id):
            shown = ", ".join(map(self._path, copies[:COPIES_SHOWN]))
            more["also_in"] = shown + (
                f" and {len(copies) - COPIES_SHOWN:,} more" if len(copies) > COPIES_SHOWN else ""
            )
        if original := self.found.originals.get(document.id):
            more["copy_of"] = self._path(original)
        return replace(document, metadata={**document.metadata, **more}) if more else document

    def _path(self, id: str) -> str:
        return self._source.document(id).metadata.get("path") or id

    def own(self, document: Document, pieces: list[HeadedPassage]) -> list[HeadedPassage]:
        """The passages that say something which the document's original does not."""
        original = self.found.originals.get(document.id)
        if original is None:
            return pieces
        if original != self._original:
            self._original, self._letters = original, _letters(self._source.document(original).text)
        return [piece for piece in pieces if _letters(piece.passage.text) not in self._letters]


def _letters(text: str) -> str:
    """The letters and digits of a text, so that neither quote marks nor line breaks matter."""
    return "".join(LETTERS.findall(text.casefold()))


def cut_collection(
    source: Collection, cutters: LanguageCutters, out: Path, copies: CopyFilter | None = None
) -> None:
    """Write a collection's documents with their passages, passages it had, and queries generated for them."""
    for name in ("documents", "passages", "queries"):  # an interrupted run may have left some
        (out / f"{name}.jsonl").unlink(missing_ok=True)
    where = Where(str(source.path))
    with CollectionWriter(out) as writer, (out / SECTIONS).open("w", encoding="utf-8") as sections:
        covered = set()
        for passage in source.passages() if source.has("passages") else ():
            if passage.text.strip() or passage.title.strip():
                writer.add(Item(replace(passage, language=cutters.language_of(passage)), where))
                covered.add(passage.doc)
        for document in track(source.documents(), "passages", unit="documents"):
            writer.add(Item(document if copies is None else copies.described(document), where))
            if document.id not in covered:
                language = cutters.language_of(document)
                pieces = list(cut(document, cutters.of(language), language))
                pieces = pieces if copies is None else copies.own(document, pieces)
                for piece in pieces:
                    writer.add(Item(piece.passage, where))
                sections.writelines(_section_lines(pieces))
        if GENERATED in source.splits:
            for query in source.queries(GENERATED):
                writer.add(Item(query, where, GENERATED))
            for judgement in source.judgements(GENERATED):
                writer.add(Item(judgement, where, GENERATED))
    if not writer.counts["passages"]:
        raise DataError("it contains no text", file=source.path, fix="look at it with liebig init")


def _section_lines(pieces: list[HeadedPassage]) -> Iterator[str]:
    """A line for each headed section: its heading and the ids of its passages."""
    for heading, group in groupby(pieces, key=lambda piece: piece.heading):
        if heading:
            ids = [piece.passage.id for piece in group]
            yield json_line({"heading": heading, "passages": ids}) + "\n"


def run(config: PassagesConfig, folder: Folder) -> None:
    """Write the collection with passages."""
    source = Collection(config.collection)
    # Where a source brings its own passages, they are what is judged: all of them stay.
    copies = CopyFilter(source) if config.copies and not source.has("passages") else None
    cut_collection(source, LanguageCutters(config), folder.path, copies)
    if copies is not None:
        folder.write_json(COPIES, {"copies": len(copies.found.originals)})


STAGE = Stage(
    "passages",
    PassagesConfig,
    run,
    "liebig passages runs/collection --tokenizer runs/tokenizer --length 144 --out runs/passages",
    positional="collection",
)
