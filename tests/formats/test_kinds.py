"""The readers of single kinds of files, where they decide something: where code is cut, what of a message is text."""

import gzip
import io
import json
import os
import struct
import tarfile
from email.message import EmailMessage

import pytest

from liebig.base.errors import DataError
from liebig.formats import compressed, detect
from liebig.formats.code import parse_code, parse_python
from liebig.formats.inputs import BytesSource
from liebig.formats.items import Options
from liebig.formats.ledger import Ledger
from liebig.formats.line_text import parse_json, parse_settings
from liebig.formats.mail import read_mailbox
from liebig.formats.man_page import is_man_page, parse_man
from liebig.formats.outline import Article
from liebig.formats.parsers import KINDS, articles, kind_of
from liebig.formats.xml_document import parse_xml
from tests.worlds import mixed_folder as made


def read(name, data):
    source = BytesSource(name, data)
    kind = kind_of(source)
    return None if kind is None else list(articles(source, kind))


def lines(article):
    return [line for section in article.sections for text in section.paragraphs for line in text.split("\n")]


def test_a_message_of_an_old_outlook_is_read_in_its_code_page():
    properties = bytes(32) + b"".join(
        struct.pack("<IIQ", tag, 6, value)
        for tag, value in ((0x3FFD0003, 1251), (0x00390040, 128_777_000_000_000_000))
    )
    texts = {"0037": "Мир", "0C1A": "Анна", "1000": "Белка ждёт."}
    data = {f"__substg1.0_{name}001E": text.encode("cp1251") for name, text in texts.items()}
    [parsed] = read("a.msg", made.ole({**data, "__properties_version1.0": properties}))
    assert (parsed.title, parsed.metadata) == ("Мир", {"author": "Анна", "date": "2009-01-29T10:53:20+00:00"})
    assert lines(parsed) == ["Белка ждёт."]


CLASS = '''"""A module. With more."""

import os

LIMIT = 3


class Outer:
    """Holds others."""

    size = 1

    @property
    def name(self):
        """Its name."""

        def inner():
            return 1

        return inner()

    class Inner:
        pass


@decorated
async def run(x):
    return x


if LIMIT:
    def run(x):
        return 2


def run(y):
    return 3
'''


def test_python_is_cut_at_functions_and_classes_and_no_line_is_lost():
    parsed = parse_python(CLASS)
    assert [(article.part, article.title) for article in parsed] == [
        ("", "A module."),
        ("Outer", "Outer: Holds others."),
        ("Outer.name", "Outer.name: Its name."),
        ("Outer.Inner", "Outer.Inner (outer inner)"),
        ("run", "run"),
        ("run~2", "run"),
    ]
    starts = {article.part: article.sections[0].places[0] for article in parsed}
    assert starts == {"": 1, "Outer": 8, "Outer.name": 13, "Outer.Inner": 22, "run": 26, "run~2": 36}
    kept = [line for article in parsed for line in lines(article) if line.strip()]
    assert sorted(kept) == sorted(line for line in CLASS.split("\n") if line.strip())


def test_python_that_does_not_parse_is_cut_by_its_lines():
    old = "import os\n\n# Say it.\ndef hello():\n    print 'hello'\n\ndef bye():\n    print 'bye'\n"
    assert [article.part for article in parse_python(old)] == ["", "hello", "bye"]


