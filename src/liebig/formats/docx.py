"""Word documents (.docx): paragraphs, with those that have an outline level as headings of sections.

Headers, footers, footnotes and comments are left out. Cost: one pass, with one paragraph of the tree in memory.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from typing import Any

from lxml import etree

from liebig.formats.clean_text import without_ligatures
from liebig.formats.inputs import InputSource
from liebig.formats.outline import Article, Outline
from liebig.formats.xml_package import XmlPackage, opened_package, properties

HEADING = re.compile(r"heading ([1-9])", re.IGNORECASE)
TITLE = re.compile(r"title", re.IGNORECASE)
PARAGRAPHS = 200_000  # a book of a thousand pages has a tenth of them
HIDDEN = frozenset(("Fallback", "pPr", "rPr"))  # Fallback: a text box once more


def read_docx(source: InputSource) -> Article:
    """Paragraphs of a Word document; a paragraph whose style has an outline level is a heading."""
    with opened_package(source) as package:
        return _document(package)


def _document(package: XmlPackage) -> Article:
    main = package.main_part()
    styles = posixpath.join(posixpath.dirname(main), "styles.xml")
    levels = _style_levels(package.xml(styles)) if styles in package else {}
    outline = Outline()
    for number, (text, level) in enumerate(_paragraphs(package.events(main), levels)):
        if number == PARAGRAPHS:
            package.refuse(f"the document has more than {PARAGRAPHS:,} paragraphs", "split it")
        if level is None:
            outline.line(without_ligatures(text))
            outline.end_paragraph()
        else:
            outline.heading(" ".join(text.split()), is_title=level <= 1)
    parsed = outline.parsed()
    title, author = properties(package)
    return Article(parsed.title or title, parsed.sections, metadata={"author": author} if author else {})


def _paragraphs(
    events: Iterator[tuple[str, Any]], levels: dict[str, int]
) -> Iterator[tuple[str, int | None]]:
    """Text and level of every paragraph; one in a text box stands before the one that the box is fixed to."""
    stack: list[list[str]] = []
    inside = 0  # elements of which nothing is text, open at present
    for event, node in events:
        name = _local_name(node)
        if name in HIDDEN:
            inside += 1 if event == "start" else -1
        elif inside:
            continue
        elif event == "start" and name == "p":
            stack.append([])
        elif event == "end" and name == "p":
            text = "".join(stack.pop()).strip()
            if text:
                yield text, _level(node, levels)
            if not stack:
                _forget(node)
        elif event == "end" and stack:
            stack[-1].append(
                {"t": node.text or "", "tab": " ", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}.get(name, "")
            )


def _forget(node: Any) -> None:
    """Free a paragraph and those before it: of a long document only the open elements are kept."""
    node.clear()
    while node.getprevious() is not None:
        del node.getparent()[0]


def _level(node: Any, levels: dict[str, int]) -> int | None:
    """0 for a title, from 1 for headings, None for text."""
    own = node.find("{*}pPr/{*}outlineLvl")
    if own is not None:
        return _outline_level(own)
    style = node.find("{*}pPr/{*}pStyle")
    return None if style is None else levels.get(_value(style))


def _style_levels(root: Any) -> dict[str, int]:
    """The levels of those styles that have one, of their own or from the style they are based on.

    Programs translate the ids of styles, and users define their own, but names and outline levels stay.
    """
    own, bases = dict[str, int | None](), dict[str, str]()
    for style in root.iterfind("{*}style"):
        id = next((value for key, value in style.attrib.items() if key.endswith("}styleId")), "")
        name, level, base = (style.find(path) for path in ("{*}name", "{*}pPr/{*}outlineLvl", "{*}basedOn"))
        heading = HEADING.fullmatch(_value(name))
        if TITLE.fullmatch(_value(name)):
            own[id] = 0
        elif heading:
            own[id] = int(heading[1])
        elif level is not None:
            own[id] = _outline_level(level)
        bases[id] = _value(base)
    own.setdefault("", None)
    for id in bases:  # every style is gone through once, however long the chains are
        chain, at = list[str](), id
        while at not in own:
            own[at] = None  # which a circle keeps
            chain.append(at)
            at = bases.get(at, "")
        own |= dict.fromkeys(chain, own[at])
    return {id: level for id, level in own.items() if level is not None}


def _outline_level(node: Any) -> int | None:
    """Word counts headings from 0; 9 is text."""
    value = _value(node)
    return int(value) + 1 if value.isdecimal() and int(value) < 9 else None


def _value(node: Any) -> str:
    """The attribute `val` of an element, in whichever of the two namespaces; "" where there is none."""
    attributes = {} if node is None else node.attrib
    return next((value for key, value in attributes.items() if key.endswith("}val")), "")


def _local_name(node: Any) -> str:
    return etree.QName(node).localname if isinstance(node.tag, str) else ""
