"""A text with its structure: a title and sections of paragraphs, gathered from headings and lines as they come.

Each paragraph remembers the line, page or slide it begins on, where the reader says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from liebig.base.records import Section, Unit


class Article(NamedTuple):
    """A text with its structure; the title is "" where the text has none.

    `part` names it among several of one file (a function, a message); `metadata` is what the file says about it.
    """

    title: str
    sections: tuple[Section, ...]
    part: str = ""
    metadata: Mapping[str, str] = MappingProxyType({})

    @property
    def unplaced(self) -> tuple[Section, ...]:
        """The sections without places, for a text that is only a part of its file."""
        return tuple(Section(section.heading, section.paragraphs) for section in self.sections)


def numbered_section(heading: str, paragraphs: Iterable[tuple[int, str]], unit: Unit) -> Section:
    """A section of paragraphs that come with their places; blank ones are left out."""
    kept = [(place, text) for place, text in paragraphs if text.strip()]
    return Section(heading, tuple(text for _, text in kept), unit, tuple(place for place, _ in kept))


LONG_LINE = 10_000  # characters of a line; in a longer one marks are left as they are, which bounds the search for them
BLOCK = 280  # characters of a block of lines: about the tokens of a passage


def line_blocks(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Numbered lines in blocks that end with a line, so that passages do too, and best where a blank line stands."""
    block: list[str] = []
    first = size = last = 0
    for place, line in lines:
        is_full = size + len(line) > BLOCK or (not line.strip() and 2 * size > BLOCK)
        if block and (is_full or place != last + 1):
            yield first, "\n".join(block).rstrip()
            block, size = [], 0
        last = place
        if block or line.strip():
            first = first if block else place
            block.append(line)
            size += len(line) + 1
    if block:
        yield first, "\n".join(block).rstrip()


class Outline:
    """Headings and lines as they come, gathered into sections and paragraphs."""

    def __init__(self, unit: Unit = "") -> None:
        self.title = ""
        self._unit = unit
        self._sections: list[tuple[str, list[tuple[int, str]]]] = [("", [])]
        self._lines: list[str] = []
        self._place = 0

    def heading(self, text: str, is_title: bool = False) -> None:
        """Start a section; a title alone at the top names the text instead, or says its name again."""
        self.end_paragraph()
        if is_title and self.title in ("", text) and not any(paragraphs for _, paragraphs in self._sections):
            self.title = text
        else:
            self._sections.append((text, []))

    def line(self, text: str, place: int = 0) -> None:
        """One more line of the paragraph, and where it stands."""
        if not self._lines:
            self._place = place
        self._lines.append(text)

    def end_paragraph(self) -> None:
        text = "\n".join(self._lines).strip()
        self._lines = []
        if text:
            self._sections[-1][1].append((self._place, text))

    def parsed(self) -> Article:
        """What was gathered; a first section without anything is left out."""
        self.end_paragraph()
        kept = [(heading, paragraphs) for heading, paragraphs in self._sections if heading or paragraphs]
        if self._unit:
            return Article(self.title, tuple(numbered_section(*section, self._unit) for section in kept))
        return Article(self.title, tuple(Section(h, tuple(text for _, text in p)) for h, p in kept))
