"""AsciiDoc files (.adoc): headings become sections; attributes, macros for blocks and comments are dropped."""

from __future__ import annotations

import re

from liebig.formats.outline import LONG_LINE, Article, Outline

HEADING = re.compile(r"(={1,6})[ \t]+(\S.*)")
ATTRIBUTE = re.compile(r":!?([\w-]+):[ \t]*(.*)")
BLOCK = re.compile(
    r"(?:\[[^\]\n]*\]|//.*|(?:include|image|toc|ifdef|ifndef|endif)::.*|[-=.*_+/|`]{4,}|--|\|={3,})[ \t]*$"
)
AUTHOR = re.compile(r"[^\W\d_][\w .'-]*(?:<[^<>\s]+>)?$")
LINK = re.compile(r"(?:https?://|link:|xref:|mailto:)[^\s\[\]]*\[([^\[\]\n]*)\]")


def parse_asciidoc(text: str) -> Article:
    """Headings, paragraphs, and title and author of the header."""
    outline, author, after_title = Outline("line"), "", False
    for number, line in enumerate(text.split("\n"), 1):
        heading, attribute = HEADING.match(line), ATTRIBUTE.match(line)
        if heading:
            after_title = len(heading[1]) == 1 and not outline.title
            outline.heading(_links(heading[2].strip()), is_title=len(heading[1]) == 1)
            continue
        if after_title and line.strip() and not attribute and AUTHOR.match(line.strip()):
            author = author or line.partition("<")[0].strip()
        elif attribute:
            author = attribute[2].strip() if attribute[1] == "author" else author
        elif not line.strip() or BLOCK.match(line):
            outline.end_paragraph()
        else:
            outline.line(_links(line.removeprefix(".") if re.match(r"\.\w", line) else line), number)
        after_title = False
    parsed = outline.parsed()
    return Article(parsed.title, parsed.sections, metadata={"author": author} if author else {})


def _links(text: str) -> str:
    return LINK.sub(lambda link: link[1], text) if len(text) <= LONG_LINE else text
