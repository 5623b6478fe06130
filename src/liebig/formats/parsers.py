"""The kinds of files that are read as documents, a line each: its suffixes, and the function that reads it.

A function that begins with `parse_` gets the text of the file, any other one the file; it gives one article, or
several where a file holds many (functions, messages, rows). A file without a suffix of the table is known by its first
bytes, or is plain text if it is text at all. The modules are imported with the first file of their kind.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

from liebig.base.errors import DataError
from liebig.formats.archives import TARS
from liebig.formats.clean_text import without_breaks, without_ligatures
from liebig.formats.encoding import STRAY, utf_16, whole_text
from liebig.formats.inputs import InputSource
from liebig.formats.items import Where
from liebig.formats.markup import parse_markdown, parse_plain, parse_rst
from liebig.formats.outline import Article


class FileKind(NamedTuple):
    """A kind of file: the function that reads it, its suffixes, and what it is in docs/formats.md."""

    name: str
    reader: str
    suffixes: tuple[str, ...]
    about: str

    @property
    def is_text(self) -> bool:
        """Whether its reader takes the decoded text."""
        return self.reader.partition(":")[2].startswith("parse_")

    def read(self) -> Callable[[Any], Article | Iterable[Article]]:
        return _load(self.reader)


@cache
def _load(place: str) -> Callable[[Any], Article | Iterable[Article]]:
    module, _, name = place.partition(":")
    function: Callable[[Any], Article | Iterable[Article]] = getattr(
        import_module(f"liebig.formats.{module}"), name
    )
    return function


def parse_html(text: str) -> Article:
    """The main content of a page: headings become sections, block elements paragraphs."""
    from liebig.formats.html_page import parse_page  # late: only folders with HTML files pay for lxml

    return parse_page(text)


# fmt: off
KINDS = {kind.name: kind for kind in (
    FileKind("text", "markup:parse_plain", (".txt", ".text"),
             "plain text: paragraphs between blank lines; a passage has its line"),
    FileKind("markdown", "markup:parse_markdown", (".md", ".markdown", ".mdx", ".rmd", ".qmd"),
             "Markdown: headings are sections; line; title, author, date and tags of the front matter"),
    FileKind("rst", "markup:parse_rst", (".rst",), "reStructuredText: headings are sections; line"),
    FileKind("html", "parsers:parse_html", (".html", ".htm", ".xhtml"),
             "web pages: the main content; headings are sections"),
    FileKind("pdf", "pdf:read_pdf", (".pdf",),
             "PDF: entries of the outline are sections; page, title and author"),
    FileKind("docx", "docx:read_docx", (".docx", ".docm", ".dotx", ".dotm"),
             "Word: headings are sections, with tables and text boxes; title and author"),
    FileKind("pptx", "pptx:read_pptx", (".pptx", ".pptm", ".ppsx", ".ppsm", ".potx", ".potm"),
             "PowerPoint: a section per slide, with its notes; slide, title and author"),
    FileKind("xlsx", "xlsx:read_xlsx", (".xlsx", ".xlsm", ".xltx", ".xltm"),
             "Excel: a document per row of every visible sheet, with the names of the columns"),
    FileKind("doc", "old_office:read_doc", (".doc", ".dot"), "Word from 97 to 2003; title and author"),
    FileKind("ppt", "old_office:read_ppt", (".ppt", ".pps", ".pot"),
             "PowerPoint from 97 to 2003: a section per slide; slide, title and author"),
    FileKind("xls", "old_office:read_xls", (".xls", ".xlt"),
             "Excel from before 2007: a document per row of every visible sheet, with the names of the columns"),
    FileKind("odt", "open_document:read_odt", (".odt", ".fodt"),
             "OpenDocument text: headings are sections; title and author"),
    FileKind("odp", "open_document:read_odp", (".odp", ".odg", ".fodp"),
             "OpenDocument presentation or drawing: a section per slide, with its notes; slide, title and author"),
    FileKind("ods", "open_document:read_ods", (".ods", ".fods"),
             "OpenDocument spreadsheet: a document per row of every sheet"),
    FileKind("rtf", "rtf:parse_rtf", (".rtf",), "rich text: headings are sections; title and author"),
    FileKind("epub", "epub:read_epub", (".epub",),
             "books: chapters in reading order, headings are sections; title and author"),
    FileKind("eml", "mail:read_message", (".eml", ".emlx", ".mht", ".mhtml"),
             "mail: subject, sender (author), recipients, date and body; attachments of a kind in this table. Web "
             "pages as browsers save them"),
    FileKind("mbox", "mail:read_mailbox", (".mbox",), "a document per message of a mailbox"),
    FileKind("msg", "outlook:read_outlook", (".msg",),
             "Outlook: subject, sender (author), recipients, date and body"),
    FileKind("ics", "vobject:parse_calendar", (".ics", ".ical", ".ifb"),
             "calendars: a document per event, task or note; line, date and organizer (author)"),
    FileKind("vcf", "vobject:parse_contacts", (".vcf", ".vcard"), "address books: a document per person; line"),
    FileKind("subtitles", "line_text:parse_subtitles", (".srt", ".vtt", ".sbv"),
             "subtitles: what is said, without the times; line"),
    FileKind("plist", "line_text:read_plist", (".plist", ".webloc"),
             "property lists, binary too: a line per value behind its path"),
    FileKind("ipynb", "notebook:parse_notebook", (".ipynb",),
             "notebooks: text cells, code cells, and outputs that are text; author"),
    FileKind("tex", "tex:parse_tex", (".tex", ".ltx"), "LaTeX: sections; line, title and author"),
    FileKind("org", "org_mode:parse_org", (".org",), "Org: headlines are sections; line, title and author"),
    FileKind("adoc", "asciidoc:parse_asciidoc", (".adoc", ".asciidoc"),
             "AsciiDoc: headings are sections; line, title and author"),
    FileKind("man", "man_page:parse_man", (".man",), "manual pages, also `ls.1` to `x.9`: sections; line"),
    FileKind("log", "line_text:read_log", (".log",),
             "logs: passages of whole lines; line. Of a large one only the first and last 4 MiB are read"),
    FileKind("json", "line_text:parse_json", (".json", ".geojson"),
             "JSON that is not a table: a line per value behind its path"),
    FileKind("xml", "xml_document:parse_xml", (".xml", ".rss", ".atom", ".opml", ".fb2", ".docbook", ".ttml"),
             "XML of any kind: the text of elements and attributes behind their names; line"),
    FileKind(
        "settings",
        "line_text:parse_settings",
        (".yaml", ".yml", ".toml", ".ini", ".cfg", ".conf", ".properties", ".env", ".diff", ".patch", ".csv", ".tsv",
         ".jsonl", ".ndjson"),
        "settings, and data that is not a table: passages of whole lines; line",
    ),
    FileKind("python", "code:parse_python", (".py", ".pyi", ".pyw"),
             "Python: a document per function, class and method; line. The title is the name and the docstring"),
    FileKind(
        "code",
        "code:parse_code",
        (
            ".bash", ".bat", ".c", ".cc", ".cjs", ".clj", ".cpp", ".cs", ".css", ".cts", ".cu", ".cuh", ".cxx", ".dart",
            ".el", ".erl", ".ex", ".exs", ".f90", ".fish", ".fs", ".go", ".gradle", ".groovy", ".h", ".hh", ".hpp",
            ".hs", ".hxx", ".java", ".jl", ".js", ".jsx", ".kt", ".kts", ".ksh", ".less", ".lisp", ".lua", ".m", ".mjs",
            ".ml", ".mli", ".mm", ".mts", ".nim", ".pas", ".php", ".pl", ".pm", ".proto", ".ps1", ".pxd", ".pyx", ".r",
            ".rb", ".rs", ".scala", ".scm", ".scss", ".sh", ".sql", ".svelte", ".swift", ".tcl", ".tf", ".ts", ".tsx",
            ".vb", ".vim", ".vue", ".zig", ".zsh",
        ),
        "code: a document per function, class and method; line. The title is the name and the comment above",
    ),
)}
# fmt: on
BY_SUFFIX = {suffix: kind for kind in KINDS.values() for suffix in kind.suffixes}
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
# fmt: off
PICTURES = frozenset((
    ".png", ".jpg", ".jpeg", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".heic", ".ico", ".svg", ".psd", ".eps", ".avif",
    ".xpm", ".xbm",
))
MEDIA = frozenset((
    ".mp3", ".mp4", ".m4a", ".m4v", ".wav", ".ogg", ".flac", ".avi", ".mov", ".mkv", ".webm", ".wmv", ".aac", ".opus",
    ".aif", ".aiff", ".mid", ".wma",
))
# fmt: on
# Kinds whose files are no text, and what files of Office are under each other's suffixes, by their first bytes.
CONTAINERS = frozenset(
    ["pdf", "docx", "pptx", "xlsx", "doc", "ppt", "xls", "odt", "odp", "ods", "epub", "msg"]
)
FLAT = frozenset(("odt", "odp", "ods"))  # OpenDocument files may be one file of XML
NEWER, OLDER = {"doc": "docx", "ppt": "pptx", "xls": "xlsx"}, {"docx": "doc", "pptx": "ppt"}
ZIP, OLE = b"PK\x03\x04", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
PAGE = re.compile(
    rb"\s*(?:<\?xml[^>]{0,200}>\s*)?<(?:!doctype html|html|head|body|table|meta)\b", re.IGNORECASE
)
# What the first bytes of files that are not read say, and what to do.
KNOWN = {
    ZIP: "zipped files of a program; unpack it, or export it as text or PDF",
    b"7z\xbc\xaf\x27\x1c": "an archive that is not read; unpack it, or pack it as .zip",
    b"Rar!\x1a\x07": "an archive that is not read; unpack it, or pack it as .zip",
    b"SQLite format 3\0": "a database; export its tables as .csv",
    b"ITSF": "compiled HTML help; unpack it with extract_chmLib",
    OLE: "of a program whose files are not read; export it as text or PDF",
    b"\x7fELF": "a program",
    b"MZ": "a program",
}
HEAD = 1 << 13
# Keys, certificates and what is encrypted; a signed message is text.
ARMOUR = re.compile(rb"\s*-----BEGIN (?!PGP SIGNED)[A-Z0-9 ]{1,40}-----")


def parse_as(name: str, text: str, where: Where) -> Article:
    """A text parsed as the suffix of its name says: Markdown, reStructuredText, HTML, else plain."""
    suffix = name[name.rfind(".") :].lower() if "." in name else ""
    try:
        return PARSERS.get(suffix, parse_plain)(text)
    except DataError as error:  # parsers know nothing of files
        raise where.error(error.what, error.fix) from None


def kind_of(source: InputSource) -> FileKind | None:
    """What kind of file a source is; None where it is not text and of no kind that is read."""
    kind = BY_SUFFIX.get(source.suffix)
    if kind is not None and kind.name not in CONTAINERS:
        return kind
    if source.suffix in PICTURES or source.suffix in MEDIA:
        return None
    head = source.head(HEAD)
    if kind is not None and (is_binary(head) or b"%PDF" in head or not head):
        other = {ZIP: NEWER, OLE: OLDER}.get(head[:4] if head.startswith(ZIP) else head[:8], {})
        return KINDS[other.get(kind.name, kind.name)]
    if kind is not None and kind.name in FLAT and b"<office:document" in head:
        return kind
    if is_binary(head) or ARMOUR.match(head):
        return None
    if head.startswith(b"#!"):
        return KINDS["python" if b"python" in head.split(b"\n", 1)[0] else "code"]
    if head.startswith(b"From ") and b"\nSubject:" in head:
        return KINDS["mbox"]
    if head.startswith(b"{\\rtf"):
        return KINDS["rtf"]
    if PAGE.match(head):
        return KINDS["html"]
    if head.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"<?xml"):
        return KINDS["xml"]
    if kind is not None:  # programs save pages and tables of text under suffixes of Office
        return KINDS["settings" if kind.name in ("xls", "xlsx") else "text"]
    from liebig.formats.man_page import is_man_page

    if is_man_page(source.suffix, head):
        return KINDS["man"]
    return KINDS["text"]


def why_not(source: InputSource) -> str:
    if source.suffix in PICTURES:
        return "picture"
    if source.suffix in MEDIA:
        return "audio or video"
    head = source.head(HEAD)
    if armour := ARMOUR.match(head):
        return "a private key" if b"PRIVATE KEY" in armour[0] else "a key or certificate"
    if source.location.lower().endswith((".zip", *TARS)):  # any other one is read as a folder
        return "an archive inside two others; unpack one of them"
    return next((reason for start, reason in KNOWN.items() if head.startswith(start)), "binary")


def is_binary(head: bytes) -> bool:
    """Whether bytes are not text: NULs without the mark of UTF-16, control characters, or few letters of ASCII."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf")) or utf_16(head):
        return False
    start = head[:1024]
    odd = sum(byte < 9 or 13 < byte < 27 or 27 < byte < 32 for byte in start)
    if head.count(0) * STRAY > len(head) or head.startswith(b"%PDF") or odd * 20 > len(start):
        return True
    try:
        codecs.getincrementaldecoder("utf-8")().decode(start)
    except UnicodeDecodeError:
        return sum(byte > 127 for byte in start) * 3 > len(start)
    return False


def articles(
    source: InputSource, kind: FileKind, said: Callable[[str], None] = lambda encoding: None
) -> Iterator[Article]:
    """What a file of a kind holds; `said` is told the encoding of a text."""
    if not kind.is_text:
        made = kind.read()(source)
    else:
        text, encoding = whole_text(source)
        said(encoding)
        text = without_ligatures(text)
        try:
            made = kind.read()(without_breaks(text) if kind is KINDS["text"] else text)
        except DataError as error:  # parsers know nothing of files
            raise Where(source.label).error(error.what, error.fix) from None
    yield from [made] if isinstance(made, Article) else made
