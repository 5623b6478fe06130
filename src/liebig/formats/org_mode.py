"""Emacs Org files (.org): headlines become sections; keywords, drawers and planning lines are dropped."""

from __future__ import annotations

import re

from liebig.formats.outline import LONG_LINE, Article, Outline

HEADLINE = re.compile(
    r"\*+[ \t]+(?:(?:TODO|DONE)[ \t]+)?(?:\[#[A-Z]\][ \t]+)?(.*?)(?:[ \t]+:[\w@:]+:)?[ \t]*$"
)
KEYWORD = re.compile(r"[ \t]*#\+(\w+):?[ \t]*(.*)")
LINK = re.compile(r"\[\[([^\[\]\n]*)\](?:\[([^\[\]\n]*)\])?\]")
DROPPED = re.compile(r"[ \t]*(?::\w+:.*|(?:SCHEDULED|DEADLINE|CLOSED):.*)$")


def parse_org(text: str) -> Article:
    """Headlines, paragraphs, and title and author of the keywords."""
    outline, said = Outline("line"), dict[str, str]()
    for number, line in enumerate(text.split("\n"), 1):
        if keyword := KEYWORD.match(line):
            said.setdefault(keyword[1].lower(), keyword[2].strip())
        elif headline := HEADLINE.match(line) if len(line) <= LONG_LINE else None:
            outline.heading(_links(headline[1]))
        elif not line.strip():
            outline.end_paragraph()
        elif not DROPPED.match(line):
            outline.line(_links(line), number)
    parsed = outline.parsed()
    metadata = {"author": said["author"]} if said.get("author") else {}
    return Article(said.get("title", ""), parsed.sections, metadata=metadata)


def _links(text: str) -> str:
    return LINK.sub(lambda link: link[2] or link[1], text) if len(text) <= LONG_LINE else text
