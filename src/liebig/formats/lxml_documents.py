"""Web pages, Word documents (.docx) and e-books (.epub), parsed by lxml to a title and sections.

Word documents and e-books are XML files in a .zip.

Only the parts with text are unpacked, in memory, and together at most LARGEST bytes of them, whatever the archive says
about its sizes. Parts of the package are parsed as XML without a network and without external entities, and a part
that declares entities is refused; chapters of a book are parsed as HTML, which has none. Headings become sections
(Word: styles with an outline level; EPUB: <h1> to <h6>). Headers, footers, footnotes and comments of Word are left out.
Cost: one pass of the parser over each part, one part in memory at a time.
"""

from __future__ import annotations

import posixpath
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, NoReturn
from urllib.parse import unquote

from lxml import etree, html

from liebig.base.records import Section
from liebig.formats.clean_text import LARGEST, decode_text, without_ligatures
from liebig.formats.inputs import DAMAGE, Source
from liebig.formats.items import Where
from liebig.formats.markup import Article, Outline

# An HTML page to a title and sections: its main content, without navigation, headers, footers and forms.
#
# A page that says what its main content is (<main>, role="main", a single <article>) is believed. Otherwise
# trafilatura finds it, as long as it keeps a fair share of the text; what it would throw away of a page of many small
# parts is kept rather than lost. lxml parses in linear time and mends what is broken. Cost: about 1 MB of HTML a
# second and core.

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


def _tree(text: str) -> Any:
    try:
        return html.document_fromstring(
            text.replace("\0", "").encode("utf-8"), parser=html.HTMLParser(encoding="utf-8")
        )
    except etree.ParserError:  # nothing but white space and comments
        return None


def _main(tree: Any) -> Article:
    for path in ("//main", "//*[@role='main']", "//article"):
        found = tree.xpath(path)
        if len(found) == 1 and found[0].text_content().strip():
            return _outline(found[0])
    whole = _outline(tree)
    if _size(whole) < SHORT:
        return whole
    from trafilatura import bare_extraction  # late: it loads much that a page with <main> has no use for

    page = bare_extraction(tree, favor_recall=True, include_comments=False, with_metadata=False)
    if page is None or page.body is None:
        return whole
    content = _outline(page.body)
    return content if _size(content) > FAIR * _size(whole) else whole


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
        """What the element holds."""
        self._block()
        return self.outline.parsed()


def _name(node: Any) -> str:
    """The name in HTML's words: trafilatura's <head rend="h2"> is a heading, its <code> of several lines a <pre>."""
    tag: str = node.tag
    if tag == "head":
        return str(node.get("rend"))
    lines = tag in ("code", "quote") and "\n" in "".join(node.itertext())
    return "pre" if lines else tag


CONTAINER = "META-INF/container.xml"
ENCRYPTION = "META-INF/encryption.xml"
FONTS = ("idpf.org/2008/embedding", "ns.adobe.com/pdf/enc#RC")  # ways to scramble fonts, which are not read
CHAPTERS = ("application/xhtml+xml", "text/html", "text/x-oeb1-document")
HEADING = re.compile(r"heading ([1-9])", re.IGNORECASE)
TITLE = re.compile(r"title", re.IGNORECASE)


class Package:
    """The parts of an opened .zip, unpacked one at a time; all together no larger than LARGEST."""

    def __init__(self, file: IO[bytes], source: Source) -> None:
        self._archive, self._source, self._room = zipfile.ZipFile(file), source, LARGEST
        self.where = Where(source.label)

    def __contains__(self, name: str) -> bool:
        return name in self._archive.NameToInfo

    def read(self, name: str) -> bytes:
        """The bytes of a part."""
        if name not in self:
            self.refuse(f"the file has no part {name!r}")
        with self._archive.open(name) as part:
            data = part.read(
                self._room + 1
            )  # never what the archive says: it may promise less than it unpacks to
        self._room -= len(data)
        if self._room < 0:
            self.refuse(f"unpacks to more than {LARGEST >> 20} MiB of text", "split it")
        return data

    def xml(self, name: str) -> Any:
        """The root of a part."""
        parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
        try:
            root = etree.fromstring(self.read(name), parser)
        except etree.XMLSyntaxError as error:
            raise self._source.damaged(error) from None
        dtd = root.getroottree().docinfo.internalDTD
        if dtd is not None and next(dtd.iterentities(), None) is not None:
            self.refuse(f"the part {name!r} declares XML entities, which are never expanded")
        return root

    def refuse(self, what: str, fix: str = "save it again with another program") -> NoReturn:
        """Raise an error about the file."""
        self.where.refuse(what, fix)


def read_docx(source: Source) -> Article:
    """Paragraphs of a Word document; a paragraph whose style has an outline level is a heading."""
    with _opened(source) as package:
        return _document(package)


def read_epub(source: Source) -> Article:
    """The chapters of a book in its reading order; headings become sections."""
    with _opened(source) as package:
        return _book(package)


@contextmanager
def _opened(source: Source) -> Iterator[Package]:
    """The parts of a file, and sentences for what is wrong with it."""
    try:
        with source.seekable() as file:
            yield Package(file, source)
    except DAMAGE as error:
        raise source.damaged(error) from None


