"""`liebig passages`: documents cut into passages that fit a model, with the section each one comes from.

Passages are whole sentences of one section, up to a number of tokens; their title stands beside them. Passages that
the source brought along are kept as they are, and documents that have some are not cut. `sections.jsonl` says which
passages each headed section became. Cost: one pass over the documents, a tokenisation, and the ids of documents
that came with passages in memory.
"""

from __future__ import annotations

import json
import mmap
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import accumulate, groupby
from pathlib import Path
from typing import Annotated, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from liebig.base import npy
from liebig.base.config import Config, InputPath, ModelPath, Unrecorded
from liebig.base.errors import DataError
from liebig.base.parts import clear_pieces, in_pieces, read_pieces
from liebig.base.pipeline import Stage
from liebig.base.progress import track
from liebig.base.records import Document, Passage, Section
from liebig.base.workspace import WHOLE, Folder
from liebig.collection import GENERATED, Collection
from liebig.collection.lookup import hash64
from liebig.collection.writer import CollectionWriter
from liebig.formats.items import Item, Where
from liebig.formats.output import json_line
from liebig.text.languages import code_of
from liebig.text.passages import Cutter, by_tokens
from liebig.text.sentences import LANGUAGES
from liebig.text.tokenizer import Tokenizer

LENGTH = 100  # tokens of a passage at most
SECTIONS = "sections.jsonl"
CUTS = "index/cuts.npy"
CUT, BLOCK = "cut.jsonl", 256  # of a part: the passages of each document, on a line; documents of a piece
AUTO = "auto"  # the language of every document is its own
COPIES, COPIES_SHOWN = "copies.json", 20  # how many copies there are; paths that an original names
LETTERS = re.compile(r"[^\W_]+")
RARE = 1e-3  # share of the documents that have a language, below which one is more often a mistake
ENOUGH = 3  # documents of a known language that tell the language of the others in a folder


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
    reuse: Annotated[tuple[Path, ...], Unrecorded()] = Field(
        (), description="What an earlier run of the same recipe wrote; documents it had are not cut again."
    )


class HeadedPassage(NamedTuple):
    """A passage, and the heading it stands under."""

    passage: Passage
    heading: str


def cut(document: Document, cutter: Cutter, language: str = "") -> Iterator[HeadedPassage]:
    """The passages of a document, section by section, titled with both; one whose text is empty is its title."""
    number = 0
    sections = list(_with_text(document.sections))
    pieces = cutter([section.paragraphs for section in sections])
    for section, texts in zip(sections, pieces):
        title = _titled(document.title, section.heading)
        for text, place in zip(texts, places_of(section, texts)):
            metadata = {str(section.unit): str(place)} if place else {}
            passage = Passage(f"{document.id}-{number}", text, title, document.id, metadata, language)
            yield HeadedPassage(passage, section.heading)
            number += 1
    if number == 0 and document.title.strip():
        yield HeadedPassage(
            Passage(f"{document.id}-0", document.title, "", document.id, language=language), ""
        )


def _with_text(sections: Iterable[Section]) -> Iterator[Section]:
    """Sections that have text: a heading without any joins the next one, several of them (a list of tasks) are text."""
    above: list[str] = []
    for section in (*sections, Section("", ())):
        if section.heading and not section.paragraphs:
            above.append(section.heading)
            continue
        joined = [above.pop()] if above and section.heading else []
        if above:
            yield Section("", ("\n".join(above),))
        if section.paragraphs:
            yield replace(section, heading=": ".join((*joined, section.heading)))
        above = []


