"""Plain text, Markdown, reStructuredText and HTML to a title and sections of paragraphs.

Headings become sections; blank lines part paragraphs; code keeps its lines. The mark-up inside a paragraph is left
as it is, but for links, images and roles, whose text is kept. One pass over the text, standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from html.parser import HTMLParser
from typing import NamedTuple

from liebig.records import Section


class Parsed(NamedTuple):
    """A text with its structure; the title is "" where the text has none."""

    title: str
    sections: tuple[Section, ...]


class Outline:
    """Headings and lines as they come, gathered into sections and paragraphs."""

    def __init__(self) -> None:
        self.title = ""
        self._sections: list[tuple[str, list[str]]] = [("", [])]
        self._lines: list[str] = []

    def heading(self, text: str, is_title: bool = False) -> None:
        """Start a section; a title alone at the top names the text instead."""
        self.end_paragraph()
        if is_title and not self.title and not any(paragraphs for _, paragraphs in self._sections):
            self.title = text
        else:
            self._sections.append((text, []))

    def line(self, text: str) -> None:
        """One more line of the paragraph."""
        self._lines.append(text)

    def end_paragraph(self) -> None:
        """A blank line."""
        text = "\n".join(self._lines).strip()
        self._lines = []
        if text:
            self._sections[-1][1].append(text)

    def parsed(self) -> Parsed:
        """What was gathered; a first section without anything is left out."""
        self.end_paragraph()
        kept = [(heading, found) for heading, found in self._sections if heading or found]
        return Parsed(self.title, tuple(Section(heading, tuple(found)) for heading, found in kept))


def parse_plain(text: str) -> Parsed:
    """One section; blank lines part its paragraphs."""
    outline = Outline()
    for line in text.split("\n"):
        if line.strip():
            outline.line(line)
        else:
            outline.end_paragraph()
    return outline.parsed()


ATX = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*")
SETEXT = re.compile(r" {0,3}(=+|-{2,})[ \t]*")
FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
IMAGE = re.compile(r"!\[([^\]\n]*)\]\([^)\n]*\)")
LINK = re.compile(r"\[([^\]\n]+)\]\([^)\n]*\)")
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
FRONT = re.compile(r"\A---[ \t]*\n.*?\n(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)


def parse_markdown(text: str) -> Parsed:
    """`# headings` and underlined ones become sections; what stands in fences is code, not headings."""
    outline, fence = Outline(), ""
    text = COMMENT.sub("", FRONT.sub("", text, count=1))
    lines = text.split("\n")
    for number, line in enumerate(lines):
        mark = FENCE.match(line)
        if fence:
            outline.line(line)
            fence = "" if mark and mark[1].startswith(fence) else fence
        elif mark:
            fence = mark[1]
            outline.line(line)
        elif (found := ATX.fullmatch(line)) is not None:
            outline.heading(_inline(found[2] or ""), is_title=len(found[1]) == 1)
        elif SETEXT.fullmatch(line) and number and _can_be_heading(lines[number - 1]):
            continue
        elif line.strip() and number + 1 < len(lines) and _underlines(lines[number + 1], line):
            outline.heading(_inline(line.strip()), is_title=lines[number + 1].strip().startswith("="))
        elif line.strip():
            outline.line(_inline(line))
        else:
            outline.end_paragraph()
    return outline.parsed()


def _can_be_heading(line: str) -> bool:
    return (
        bool(line.strip()) and not ATX.fullmatch(line) and not line.lstrip().startswith(("|", "-", "*", ">"))
    )


def _underlines(below: str, line: str) -> bool:
    return SETEXT.fullmatch(below) is not None and _can_be_heading(line)


def _inline(text: str) -> str:
    return LINK.sub(r"\1", IMAGE.sub(r"\1", text))


ADORNMENT = re.compile(r"([!-/:-@\[-`{-~])\1{1,}[ \t]*")
ROLE = re.compile(r":[\w:.+-]+:`~?([^`<]*?)(?:\s*<[^`>]*>)?`")
REFERENCE = re.compile(r"`([^`<]+?)\s*<[^`>]*>`_{1,2}")
HIDDEN = re.compile(r"\.\.(?:[ \t]+(?:_[^:]+:|\|[^|]+\|).*|[ \t]+[\w:-]+::.*|[ \t]+.*|[ \t]*)")
ADMONITION = re.compile(
    r"\.\.[ \t]+(?:note|warning|tip|important|caution|seealso|versionadded|versionchanged)::(.*)"
)


def parse_rst(text: str) -> Parsed:
    """Underlined (and overlined) lines become sections; the first one on top is the title. Directives are dropped."""
    outline, lines, title_mark = Outline(), text.split("\n"), ""
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
            hidden = _rst_line(outline, line)
            number += 1
            continue
        title_mark = title_mark or mark
        outline.heading(_roles(heading), is_title=mark == title_mark)
        number += skip
    return outline.parsed()


def _adorns(below: str, line: str) -> bool:
    fits = ADORNMENT.fullmatch(below) is not None and len(below.rstrip()) >= len(line.rstrip())
    return fits and bool(line.strip()) and line[0] not in " \t" and not ADORNMENT.fullmatch(line)


def _rst_line(outline: Outline, line: str) -> bool:
    """A line outside of headings; True where it opens a block that is not text."""
    admonition = ADMONITION.fullmatch(line.strip())
    if admonition:
        outline.end_paragraph()
        if admonition[1].strip():
            outline.line(_roles(admonition[1].strip()))
        return False
    if HIDDEN.fullmatch(line):
        outline.end_paragraph()
        return True
    if line.strip():
        outline.line(_roles(line))
    else:
        outline.end_paragraph()
    return False


def _roles(text: str) -> str:
    return REFERENCE.sub(r"\1", ROLE.sub(r"\1", text))


BLOCKS = frozenset(
    (
        "address", "article", "aside", "blockquote", "body", "br", "caption", "center", "dd", "div",
        "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "header", "hr", "html",
        "li", "main", "nav", "ol", "p", "pre", "section", "summary", "table", "tbody", "td",
        "tfoot", "th", "thead", "tr", "ul",
    )
)  # fmt: skip
SKIPPED = frozenset(("script", "style", "noscript", "template", "svg", "math", "iframe", "object"))
HEADINGS = frozenset(("h1", "h2", "h3", "h4", "h5", "h6"))


class _Page(HTMLParser):
    """An HTML page as an outline."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.outline = Outline()
        self._text: list[str] = []
        self._skipping: list[str] = []
        self._heading, self._in_title, self._page_title, self._pre = "", False, "", 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in SKIPPED:
            self._skipping.append(tag)
        elif tag == "title":
            self._in_title = True
        elif tag in HEADINGS:
            self._block()
            self._heading = tag
        elif tag in BLOCKS:
            self._block()
            self._pre += tag == "pre"

    def handle_endtag(self, tag: str) -> None:
        if tag in SKIPPED:
            if tag in self._skipping:
                del self._skipping[self._skipping.index(tag) :]
        elif tag == "title":
            self._in_title = False
        elif tag in HEADINGS or tag in BLOCKS:
            self._block()
            self._pre = max(0, self._pre - (tag == "pre"))

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self._page_title += data
        elif not self._skipping:
            self._text.append(data)

    def _block(self) -> None:
        """End the block of text that stands open."""
        text = "".join(self._text)
        text = text.strip("\n") if self._pre and not self._heading else " ".join(text.split())
        self._text = []
        if self._heading:
            if text:
                self.outline.heading(text, is_title=self._heading == "h1")
            self._heading = ""
        elif text.strip():
            self.outline.line(text)
            self.outline.end_paragraph()

    def parsed(self) -> Parsed:
        """What the page holds; its <title> counts where no <h1> stands on top."""
        self.close()
        self._block()
        found = self.outline.parsed()
        return Parsed(found.title or " ".join(self._page_title.split()), found.sections)


def parse_html(text: str) -> Parsed:
    """Headings become sections, block elements paragraphs; scripts and styles are left out."""
    page = _Page()
    page.feed(text.replace("\0", ""))
    return page.parsed()


PARSERS: dict[str, Callable[[str], Parsed]] = {
    ".txt": parse_plain,
    ".text": parse_plain,
    ".md": parse_markdown,
    ".markdown": parse_markdown,
    ".rst": parse_rst,
    ".html": parse_html,
    ".htm": parse_html,
    ".xhtml": parse_html,
}


def markdown_lines(title: str, sections: Iterable[Section]) -> list[str]:
    """A Markdown file of a title and sections, which parses back to them."""
    found = [f"# {title}", ""] if title else []
    for section in sections:
        if section.heading:
            found += [f"## {section.heading}", ""]
        for paragraph in section.paragraphs:
            found += [*paragraph.split("\n"), ""]
    return found
