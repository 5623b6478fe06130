"""Folders of text files become documents, and headings sections."""

import contextlib
import io
from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from liebig.base.errors import DataError
from liebig.base.records import Document, Section
from liebig.formats import detect
from liebig.formats.items import Options
from liebig.formats.markup import parse_markdown, parse_plain, parse_rst
from liebig.formats.outline import Article
from liebig.formats.parsers import PARSERS, parse_as, parse_html


def documents(path, name=None):
    """The documents of a path, without what they say about their files."""
    items = [item for found in detect(path, name) for item in found.items(Options())]
    return [replace(item.record, metadata={}) for item in items]


def test_plain_text_is_one_section_of_paragraphs():
    assert parse_plain("One\nline.\n\n\n  Two.\n") == Article("", (Section("", ("One\nline.", "Two.")),))


def test_markdown_headings_of_both_kinds_are_sections():
    text = "---\ntag: x\n---\n# Title\n\nIntro [link](http://x) ![img](i.png).\n\n## A ##\nText.\n\nB\n---\n\nMore.\n"
    assert parse_markdown(text) == Article(
        "Title", (Section("", ("Intro link img.",)), Section("A", ("Text.",)), Section("B", ("More.",)))
    )


FRONTS = {
    "---\ntitle: Heat\nauthor: Nora Vane\ndate: 2023-04-05\ntags: [barn, energy]\n---\n": {
        "author": "Nora Vane",
        "date": "2023-04-05",
        "tags": "barn, energy",
    },
    "---\nTitle: 'Heat'\nauthors:\n  - name: Nora\n    url: x\n  - Ida\ndate: 2023-04-05 10:00:00 +0200\n...\n": {
        "author": "Nora, Ida",
        "date": "2023-04-05 10:00:00+0200",
    },
    '+++\ntitle = "Heat"\ndate = 2023-04-05\ntags = []\n+++\n': {"date": "2023-04-05"},
}


@pytest.mark.parametrize("front", FRONTS)
def test_front_matter_names_the_title_author_date_and_tags(front):
    parsed = parse_markdown(front + "# Heat\n\nOil.\n\n# Cost\n\nMuch.\n")
    sections = (Section("", ("Oil.",)), Section("Cost", ("Much.",)))
    assert parsed == Article("Heat", sections, metadata=FRONTS[front])
    assert parsed.sections[0].places == (front.count("\n") + 3,)


DEEP = [
    f"---\n{'[' * depth}\n---\n" for depth in (3_000, 15_000, 60_000)
]  # too deep for the stack of a loader in C


@pytest.mark.parametrize("rules", ["---\n\nA rule.\n\n---\n", "---\na: [\nA rule.\n---\n", *DEEP])
def test_what_is_no_front_matter_is_text(rules):
    parsed = parse_markdown(rules + "\nMore.\n")
    texts = [text for section in parsed.sections for text in (section.heading, *section.paragraphs)]
    assert rules.split("\n")[-3] in texts or "A rule." in texts
    assert "More." in texts


def test_a_value_of_front_matter_that_stands_many_times_is_bounded():
    text = "---\nlong: &x " + "y" * 5_000 + "\ntags: [" + "*x, " * 2_500 + "]\n---\nText.\n"
    assert len(parse_markdown(text).metadata["tags"]) < 200_000


def test_markdown_code_is_no_heading():
    text = "# T\n\n```sh\n# comment\n\nls\n```\n\n#hashtag is text\n"
    assert parse_markdown(text) == Article(
        "T", (Section("", ("```sh\n# comment\n\nls\n```", "#hashtag is text")),)
    )


def test_markdown_tables_and_rules_are_no_headings():
    text = "| a | b |\n|---|---|\n| 1 | 2 |\n\n- item\n---\nafter\n"
    assert [section.heading for section in parse_markdown(text).sections] == [""]


def test_rst_adornments_are_sections_and_directives_are_not_text():
    text = (
        "=====\nTitle\n=====\n\n.. _label:\n\n.. code-block:: python\n\n   x = 1\n\nUse :func:`~json.dumps` and "
        "`text <http://x>`_.\n\nPart\n----\n\n.. note:: Mind it.\n\nEnd.\n"
    )
    assert parse_rst(text) == Article(
        "Title", (Section("", ("Use json.dumps and text.",)), Section("Part", ("Mind it.", "End.")))
    )