CODE = {
    "rust": (
        "use x;\n\npub struct A {\n    b: u8,\n}\n\nimpl A {\n    /// Grow it.\n    pub fn grow(&mut self) -> u8 {\n"
        "        if self.b > 1 {\n            return 1;\n        }\n        self.b\n    }\n}\n",
        ["A", "A~2", "A.grow"],
    ),
    "typescript": (
        "export interface Shape {\n  area(): number;\n}\n\nexport default class Box {\n"
        "  public area(): number {\n    return this.sum(1);\n  }\n}\n\nconst twice = (x: number) => 2 * x;\n",
        ["Shape", "Box", "Box.area", "twice"],
    ),
    "c": (
        "int a = f(3);\n\nstatic void\nfree_all(void)\n{\n  free(x);\n}\n\nchar *name(int n)\n{\n  return b(n);\n}\n",
        ["name"],
    ),
    "go": (
        "func (p *Parser) Feed(b []byte) error {\n\treturn nil\n}\n\ntype Lane struct {\n}\n",
        ["Feed", "Lane"],
    ),
    "shell": ("set -e\nbuild() {\n  make\n}\nfunction test_all {\n  make test\n}\n", ["build", "test_all"]),
    "sql": (
        "CREATE OR REPLACE VIEW late AS SELECT 1;\ncreate table if not exists jobs (\n  id int);\n",
        ["late", "jobs"],
    ),
    "r": ("area <- function(r) {\n  pi * r^2\n}\n", ["area"]),
    "lua": ("local function pick(t)\n  return t[1]\nend\n", ["pick"]),
    "kotlin": (
        "data class Point(val x: Int)\n\nsuspend fun load(): Int {\n    return 1\n}\n",
        ["Point", "load"],
    ),
}


@pytest.mark.parametrize("language", CODE)
def test_code_is_cut_at_its_definitions_and_no_line_is_lost(language):
    text, names = CODE[language]
    parsed = parse_code(text)
    assert [article.part for article in parsed if article.part] == names
    kept = [line for article in parsed for line in lines(article) if line.strip()]
    assert sorted(kept) == sorted(line for line in text.split("\n") if line.strip())


def test_statements_are_no_definitions():
    text = "if (a) {\n}\nfor (int i = 0; i < 3; i++) {\n}\nreturn f(x)\nelse if (b) {\n}\nprint(x)\nnew Thing(a, b)\n"
    assert [article.part for article in parse_code(text)] == [""]


@pytest.mark.parametrize(
    ("head", "title"),
    [
        ("// Copyright 2024 A. Smith\n// X11 licence.\n//\n// Grinds the corn.\nint x;\n", "Grinds the corn."),
        ("#!/bin/sh\n# -*- mode: sh -*-\n# =======\n# Grinds the corn.\n# =======\nmill\n", "Grinds the corn."),
        ("#include <mill.h>\n#define STONES 2\n/* Grinds the corn. */\nint x;\n", "Grinds the corn."),
        ("#if 0\n# pragma once\n#endif\n", ""),
        ("cp a b \\\n--target c\n-- Grinds the corn.\nx\n", "Grinds the corn."),
        ("mill {\n    // A loop.\n}\n", ""),
        ("# Under one licence\n#\n# or\n#\n# another licence.\nx\n", ""),
    ],
)  # fmt: skip
def test_the_title_of_a_program_is_no_licence_and_no_directive(head, title):
    assert parse_code(head)[0].title == title


def test_names_of_other_languages_are_whole_and_types_are_no_functions():
    assert [article.part for article in parse_code("namespace corn\\mill;\nclass Sail {\n}\n")] == [
        "corn\\mill",
        "Sail",
    ]
    assert [article.part for article in parse_code("typedef int (*grind)(char *corn,\n    int n);\n")] == [""]


def test_a_passage_of_code_is_whole_lines():
    body = "".join(f"    value_{n} = compute_the_value({n})\n" for n in range(60))
    [article] = parse_python(f"def long():\n{body}")
    blocks = article.sections[0]
    assert len(blocks.paragraphs) > 3
    assert all(block.split("\n")[0].strip().endswith((":", ")")) for block in blocks.paragraphs)
    assert [blocks.places[0], blocks.places[1]] == [1, 1 + blocks.paragraphs[0].count("\n") + 1]


