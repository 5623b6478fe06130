"""An HTML page to a title and sections: its main content, without navigation, headers, footers and forms.

A page that says what its main content is (<main>, role="main", a single <article>) is believed. Otherwise trafilatura
says where it begins and ends, as long as it keeps a fair share of the text; what lies between is kept whole, because
trafilatura drops most headings and many tables. lxml mends what is broken. Cost: linear. lxml needs time quadratic in
the attributes of a tag, so a page with a tag of more than ATTRIBUTES is refused by a first pass that builds no tree;
trafilatura takes 0.1 ms per element, so a page of more than ELEMENTS is read without it.
"""

from __future__ import annotations

from typing import Any

from lxml import etree, html

from liebig.base.errors import DataError
from liebig.base.records import Section
from liebig.formats.outline import Article, Outline

ATTRIBUTES = 256  # of one tag
ELEMENTS = 50_000  # of a page that trafilatura sees
LARGEST_PAGE = 1 << 26  # characters; the tree takes some ten bytes for each
BLOCKS = frozenset(
    (
        "address", "article", "aside", "blockquote", "body", "br", "caption", "center", "dd", "details", "div",
        "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "header", "hr", "html",
        "li", "main", "nav", "ol", "p", "pre", "section", "summary", "table", "tbody", "td",
        "tfoot", "th", "thead", "tr", "ul",
        "cell", "item", "lb", "list", "quote", "row",  # trafilatura's own
    )
)  # fmt: skip
SKIPPED = frozenset(
    (
        "script",
        "style",
        "noscript",
        "template",
        "svg",
        "math",
        "iframe",
        "object",
        "head",
        "title",
        "select",
        "button",
    )
)
AROUND = frozenset(("nav", "aside", "footer", "header", "form", "dialog"))  # what stands around the content
AROUND_ROLES = frozenset(("navigation", "banner", "contentinfo", "search", "complementary"))
HEADINGS = frozenset(("h1", "h2", "h3", "h4", "h5", "h6"))
SHORT = 250  # characters below which trafilatura gives bare text without structure
ANCHOR = 30  # letters of a paragraph by which it is recognised; one that begins the content has as many
FAIR = 0.3  # share of the text that the extractor must keep to be believed


def parse_page(text: str) -> Article:
    """The main content of a page; its <title> counts where no <h1> stands on top."""
    tree = _tree(text)
    if tree is None:
        return Article("", ())
    title = " ".join((tree.findtext(".//title") or "").split())
    parsed = _main(tree)
    return Article(parsed.title or title, parsed.sections)


def parse_content(text: str) -> Article:
    """A page that is all content, such as the chapter of a book."""
    tree = _tree(text)
    return Article("", ()) if tree is None else _outline(tree)


class _AttributeCheck:
    """A target of the parser that builds nothing and refuses a tag with too many attributes."""

    def start(self, tag: str, attributes: Any) -> None:
        if len(attributes) > ATTRIBUTES:
            raise DataError(
                f"a tag of the page has {len(attributes):,} attributes; at most {ATTRIBUTES} are read",
                fix="remove the tag",
            )

    def close(self) -> None:
        pass


def _tree(text: str) -> Any:
    if len(text) > LARGEST_PAGE:
        raise DataError(f"the page is larger than {LARGEST_PAGE >> 20} MiB", fix="split it")
    page = text.replace("\0", "").encode("utf-8")
    try:
        etree.fromstring(page, etree.HTMLParser(encoding="utf-8", target=_AttributeCheck()))
        return html.document_fromstring(page, parser=html.HTMLParser(encoding="utf-8"))
    except (etree.ParserError, etree.XMLSyntaxError):  # nothing but white space and comments
        return None


