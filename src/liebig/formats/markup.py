"""Plain text, Markdown and reStructuredText to a title and sections of paragraphs.

Headings become sections; blank lines part paragraphs; code keeps its lines. The mark-up inside a paragraph is left
as it is, but for links, images and roles, whose text is kept. Cost: linear in the text, whatever it holds: patterns
stop at the next bracket or quote and are never searched for from every place of a long run.
"""

from __future__ import annotations

import re

from liebig.formats.front_matter import front_matter
from liebig.formats.outline import Article, Outline


def parse_plain(text: str) -> Article:
    """One section; blank lines part its paragraphs."""
    outline = Outline("line")
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            outline.line(line, number)
        else:
            outline.end_paragraph()
    return outline.parsed()


ATX = re.compile(r" {0,3}(#{1,6})(?=[ \t]|$)")
SETEXT = re.compile(r" {0,3}(=+|-{2,})[ \t]*")
FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
IMAGE = re.compile(r"!\[([^\[\]\n]*)\]\(")
LINK = re.compile(r"\[([^\[\]\n]+)\]\(")


def parse_markdown(text: str) -> Article:
    """`# headings` and underlined ones become sections; what stands in fences is code, not headings."""
    metadata, text = front_matter(text)
    outline, fence = Outline("line"), ""
    outline.title = metadata.pop("title", "")
    lines = _without_comments(text).split("\n")
    for number, line in enumerate(lines):
        mark = FENCE.match(line)
        if fence:
            outline.line(line, number + 1)
            fence = "" if mark and mark[1].startswith(fence) else fence
        elif mark:
            fence = mark[1]
            outline.line(line, number + 1)
        elif (marks := ATX.match(line)) is not None:
            outline.heading(_inline(_heading(line[marks.end() :])), is_title=len(marks[1]) == 1)
        elif SETEXT.fullmatch(line) and number and _can_be_heading(lines[number - 1]):
            continue
        elif line.strip() and number + 1 < len(lines) and _underlines(lines[number + 1], line):
            outline.heading(_inline(line.strip()), is_title=lines[number + 1].strip().startswith("="))
        elif line.strip():
            outline.line(_inline(line), number + 1)
        else:
            outline.end_paragraph()
    return outline.parsed()._replace(metadata=metadata)


def _can_be_heading(line: str) -> bool:
    return bool(line.strip()) and not ATX.match(line) and not line.lstrip().startswith(("|", "-", "*", ">"))


def _underlines(below: str, line: str) -> bool:
    return SETEXT.fullmatch(below) is not None and _can_be_heading(line)


def _heading(text: str) -> str:
    """The text behind the marks of a heading, without marks that close it."""
    text = text.strip(" \t")
    bare = text.rstrip("#")
    return bare.rstrip(" \t") if not bare or bare[-1] in " \t" else text


def _without_comments(text: str) -> str:
    """The text without <!-- comments -->, but with their line breaks; one that is never closed stays."""
    at, kept = 0, list[str]()
    while (start := text.find("<!--", at)) >= 0 and (end := text.find("-->", start + 4)) >= 0:
        kept += (text[at:start], "\n" * text.count("\n", start, end))
        at = end + 3
    return "".join((*kept, text[at:]))


def _inline(text: str) -> str:
    return _labels(LINK, _labels(IMAGE, text))


def _labels(opening: re.Pattern[str], text: str) -> str:
    """The labels of links in the place of the links; where no parenthesis closes any more, nothing is one."""
    at, kept = 0, list[str]()
    while (match := opening.search(text, at)) and (end := text.find(")", match.end())) >= 0:
        kept += (text[at : match.start()], match[1])
        at = end + 1
    return "".join((*kept, text[at:]))


ADORNMENT = re.compile(r"([!-/:-@\[-`{-~])\1{1,}[ \t]*")
QUOTED = re.compile(r"`([^`]*)`(_{0,2})")
ROLE_BACKWARDS = re.compile(r":[\w:.+-]+:")
ADMONITION = re.compile(
    r"\.\.[ \t]+(?:note|warning|tip|important|caution|seealso|versionadded|versionchanged)::(.*)"
)


def parse_rst(text: str) -> Article:
    """Underlined (and overlined) lines become sections; the first one on top is the title. Directives are dropped."""
    outline, lines, title_mark = Outline("line"), text.split("\n"), ""
    number, hidden = 0, False
    while number < len(lines):
        line = lines[number]
        below = lines[number + 1] if number + 1 < len(lines) else ""
        if hidden and (not line.strip() or line[0] in " \t"):
            number += 1
            continue
        hidden = False
        overline = (
            ADORNMENT.fullmatch(line)
            and number + 2 < len(lines)
            and lines[number + 2].strip() == line.strip()
        )
        if overline and below.strip():
            mark, heading, skip = line[0] * 2, below.strip(), 3
        elif _adorns(below, line):
            mark, heading, skip = below[0], line.strip(), 2
        else:
            hidden = _rst_line(outline, line, number + 1)
            number += 1
            continue
        title_mark = title_mark or mark
        outline.heading(_roles(heading), is_title=mark == title_mark)
        number += skip
    return outline.parsed()


def _adorns(below: str, line: str) -> bool:
    fits = ADORNMENT.fullmatch(below) is not None and len(below.rstrip()) >= len(line.rstrip())
    return fits and bool(line.strip()) and line[0] not in " \t" and not ADORNMENT.fullmatch(line)


def _rst_line(outline: Outline, line: str, number: int) -> bool:
    """A line outside of headings; True where it opens a block that is not text."""
    admonition = ADMONITION.fullmatch(line.strip())
    if admonition:
        outline.end_paragraph()
        if admonition[1].strip():
            outline.line(_roles(admonition[1].strip()), number)
        return False
    if line.rstrip(" \t") == ".." or line.startswith((".. ", "..\t")):
        outline.end_paragraph()
        return True
    if line.strip():
        outline.line(_roles(line), number)
    else:
        outline.end_paragraph()
    return False


def _roles(text: str) -> str:
    """The texts of roles (:func:`~json.dumps`) and of references (`text <address>`_) in their place."""
    at, kept = 0, list[str]()
    for match in QUOTED.finditer(text):
        before, inner = text[at : match.start()], match[1]
        name, opening, target = inner.partition("<")
        named = target.endswith(">") and ">" not in target[:-1]
        # The role stands before the quote: read backwards from there, it is looked for once and not from every colon.
        role = ROLE_BACKWARDS.match(before[::-1])
        if role and (named or not opening):
            kept += (
                before[: len(before) - role.end()],
                name.removeprefix("~").rstrip() if named else name.removeprefix("~"),
                match[2],
            )
        elif match[2] and named and name.strip():
            kept += (before, name.rstrip())
        else:
            kept += (before, match[0])
        at = match.end()
    return "".join((*kept, text[at:]))