def test_json_is_a_line_per_value_and_json_with_comments_is_text():
    parsed = parse_json('{"name": "x", "a": {"b": [1, 2]}, "c": [{"d": "e"}, {"d": null}]}')
    assert (parsed.title, parsed.sections[0].paragraphs) == ("x", ("name: x\na.b: 1, 2\nc.d: e",))
    assert "// why" in parse_json('{\n// why\n"a": 1}').sections[0].paragraphs[0]
    assert parse_settings("a: 1\nname: the mill\n").title == "the mill"
    assert parse_settings("a:\n  name: inner\n").title == ""


def test_of_the_points_of_a_map_only_the_first_are_text():
    border = [[[[east / 8, 47.5] for east in range(500)]], [[[9.5, 48.5]]]]
    told = {
        "features": [{"name": name, "border": border, "years": list(range(99))} for name in ("Ems", "Ruhr")]
    }
    lines = "\n".join(parse_json(json.dumps(told)).sections[0].paragraphs).split("\n")
    assert [line for line in lines if "name" in line] == ["features.name: Ems", "features.name: Ruhr"]
    assert sum("border" in line for line in lines) == 2 * 32
    assert "features.border: 3.875, 47.5" in lines
    assert sum(line.endswith(", 98") for line in lines) == 2
    few = parse_json('{"level": [[2024, 3.5], [2025, "low"]], "last": [[2026, 4]]}').sections[0].paragraphs
    assert few == ("level: 2024, 3.5\nlevel: 2025, low\nlast: 2026, 4",)

    points = " ".join(f"{east},47.5,0" for east in range(500))
    short = " ".join(["東京 9"] * 200)
    page = f"<kml><name>Ems</name><coordinates>{points}</coordinates><x>{short}</x><name>Ruhr</name></kml>"
    text = " ".join(parse_xml(page).sections[0].paragraphs)
    assert text.count(",47.5,0") == 64 // 3
    assert text.count("東京") == 200
    assert "coordinates: 0,47.5,0 1,47.5,0" in text
    assert "name: Ruhr" in text


def test_a_mailbox_is_its_messages():
    box = made.MBOX.replace(b"cloakroom.\n", b"cloakroom.\n\n>From there it was taken.\n")
    first, second = read_mailbox(BytesSource("x.mbox", box))
    assert [first.part, second.part] == ["1", "2"]
    assert second.sections[0].paragraphs == (
        "A tartan umbrella was left in the cloakroom.",
        "From there it was taken.",
    )
    assert second.metadata == {
        "author": "Bob <b@example.org>",
        "to": "office@example.org",
        "date": "2024-03-05T09:30:00+00:00",
    }
    assert kind_of(BytesSource("Inbox", box)) is KINDS["mbox"]


def test_a_message_forwarded_as_an_attachment_is_read():
    inner, message = EmailMessage(), EmailMessage()
    inner["Subject"], inner["From"] = "Leak", "Ann <ann@example.org>"
    inner.set_content("The sluice leaks.")
    inner.add_attachment(b"Since May.", maintype="text", subtype="plain", filename="when.txt")
    message["Subject"] = "Fwd: leak"
    message.set_content("See below.")
    message.add_attachment(inner)
    [mail] = read("a.eml", bytes(message))
    assert [" ".join(lines(Article("", (one,)))) for one in mail.sections] == [
        "See below.",
        "Attachment: Leak, Ann <ann@example.org>",
        "The sluice leaks.",
        "Attachment: when.txt",
        "Since May.",
    ]


def test_a_message_whose_body_is_a_message_is_read_to_its_innermost():
    inner = b"Subject: Leak\nFrom: Ann <ann@example.org>\n\nThe sluice leaks.\n"
    for subject in (b"Fwd: leak", b"Fwd: Fwd: leak"):
        inner = b"Subject: " + subject + b"\nContent-Type: message/rfc822\n\n" + inner
    [mail] = read("a.eml", inner)
    assert (mail.title, lines(mail)) == (
        "Fwd: Fwd: leak",
        ["Attachment: Fwd: leak", "Attachment: Leak, Ann <ann@example.org>", "The sluice leaks."],
    )


