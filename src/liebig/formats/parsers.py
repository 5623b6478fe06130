"""Which parser reads a text: plain text, Markdown, reStructuredText or HTML, as the suffix of its name says."""

from __future__ import annotations

from collections.abc import Callable

from liebig.base.errors import DataError
from liebig.formats.items import Where
from liebig.formats.markup import parse_markdown, parse_plain, parse_rst
from liebig.formats.outline import Article


def parse_html(text: str) -> Article:
    """The main content of a page: headings become sections, block elements paragraphs."""
    from liebig.formats.html_page import parse_page  # late: only folders with HTML files pay for lxml

    return parse_page(text)


PARSERS: dict[str, Callable[[str], Article]] = {
    ".txt": parse_plain,
    ".text": parse_plain,
    ".md": parse_markdown,
    ".markdown": parse_markdown,
    ".rst": parse_rst,
    ".html": parse_html,
    ".htm": parse_html,
    ".xhtml": parse_html,
}


def parse_as(name: str, text: str, where: Where) -> Article:
    """A text parsed as the suffix of its name says."""
    suffix = name[name.rfind(".") :].lower() if "." in name else ""
    try:
        return PARSERS.get(suffix, parse_plain)(text)
    except DataError as error:  # parsers know nothing of files
        raise where.error(error.what, error.fix) from None
