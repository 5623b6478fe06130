"""Files that are small and unpack to very much are refused with one sentence, and listed where they lie in a folder."""

import gzip
import io
import lzma
import tarfile
import zipfile

import pytest
import zstandard

from liebig.base.errors import DataError
from liebig.formats import archives, compressed, detect, pdf as pdf_reader, xml_package
from liebig.formats.docx import read_docx
from liebig.formats.items import Options
from liebig.formats.ledger import Ledger
from liebig.formats.on_disk import source_of, standard_input
from tests.formats.test_docx_epub import docx, paragraph
from tests.formats.test_texts import pdf
from tests.worlds import mixed_folder

GROWS = "more than 1 MiB and 250 times its size"
ZEROS = b"0" * (3 << 20)
PACKERS = {
    "gz": gzip.compress,
    "xz": lambda data: lzma.compress(data, preset=0),
    "zst": zstandard.ZstdCompressor().compress,
}


@pytest.fixture(autouse=True)
def small_limits(monkeypatch):
    monkeypatch.setattr(compressed, "ALWAYS", 1 << 20)
    monkeypatch.setattr(archives, "MEMBERS", 100)


def zipped(members, method=zipfile.ZIP_DEFLATED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def put(path, data):
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("kind", PACKERS)
def test_a_packed_file_that_grows_too_much_is_refused(tmp_path, kind):
    path = put(tmp_path / f"x.txt.{kind}", PACKERS[kind](ZEROS))
    with pytest.raises(DataError, match=GROWS), source_of(path).open() as stream:
        stream.read()
    with (
        pytest.raises(DataError, match=GROWS),
        standard_input(io.BytesIO(path.read_bytes())).open() as stream,
    ):
        stream.read()


@pytest.mark.parametrize("kind", PACKERS)
def test_a_packed_file_that_grows_as_texts_do_is_read(tmp_path, kind):
    data = b"".join(b"%d words, and %d more\n" % (n * n, n**3) for n in range(60_000))
    with source_of(put(tmp_path / f"x.txt.{kind}", PACKERS[kind](data))).open() as stream:
        assert stream.read() == data


def test_a_zip_that_grows_too_much_is_refused_before_it_is_unpacked(tmp_path):
    path = put(tmp_path / "x.zip", zipped({f"{n}.txt": ZEROS for n in range(5)}))
    with pytest.raises(DataError, match=GROWS):
        source_of(path)


def test_members_that_share_their_bytes_are_counted_each(tmp_path):
    """The table of a .zip may name one packed file many times, each time with its size."""
    data = bytearray(zipped({"a.txt": ZEROS[: 900 << 10]}))
    start = data.index(b"PK\x01\x02")
    end = data.index(b"PK\x05\x06")
    entry, tail = bytes(data[start:end]), bytearray(data[end:])
    table = b"".join(entry.replace(b"a.txt", b"%c.txt" % letter) for letter in range(ord("a"), ord("z")))
    tail[8:12] = (25).to_bytes(2, "little") * 2
    tail[12:16] = len(table).to_bytes(4, "little")
    with pytest.raises(DataError, match=GROWS):
        source_of(put(tmp_path / "x.zip", bytes(data[:start]) + table + bytes(tail)))


def test_a_packed_file_inside_of_a_zip_is_held_to_the_same_bound(tmp_path):
    path = put(
        tmp_path / "x.zip", zipped({"a.txt.gz": gzip.compress(ZEROS), "b.md": b"# B"}, zipfile.ZIP_STORED)
    )
    ledger = Ledger(strict=False)
    records = [
        item.record for match in detect(path, None, ledger) for item in match.items(Options(ledger=ledger))
    ]
    assert [record.id for record in records] == ["b.md"]
    assert GROWS in str(ledger.errors[0])


def test_a_tar_of_a_sparse_file_is_refused(tmp_path):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        info = tarfile.TarInfo("a.txt")
        info.pax_headers = {"GNU.sparse.map": "0,1", "GNU.sparse.size": str(1 << 40)}
        info.size = 1
        archive.addfile(info, io.BytesIO(b"x"))
    with pytest.raises(DataError, match=GROWS):
        source_of(put(tmp_path / "x.tar", buffer.getvalue()))


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_an_archive_of_very_many_members_is_refused(tmp_path, kind):
    buffer = io.BytesIO()
    if kind == "zip":
        buffer.write(zipped({f"{n}.md": b"" for n in range(101)}))
    else:
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            for n in range(101):
                archive.addfile(tarfile.TarInfo(f"{n}.md"))
    with pytest.raises(DataError, match="more than 100 files"):
        source_of(put(tmp_path / f"x.{kind}", buffer.getvalue()))


def test_what_is_refused_in_a_folder_is_listed_and_the_rest_is_read(tmp_path):
    put(tmp_path / "bomb.zip", zipped({"a.txt": ZEROS}))
    put(tmp_path / "bomb.txt.gz", gzip.compress(ZEROS))
    put(tmp_path / "a.md", b"# A\n\nText.\n")
    ledger = Ledger(strict=False)
    for match in detect(tmp_path, None, ledger):
        list(match.items(Options(ledger=ledger)))
    assert {label.rpartition("/")[2] for label in ledger.read} == {"a.md"}
    assert sorted((error.file or "").rpartition("/")[2] for error in ledger.errors) == [
        "bomb.txt.gz",
        "bomb.zip",
    ]
    assert ledger.unexplained() == []


def test_a_word_document_that_unpacks_to_very_much_text_is_refused(tmp_path, monkeypatch):
    path = put(tmp_path / "x.docx", docx(paragraph("x") * 20_000))
    assert len(read_docx(source_of(path)).sections[0].paragraphs) == 20_000
    monkeypatch.setattr(xml_package, "LARGEST_TEXT", 1 << 20)
    with pytest.raises(DataError, match="unpacks to more than 1 MiB of text"):
        read_docx(source_of(path))


def test_a_word_document_of_very_many_paragraphs_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("liebig.formats.docx.PARAGRAPHS", 10)
    assert (
        len(read_docx(source_of(put(tmp_path / "a.docx", docx(paragraph("x") * 10)))).sections[0].paragraphs)
        == 10
    )
    with pytest.raises(DataError, match="more than 10 paragraphs"):
        read_docx(source_of(put(tmp_path / "b.docx", docx(paragraph("x") * 11))))


def test_the_files_of_an_archive_are_listed_once(tmp_path):
    source = source_of(put(tmp_path / "x.zip", zipped({f"{n}.md": b"" for n in range(3)})))
    assert [one is other for one, other in zip(source.children(), source.children(), strict=True)] == [
        True
    ] * 3


def test_paragraphs_of_a_word_document_are_freed_as_they_are_read(tmp_path, monkeypatch):
    from liebig.formats import docx as module

    kept = []
    forget = module._forget

    def counted(node):
        forget(node)
        kept.append(node.getparent().index(node))

    monkeypatch.setattr(module, "_forget", counted)
    read_docx(source_of(put(tmp_path / "x.docx", docx(paragraph("x") * 500))))
    assert (len(kept), max(kept)) == (500, 0)


def test_a_pdf_of_very_many_pages_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(pdf_reader, "PAGES", 2)
    path = put(tmp_path / "x.pdf", pdf(["a", "b", "c"]))
    with pytest.raises(DataError, match="the PDF has 3 pages"):
        [item for match in detect(path) for item in match.items(Options())]
    monkeypatch.setattr(pdf_reader, "PAGES", 3)
    monkeypatch.setattr(pdf_reader, "LARGEST", 2)
    with pytest.raises(DataError, match="of text"):
        [item for match in detect(path) for item in match.items(Options())]


def test_the_files_of_archives_in_an_archive_are_counted_together(tmp_path, monkeypatch):
    inner = zipped({f"{n}.md": b"# A" for n in range(60)})
    path = put(tmp_path / "x.zip", zipped({**{f"{n}.zip": inner for n in range(5)}, "a.md": b"# A"}))
    opened, zip_file = [], zipfile.ZipFile
    monkeypatch.setattr(zipfile, "ZipFile", lambda *given: opened.append(1) or zip_file(*given))
    ledger = Ledger(strict=False)
    for match in detect(path, None, ledger):
        list(match.items(Options(ledger=ledger)))
    assert len(ledger.read) == 61
    assert sum("more than 100 files with those" in str(error) for error in ledger.errors) == 4
    assert len(opened) < 5, "the tables of the last are not read"


def test_a_member_in_very_many_folders_is_listed_and_not_read(tmp_path):
    names = {f"{'a/' * 64}deep.md": b"# A", f"{'a/' * 65}deeper.md": b"# A", "b.md": b"# B"}
    ledger = Ledger(strict=False)
    for match in detect(put(tmp_path / "x.zip", zipped(names)), None, ledger):
        list(match.items(Options(ledger=ledger)))
    assert len(ledger.read) == 2
    (error,) = ledger.errors
    assert "the path is too long" in str(error)


def workbook(rows, **parts):
    """A workbook of one sheet, whose XML is given; `parts` take the place of what openpyxl writes."""
    buffer = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(mixed_folder.xlsx({"a": [["a", "b"]]}))) as made,
        zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as changed,
    ):
        for name in made.namelist():
            text = made.read(name)
            if name == "xl/worksheets/sheet1.xml":
                text = (
                    text[: text.index(b"<sheetData>")] + f"<sheetData>{rows}</sheetData></worksheet>".encode()
                )
            elif name == "xl/styles.xml" and "styles" in parts:
                text = parts["styles"].encode()
            changed.writestr(name, text)
    return buffer.getvalue()


BOMBS = {
    "a row far below": ('<row r="1000000000000"><c r="A1" t="n"><v>1</v></c></row>', {}, "cells"),
    "cells far to the right": ('<row><c r="ZZZ1" t="n"><v>1</v></c></row>' * 2000, {}, "cells"),
    "a long number format": ("", {"styles": f"<numFmt formatCode='{'[' * 3000}'/>"}, "number format"),
    "a text that is not there": ('<row r="1"><c r="A1" t="s"><v>99</v></c></row>', {}, "index"),
    "a number of many digits": (f'<row r="1"><c r="A1" t="n"><v>{"9" * 5000}</v></c></row>', {}, "digits"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_small_workbook_that_costs_much_is_refused(tmp_path, name):
    rows, parts, said = BOMBS[name]
    with pytest.raises(DataError, match=said):
        [
            item
            for match in detect(put(tmp_path / "a.xlsx", workbook(rows, **parts)))
            for item in match.items(Options())
        ]