def test_a_web_page_saved_by_a_browser_has_no_author():
    [page] = read("a.mhtml", b"From: <Saved by Blink>\nSubject: Tides\n\nThe moon pulls.\n")
    assert (page.title, page.metadata) == ("Tides", {})


def test_a_message_in_html_and_one_with_broken_headers_are_read():
    html = b"Subject: =?utf-8?q?caf=C3=A9?=\nContent-Type: text/html\n\n<html><p>Open <b>now</b>.</p></html>"
    [message] = read("a.eml", html)
    assert (message.title, message.sections[0].paragraphs) == ("café", ("Open now.",))
    [broken] = read(
        "b.eml", b"From: <@@>\nTo: ,,,\nDate: never\nContent-Type: text/plain; charset=none\n\nStill text.\n"
    )
    assert broken.sections[0].paragraphs == ("Still text.",)


@pytest.mark.parametrize(
    ("plain", "text"),
    [("See it in a browser.", "The regatta starts at ten."), ("Long. " * 99, "Long. " * 99)],
)
def test_a_plain_body_that_stands_for_one_in_html_is_not_read(plain, text):
    message = EmailMessage()
    message.set_content(plain)
    message.add_alternative("<p>The regatta starts at ten.</p>", subtype="html")
    [mail] = read("a.eml", bytes(message))
    assert [" ".join(one.split()) for one in mail.sections[0].paragraphs] == [text.strip()]


def test_notes_of_slides_are_read_and_their_numbers_are_not():
    [talk] = read("a.pptx", made.pptx([("One", "Text.", "A note."), ("Two", "More.", "")], "Talk", "Ann"))
    assert [section.paragraphs for section in talk.sections] == [
        ("One", "Text.", "A note."),
        ("Two", "More."),
    ]
    assert [section.places for section in talk.sections] == [(1, 1, 1), (2, 2)]


def test_a_sheet_has_text_above_its_header_and_columns_without_names():
    rows = [["Stock of the mill"], [], ["item", None, "item"], ["flour", "sacks", 12.0], ["bran", "", 3.5]]
    above, flour, bran = read("a.xlsx", made.xlsx({"Sheet1": rows}))
    assert above.sections[0].paragraphs == ("Stock of the mill",)
    assert (flour.part, flour.sections[0].paragraphs) == (
        "Sheet1:4",
        ("item: flour; column 2: sacks; item 3: 12",),
    )
    assert bran.sections[0].paragraphs == ("item: bran; item 3: 3.5",)


def test_manual_pages_are_known_by_suffix_and_start():
    assert is_man_page(".1", b'.\\" a comment\n.TH LS 1\n')
    assert is_man_page(".1", b'\'\\" t\n.\n.pc ""\n.TH LS 1\n')
    assert not is_man_page(".1", b"Release notes\n")
    assert kind_of(BytesSource("notes.1", b"Release notes\n")) is KINDS["text"]
    mdoc = (
        ".Dd May 1, 2024\n.Dt MILL 8\n.Sh NAME\n.Nm mill\n.Nd grind grain\n.Sh OPTIONS\n.It Fl v\nSay more.\n"
    )
    parsed = parse_man(mdoc)
    assert parsed.title == "mill(8): mill grind grain"
    assert parsed.sections[1].paragraphs == ("-v\nSay more.",)
    parsed = parse_man(".TH MILL 8\n.SH NAME\nM\\(:uhle \\(Fogro\\(ss\\(Fc \\['e]t\\['e] \\[u0416]\n")
    assert parsed.sections[0].paragraphs == ("M\u00fchle \u00abgro\u00df\u00bb \u00e9t\u00e9 \u0416",)


@pytest.mark.parametrize(
    "start", [".de Sp\n.ft R\nOdd.\n..\n", ".de Sp End\nOdd.\n.End\n", ".ig\nOdd.\n..\n", "'ig Z\nOdd.\n.Z\n"]
)
def test_macros_that_a_manual_page_defines_and_what_it_ignores_are_no_text(start):
    parsed = parse_man(f".TH MILL 8\n{start}.SH NAME\nmill\n.de X\nOdd.\n")
    assert [section.paragraphs for section in parsed.sections] == [("mill",)]


