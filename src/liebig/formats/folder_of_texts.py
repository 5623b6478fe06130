"""A folder of .txt, .md, .rst, .html, .pdf, .docx and .epub files: each is a document, named after its path.

Headings become sections (see markup.py), as does a PDF's outline if it has one. Other files are ignored. Files are
read one at a time, in the order of their names; one that cannot be read is skipped if the options allow it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from liebig.base.errors import DataError
from liebig.base.records import Document, Section
from liebig.formats.base import Export, Format
from liebig.formats.clean_text import without_breaks, without_ligatures, without_margins
from liebig.formats.encoding import LARGEST, UTF_8, whole_text
from liebig.formats.inputs import InputSource
from liebig.formats.items import Item, Options, Where, as_id
from liebig.formats.markup import markdown_lines, parse_plain
from liebig.formats.outline import Article
from liebig.formats.output import write_lines
from liebig.formats.parsers import PARSERS, parse_as
from liebig.formats.preview import Preview
from liebig.formats.rows import check_text

PLAIN = frozenset((".txt", ".text"))
PAGES = 20_000  # of a PDF


def is_text_file(preview: Preview) -> bool:
    """A .md, .rst, .html, .pdf, .docx or .epub file, or a .txt with blank lines in it or not in UTF-8."""
    if preview.source.is_folder:
        return False  # decided by what else is in the folder
    if preview.source.suffix in PLAIN:
        body = "\n".join(preview.raw_lines).strip()
        return "\n\n" in body or not preview.is_utf8
    return preview.source.suffix in SUFFIXES


def read_texts(source: InputSource, options: Options) -> Iterator[Item]:
    """The documents of a folder, or of one file."""
    for path, file in source.walk():
        if file.is_folder or (path and file.suffix not in SUFFIXES):
            continue
        where, name = Where(file.label), path or file.plain
        try:
            check_text(name, where)
            binary = BINARY.get(file.suffix)
            parsed = binary(file) if binary is not None else _parse(file, where, options)
            id = as_id(name, where)
        except DataError as error:
            options.ledger.skip(error)
        else:
            options.ledger.mark_read(file.label)
            yield Item(Document(id, parsed.title or file.stem, parsed.sections), where)


def _parse(file: InputSource, where: Where, options: Options) -> Article:
    """A text file, parsed as its suffix says."""
    text, encoding = whole_text(file)
    if encoding != UTF_8:
        options.ledger.guessed[file.label] = encoding
    text = without_ligatures(text)
    return parse_as(file.plain, without_breaks(text) if file.suffix in PLAIN else text, where)


def _pdf(source: InputSource) -> Article:
    """The text of a PDF, a section for each entry of its outline that starts a page, else one for all pages."""
    import pypdf  # late: only folders with PDF files pay for it

    # What it remarks on damaged files names no file; those that cannot be read are listed with the reason.
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    try:
        with source.seekable() as file:
            reader = pypdf.PdfReader(file)
            title = str((reader.metadata and reader.metadata.title) or "").strip()
            pages = _pages(reader, Where(source.label))
            headings = _headings(reader)
    except DataError:
        raise
    except Exception as error:  # pypdf lets nearly any exception out of a damaged file
        raise source.damaged(error) from None
    pages = [without_breaks(page) for page in without_margins([_clean(page) for page in pages])]
    return Article(_clean(title), tuple(_page_sections(pages, headings)))


def _pages(reader: Any, where: Where) -> list[str]:
    """The text of every page; pages may share what they show, so that a small file can have much of it."""
    if len(reader.pages) > PAGES:
        where.refuse(f"the PDF has {len(reader.pages):,} pages; at most {PAGES:,} are read", "split it")
    texts: list[str] = []
    room = LARGEST
    for page in reader.pages:
        texts.append(page.extract_text() or "")
        room -= len(texts[-1])
        if room < 0:
            where.refuse(f"the PDF has more than {LARGEST >> 20} MiB of text", "split it")
    return texts


def _docx(source: InputSource) -> Article:
    from liebig.formats.docx import read_docx  # late: lxml

    return read_docx(source)


def _epub(source: InputSource) -> Article:
    from liebig.formats.epub import read_epub  # late: lxml

    return read_epub(source)


BINARY = {".pdf": _pdf, ".docx": _docx, ".epub": _epub}
SUFFIXES = frozenset((*PARSERS, *BINARY))


def _headings(reader: Any) -> dict[int, str]:
    """The first entry of the outline on each page."""
    headings: dict[int, str] = {}
    entries = list(reversed(reader.outline))
    while entries:
        entry = entries.pop()
        if isinstance(entry, list):
            entries += reversed(entry)
        else:
            page = reader.get_destination_page_number(entry)
            if page is not None and page >= 0:
                headings.setdefault(page, str(entry.title or ""))
    return headings


def _page_sections(pages: list[str], headings: dict[int, str]) -> Iterator[Section]:
    heading = ""
    paragraphs: list[str] = []
    for number, text in enumerate(pages):
        if number in headings and paragraphs:
            yield Section(heading, tuple(paragraphs))
            paragraphs = []
        heading = _clean(headings.get(number, heading))
        paragraphs += [p for section in parse_plain(text).sections for p in section.paragraphs]
    if paragraphs or heading:
        yield Section(heading, tuple(paragraphs))


def _clean(text: str) -> str:
    """Text out of a PDF, without NULs, halves of characters and ligatures."""
    return without_ligatures(text.replace("\0", "").encode("utf-8", "replace").decode("utf-8"))


def write_texts(folder: Path, documents: Iterable[Document]) -> int:
    """Write a Markdown file for each document, at the path that its id names; returns how many."""
    count = 0
    taken: set[str] = set()
    for record in documents:
        path = _safe(record.id)
        if path.lower() in taken:
            raise DataError(f"two documents would be written to {path}", fix="choose another format")
        taken.add(path.lower())
        write_lines(folder / path, markdown_lines(record.title, record.sections))
        count += 1
    return count


def _safe(name: str) -> str:
    """The path of a document's file, which never leaves the folder."""
    path = PurePosixPath(name)
    wrong = path.is_absolute() or any(part in ("..", ".") or part.startswith(".") for part in path.parts)
    if wrong or "\\" in name or ":" in name or any(len(part.encode()) > 200 for part in path.parts):
        raise DataError(f"the id {name!r} cannot be the path of a file", fix="choose another format")
    return str(path) if path.suffix == ".md" else f"{path}.md"


def export_texts(export: Export) -> None:
    """A Markdown file for each document."""
    write_texts(export.folder, export.documents())


TEXTS = Format(
    name="texts",
    about="a folder or file of text",
    fields=".txt, .md, .rst, .html, .pdf, .docx, .epub; headings become sections, as does a PDF's outline. Ids are "
    "paths in the folder",
    yields=("documents",),
    place="both",
    suffixes=SUFFIXES,
    rule=is_text_file,
    read=read_texts,
    write=export_texts,
    sample={"guide.md": "# Guide\n\nFirst.\n\n## Install\n\nRun it.\n"},
)