def _main(tree: Any) -> Article:
    for path in ("//main", "//*[@role='main']", "//article"):
        elements = tree.xpath(path)
        if len(elements) == 1 and elements[0].text_content().strip():
            return _outline(elements[0])
    whole = _outline(tree)
    if _size(whole) < SHORT or sum(1 for _ in tree.iter()) > ELEMENTS:
        return whole
    from trafilatura import bare_extraction  # late: it loads much that a page with <main> has no use for

    page = bare_extraction(tree, favor_recall=True, include_comments=False, with_metadata=False)
    if page is None or page.body is None:
        return whole
    content = _between(whole, _outline(page.body))
    return content if _size(content) > FAIR * _size(whole) else whole


def _between(whole: Article, content: Article) -> Article:
    """The page from the first paragraph of its content to the last one."""
    kept = {_key(text) for section in content.sections for text in section.paragraphs}
    texts = [
        (at, number, _key(text))
        for at, section in enumerate(whole.sections)
        for number, text in enumerate(section.paragraphs)
    ]
    places = [(at, number) for at, number, key in texts if key in kept]
    start = next(((at, number) for at, number, key in texts if key in kept and len(key) == ANCHOR), None)
    if start is None:
        return content
    (first, begin), (last, end) = start, places[-1]
    sections = list(whole.sections[first : last + 1])
    sections[-1] = Section(sections[-1].heading, sections[-1].paragraphs[: end + 1])
    title = whole.title or content.title
    heading = "" if sections[0].heading == title else sections[0].heading
    sections[0] = Section(heading, sections[0].paragraphs[begin:])
    return whole._replace(title=title, sections=tuple(sections))


def _key(text: str) -> str:
    return "".join(text.split())[:ANCHOR]


def _size(parsed: Article) -> int:
    return sum(len(paragraph) for section in parsed.sections for paragraph in section.paragraphs)


def _outline(root: Any) -> Article:
    """The text of an element without what stands around it; a <header> with the heading of an article is content."""
    page = _Page()
    walk = etree.iterwalk(root, events=("start", "end"))
    for event, node in walk:
        if event == "start":
            if not isinstance(node.tag, str) or (node is not root and _is_around(node)):
                walk.skip_subtree()
            else:
                page.start(node)
        else:
            if isinstance(node.tag, str):
                page.end(node)
            if node is not root and node.tail:
                page.text.append(node.tail)
    return page.parsed()


def _is_around(node: Any) -> bool:
    """Whether an element is no content: never shown, or around it. trafilatura calls a heading <head>."""
    tag = node.tag
    if tag == "head":
        return node.get("rend") is None
    if tag == "header":
        return not any(True for heading in HEADINGS for _ in node.iter(heading))
    return (
        tag in SKIPPED or tag in AROUND or node.get("role") in AROUND_ROLES or node.get("hidden") is not None
    )


class _Page:
    """Elements as they come, as an outline."""

    def __init__(self) -> None:
        self.outline = Outline()
        self.text: list[str] = []
        self._heading, self._pre = "", 0

    def start(self, node: Any) -> None:
        tag = _name(node)
        if tag in HEADINGS:
            self._block()
            self._heading = tag
        elif tag in BLOCKS or tag == "pre":
            self._block()
            self._pre += tag == "pre"
        self.text += [node.text] if node.text else []

    def end(self, node: Any) -> None:
        tag = _name(node)
        if tag in HEADINGS or tag in BLOCKS:
            self._block()
            self._pre -= tag == "pre"

    def _block(self) -> None:
        """End the block of text that stands open."""
        text = "".join(self.text)
        text = text.strip("\n") if self._pre and not self._heading else " ".join(text.split())
        self.text = []
        if self._heading:
            if text:
                self.outline.heading(text, is_title=self._heading == "h1")
            self._heading = ""
        elif text.strip():
            self.outline.line(text)
            self.outline.end_paragraph()

    def parsed(self) -> Article:
        self._block()
        return self.outline.parsed()


def _name(node: Any) -> str:
    """The name in HTML's words: trafilatura's <head rend="h2"> is a heading, its <code> of several lines a <pre>."""
    tag: str = node.tag
    if tag == "head":
        return str(node.get("rend"))
    lines = tag in ("code", "quote") and "\n" in "".join(node.itertext())
    return "pre" if lines else tag
