"""A text with its structure: a title and sections of paragraphs, gathered from headings and lines as they come."""

from __future__ import annotations

from typing import NamedTuple

from liebig.base.records import Section


class Article(NamedTuple):
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

    def parsed(self) -> Article:
        """What was gathered; a first section without anything is left out."""
        self.end_paragraph()
        kept = [(heading, paragraphs) for heading, paragraphs in self._sections if heading or paragraphs]
        return Article(self.title, tuple(Section(heading, tuple(paragraphs)) for heading, paragraphs in kept))