def test_subtitles_have_names_notes_and_entities():
    cues = (
        "WEBVTT - Birds\n\nNOTE made by hand\nin May\n\nowl one\n00:01.000 --> 00:04.000\nOwls &amp; <i>kites</i>\n\n"
        "NOTE none\n\n2\n00:05.000 --> 00:06.000 align:start\nNOTE: they hunt.\n"
    )
    [parsed] = read("a.vtt", cues.encode())
    assert parsed.sections[0].paragraphs == ("Owls & kites NOTE: they hunt.",)
    assert parsed.sections[0].places == (8,)


@pytest.mark.parametrize(
    "declaration", ['<?xml version="1.0"?>\n', "", "<!-- of a converter that declares nothing -->"]
)
def test_flat_opendocument_is_read_as_the_zipped_one(declaration):
    picture = "<draw:a><office:binary-data>AAAA</office:binary-data></draw:a>"
    text = f'<text:h text:outline-level="1">Mill</text:h><text:p>The sails{picture} turn.</text:p>'
    styles = "<office:master-styles><text:p>Page 1</text:p></office:master-styles>"
    body = f"{styles}<office:body><office:text>{text}</office:text></office:body>"
    head = f"{declaration}<office:document {made.ODF}><office:meta><dc:creator>Ann</dc:creator></office:meta>"
    [parsed] = read("a.fodt", f"{head}{body}</office:document>".encode())
    assert (parsed.title, parsed.metadata, lines(parsed)) == ("Mill", {"author": "Ann"}, ["The sails turn."])


def test_pages_in_feeds_lose_their_tags_and_other_text_does_not():
    page = "&lt;p&gt;Mills &amp;amp; &lt;b&gt;kilns&lt;/b&gt;&lt;/p&gt;"
    feed = f"<rss><item><description>{page}</description></item></rss>"
    assert lines(read("a.rss", feed.encode())[0]) == ["description: Mills & kilns"]
    [note] = read(
        "a.enex",
        b'<?xml version="1.0"?><note><body><![CDATA[<?xml version="1.0"?><d>Pears.</d>]]></body></note>',
    )
    assert lines(note) == ["body: Pears."]
    [manual] = read("a.xml", b"<book><para>Write &lt;b&gt;bold&lt;/b&gt;.</para></book>")
    assert lines(manual) == ["Write <b>bold</b>."]


def test_a_message_of_apples_mail_is_read_without_its_frame():
    message = b"Subject: Pears\n\nThey are ripe.\n"
    [parsed] = read("1.emlx", b'%d  \n%b<?xml version="1.0"?><plist/>' % (len(message), message))
    assert (parsed.title, lines(parsed)) == ("Pears", ["They are ripe."])


def test_line_ends_of_old_macs_end_lines():
    assert read("a.txt", b"One.\r\rTwo\rthree.\r")[0].sections[0].paragraphs == ("One.", "Two\nthree.")


def test_xml_under_any_suffix_is_read_as_xml():
    [parsed] = read("mill.gpx", b'\xef\xbb\xbf<?xml version="1.0"?>\n<gpx><name>Old mill</name></gpx>')
    assert lines(parsed) == ["name: Old mill"]


def test_a_zipped_file_of_an_unknown_program_says_so(tmp_path):
    (tmp_path / "plan.sketch").write_bytes(made.archive_of({"document.json": "{}"}))
    (tmp_path / "a.md").write_text("# A\n")
    _, ledger = documents(tmp_path)
    assert list(ledger.ignored.values()) == [
        "zipped files of a program; unpack it, or export it as text or PDF"
    ]


