"""Where a passage stands in its file: the line, the page or the slide."""

from liebig.base.records import Section
from liebig.formats.clean_text import without_breaks
from liebig.formats.documents import document, document_row
from liebig.formats.items import Where
from liebig.formats.markup import parse_markdown, parse_plain, parse_rst
from liebig.stages.passages import places_of


def lines_of(article):
    return [(place, text) for s in article.sections for place, text in zip(s.places, s.paragraphs)]


def test_paragraphs_know_their_lines():
    assert lines_of(parse_plain("\nOne.\nstill one\n\n\nTwo.")) == [(2, "One.\nstill one"), (6, "Two.")]
    markdown = "---\ntitle: x\n---\n# T\n\n<!-- a\nb -->\n\nOne.\n\n## H\nTwo.\n\n```\ncode\n```\n"
    assert lines_of(parse_markdown(markdown)) == [(9, "One."), (12, "Two."), (14, "```\ncode\n```")]
    rst = "Top\n===\n\n.. image:: x\n   :alt: y\n\nOne.\n\nHead\n----\n\nTwo."
    assert lines_of(parse_rst(rst)) == [(7, "One."), (12, "Two.")]


def test_joined_words_leave_the_lines_their_numbers():
    text = "We give some infor-\nmation on\nrocks.\n\nMore."
    assert lines_of(parse_plain(without_breaks(text))) == [
        (1, "We give some\ninformation on\nrocks."),
        (5, "More."),
    ]


def test_a_passage_has_the_line_that_it_begins_on():
    section = Section("", ("One two\nthree four\nfive", "six"), "line", (10, 20))
    assert places_of(section, ["One two three", "four", "five six"]) == [10, 11, 12]
    assert places_of(section, ["One two three four five", "six"]) == [10, 20]
    assert places_of(section, []) == []


def test_a_passage_has_the_page_that_it_begins_on():
    section = Section("", ("First page\nends", "here. Second", "Third."), "page", (1, 2, 3))
    assert places_of(section, ["First page ends here.", "Second Third."]) == [1, 2]
    assert places_of(Section("", ("No places.",)), ["No", "places."]) == [0, 0]


def test_places_survive_the_collection():
    section = Section("H", ("a", "b"), "slide", (1, 2))
    row = {"id": "x", "title": "T", "sections": [{"heading": "H", "paragraphs": ["a", "b"], "slide": [1, 2]}]}
    record = document(row, Where("f", 1))
    assert (record.sections[0].unit, record.sections[0].places) == ("slide", (1, 2))
    assert document_row(record)["sections"] == [{"heading": "H", "paragraphs": ("a", "b"), "slide": (1, 2)}]
    assert record.sections == (section,) == (Section("H", ("a", "b")),)
