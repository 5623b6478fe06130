"""PowerPoint presentations (.pptx): the text of every slide and of its notes, in the order of the slides.

Every slide is a section under its title; a passage has the number of its slide. Cost: one slide in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from liebig.formats.inputs import InputSource
from liebig.formats.outline import Article, numbered_section
from liebig.formats.xml_package import opened_package, properties

TITLES = ("title", "ctrTitle")


def read_pptx(source: InputSource) -> Article:
    """The slides of a presentation, and its title and author."""
    with opened_package(source) as package:
        main = package.main_part()
        targets = package.links(main)
        order = [_link_id(node) for node in package.xml(main).iterfind(".//{*}sldIdLst/{*}sldId")]
        sections = []
        for number, path in enumerate((targets[id].path for id in order if id in targets), 1):
            slide = package.xml(path)
            title = " ".join(" ".join(_paragraphs(shape)) for shape in _titles(slide))
            notes = [link.path for link in package.links(path).values() if link.kind == "notesSlide"]
            texts = [
                *_paragraphs(slide),
                *(text for note in notes for text in _paragraphs(package.xml(note), notes=True)),
            ]
            sections.append(numbered_section(title, ((number, text) for text in texts), "slide"))
        title, author = properties(package)
    first = next((section.heading for section in sections if section.heading), "")
    generic = title.lower() in ("", "powerpoint presentation", "presentation")
    return Article(
        first if generic else title, tuple(sections), metadata={"author": author} if author else {}
    )


def _link_id(node: Any) -> str:
    """The id of the link to a slide: the attribute `id` that has a namespace."""
    return next((value for key, value in node.attrib.items() if key.endswith("}id")), "")


def _titles(slide: Any) -> Iterator[Any]:
    for shape in slide.iter("{*}sp"):
        place = shape.find(".//{*}nvPr/{*}ph")
        if place is not None and place.get("type") in TITLES:
            yield shape


def _paragraphs(root: Any, notes: bool = False) -> Iterator[str]:
    """The paragraphs of shapes and tables; of notes only those of the notes themselves, not the slide's number."""
    shapes = [
        shape
        for shape in root.iter("{*}sp")
        if (place := shape.find(".//{*}nvPr/{*}ph")) is not None and place.get("type") == "body"
    ]
    for shape in shapes if notes else [root]:
        for paragraph in shape.iter("{http://schemas.openxmlformats.org/drawingml/2006/main}p"):
            runs = (
                node.text or "" if node.tag.endswith("}t") else " "
                for node in paragraph.iter("{*}t", "{*}br")
            )
            if text := " ".join("".join(runs).split()):
                yield text
