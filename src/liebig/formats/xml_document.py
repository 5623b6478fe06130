"""XML of any kind (.xml, .rss, .atom, .opml): the text of its elements behind their names, in their order.

An element with text of its own is a paragraph; attributes that hold words are part of it. Of a long list of numbers,
such as the points of a border on a map, the first NUMBERS are given. Entities are never expanded, and a file that
declares some is refused. Cost: the tree in memory, of at most LARGEST bytes.
"""

from __future__ import annotations

import html
import re
from typing import Any

from lxml import etree

from liebig.base.errors import DataError
from liebig.formats.line_text import NUMBERS, parse_settings
from liebig.formats.outline import Article, Outline

LARGEST = 1 << 26
PROSE = frozenset(("p", "para", "text", "simpara", "paragraph", "s"))
HEADINGS = frozenset(("title", "head", "heading", "book-title"))
PICTURES = "binary"  # of FictionBook
PAGES = frozenset(("description", "content", "encoded", "summary"))
TAG = re.compile(r"<[/!?a-zA-Z][^<>]{0,300}>")
WORDS = re.compile(r"[^\W\d_]{3,}")
LETTER = re.compile(r"[^\W\d_eE]")  # but the e of numbers
ADDRESS = re.compile(r"\S*(?:://|/\S*/)\S*")


def parse_xml(text: str) -> Article:
    """Paragraphs with the lines they stand on; the first title is the title. Broken XML as the lines it has."""
    raw = text.encode("utf-8")
    if len(raw) > LARGEST:
        raise DataError(f"the file is larger than {LARGEST >> 20} MiB", fix="split it")
    parser = etree.XMLParser(
        resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False, remove_comments=True,
        remove_pis=True, encoding="utf-8",
    )  # fmt: skip
    try:
        root = etree.fromstring(raw, parser)
    except etree.XMLSyntaxError:
        return parse_settings(text)
    dtd = root.getroottree().docinfo.internalDTD
    if dtd is not None and next(dtd.iterentities(), None) is not None:
        raise DataError("the file declares XML entities, which are never expanded", fix="write them out")
    outline, title, author = Outline("line"), "", ""
    walk = etree.iterwalk(root, events=("start",))
    for _, node in walk:
        name = etree.QName(node).localname
        if name == PICTURES:
            walk.skip_subtree()
            continue
        told = _told(node)
        is_block = bool((node.text or "").strip()) or any((child.tail or "").strip() for child in node)
        if is_block:
            walk.skip_subtree()
            words = without_tags("".join(node.itertext()), name).split()
            if len(words) > NUMBERS and not any(map(LETTER.search, words)):
                words = words[: NUMBERS // (words[0].count(",") + 1) or 1]  # 9.5,48.2,0 is three of them
            body = " ".join(words)
            title = title or (body if name.lower() in HEADINGS else "")
            author = author or (body if name.lower() in ("author", "creator") else "")
            told = " ".join(filter(None, (told, body)))
        if told:
            outline.end_paragraph()
            outline.line(told if name.lower() in PROSE else f"{name}: {told}", node.sourceline or 1)
    return Article(
        title[:200], outline.parsed().sections, metadata={"author": author[:200]} if author else {}
    )


def without_tags(text: str, name: str) -> str:
    """The text of an element; HTML inside of one, as in feeds and notes, without its tags."""
    is_page = name.lower() in PAGES or text.lstrip().startswith("<")
    return html.unescape(TAG.sub(" ", text)) if is_page and "</" in text else text


def _told(node: Any) -> str:
    """The attributes that hold words, without addresses."""
    kept = [value for value in node.attrib.values() if WORDS.search(value) and not ADDRESS.fullmatch(value)]
    return " ".join(" ".join(kept).split())
