"""Files under names that say something else than what they are, and kinds that are read by few lines of code."""

import os

import pytest

from liebig.base.errors import DataError
from liebig.formats import detect
from liebig.formats.encoding import utf_16
from liebig.formats.inputs import BytesSource
from liebig.formats.items import Options
from liebig.formats.ledger import Ledger
from liebig.formats.mail import message_article
from liebig.formats.parsers import articles, kind_of, why_not
from tests.worlds import mixed_folder as made

HTML = b"<html><table><tr><td>Mill</td><td>Price of flour</td></tr></table></html>"
DOC = made.doc("The ban was lifted.\rIt rained.\r")
PPT = made.ppt([("Kites", "Box kites lift a camera."), ("", "A tail steadies.")])
XLS = made.xls("Harvest", [["crop", "remark"], ["quince", "made into jelly for the fair"]])


def texts(name, data):
    source = BytesSource(name, data)
    kind = kind_of(source)
    assert kind is not None
    return [
        " ".join(text for section in one.sections for text in section.paragraphs)
        for one in articles(source, kind)
    ]


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("a.doc", DOC, "The ban was lifted. It rained."),
        ("a.doc", made.doc("See \x13 HYPERLINK x \x14the page\x15.\rA\x07B\x07\r"), "See the page. A\tB"),
        ("a.doc", b"{\\rtf1 Renamed rich text}", "Renamed rich text"),
        ("a.ppt", PPT, "Kites Box kites lift a camera. A tail steadies."),
        ("a.xls", XLS, "crop: quince; remark: made into jelly for the fair"),
        ("a.xls", HTML, "Price of flour"),
        ("a.xls", b"name\tprice\nflour\t3\n", "flour\t3"),
        ("a.xls", made.xlsx({"S": [["a", "b"], ["c", "some longer words of a cell"]]}), "some longer words"),
        ("a.dotx", made.docx(["A template."], "T", "A"), "A template."),
        ("a.txt", ("水車は春に修理されます。\n" * 3).encode("euc_jp"), "水車は春に"),
        ("a.txt", "水車は春に修理されます。".encode("shift_jis"), "水車は春に"),
        ("a.txt", "방앗간은 봄에 수리됩니다. 둑이 무너졌기 때문입니다.\n".encode("euc_kr") * 3, "방앗간은 봄에"),
        ("a.fb2", b"<FictionBook><p>The mill.</p><binary>QUJD</binary></FictionBook>", "The mill."),
        ("a.ics", b"BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nSUMMARY:Cut short\r\n", "Cut short"),
        ("a.vcf", b"BEGIN:VCARD\nNOTE;ENCODING=QUOTED-PRINTABLE:M=C3=BCh=\nle\nEND:VCARD\n", "M\u00fchle"),
        ("a.sbv", b"0:00:01.000,0:00:02.000\nHello there\n", "Hello there"),
        ("de.msg", b"namespace eval ::tk {\n    ::msgcat::mcset de Cancel Abbruch\n}\n", "Cancel Abbruch"),
        ("a.pot", b'msgid "The crane is locked"\nmsgstr ""\n', "The crane is locked"),
        ("a.pdf", b"<!DOCTYPE html><p>This paper has moved.</p>", "This paper has moved."),
        ("a.doc", b"Notes of the mill, kept as plain text.\n", "Notes of the mill"),
        ("a.docx", DOC, "The ban was lifted. It rained."),
        ("a.aspx", b"<html><body><p>A page of a server.</p></body></html>", "A page of a server."),
        ("a.xml", b"<rss><title>Mills & dams</title><p>Open in May.</p>", "Mills & dams"),
        ("a.txt", "The mill opens in May.\n".encode("utf-16-le"), "The mill opens in May."),
        ("a.txt", "The mill opens in May.\n".encode("utf-16-be"), "The mill opens in May."),
        ("a.txt", "水車は春に修理されます。".encode("iso2022_jp"), "水車は春に"),
        ("a.txt", ("Мельница была построена на реке и работала до самой войны.\n" * 4).encode("cp866"), "Мельница"),
        ("a.txt", ("Młyn został zbudowany nad rzeką. Źródło jest w górach.\n" * 4).encode("iso8859_2"), "Źródło"),
        ("a.txt", ("~" * 60 + "\nCet élève a été là où était le théâtre.\n").encode("cp1252") * 9, "Cet élève"),
        ("a.txt", "방앗간은 봄에 똠방각하가 수리합니다. 둑이 무너졌기 때문입니다.\n".encode("cp949") * 3, "똠방각하"),
        ("a.htm", '<meta charset="windows-1251"><p>Мост</p>'.encode("cp1251"), "Мост"),
        ("a.py", "# -*- coding: iso8859_7 -*-\n# Μύλος\n".encode("iso8859_7"), "Μύλος"),
        ("a.info", b"This is the manual of the mill.\n\0\x08[index\0\x08]\n" + b"Water drives it. " * 200, "Water"),
        ("a.geojson", b'{"features": [{"name": "Mill pond"}]}', "features.name: Mill pond"),
    ],
)  # fmt: skip
def test_a_file_is_read_as_what_it_is(name, data, words):
    assert words in " ".join(texts(name, data))


