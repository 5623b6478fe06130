"""The work of every reader grows with the size of its input and not faster, whatever the input holds.

Work is counted, not timed: the lines of Python that run. What C code does is not seen by that: its input is bounded,
which has tests below and in test_bombs.py, and `make torture` (tests/faults/bombs.py) times these shapes.
"""

import io
import json
import sys
import types
import zipfile

import pytest

from liebig.base.errors import DataError
from liebig.formats import detect, html_page
from liebig.formats.clean_text import without_breaks, without_margins
from liebig.formats.items import Options
from liebig.formats.parsers import KINDS, parse_html
from liebig.formats.pdf import _headings
from tests.formats.test_docx_epub import CONTAINER, RELS, W, packed, paragraph

SMALL, LARGE = 300, 1200
GROWTH = 2.5**2  # of work of which there is four times as much; quadratic work grows 16 times


def work(function, *arguments):
    """How many lines of Python a call runs."""
    count = 0

    def trace(frame, event, argument):
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function(*arguments)
    except DataError:
        pass  # refused, and what that took counts as well
    finally:
        sys.settrace(before)
    return count


def check(function, shape):
    work(function, shape(4))  # what is done once, such as imports, is done
    smaller, larger = (work(function, shape(size)) for size in (SMALL, LARGE))
    assert larger < GROWTH * smaller + 100, (smaller, larger)


TEXTS = {
    "words": lambda n: "word " * n,
    "lines": lambda n: "word\n" * n,
    "blank lines": lambda n: "\n" * n,
    "broken words": lambda n: "in-\nformation " * n,
    "hyphens": lambda n: "a-\n" * n,
    "underlines": lambda n: "a\n=\n" * n,
    "long underline": lambda n: "a\n" + "=" * n + "x",
    "marks": lambda n: "# " * n,
    "headings": lambda n: "# a\n" * n,
    "fences": lambda n: "```\n" * n,
    "open links": lambda n: "[a](" * n,
    "brackets": lambda n: "[" * n + "](",
    "images": lambda n: "![a](b) " * n,
    "comments": lambda n: "<!-- a -->" * n,
    "open comments": lambda n: "<!--" * n,
    "front matter": lambda n: "---\n" + "a: b\n" * n,
    "backticks": lambda n: "`" * n,
    "roles": lambda n: ":a:`b <c>`_ " * n,
    "colons": lambda n: ":" * n + "`a`",
    "directives": lambda n: ".. note:: a\n" * n,
    "overlines": lambda n: "==\na\n==\n" * n,
    "form feeds": lambda n: "a\x0c" * n,
    "definitions": lambda n: "int f(int a)\n{\n}\n" * n,
    "classes": lambda n: "class a {\n  def f(x):\n" * n,
    "nested brackets": lambda n: "[[a][" * n + "\\cite[" * n,
    "commands": lambda n: "\\section{a}\n\\emph{b\n" * n,
    "macros": lambda n: ".SH a\n.B b\n" * n,
    "elements": lambda n: "<a>" + "<b c='some words'>text</b>" * n + "</a>",
    "values": lambda n: '{"a": [' + ", ".join(['{"b": "c"}'] * n) + "]}",
    "cells": lambda n: '{"cells": [' + ", ".join(['{"cell_type": "code", "source": "a"}'] * n) + "]}",
    "groups": lambda n: "{\\rtf1 " + "{\\b a}" * n + "}",
    "deep groups": lambda n: "{\\rtf1 " + "{\\fonttbl{\\f1 " * n + "a",
    "signs": lambda n: "{\\rtf1 " + "\\'e9\\u233?\\uc2\\tab " * n + "}",
    "styles": lambda n: (
        "{\\rtf1{\\stylesheet" + "{\\s1\\outlinelevel1 a;}" * n + "}" + "\\pard\\s1 a\\par" * n + "}"
    ),
}
PARSED = [kind.read() for kind in KINDS.values() if kind.is_text and kind.name != "html"]


@pytest.mark.parametrize("shape", TEXTS)
@pytest.mark.parametrize("parse", [*PARSED, without_breaks], ids=lambda f: f.__name__)
def test_texts(parse, shape):
    check(parse, TEXTS[shape])


PAGES = {
    "attributes": lambda n: "<p " + " ".join(f"a{i}=1" for i in range(n)) + ">x</p>",
    "tags with attributes": lambda n: "<p a=1 b=2 c=3 d=4>x</p>" * n,
    "deep": lambda n: "<div>" * n + "text",
    "paragraphs": lambda n: "<p>x" * n,
    "formatting": lambda n: "<b><i>" * n + "x",
    "crossed": lambda n: "<b><p>x" * n,
    "headers in headers": lambda n: "<main>" + "<header>" * n + "<h1>x</h1>",
    "code in code": lambda n: "<main>" + "<code>" * n + "text\n" * n,
    "code": lambda n: "<main>" + "<code>a\nb</code>" * n,
    "lists": lambda n: "<ul>" * n + "<li>x" * n,
    "tables": lambda n: "<table><tr><td>" * n + "x",
    "rows": lambda n: "<table>" + "<tr><td>cell" * n,
    "brackets": lambda n: "<" * n,
    "open comments": lambda n: "<!--" * n,
    "open quotes": lambda n: '<a b="' * n,
    "entities": lambda n: "&amp" * n,
    "articles": lambda n: "<article><p>Some words of an article.</article>" * n,
    "mains": lambda n: "<main>x</main>" * n,
    "links": lambda n: "<p>" + "<a href=x>link</a> text " * n,
    "scripts": lambda n: "<script>x</script>" * n,
}


