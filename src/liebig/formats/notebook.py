"""Jupyter notebooks (.ipynb): text cells as Markdown, code cells, and outputs that are text, in their order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from liebig.base.errors import DataError
from liebig.base.records import Section
from liebig.formats.items import Where
from liebig.formats.markup import parse_markdown
from liebig.formats.outline import Article
from liebig.formats.rows import parse

OUTPUT = 2_000  # characters of an output that are kept


def parse_notebook(text: str) -> Article:
    """Cells under the headings of the text cells; the first heading on top is the title."""
    notebook = parse(text, Where(""))
    sheets = notebook.get("worksheets") if isinstance(notebook, Mapping) else None  # format 3
    cells = (
        sheets[0].get("cells") if sheets else notebook.get("cells") if isinstance(notebook, Mapping) else None
    )
    if not isinstance(cells, list):
        raise DataError("the notebook has no cells")
    title, sections = "", [("", list[str]())]
    for cell in cells:
        kind, source = cell.get("cell_type"), _joined(cell.get("source", cell.get("input")))
        if kind == "markdown":
            parsed = parse_markdown(source)
            if title and parsed.title:
                sections.append((parsed.title, []))
            title = title or parsed.title
            for section in parsed.sections:
                if section.heading:
                    sections.append((section.heading, []))
                sections[-1][1].extend(section.paragraphs)
        elif kind in ("code", "raw"):
            texts = (source, *map(_output, cell.get("outputs", ())))
            sections[-1][1].extend(text for text in texts if text.strip())
    kept = tuple(Section(heading, tuple(texts)) for heading, texts in sections if heading or texts)
    author = _author(notebook)
    return Article(title, kept, metadata={"author": author} if author else {})


def _joined(value: Any) -> str:
    return "".join(value) if isinstance(value, list) else str(value or "")


def _output(output: Mapping[str, Any]) -> str:
    """The text of an output; "" of pictures and of errors, whose traces are no text to search."""
    data = output.get("data", output)
    return _joined(output.get("text") or (data.get("text/plain") if isinstance(data, Mapping) else ""))[
        :OUTPUT
    ]


def _author(notebook: Mapping[str, Any]) -> str:
    authors = notebook.get("metadata", {}).get("authors") or []
    names = [author.get("name", "") for author in authors if isinstance(author, Mapping)]
    return ", ".join(filter(None, names))
