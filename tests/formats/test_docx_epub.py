"""Word documents and e-books: headings become sections, and what is hostile is refused with one sentence."""

import io
import zipfile
from dataclasses import replace

import pytest

from liebig.base.errors import DataError
from liebig.base.records import Document, Section
from liebig.formats import detect, xml_package
from liebig.formats.items import Options
from liebig.formats.ledger import Ledger

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
RELS = (
    '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="rId1" '
    'Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" '
    'Target="word/document.xml"/></Relationships>'
)
STYLES = (  # as a German Word writes them: ids are translated, names are not
    f'<w:styles {W}><w:style w:styleId="Titel"><w:name w:val="Title"/></w:style>'
    '<w:style w:styleId="berschrift1"><w:name w:val="heading 1"/></w:style>'
    '<w:style w:styleId="Mine"><w:name w:val="My heading"/><w:basedOn w:val="berschrift1"/></w:style>'
    '<w:style w:styleId="Round"><w:name w:val="Round"/><w:basedOn w:val="Round"/></w:style>'
    '<w:style w:styleId="Leveled"><w:name w:val="Part"/><w:pPr><w:outlineLvl w:val="1"/></w:pPr></w:style></w:styles>'
)
CORE = '<c:core xmlns:c="c" xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>In the file</dc:title></c:core>'


def paragraph(text, style=""):
    mark = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f'<w:p>{mark}<w:r><w:t xml:space="preserve">{text}</w:t></w:r></w:p>'


def docx(body, head="", **more):
    document = (
        f'<?xml version="1.0" encoding="UTF-8"?>{head}<w:document {W}><w:body>{body}</w:body></w:document>'
    )
    return packed({"_rels/.rels": RELS, "word/document.xml": document, "word/styles.xml": STYLES, **more})


CHAPTERS = {
    "OEBPS/text/one.xhtml": '<?xml version="1.0"?><!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.1//EN" "http://www.w3.org/'
    'TR/xhtml11/DTD/xhtml11.dtd"><html xmlns="http://www.w3.org/1999/xhtml"><head><title>x</title></head><body>'
    "<h1>Growth</h1><p>Barley&nbsp;grows.</p><h2>Soil</h2><p>It needs potash.</p></body></html>",
    "OEBPS/text/chapter two.xhtml": "<html><body><h1>Harvest</h1><h2>Time</h2><p>In August.</p></body></html>",
    "OEBPS/nav.xhtml": "<html><body><ol><li>Growth</li></ol></body></html>",
}
OPF = (
    '<package xmlns="http://www.idpf.org/2007/opf" xmlns:dc="http://purl.org/dc/elements/1.1/"><metadata>'
    "<dc:title>On Barley</dc:title></metadata><manifest>"
    '<item id="nav" href="nav.xhtml" media-type="application/xhtml+xml" properties="nav"/>'
    '<item id="b" href="text/chapter%20two.xhtml" media-type="application/xhtml+xml"/>'
    '<item id="a" href="text/one.xhtml" media-type="application/xhtml+xml"/>'
    '<item id="p" href="p.svg" media-type="image/svg+xml"/></manifest>'
    '<spine><itemref idref="nav"/><itemref idref="a"/><itemref idref="b"/><itemref idref="p"/></spine></package>'
)
CONTAINER = (
    '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles><rootfile '
    'full-path="OEBPS/book.opf"/></rootfiles></container>'
)


def epub(**more):
    return packed({"META-INF/container.xml": CONTAINER, "OEBPS/book.opf": OPF, **CHAPTERS, **more})


def packed(parts):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in parts.items():
            archive.writestr(name, text)
    return buffer.getvalue()


def read(path):
    """The only document of a file."""
    (record,) = [item.record for found in detect(path) for item in found.items(Options(ledger=Ledger(True)))]
    return replace(record, metadata={})


def test_styles_of_a_word_document_make_sections(tmp_path):
    body = (
        paragraph("Barley", "Titel") + paragraph("The first &amp; best.") + paragraph("Growth", "berschrift1")
        + paragraph("It grows.", "Round") + paragraph("Soil", "Mine") + paragraph("Potash.")
        + paragraph("Ground", "Leveled") + paragraph("Clay.")
    )  # fmt: skip
    (tmp_path / "field.docx").write_bytes(docx(body))
    assert read(tmp_path / "field.docx") == Document(
        "field.docx",
        "Barley",
        (
            Section("", ("The first & best.",)),
            Section("Growth", ("It grows.",)),
            Section("Soil", ("Potash.",)),
            Section("Ground", ("Clay.",)),
        ),
    )


