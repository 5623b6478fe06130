"""Rich text: what of it is text, its headings, and the encodings of its characters."""

import pytest

from liebig.formats.rtf import parse_rtf

FONTS = r"{\fonttbl{\f0\fcharset0 Arial;}{\f1\fcharset204 Arial Cyr;}{\f2\fcharset128 Mincho;}}"


def paragraphs(body):
    return [
        text for section in parse_rtf(r"{\rtf1\ansi " + body + "}").sections for text in section.paragraphs
    ]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (r"caf\'e9", "café"),
        (FONTS + r"\f1 \'cc\'e8\'f0", "Мир"),
        (FONTS + r"\f2 \'83^\'83C", "タイ"),  # the second byte of a character is a letter
        (r"\u8364?50 \uc2\u26085\'93\'fa", "€50 日"),
        (r"\u-10187 ?\u-8370 ?", "\U0001d74e"),
        (r"op\-tional\_1 \{x\} \emdash", "optional-1 {x} —"),
        (r"shown {\v hidden}{\*\xyz optional}end", "shown end"),
        (r"{\pict\bin4 }}{{}after", "after"),
        (r"{\shp{\*\shpinst{\sp{\sn a}{\sv b}}{\shptxt box\par}}}", "box"),
        (r"{\field{\*\fldinst HYPERLINK x}{\fldrslt link}}", "link"),
        (r"\trowd a\cell b\cell\row", "a | b"),
    ],
)
def test_text_is_what_a_reader_sees(body, text):
    assert paragraphs(body) == [text]


def test_notes_follow_the_paragraph_that_they_are_of():
    link = r"{\field{\*\fldinst HYPERLINK x}{\fldrslt Told}}"
    notes = (
        rf"{{\footnote\pard {{\super\chftn}} By hand.\par{{\*\bkmkstart b}}{link} twice.}}",
        r"{\*\footnote Later.}",
    )
    text = rf"\s1 Choir{notes[1]}\par\pard Sing{notes[0]} now{notes[1]}.\par Hum.\par"
    parsed = parse_rtf(r"{\rtf1{\stylesheet{\s1\outlinelevel1 heading 1;}}" + text + "}")
    assert [(s.heading, s.paragraphs) for s in parsed.sections] == [
        ("Choir", ("Later.", "Sing now.", "By hand.", "Told twice.", "Later.", "Hum."))
    ]


def test_a_picture_with_brackets_ends_nothing():
    assert paragraphs(r"before\par{\pict{\*\blip \}}0a1b{\}}}\par after") == ["before", "after"]


def test_styles_of_headings_make_sections():
    styles = r"{\stylesheet{\s1\outlinelevel0 heading 1;}{\s2\outlinelevel1 heading 2;}{\s3 Normal;}}"
    title = r"{\info{\upr{\title ???}{\*\ud{\title \u1052?}}}{\author A. B.}}"
    parsed = parse_rtf(
        r"{\rtf1"
        + styles
        + title
        + r"\pard\s1 Choir\par\pard\s3 Sing.\par\pard\s2 Tenors\par\pard Hum.\par}trailing"
    )
    assert (parsed.title, parsed.metadata) == ("Choir", {"author": "A. B."})
    assert [(s.heading, s.paragraphs) for s in parsed.sections] == [("", ("Sing.",)), ("Tenors", ("Hum.",))]
    assert parse_rtf(r"{\rtf1" + title + "x}").title == "М"