def test_numbers_of_two_bytes_are_not_utf_16():
    assert not utf_16(b"\0\1")
    assert not utf_16(bytes(range(256)) + b"\0\7" * 500)


def test_a_file_without_a_suffix_in_utf_16_is_text():
    assert texts("NOTES", "The mill opens in May.\n".encode("utf-16-le")) == ["The mill opens in May."]


@pytest.mark.parametrize(
    ("header", "author"),
    [
        (b"Ann <a@example.org>", "Ann <a@example.org>"),
        (b'"Vane, Nora" <n@example.org>', "Vane, Nora <n@example.org>"),
        (b"a@example.org (Ann)", "Ann <a@example.org>"),
        (b"=?utf-8?q?M=C3=BCller=2C_Eva?= <e@example.org>", "M\u00fcller, Eva <e@example.org>"),
        (b"J\xf6rg <j@example.org>", "J\u00f6rg <j@example.org>"),
        (b"the miller", "the miller"),
        (b"=?nothing?q?x?= <n@example.org>", "=?nothing?q?x?= <n@example.org>"),
    ],
)
def test_senders_of_mail_are_written_as_people_read_them(header, author):
    message = message_article(b"From: " + header + b"\nSubject: a\n =?iso-8859-1?q?=E9?=\n\nText\n", "a.eml")
    assert (message.title, message.metadata["author"]) == ("a \u00e9", author)


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("a.doc", made.doc("x", flags=0x0100), "is encrypted"),
        ("a.doc", made.ole({"WordDocument": b"\xdc\xa5" + b"\0" * 600}), "Word 95"),
        ("a.doc", DOC[:1200], "damaged"),
        ("a.ppt", PPT[:2000], "cannot be read completely"),
        ("a.ppt", DOC, "has no stream 'Current User'"),
        ("a.xls", b"\x01\x02\0" * 50, "cannot be read completely"),
        ("a.plist", b"bplist00broken", "cannot be read completely"),
    ],
)
def test_what_cannot_be_read_says_why(name, data, reason):
    with pytest.raises(DataError, match=reason):
        texts(name, data)


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("a.1", b".TH A 1\n.SH NAME\nhalf \\[uD800]\n", "half \ufffd"),
        ("a.eml", b"Content-Type: text/plain; charset=utf-7\n\nhalf +2AA-\n", "half \ufffd"),
        ("a.eml", b"Subject: =?unicode_escape?q?=5Cud800?=\n\nText\n", "\ufffd"),
        ("a.eml", b'Content-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: text/plain; name="x"\n\nText\n--b\n'
         b'Content-Type: text/plain; name="\xe9.txt"\n\nText\n--b--\n', "Attachment: \ufffd.txt"),
    ],
)  # fmt: skip
def test_half_a_character_in_a_file_is_a_mark_in_its_document(name, data, said, tmp_path):
    (tmp_path / name).write_bytes(data)
    ledger = Ledger(strict=True)
    [match] = detect(tmp_path, ledger=ledger)
    [document] = [item.record for item in match.items(Options(ledger=ledger))]
    texts = [document.title, *(text for section in document.sections for text in section.paragraphs)]
    assert any(said in text for text in texts)


def test_an_encoded_word_of_an_impossible_encoding_stays_as_it_is():
    message = message_article(b"Subject: =?\xe9?q?a?=\n\nText\n", "a.eml")
    assert (message.title, message.sections[0].paragraphs) == ("=?\u00e9?q?a?=", ("Text",))


def test_a_private_key_is_never_read():
    key = BytesSource("server.key", b"-----BEGIN RSA PRIVATE KEY-----\nAAAA\n")
    assert kind_of(key) is None
    assert why_not(key) == "a private key"


def test_names_decide_nothing_by_halves(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "list.tar.gz.txt").write_text("A list of what is in an archive.\n")
    ledger = Ledger(strict=False)
    if os.name == "posix":
        (folder / "two\nlines.txt").write_text("Text.\n")
    ids = [
        item.record.id
        for match in detect(folder, ledger=ledger)
        for item in match.items(Options(ledger=ledger))
    ]
    assert ids == ["list.tar.gz.txt"]
    if os.name == "posix":
        assert [row["reason"] for row in ledger.table()] == [
            "the name has a line break or another control character"
        ]