def _document(package: Package) -> Article:
    links = package.xml("_rels/.rels")
    main = next((e.get("Target") for e in links if str(e.get("Type")).endswith("/officeDocument")), None)
    if main is None:
        package.refuse("the file does not say which part is its document")
    main = str(main).lstrip("/")
    styles = posixpath.join(posixpath.dirname(main), "styles.xml")
    levels = _style_levels(package.xml(styles)) if styles in package else {}
    outline = Outline()
    for text, level in _paragraphs(package.xml(main), levels):
        if level is None:
            outline.line(without_ligatures(text))
            outline.end_paragraph()
        else:
            outline.heading(" ".join(text.split()), is_title=level <= 1)
    parsed = outline.parsed()
    title = _first(package.xml("docProps/core.xml"), "title") if "docProps/core.xml" in package else ""
    return Article(parsed.title or title, parsed.sections)


def _paragraphs(root: Any, levels: dict[str, int]) -> Iterator[tuple[str, int | None]]:
    """Text and level of every paragraph; one in a text box stands before the one that the box is fixed to."""
    stack: list[list[str]] = []
    walk = etree.iterwalk(root, events=("start", "end"))
    for event, node in walk:
        name = _local_name(node)
        if event == "start" and name in ("Fallback", "pPr", "rPr"):  # Fallback: a text box once more
            walk.skip_subtree()
        elif event == "start" and name == "p":
            stack.append([])
        elif event == "end" and name == "p":
            text = "".join(stack.pop()).strip()
            if text:
                yield text, _level(node, levels)
        elif event == "end" and stack:
            stack[-1].append(
                {"t": node.text or "", "tab": " ", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}.get(name, "")
            )


def _level(node: Any, levels: dict[str, int]) -> int | None:
    """0 for a title, from 1 for headings, None for text."""
    own = node.find("{*}pPr/{*}outlineLvl")
    if own is not None:
        return _outline_level(own)
    style = node.find("{*}pPr/{*}pStyle")
    return None if style is None else levels.get(_value(style))


def _style_levels(root: Any) -> dict[str, int]:
    """The levels of those styles that have one, of their own or from the style they are based on.

    Programs translate the ids of styles, and users define their own, but names and outline levels stay.
    """
    own, bases = dict[str, int | None](), dict[str, str]()
    for style in root.iterfind("{*}style"):
        id = next((value for key, value in style.attrib.items() if key.endswith("}styleId")), "")
        name, level, base = (style.find(path) for path in ("{*}name", "{*}pPr/{*}outlineLvl", "{*}basedOn"))
        heading = HEADING.fullmatch(_value(name))
        if TITLE.fullmatch(_value(name)):
            own[id] = 0
        elif heading:
            own[id] = int(heading[1])
        elif level is not None:
            own[id] = _outline_level(level)
        bases[id] = _value(base)
    levels: dict[str, int] = {}
    for id in bases:
        seen, at = {""}, id
        while at not in own and at not in seen:  # a circle has no level
            seen.add(at)
            at = bases.get(at, "")
        level = own.get(at)
        if level is not None:
            levels[id] = level
    return levels


def _outline_level(node: Any) -> int | None:
    """Word counts headings from 0; 9 is text."""
    value = _value(node)
    return int(value) + 1 if value.isdecimal() and int(value) < 9 else None


def _value(node: Any) -> str:
    """The attribute `val` of an element, in whichever of the two namespaces; "" where there is none."""
    attributes = {} if node is None else node.attrib
    return next((value for key, value in attributes.items() if key.endswith("}val")), "")


def _book(package: Package) -> Article:
    if ENCRYPTION in package:
        methods = package.xml(ENCRYPTION).iterfind(".//{*}EncryptionMethod")
        if any(not any(font in str(m.get("Algorithm")) for font in FONTS) for m in methods):
            package.refuse("the book is encrypted (DRM)", "export it without DRM")
    root = package.xml(CONTAINER).find(".//{*}rootfile")
    if root is None:
        package.refuse("the book does not say where its table of parts is")
    path = str(root.get("full-path"))
    book = package.xml(path)
    items = {item.get("id"): item for item in book.iterfind(".//{*}manifest/{*}item")}
    sections: list[Section] = []
    for entry in book.iterfind(".//{*}spine/{*}itemref"):
        item = items.get(entry.get("idref"))
        if (
            item is None
            or item.get("media-type") not in CHAPTERS
            or "nav" in item.get("properties", "").split()
        ):
            continue
        name = posixpath.normpath(posixpath.join(posixpath.dirname(path), unquote(item.get("href", ""))))
        text, _ = decode_text(package.read(name), package.where)
        sections += _chapter(parse_content(without_ligatures(text)))
    return Article(_first(book, "title"), tuple(sections))


def _chapter(parsed: Article) -> Iterator[Section]:
    """The sections of a chapter; its title is the heading of what stands before the next heading."""
    sections = list(parsed.sections)
    if parsed.title and (not sections or sections[0].heading):
        yield Section(parsed.title, ())
    for place, section in enumerate(sections):
        yield Section(parsed.title, section.paragraphs) if place == 0 and not section.heading else section


def _first(root: Any, name: str) -> str:
    """The text of the first element of this name, without its namespace; "" where there is none."""
    return " ".join("".join(next((e.itertext() for e in root.iter(f"{{*}}{name}")), ())).split())


def _local_name(node: Any) -> str:
    return etree.QName(node).localname if isinstance(node.tag, str) else ""
