"""OpenDocument files: texts (.odt), presentations (.odp), drawings (.odg) and spreadsheets (.ods), flat ones too.

Headings of a text become sections, slides of a presentation too, and every row of a sheet is a document. Notes, headers
and footers of a text are left out. Cost: the tree of content.xml in memory; rows and cells that a file only says to be
repeated are not copied out.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import cached_property
from typing import IO, Any

from liebig.formats.inputs import InputSource
from liebig.formats.items import Where
from liebig.formats.outline import Article, Outline, numbered_section
from liebig.formats.parsers import HEAD, ZIP
from liebig.formats.sheet_rows import Cells, sheet_articles
from liebig.formats.xml_package import LARGEST_TEXT, XmlPackage, first_text, opened_package

TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
TABLE = "{urn:oasis:names:tc:opendocument:xmlns:table:1.0}"
DRAW = "{urn:oasis:names:tc:opendocument:xmlns:drawing:1.0}"
OFFICE = "{urn:oasis:names:tc:opendocument:xmlns:office:1.0}"
LEFT_OUT = frozenset(
    (
        f"{TEXT}note",
        f"{OFFICE}annotation",
        f"{TEXT}tracked-changes",
        f"{TEXT}table-of-content",
        f"{OFFICE}binary-data",  # pictures of flat files
        f"{OFFICE}styles",  # and their headers and footers
        f"{OFFICE}automatic-styles",
        f"{OFFICE}master-styles",
    )
)
REPEATS = 50  # of a cell that is said to be repeated


def read_odt(source: InputSource) -> Article:
    """Paragraphs under their headings."""
    with _opened(source) as package:
        outline = Outline()
        for node in _blocks(_content(package)):
            text = _text(node)
            if node.tag == f"{TEXT}h" and text:
                outline.heading(text, is_title=node.get(f"{TEXT}outline-level", "1") == "1")
            elif text:
                outline.line(text)
                outline.end_paragraph()
        title, metadata = _about(package)
        parsed = outline.parsed()
    return Article(parsed.title or title, parsed.sections, metadata=metadata)


def read_odp(source: InputSource) -> Article:
    """A section per slide, with its notes."""
    with _opened(source) as package:
        sections = []
        for number, page in enumerate(_content(package).iter(f"{DRAW}page"), 1):
            texts = [text for node in _blocks(page) if (text := _text(node))]
            sections.append(
                numbered_section(texts[0] if texts else "", ((number, text) for text in texts), "slide")
            )
        title, metadata = _about(package)
    return Article(
        title or next((s.heading for s in sections if s.heading), ""), tuple(sections), metadata=metadata
    )


def read_ods(source: InputSource) -> Iterator[Article]:
    """A document per row of every sheet."""
    with _opened(source) as package:
        _, metadata = _about(package)
        for sheet in _content(package).iter(f"{TABLE}table"):
            for article in sheet_articles(sheet.get(f"{TABLE}name", ""), _rows(sheet)):
                yield article._replace(metadata={**metadata, **article.metadata})


class FlatFile(XmlPackage):
    """A flat file: all parts in one file of XML."""

    def __init__(self, file: IO[bytes], source: InputSource) -> None:
        self._file, self._source, self._room = file, source, LARGEST_TEXT
        self.where = Where(source.label)

    def __contains__(self, name: str) -> bool:
        return name in ("content.xml", "meta.xml")

    def read(self, name: str) -> bytes:
        return self._checked(self._file.read(self._room + 1))

    def xml(self, name: str) -> Any:
        return self._root

    @cached_property
    def _root(self) -> Any:
        return super().xml("content.xml")


def _opened(source: InputSource) -> AbstractContextManager[XmlPackage]:
    head = source.head(HEAD)
    flat = b"<office:document" in head and not head.startswith(ZIP)  # a package may hold it uncompressed
    return opened_package(source, FlatFile if flat else XmlPackage)


def _content(package: XmlPackage) -> Any:
    if "META-INF/manifest.xml" in package:
        encrypted = next(package.xml("META-INF/manifest.xml").iter("{*}encryption-data"), None)
        if encrypted is not None:
            package.refuse("is encrypted", "save it without a password")
    return package.xml("content.xml")


def _about(package: XmlPackage) -> tuple[str, dict[str, str]]:
    if "meta.xml" not in package:
        return "", {}
    meta = package.xml("meta.xml")
    author = first_text(meta, "creator") or first_text(meta, "initial-creator")
    return first_text(meta, "title"), {"author": author} if author else {}


def _blocks(root: Any) -> Iterator[Any]:
    """Paragraphs and headings, without those inside what is left out."""
    stack = [root]
    while stack:
        node = stack.pop()
        if node.tag in (f"{TEXT}p", f"{TEXT}h"):
            yield node
        elif node.tag not in LEFT_OUT:
            stack += reversed(node)


def _text(node: Any) -> str:
    parts: list[str] = [node.text or ""]
    stack = list(reversed(node))
    while stack:
        child = stack.pop()
        if isinstance(child, str):
            parts.append(child)
            continue
        stack.append(child.tail or "")
        if child.tag not in LEFT_OUT and isinstance(child.tag, str):
            parts.append(
                " " if child.tag in (f"{TEXT}s", f"{TEXT}tab", f"{TEXT}line-break") else child.text or ""
            )
            stack += reversed(child)
    return " ".join("".join(parts).split())


def _rows(sheet: Any) -> Iterator[Cells]:
    for row in sheet.iter(f"{TABLE}table-row"):
        cells: list[str] = []
        for cell in row.iterchildren(f"{TABLE}table-cell", f"{TABLE}covered-table-cell"):
            text = " ".join(_text(node) for node in cell.iter(f"{TEXT}p"))
            value = text or cell.get(f"{OFFICE}value") or cell.get(f"{OFFICE}date-value") or ""
            cells += [value] * min(int(cell.get(f"{TABLE}number-columns-repeated", "1")), REPEATS)
        yield cells