def _titled(title: str, heading: str) -> str:
    """The title of a passage: that of its document and the heading it stands under, where they say different things."""
    if heading.casefold() in title.casefold():
        return title
    return heading if title.casefold() in heading.casefold() else f"{title}: {heading}"


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

    Documents whose language is not known (a short note, a table), or is that of very few, are taken to be in the
    language of most documents of their folder, or of the nearest one above it with enough of them.
    """

    def __init__(self, config: PassagesConfig) -> None:
        self._tokenizer, self._length = Tokenizer.from_folder(config.tokenizer), config.length
        self._detected = config.language == AUTO
        self._language = None if self._detected else config.language
        counts = Collection(config.collection).languages if self._detected else {}
        self._main = next(iter(counts), "")
        least = RARE * sum(count for code, count in counts.items() if code)  # rows of tables have none
        self._known = {code for code, count in counts.items() if code and count >= least}
        self._folders: dict[str, str] = {}  # the language of most documents, where that may be another one
        self._cutters: dict[str | None, Cutter] = {}

    def salts(self, source: Collection) -> NDArray[np.uint64]:
        """A number for each document, which changes with its language; what their folders tell is counted first."""
        if len(self._known) < 2:
            return np.full(source.count("documents"), hash64(self._main), np.uint64)
        metadata = [_metadata_of(line, source) for line in source.lines("documents")]
        counts = defaultdict[str, Counter[str]](Counter)
        for fields in metadata:
            if (code := code_of(fields.get("language", ""))) in self._known:
                for folder in _above(fields.get("folder", "")):
                    counts[folder][code] += 1
        self._folders = {
            folder: count.most_common(1)[0][0] for folder, count in counts.items() if count.total() >= ENOUGH
        }
        return np.array([hash64(self._told(fields)) for fields in metadata], np.uint64)

    def _told(self, metadata: Mapping[str, str]) -> str:
        """The language that a document is told to be in."""
        code = code_of(metadata.get("language", ""))
        if code in self._known:
            return code
        above = _above(metadata.get("folder", "")) if self._folders else ()
        return next((self._folders[folder] for folder in above if folder in self._folders), self._main)

    def language_of(self, record: Document | Passage) -> str:
        """The code of a record's language; "" where languages were not detected."""
        if isinstance(record, Document):
            return self._told(record.metadata) if self._detected else ""
        if not self._detected:
            return record.language
        code = code_of(record.language)
        return code if code in self._known else self._main

    def of(self, language: str) -> Cutter:
        known = (language if language in LANGUAGES else None) if self._detected else self._language
        if known not in self._cutters:
            self._cutters[known] = by_tokens(self._tokenizer, self._length, language=known)
        return self._cutters[known]


def _metadata_of(line: bytes, source: Collection) -> Mapping[str, str]:
    """The metadata of a document's line; where they are last, as Liebig writes them, all else is not parsed."""
    try:
        metadata: dict[str, str] = json.loads(b"{" + line[line.rindex(b'"metadata"') :])["metadata"]
        metadata["language"] + metadata["folder"]
    except (ValueError, LookupError, TypeError):
        return source.document_of(line).metadata
    return metadata


def _above(folder: str) -> Iterator[str]:
    """A folder of the source, and those that it is in."""
    while folder and folder != ".":
        yield folder
        folder = folder.rpartition("/")[0]


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
            shown = ", ".join(self._place(id, document) for id in copies[:COPIES_SHOWN])
            more["also_in"] = shown + (
                f" and {len(copies) - COPIES_SHOWN:,} more" if len(copies) > COPIES_SHOWN else ""
            )
        if original := self.found.originals.get(document.id):
            more["copy_of"] = self._place(original, document)
        return replace(document, metadata={**document.metadata, **more}) if more else document

    def _place(self, id: str, document: Document) -> str:
        """The path of a document, or its id where another document of the same file needs to tell them apart."""
        path = self._source.document(id).metadata.get("path")
        return path if path and path != document.metadata.get("path") else id

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


class EarlierCut:
    """The passages of an earlier run by the same recipe, to be copied for documents that say what they said then.

    `index/cuts.npy` has a row per document: a hash of its line and of the language that it was told to be in, and where
    its passages and their sections end. Copies of other documents, and their originals, are cut anew.
    """

    def __init__(self, folder: Path) -> None:
        collection = Collection(folder)
        cuts = npy.load(folder / CUTS, [np.uint64])
        self._places = {key: number for number, key in enumerate(cuts[:, 0].tolist()) if key}
        self._ends = np.concatenate([np.zeros((1, 2), np.int64), cuts[:, 1:].astype(np.int64)])
        self._documents, _ = collection.id_hashes("documents")
        self._passages, self._offsets = collection.id_hashes("passages")
        with (folder / "passages.jsonl").open("rb") as file:
            self._texts = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._sections = (folder / SECTIONS).read_bytes()

    def copy(self, key: int, line: bytes, writer: CollectionWriter, sections: BinaryIO) -> bool:
        """Write a document and its passages as they were; False where the document is not known."""
        number = self._places.get(key)
        if number is None:
            return False
        (start, first), (end, last) = self._ends[number].tolist(), self._ends[number + 1].tolist()
        writer.copy("documents", line, self._documents[number : number + 1].tolist(), [0])
        if end > start:
            a, b = np.searchsorted(self._offsets, np.array([start, end], np.uint64)).tolist()
            offsets = (self._offsets[a:b].astype(np.int64) - start).tolist()
            writer.copy("passages", self._texts[start:end], self._passages[a:b].tolist(), offsets)
        sections.write(self._sections[first:last])
        return True