def test_binary_files_are_of_no_kind():
    assert kind_of(BytesSource("x", b"\0\1\2")) is None
    assert kind_of(BytesSource("x.dat", bytes(range(128, 256)) * 9)) is None
    assert kind_of(BytesSource("x.dat", "Grüße aus Köln, viele.".encode("latin-1"))) is KINDS["text"]


@pytest.mark.parametrize("name", [f"a{suffix}" for kind in KINDS.values() for suffix in kind.suffixes[:1]])
@pytest.mark.parametrize(
    "data", [b"\0\1rubbish", b"{", b"PK\x03\x04", b"<a>", "\ufffe\x85\u2028".encode(), b"\xff" * 50]
)
def test_rubbish_is_text_or_one_sentence(name, data, tmp_path):
    (tmp_path / name).write_bytes(data)
    ledger = Ledger(strict=False)
    try:
        for match in detect(tmp_path, None, ledger):
            list(match.items(Options(ledger=ledger)))
    except DataError:
        return
    assert ledger.unexplained() == []
    assert sum(ledger.counts().values()) == 2 * len(ledger.seen)


@pytest.mark.parametrize(
    ("name", "title", "type"),
    [
        ("report-2024.06-1", "report-2024.06-1", "text"),
        ("README.local", "README.local", "local"),
        ("Dr. Moor on bogs", "Dr. Moor on bogs", "text"),
        ("plan.text.gz", "plan", "text"),
    ],
)
def test_a_dot_in_a_name_begins_no_suffix_unless_it_is_one(tmp_path, name, title, type):
    data = b"The mill stands on a hill.\n"
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    (tmp_path / "a.md").write_text("# A\n")
    found = [item.record for match in detect(tmp_path) for item in match.items(Options())]
    assert [(one.title, one.metadata["type"]) for one in found if one.id != "a.md"] == [(title, type)]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n", "a private key"),
        ("-----BEGIN CERTIFICATE-----\nMIIE\n", "a key or certificate"),
        ("-----BEGIN PGP PUBLIC KEY BLOCK-----\nmQIN\n", "a key or certificate"),
        ("-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA1\n\nWe meet at nine.\n", None),
        ("Of the mill\n-----BEGIN CERTIFICATE-----\nMIIE\n", None),
    ],
)
def test_keys_and_certificates_are_listed(tmp_path, data, reason):
    (tmp_path / "mill.pem").write_text(data)
    (tmp_path / "a.md").write_text("# A\n")
    assert list(documents(tmp_path)[1].ignored.values()) == ([reason] if reason else [])


def documents(path):
    ledger = Ledger(strict=False)
    ids = [
        item.record.id for match in detect(path, None, ledger) for item in match.items(Options(ledger=ledger))
    ]
    return ids, ledger


def test_archives_in_an_archive_are_folders_and_deeper_ones_are_not(tmp_path):
    deepest = made.archive_of({"c.md": "# C\n", "d.md": "# D\n"})
    inner = made.archive_of({"top/b.md": "# B\n", "top/deep.zip": deepest})
    (tmp_path / "x.zip").write_bytes(
        made.archive_of({"a.md": "# A\n", "sub/in.zip": inner, "bad.zip": b"PK rubbish"})
    )
    ids, ledger = documents(tmp_path / "x.zip")
    assert ids == ["a.md", "sub/in.zip/b.md"]
    assert ledger.ignored == {
        f"{tmp_path}/x.zip!sub/in.zip/deep.zip": "an archive inside two others; unpack one of them"
    }
    assert [error.file for error in ledger.errors] == [f"{tmp_path}/x.zip!bad.zip"]
    assert ledger.counts() == {"seen": 4, "read": 2, "skipped": 1, "ignored": 1}