def test_a_word_document_keeps_breaks_tables_and_text_boxes_and_drops_what_was_deleted(tmp_path):
    box = (
        '<w:p><w:r><mc:AlternateContent xmlns:mc="m"><mc:Choice><w:txbxContent>' + paragraph("In a box.")
        + "</w:txbxContent></mc:Choice><mc:Fallback><w:txbxContent>" + paragraph("In a box.")
        + "</w:txbxContent></mc:Fallback></mc:AlternateContent><w:t>Around it.</w:t></w:r></w:p>"
    )  # fmt: skip
    body = (
        "<w:p><w:r><w:t>One</w:t><w:br/><w:t>two</w:t><w:tab/><w:t>three</w:t></w:r>"
        "<w:del><w:r><w:delText>gone</w:delText></w:r></w:del></w:p>"
        f"<w:tbl><w:tr><w:tc>{paragraph('a')}</w:tc><w:tc>{paragraph('b')}</w:tc></w:tr></w:tbl>{box}"
    )
    (tmp_path / "x.docx").write_bytes(docx(body, **{"docProps/core.xml": CORE}))
    record = read(tmp_path / "x.docx")
    assert record.title == "In the file"
    assert record.sections == (Section("", ("One\ntwo three", "a", "b", "In a box.", "Around it.")),)


def test_a_book_is_read_in_the_order_of_its_spine(tmp_path):
    (tmp_path / "barley.epub").write_bytes(epub())
    assert read(tmp_path / "barley.epub") == Document(
        "barley.epub",
        "On Barley",
        (
            Section("Growth", ("Barley grows.",)),
            Section("Soil", ("It needs potash.",)),
            Section("Harvest", ()),
            Section("Time", ("In August.",)),
        ),
    )


def test_a_book_that_was_zipped_with_a_folder_around_it_is_read(tmp_path):
    with zipfile.ZipFile(io.BytesIO(epub())) as whole:
        parts = {f"epub/{name}": whole.read(name) for name in whole.namelist()}
    (tmp_path / "barley.epub").write_bytes(packed({"epub/": b"", **parts}))
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "barley.epub").write_bytes(epub())
    assert read(tmp_path / "barley.epub").sections == read(tmp_path / "plain" / "barley.epub").sections


def test_both_are_read_in_a_folder_and_in_an_archive(tmp_path):
    files = {"a.docx": docx(paragraph("Text.")), "b.epub": epub(), "c.md": b"# C\n\nText.\n"}
    (tmp_path / "in").mkdir()
    for name, data in files.items():
        (tmp_path / "in" / name).write_bytes(data)
    (tmp_path / "all.zip").write_bytes(packed(files))
    for path in ("in", "all.zip"):
        records = [item.record for found in detect(tmp_path / path) for item in found.items(Options())]
        assert [(record.id, record.title) for record in records] == [
            ("a.docx", "a"),
            ("b.epub", "On Barley"),
            ("c.md", "C"),
        ]


LAUGHS = "<!DOCTYPE x [<!ENTITY a 'ha'><!ENTITY b '&a;&a;&a;'>]>"
OUTSIDE = "<!DOCTYPE x [<!ENTITY a SYSTEM 'file:///etc/passwd'>]>"
ENCRYPTED = (
    '<encryption><EncryptedData><EncryptionMethod Algorithm="http://x#aes"/></EncryptedData></encryption>'
)
HOSTILE = {
    "entities.docx": (docx(paragraph("&b;"), LAUGHS), "declares XML entities"),
    "outside.docx": (docx(paragraph("&a;"), OUTSIDE), "declares XML entities"),
    "broken.docx": (docx("<w:p>"), "damaged or truncated"),
    "short.docx": (docx(paragraph("x"))[:200], "damaged or truncated"),
    "empty.docx": (packed({}), "does not say which part is its document"),
    "lost.docx": (packed({"_rels/.rels": "<r/>"}), "which part is its document"),
    "entities.epub": (epub(**{"OEBPS/book.opf": LAUGHS + OPF}), "declares XML entities"),
    "lost.epub": (packed({"META-INF/container.xml": CONTAINER}), "has no part 'OEBPS/book.opf'"),
    "nowhere.epub": (packed({"META-INF/container.xml": "<container/>"}), "table of parts"),
    "drm.epub": (epub(**{"META-INF/encryption.xml": ENCRYPTED}), "encrypted"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_or_damaged_file_is_one_sentence(name, tmp_path):
    data, sentence = HOSTILE[name]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError, match=sentence) as caught:
        read(tmp_path / name)
    assert str(tmp_path / name) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_book_may_scramble_its_fonts(tmp_path):
    fonts = ENCRYPTED.replace("http://x#aes", "http://www.idpf.org/2008/embedding")
    (tmp_path / "x.epub").write_bytes(epub(**{"META-INF/encryption.xml": fonts}))
    assert read(tmp_path / "x.epub").title == "On Barley"


@pytest.mark.parametrize("name", ["bomb.docx", "bomb.epub"])
def test_a_bomb_is_refused_before_it_is_unpacked(name, tmp_path, monkeypatch):
    monkeypatch.setattr(xml_package, "LARGEST_TEXT", 1 << 20)
    zeros = " " * (1 << 21)
    data = docx(zeros) if name.endswith("docx") else epub(**{"OEBPS/text/one.xhtml": zeros})
    assert len(data) < 1 << 14
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError, match="unpacks to more than 1 MiB"):
        read(tmp_path / name)