def test_html_headings_blocks_and_entities():
    text = (
        "<html><head><title>Page</title><style>p{}</style></head><body><h1>Top</h1><p>One &amp; <b>two</b>.</p>"
        "<script>if (a<b) {}</script><h2>Part</h2><ul><li>x<li>y</ul><pre>a\n  b</pre></body></html>"
    )
    assert parse_html(text) == Article(
        "Top", (Section("", ("One & two.",)), Section("Part", ("x", "y", "a\n  b")))
    )


def test_html_without_a_heading_has_the_title_of_the_page():
    assert parse_html("<title>A  page</title><p>x") == Article("A page", (Section("", ("x",)),))


@pytest.mark.parametrize("suffix", sorted(set(PARSERS)))
@given(text=st.text(st.sampled_from("ab#=-`~<>/![]&;:._\n \t*|x?"), max_size=60))
@settings(max_examples=40)
def test_any_text_parses_or_is_refused(suffix, text):
    from liebig.formats.items import Where

    try:
        parsed = parse_as(f"x{suffix}", text, Where("x"))
    except DataError:
        return
    assert all(paragraph.strip() for section in parsed.sections for paragraph in section.paragraphs)


def test_a_folder_is_read_in_the_order_of_names_with_paths_as_ids(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "b.md").write_text("# B\n\nText.\n")
    (tmp_path / "a.txt").write_text("Plain.\n\nText.\n")
    (tmp_path / "sub" / "c.html").write_text("<p>HTML</p>")
    (tmp_path / ".hidden.md").write_text("no")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    assert documents(tmp_path) == [
        Document("a.txt", "a", (Section("", ("Plain.", "Text.")),)),
        Document("b.md", "B", (Section("", ("Text.",)),)),
        Document("sub/c.html", "c", (Section("", ("HTML",)),)),
    ]


def pdf(pages, title="", outline=()):
    """A small PDF, written by hand so that its text can be known."""
    import pypdf
    from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

    writer = pypdf.PdfWriter()
    for text in pages:
        page = writer.add_blank_page(300, 300)
        font = DictionaryObject(
            {
                NameObject("/Type"): NameObject("/Font"),
                NameObject("/Subtype"): NameObject("/Type1"),
                NameObject("/BaseFont"): NameObject("/Helvetica"),
            }
        )
        page[NameObject("/Resources")] = DictionaryObject(
            {NameObject("/Font"): DictionaryObject({NameObject("/F"): font})}
        )
        stream = DecodedStreamObject()
        stream.set_data(f"BT /F 12 Tf 20 200 Td ({text}) Tj ET".encode())
        page[NameObject("/Contents")] = writer._add_object(stream)
    if title:
        writer.add_metadata({"/Title": title})
    for heading, page_number in outline:
        writer.add_outline_item(heading, page_number)
    buffer = io.BytesIO()
    writer.write(buffer)
    return buffer.getvalue()


def test_a_pdf_is_its_pages_and_its_outline_its_sections(tmp_path):
    data = pdf(["First page", "Second page", "Third page"], "A paper", [("Intro", 0), ("Method", 1)])
    (tmp_path / "paper.pdf").write_bytes(data)
    assert documents(tmp_path / "paper.pdf") == [
        Document(
            "paper.pdf",
            "A paper",
            (Section("Intro", ("First page",)), Section("Method", ("Second page", "Third page"))),
        )
    ]


@pytest.mark.parametrize(
    "spoil", [lambda d: d[:100], lambda d: b"%PDF-1.4\nrubbish", lambda d: d.replace(b"/Page", b"/Pbge")]
)
def test_a_damaged_pdf_is_a_sentence(tmp_path, capsys, spoil):
    (tmp_path / "x.pdf").write_bytes(spoil(pdf(["text"])))
    with contextlib.suppress(DataError):
        documents(tmp_path / "x.pdf")
    assert not capsys.readouterr().err, "pypdf's own remarks name no file"
