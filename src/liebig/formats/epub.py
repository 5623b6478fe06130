"""E-books (.epub): the chapters in reading order; <h1> to <h6> become sections.

Chapters are parsed as HTML, which has no entities of its own. Cost: that of html_page.py, one chapter at a time.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from urllib.parse import unquote

from liebig.base.records import Section
from liebig.formats.clean_text import without_ligatures
from liebig.formats.encoding import decode_text
from liebig.formats.html_page import parse_content
from liebig.formats.inputs import InputSource
from liebig.formats.outline import Article
from liebig.formats.xml_package import XmlPackage, first_text, opened_package

CONTAINER = "META-INF/container.xml"
ENCRYPTION = "META-INF/encryption.xml"
FONTS = ("idpf.org/2008/embedding", "ns.adobe.com/pdf/enc#RC")  # ways to scramble fonts, which are not read
CHAPTERS = ("application/xhtml+xml", "text/html", "text/x-oeb1-document")


def read_epub(source: InputSource) -> Article:
    """The chapters of a book in its reading order; headings become sections."""
    with opened_package(source) as package:
        return _book(package)


def _book(package: XmlPackage) -> Article:
    top = package.folder_of(CONTAINER)
    if top + ENCRYPTION in package:
        methods = package.xml(top + ENCRYPTION).iterfind(".//{*}EncryptionMethod")
        if any(not any(font in str(m.get("Algorithm")) for font in FONTS) for m in methods):
            package.refuse("the book is encrypted (DRM)", "export it without DRM")
    root = package.xml(top + CONTAINER).find(".//{*}rootfile")
    if root is None:
        package.refuse("the book does not say where its table of parts is")
    path = top + str(root.get("full-path"))
    book = package.xml(path)
    items = {item.get("id"): item for item in book.iterfind(".//{*}manifest/{*}item")}
    sections: list[Section] = []
    read: set[str] = set()
    for entry in book.iterfind(".//{*}spine/{*}itemref"):
        item = items.get(entry.get("idref"))
        if (
            item is None
            or item.get("media-type") not in CHAPTERS
            or "nav" in item.get("properties", "").split()
        ):
            continue
        name = posixpath.normpath(posixpath.join(posixpath.dirname(path), unquote(item.get("href", ""))))
        if name in read:  # a chapter that the order names twice is read once
            continue
        read.add(name)
        text, _ = decode_text(package.read(name), package.where)
        sections += _chapter(parse_content(without_ligatures(text)))
    author = first_text(book, "creator")
    return Article(first_text(book, "title"), tuple(sections), metadata={"author": author} if author else {})


def _chapter(parsed: Article) -> Iterator[Section]:
    """The sections of a chapter; its title is the heading of what stands before the next heading."""
    sections = list(parsed.sections)
    if parsed.title and (not sections or sections[0].heading):
        yield Section(parsed.title, ())
    for place, section in enumerate(sections):
        yield Section(parsed.title, section.paragraphs) if place == 0 and not section.heading else section
