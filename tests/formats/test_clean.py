"""Main content of pages, words that were broken, ligatures, and headers and footers of PDFs."""

import pytest

from liebig.base.records import Section
from liebig.formats.clean_text import without_breaks, without_ligatures, without_margins
from liebig.formats.markup import parse_markdown, parse_rst
from liebig.formats.parsers import parse_html

MENU = "".join(f'<li><a href="/{n}">Menu entry {n}</a></li>' for n in range(12))
ROCK = (
    "<h1>Granite</h1><p>Granite is a coarse-grained rock composed mostly of quartz and feldspar. It forms from magma "
    "that cools slowly underground.</p><h2>Uses</h2><p>Granite has been used as a building stone since antiquity, and "
    "as a dimension stone for floors.</p><pre>a = 1\nb = 2</pre>"
)


def texts(parsed):
    return [paragraph for section in parsed.sections for paragraph in section.paragraphs]


@pytest.mark.parametrize(
    "page",
    [
        f"<body><nav><ul>{MENU}</ul></nav><main>{ROCK}</main><footer>Copyright</footer></body>",
        f"<body><nav><ul>{MENU}</ul></nav><article>{ROCK}</article><footer>Copyright</footer></body>",
        f"<body><div role=navigation>{MENU}</div><div role=main>{ROCK}<aside>Related</aside></div></body>",
        f"<body><nav>{MENU}</nav>{ROCK}<footer>Copyright <p>All rights</p></footer></body>",
        f"<body><div id=nav><ul>{MENU}</ul></div><div id=content>{ROCK}</div><div id=footer>Copyright. All rights "
        "reserved. <a href=p>Privacy</a></div></body>",
    ],
    ids=["main", "article", "role", "nav", "ids"],
)
def test_navigation_and_footers_of_a_page_are_no_text(page):
    parsed = parse_html(f"<html><head><title>Site</title></head>{page}</html>")
    assert parsed.title == "Granite"
    assert [section.heading for section in parsed.sections] == ["", "Uses"]
    assert len(texts(parsed)) == 3
    assert texts(parsed)[-1] == "a = 1\nb = 2"


def test_headings_and_tables_inside_of_the_content_are_kept():
    rows = "".join(f"<tr><td>mineral {n}</td><td>{n}</td></tr>" for n in range(9))
    table = f"<div class=table><p class=title><b>Minerals</b></p><table>{rows}</table></div>"
    text = "cools slowly underground, in the crust of the earth, where its crystals have the time to grow."
    parts = "".join(
        f"<div class=section><div class=titlepage><div><h2 class=title><a id=x{n}></a>Rock {n}</h2></div></div>"
        f"<p>Number {n} {text}</p>{table}<p>A second sort of number {n} {text}</p></div>"
        for n in range(4)
    )
    parsed = parse_html(
        f"<title>Rocks</title><body><div id=nav><ul>{MENU}</ul></div><div class=chapter>{parts}</div>"
    )
    assert [section.heading for section in parsed.sections] == [f"Rock {n}" for n in range(4)]
    assert texts(parsed).count("mineral 8") == 4
    assert not any("Menu" in text for text in texts(parsed))


def test_a_page_of_small_parts_loses_none_of_them():
    rows = "".join(f"<tr><td>name {n}</td><td>value {n}</td></tr>" for n in range(30))
    found = " ".join(texts(parse_html(f"<body><h1>List</h1><table>{rows}</table></body>")))
    assert all(f"value {n}" in found for n in range(30))


def test_a_header_with_the_heading_is_content():
    parsed = parse_html("<main><header><h1>Top</h1></header><p>Text.</p></main>")
    assert (parsed.title, parsed.sections) == ("Top", (Section("", ("Text.",)),))


@pytest.mark.parametrize("text", ["", "   ", "<!-- only a comment -->", "<html></html>"])
def test_an_empty_page_has_no_sections(text):
    assert parse_html(text).sections == ()


def test_a_giant_entity_is_one_character():
    [text] = texts(parse_html(f"<p>a &#{'9' * 6000}; b</p>"))
    assert text.startswith("a")
    assert text.endswith("b")
    assert len(text) < 10


def test_ligatures_are_undone_and_nothing_else():
    assert (
        without_ligatures("\ufb01nd e\ufb03cient \ufb02ow x\u00b2 \u2460 \uff21")
        == "find efficient flow x\u00b2 \u2460 \uff21"
    )


@pytest.mark.parametrize(
    ("text", "joined"),
    [
        ("some infor-\nmation here", "some\ninformation here"),
        ("a well-known and well-\n  known thing", "a well-known and\nwell-known thing"),
        ("inter-\nnational, international, inter-national", "international, international, inter-national"),
        ("soft\u00ad\nware and soft\u00adware", "software and software"),
        ("1990-\n1995 and Jean-\nPaul", "1990-\n1995 and Jean-\nPaul"),
        ("- item\n- item", "- item\n- item"),
    ],
)
def test_a_word_broken_at_the_end_of_a_line_is_joined(text, joined):
    assert without_breaks(text) == joined


def test_headers_and_footers_that_repeat_are_dropped():
    pages = [
        f"The Journal of Rocks\n{n}\nText of page number {n}.\nMore {'x' * n}.\nPage {n} of 5"
        for n in range(1, 6)
    ]
    assert without_margins(pages) == [f"Text of page number {n}.\nMore {'x' * n}." for n in range(1, 6)]


def test_pages_without_repeated_lines_stay_as_they_are():
    pages = ["One\ntwo\nthree", "Four\nfive\nsix", "Seven\neight\nnine", "same", "same", "same"]
    assert without_margins(pages) == pages


@pytest.mark.parametrize("parse", [parse_markdown, parse_rst, parse_html])
@pytest.mark.parametrize(
    "unit",
    [
        "[",
        "![",
        "[x](",
        "<!--",
        ":a",
        "::",
        "`",
        "`a ",
        "<",
        "<a ",
        "<svg>",
        "</math>",
        "&",
        "# a ",
        ".. ",
        "<div>",
    ],
)
def test_parsing_is_linear_in_the_text(parse, unit):
    """Nothing is timed: what is quadratic in 200 kB runs into the time limit of the suite."""
    parsed = parse(unit * (200_000 // len(unit)))
    assert isinstance(parsed.sections, tuple)


def test_long_runs_of_spaces_in_headings_and_roles_are_linear():
    spaces = " " * 100_000
    assert parse_markdown(f"# a{spaces}b #{spaces}#").title.startswith("a")
    assert texts(parse_rst(f"`a{spaces}b"))
    assert texts(parse_rst(f".. _{spaces}x\n\ntext")) == ["text"]