@pytest.mark.parametrize("shape", PAGES)
def test_pages(shape):
    check(parse_html, PAGES[shape])


def test_a_tag_of_very_many_attributes_is_refused():
    few = " ".join(f"a{i}=1" for i in range(html_page.ATTRIBUTES))
    assert parse_html(f"<p {few}>x").sections[0].paragraphs == ("x",)
    with pytest.raises(DataError, match="257 attributes"):
        parse_html(f"<p {few} b>x")


def test_a_tag_of_many_attributes_is_found_behind_whatever_hides_it():
    many = "<p " + " ".join(f"a{i}" for i in range(300)) + ">x"
    for hidden in ('<script>a<b x="</script>', "<!-- <a b='-->", "<title><a b='</title>", "<a b='c'd>"):
        with pytest.raises(DataError, match="attributes"):
            parse_html(hidden + many)


def test_a_page_of_very_many_elements_is_read_without_the_extractor(monkeypatch):
    monkeypatch.setattr(html_page, "ELEMENTS", 10)
    monkeypatch.setattr("trafilatura.bare_extraction", lambda *a, **k: pytest.fail("it is slow for this"))
    text = "Words that stand in a paragraph of the page. " * 3
    assert len(parse_html(f"<p>{text}" * 12).sections[0].paragraphs) == 12


def test_pages_of_a_pdf_and_its_outline():
    check(without_margins, lambda n: ["header\ntext\nmore\nfooter"] * n)

    def outline(n):
        entries = [[types.SimpleNamespace(title="x")]] * n
        return types.SimpleNamespace(outline=entries, get_destination_page_number=lambda entry: 0)

    check(_headings, outline)


def styles(n):
    """A chain of styles, each based on the next."""
    chain = "".join(
        f'<w:style w:styleId="s{i}"><w:name w:val="n{i}"/><w:basedOn w:val="s{i + 1}"/></w:style>'
        for i in range(n)
    )
    return word(paragraph("x", "s0"), f"<w:styles {W}>{chain}</w:styles>")


def word(body, styles=f"<w:styles {W}/>"):
    document = f"<w:document {W}><w:body>{body}</w:body></w:document>"
    return packed({"_rels/.rels": RELS, "word/document.xml": document, "word/styles.xml": styles})


def book(spine, chapter):
    opf = (
        '<package xmlns="http://www.idpf.org/2007/opf"><manifest><item id="a" href="a.xhtml" '
        f'media-type="application/xhtml+xml"/></manifest><spine>{spine}</spine></package>'
    )
    return packed({"META-INF/container.xml": CONTAINER, "OEBPS/book.opf": opf, "OEBPS/a.xhtml": chapter})


def zipped(members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in members:
            archive.writestr(name, "# A\n\nText.\n")
    return buffer.getvalue()


FILES = {
    "styles.docx": styles,
    "paragraphs.docx": lambda n: word(paragraph("x") * n),
    "boxes.docx": lambda n: word(
        "<w:p><w:r>" * min(n, 100) + "</w:r></w:p>" * min(n, 100) + paragraph("x") * n
    ),
    "rows.docx": lambda n: word("<w:tbl>" + f"<w:tr><w:tc>{paragraph('x')}</w:tc></w:tr>" * n + "</w:tbl>"),
    "repeated.epub": lambda n: book('<itemref idref="a"/>' * n, "<p>text</p>" * n),
    "long.epub": lambda n: book('<itemref idref="a"/>', "<h2>a</h2><p>text</p>" * n),
    "flat.zip": lambda n: zipped(f"{i}.md" for i in range(n // 4)),
    "folders.zip": lambda n: zipped(f"{i}/{i}.md" for i in range(n // 4)),
    "stock.csv": lambda n: b"sku,name\n" + b"A-1,Steel bolt\n" * n,
    "wide.csv": lambda n: ",".join(f"c{i}" for i in range(n)).encode() + b"\n" + b"a b," * (n - 1) + b"a\n",
    "quotes.csv": lambda n: b'a,b\n"' + b'x""\n' * n + b'",c\n',
    "open.csv": lambda n: b'a,b\n"' + b"x\n" * n,
    "rows.jsonl": lambda n: b'{"ticket": 1, "body": "It burns."}\n' * n,
    "wide.jsonl": lambda n: json.dumps({f"c{i}": "two words" for i in range(n)}).encode(),
    "array.json": lambda n: json.dumps([{"ticket": 1, "body": "It burns."}] * n).encode(),
    "deep.json": lambda n: b"[" * n,
    "open.json": lambda n: b'[{"a": "' + b"x" * n,
    "passages.tsv": lambda n: b"".join(b"%d\ttext\n" % i for i in range(n)),
    "topics.txt": lambda n: b"<top>\n<num> 1\n<title> x\n</top>\n" * n,
    "open-topics.txt": lambda n: b"<top>\n<num> 1\n" + b"<title> x\n" * n,
    "tags-topics.txt": lambda n: b"<top>\n<num> 1\n" + b"<title> x " * n + b"\n</top>\n",
    "qrels.txt": lambda n: b"".join(b"1 0 d%d 1\n" % i for i in range(n)),
}


@pytest.mark.parametrize("name", FILES)
def test_files(tmp_path, name):
    def read(path):
        for match in detect(path):
            for _ in match.items(Options()):
                pass

    def made(size):
        path = tmp_path / f"{size}" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(FILES[name](size))
        return path

    check(read, made)