def cut_collection(
    source: Collection,
    cutters: LanguageCutters,
    folder: Folder,
    copies: CopyFilter | None = None,
    earlier: EarlierCut | None = None,
) -> bool:
    """Write a collection's documents with their passages, passages it had, and queries generated for them.

    False where this is a part: then the passages of some of the documents are written, for the merge.
    """
    salts, covered = cutters.salts(source), set[str]()
    for passage in source.passages() if source.has("passages") else ():
        if passage.text.strip() or passage.title.strip():
            covered.add(passage.doc)

    def cut_whole(document: Document) -> list[HeadedPassage]:
        if document.id in covered:
            return []
        language = cutters.language_of(document)
        pieces = list(cut(document, cutters.of(language), language))
        return pieces if copies is None else copies.own(document, pieces)

    def cut_lines(documents: list[Document]) -> dict[str, list[str]]:
        return {CUT: [json_line([(asdict(p), heading) for p, heading in cut_whole(d)]) for d in documents]}

    if folder.part != WHOLE:
        return in_pieces(folder, track(source.documents(), "passages", unit="documents"), BLOCK, cut_lines)
    merged, out = read_pieces(folder, CUT), folder.path
    for name in ("documents", "passages", "queries"):  # an interrupted run may have left some
        (out / f"{name}.jsonl").unlink(missing_ok=True)
    where = Where(str(source.path))
    cuts = np.pad((source.line_hashes("documents") ^ salts)[:, None], ((0, 0), (0, 2)))
    with CollectionWriter(out) as writer, (out / SECTIONS).open("wb") as sections:
        for passage in source.passages() if source.has("passages") else ():
            if passage.text.strip() or passage.title.strip():
                writer.add(Item(replace(passage, language=cutters.language_of(passage)), where))
        for number, line in enumerate(track(source.lines("documents"), "passages", unit="documents")):
            if covered or (copies is not None and number in copies.found.numbers):
                cuts[number, 0] = 0  # it depends on more than its line
            key, ready = int(cuts[number, 0]), None if merged is None else next(merged)
            if not (key and earlier is not None and earlier.copy(key, line, writer, sections)):
                document = source.document_of(line)
                writer.add(Item(document if copies is None else copies.described(document), where))
                pieces = (
                    cut_whole(document)
                    if ready is None
                    else [HeadedPassage(Passage(**row), heading) for row, heading in json.loads(ready)]
                )
                for piece in pieces:
                    writer.add(Item(piece.passage, where))
                sections.write("".join(_section_lines(pieces)).encode("utf-8"))
            cuts[number, 1:] = writer.size("passages"), sections.tell()
        if GENERATED in source.splits:
            for query in source.queries(GENERATED):
                writer.add(Item(query, where, GENERATED))
            for judgement in source.judgements(GENERATED):
                writer.add(Item(judgement, where, GENERATED))
    (out / CUTS).parent.mkdir(exist_ok=True)
    np.save(out / CUTS, cuts, allow_pickle=False)
    if not writer.counts["passages"]:
        raise DataError("it contains no text", file=source.path, fix="look at it with liebig init")
    return True


def _section_lines(pieces: list[HeadedPassage]) -> Iterator[str]:
    """A line for each headed section: its heading and the ids of its passages."""
    for heading, group in groupby(pieces, key=lambda piece: piece.heading):
        if heading:
            ids = [piece.passage.id for piece in group]
            yield json_line({"heading": heading, "passages": ids}) + "\n"


def run(config: PassagesConfig, folder: Folder) -> None:
    source = Collection(config.collection)
    # Where a source brings its own passages, they are what is judged: all of them stay.
    copies = CopyFilter(source) if config.copies and not source.has("passages") else None
    earlier = EarlierCut(config.reuse[0]) if config.reuse and (config.reuse[0] / CUTS).is_file() else None
    if not cut_collection(source, LanguageCutters(config), folder, copies, earlier):
        return
    clear_pieces(folder)
    if copies is not None:
        folder.write_json(COPIES, {"copies": len(copies.found.originals)})


STAGE = Stage(
    "passages",
    PassagesConfig,
    run,
    "liebig passages runs/collection --tokenizer runs/tokenizer --length 144 --out runs/passages",
    positional="collection",
    in_parts=True,
)