def test_archives_in_an_archive_may_not_grow_more_than_one_may(tmp_path, monkeypatch):
    monkeypatch.setattr(compressed, "ALWAYS", 10_000)
    inner = made.archive_of({"b.txt": "x" * 8_000})
    (tmp_path / "x.zip").write_bytes(
        made.archive_of({f"{n}.zip": inner for n in range(4)} | {"a.md": "# A\n"})
    )
    monkeypatch.setattr(compressed, "RATIO", 5)
    ids, ledger = documents(tmp_path / "x.zip")
    assert "a.md" in ids
    assert len(ids) < 5
    assert all("unpacks to more than" in error.what for error in ledger.errors)


def test_archives_of_one_file_in_a_folder_have_ids_of_their_own(tmp_path):
    for name in ("one", "two"):
        (tmp_path / f"{name}.zip").write_bytes(made.archive_of({"notes.txt": f"The notes of {name}.\n"}))
    ids, _ = documents(tmp_path)
    assert ids == ["one.zip/notes.txt", "two.zip/notes.txt"]


def test_a_colon_in_an_archive_is_part_of_a_name_unless_it_is_that_of_a_drive(tmp_path):
    (tmp_path / "x.zip").write_bytes(made.archive_of({"Risk: a review.md": "# A\n", "b.md": "# B\n"}))
    assert documents(tmp_path / "x.zip")[0] == ["Risk: a review.md", "b.md"]
    (tmp_path / "y.zip").write_bytes(made.archive_of({"C:\\a.md": "# A\n", "b.md": "# B\n"}))
    with pytest.raises(DataError, match="points outside"):
        documents(tmp_path / "y.zip")


def test_a_name_in_an_archive_that_is_not_utf8_is_listed(tmp_path):
    (tmp_path / "x.tar").write_bytes(
        made.tar_of({"a.md": b"# A\n", "b.md": b"# B\n", "m\udcfchle.md": b"# C\n"}, "w")
    )
    ids, ledger = documents(tmp_path / "x.tar")
    assert ids == ["a.md", "b.md"]
    assert [(error.file, error.what) for error in ledger.errors] == [
        (f"{tmp_path}/x.tar!m\\xfchle.md", "the name is not UTF-8")
    ]


def test_a_time_that_no_clock_has_is_left_out(tmp_path):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name in ("a.md", "b.md"):
            info = tarfile.TarInfo(name)
            info.size, info.mtime = 4, 1 << 60
            archive.addfile(info, io.BytesIO(b"# A\n"))
    (tmp_path / "x.tar").write_bytes(buffer.getvalue())
    [match] = detect(tmp_path / "x.tar")
    first = next(match.items(Options())).record
    assert first.metadata == {"path": "a.md", "folder": ".", "type": "md", "size": "4"}


def test_a_notebook_keeps_text_that_code_printed():
    cell = {
        "cell_type": "code",
        "source": "f()",
        "outputs": [{"text": ["two\n", "lines"]}, {"data": {"image/png": "x"}}],
    }
    [notebook] = read("a.ipynb", json.dumps({"cells": [cell]}).encode())
    assert notebook.sections[0].paragraphs == ("f()", "two\nlines")
    with pytest.raises(DataError, match="no cells"):
        read("b.ipynb", b"{}")


def test_every_heading_of_a_notebook_is_kept():
    cells = [
        {"cell_type": "markdown", "source": f"# {name}\n\nText."} for name in ("Salt", "Method", "Result")
    ]
    [notebook] = read("a.ipynb", json.dumps({"cells": cells}).encode())
    assert notebook.title == "Salt"
    assert [section.heading for section in notebook.sections] == ["", "Method", "Result"]


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts open files")
def test_a_folder_may_hold_more_archives_than_files_can_be_open(tmp_path):
    for n in range(150):
        (tmp_path / f"{n:03}.zip").write_bytes(made.archive_of({"a.md": f"# Z{n}\n", "b.txt": "b"}))
        (tmp_path / f"{n:03}.tar.gz").write_bytes(made.tar_of({"a.md": b"# T\n", "b.txt": b"b"}))
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 120, limits[1]))
    try:
        ids, ledger = documents(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert ledger.errors == []
    assert len(ids) == 600
