"""PDF files: the text of the pages, with an entry of the outline as the heading of what follows it.

A passage has the number of its page. Cost: pypdf's, with the text of all pages in memory.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from liebig.base.errors import DataError
from liebig.base.records import Section
from liebig.formats.clean_text import without_breaks, without_ligatures, without_margins
from liebig.formats.encoding import LARGEST
from liebig.formats.inputs import InputSource
from liebig.formats.items import Where
from liebig.formats.markup import parse_plain
from liebig.formats.outline import Article, numbered_section

PAGES = 20_000
ENDS = (".", "!", "?", ".”", ".)", '."', "。")


def read_pdf(source: InputSource) -> Article:
    """The text of a PDF, a section for each entry of its outline that starts a page, else one for all pages."""
    import pypdf  # late: only folders with PDF files pay for it

    where = Where(source.label)
    # What it remarks on damaged files names no file; those that cannot be read are listed with the reason.
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    try:
        with source.seekable() as file:
            reader = pypdf.PdfReader(file)
            if reader.is_encrypted and not reader.decrypt(""):
                where.refuse("is encrypted", "save it without a password")
            said = reader.metadata
            title, author = (
                str(field or "").strip() for field in ((said.title, said.author) if said else ("", ""))
            )
            pages = _pages(reader, where)
            headings = _headings(reader)
    except DataError:
        raise
    except Exception as error:  # pypdf lets nearly any exception out of a damaged file
        raise source.damaged(error) from None
    pages = [without_breaks(page) for page in without_margins([_clean(page) for page in pages])]
    if pages and not any(page.strip() for page in pages):
        where.refuse("no text found; its pages are pictures", "run OCR on it, e.g. with ocrmypdf")
    metadata = {"author": _clean(author)} if author else {}
    return Article(_clean(title), tuple(_page_sections(pages, headings)), metadata=metadata)


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
    """Pages under their headings. A page that ends with a sentence ends a section, and with it a passage, which so says
    the page that it is on; a sentence that goes on keeps pages together."""
    heading = ""
    paragraphs: list[tuple[int, str]] = []
    for number, text in enumerate(pages):
        if paragraphs and (number in headings or paragraphs[-1][1].rstrip().endswith(ENDS)):
            yield numbered_section(heading, paragraphs, "page")
            paragraphs = []
        heading = _clean(headings.get(number, heading))
        paragraphs += [(number + 1, p) for section in parse_plain(text).sections for p in section.paragraphs]
    if paragraphs or heading:
        yield numbered_section(heading, paragraphs, "page")


def _clean(text: str) -> str:
    """Text out of a PDF, without NULs, halves of characters and ligatures."""
    return without_ligatures(text.replace("\0", "").encode("utf-8", "replace").decode("utf-8"))
