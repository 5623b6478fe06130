"""Packed, archived and piped sources give the bytes of the plain file; nothing leaves an archive."""

import contextlib
import gzip
import io
import lzma
import sys
import tarfile
import types
import zipfile

import pytest
import zstandard

from liebig.base.errors import DataError
from liebig.base.records import Passage
from liebig.formats import detect
from liebig.formats.compressed import create
from liebig.formats.encoding import whole_text
from liebig.formats.items import Options
from liebig.formats.on_disk import source_of, standard_input
from liebig.formats.rows import csv_rows, lines

TEXT = "".join(f"{n}\tpassage number {n} é\n" for n in range(3000))
DATA = TEXT.encode()
PACKERS = {
    "": lambda data: data,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}


def test_a_symlink_is_read_after_every_file_so_that_it_is_the_copy(tmp_path):
    (tmp_path / "in" / "z").mkdir(parents=True)
    (tmp_path / "in" / "z" / "notes.md").write_text("# Notes\n\nText.\n")
    (tmp_path / "in" / "a.md").symlink_to(tmp_path / "in" / "z" / "notes.md")
    [match] = detect(tmp_path / "in")
    assert [item.record.id for item in match.items(Options())] == ["z/notes.md", "a.md"]


def test_an_archive_reached_by_a_symlink_is_read_after_every_file(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "z.zip").write_bytes(zipped({"b/notes.md": b"# Notes\n", "more.md": b"# More\n"}))
    (tmp_path / "in" / "a.zip").symlink_to(tmp_path / "in" / "z.zip")
    [match] = detect(tmp_path / "in")
    ids = [item.record.id for item in match.items(Options())]
    assert ids == ["z.zip/b/notes.md", "z.zip/more.md", "a.zip/b/notes.md", "a.zip/more.md"]


def zipped(members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def tarred(members, mode):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def content(source):
    with source.open() as stream:
        return stream.read()


@pytest.mark.parametrize("suffix", PACKERS)
def test_a_packed_file_reads_as_the_plain_one(tmp_path, suffix):
    path = tmp_path / f"collection.tsv{suffix}"
    path.write_bytes(PACKERS[suffix](DATA))
    source = source_of(path)
    assert content(source) == DATA
    assert (source.plain, source.suffix, source.stem) == ("collection.tsv", ".tsv", "collection")


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
def test_packing_goes_by_the_bytes_and_not_the_name(tmp_path, suffix):
    (tmp_path / "named.tsv").write_bytes(PACKERS[suffix](DATA))
    (tmp_path / f"plain.tsv{suffix}").write_bytes(DATA)
    assert (
        content(source_of(tmp_path / "named.tsv"))
        == content(source_of(tmp_path / f"plain.tsv{suffix}"))
        == DATA
    )


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
def test_several_packed_parts_behind_one_another_are_one(tmp_path, suffix):
    (tmp_path / f"x.tsv{suffix}").write_bytes(PACKERS[suffix](DATA[:999]) + PACKERS[suffix](DATA[999:]))
    assert content(source_of(tmp_path / f"x.tsv{suffix}")) == DATA


@pytest.mark.parametrize("suffix", PACKERS)
def test_what_is_written_packed_is_read_back_and_the_same_every_time(tmp_path, suffix):
    made = []
    for name in ("a", "b"):
        with create(tmp_path / f"{name}.tsv{suffix}") as file:
            file.write(DATA)
        assert content(source_of(tmp_path / f"{name}.tsv{suffix}")) == DATA
        made.append((tmp_path / f"{name}.tsv{suffix}").read_bytes())
    assert made[0] == made[1]


@pytest.mark.parametrize("packed", [PACKERS[""], PACKERS[".gz"], PACKERS[".zst"]])
def test_an_archive_of_one_file_stands_for_the_file(tmp_path, packed):
    (tmp_path / "c.zip").write_bytes(zipped({"sub/collection.tsv": packed(DATA)}))
    source = source_of(tmp_path / "c.zip")
    assert content(source) == DATA
    assert source.name == "collection.tsv"


def beir_members(top):
    return {
        f"{top}corpus.jsonl": b'{"_id": "d", "text": "x"}\n',
        f"{top}queries.jsonl": b'{"_id": "q", "text": "?"}\n',
        f"{top}qrels/test.tsv": b"q\td\t1\n",
        "__MACOSX/._x": b"junk",
    }


@pytest.mark.parametrize("top", ["", "scifact/"])
def test_an_archive_of_a_beir_folder_is_a_beir_folder(tmp_path, top):
    made = {"a.zip": zipped(beir_members(top)), "a.tar": tarred(beir_members(top), "w")}
    made |= {"a.tar.gz": tarred(beir_members(top), "w:gz"), "a.tar.xz": tarred(beir_members(top), "w:xz")}
    for name, data in made.items():
        (tmp_path / name).write_bytes(data)
        [found] = detect(tmp_path / name)
        assert found.format.name == "beir"
        assert len(list(found.items(Options()))) == 3


@pytest.mark.parametrize(
    "name", ["../out.jsonl", "a/../../out.jsonl", "/etc/out.jsonl", "..\\out.jsonl", "C:out.jsonl"]
)
def test_an_archive_whose_members_point_outside_is_refused(tmp_path, name):
    (tmp_path / "z.zip").write_bytes(zipped({name: b"{}", "ok.jsonl": b"{}"}))
    (tmp_path / "t.tar").write_bytes(tarred({name: b"{}", "ok.jsonl": b"{}"}, "w"))
    for archive in ("z.zip", "t.tar"):
        with pytest.raises(DataError, match="points outside"):
            source_of(tmp_path / archive)


def test_links_in_an_archive_are_not_followed(tmp_path):
    with tarfile.open(tmp_path / "t.tar", "w") as archive:
        link = tarfile.TarInfo("corpus.jsonl")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    with pytest.raises(DataError, match="a link out of the archive"):
        source_of(tmp_path / "t.tar").head()


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04rubbish", zipped({"a": DATA})[:200]])
def test_a_damaged_archive_is_refused(tmp_path, data):
    (tmp_path / "z.zip").write_bytes(data)
    with pytest.raises(DataError, match=r"z\.zip"):
        source_of(tmp_path / "z.zip")


@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz"])
def test_an_archive_with_flipped_bytes_is_never_another_exception(tmp_path, kind):
    members = beir_members("x/")
    data = zipped(members) if kind == "zip" else tarred(members, "w:gz" if "gz" in kind else "w")
    for at in range(0, min(len(data), 2048), 5):
        (tmp_path / f"a.{kind}").write_bytes(data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])
        with contextlib.suppress(DataError):
            [item for found in detect(tmp_path / f"a.{kind}") for item in found.items(Options())]


@pytest.mark.parametrize("suffix", PACKERS)
def test_standard_input_can_be_looked_at_and_then_read_once(monkeypatch, suffix):
    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=io.BytesIO(PACKERS[suffix](DATA))))
    [found] = detect("-")
    assert found.format.name == "msmarco-passages"
    records = [item.record for item in found.items(Options())]
    assert len(records) == 3000
    assert records[7] == Passage("7", "passage number 7 é")
    with pytest.raises(DataError, match="only be read once"):
        list(found.items(Options()))


def test_standard_input_may_be_a_zip():
    assert content(standard_input(io.BytesIO(zipped({"x.tsv": DATA})))) == DATA


def test_standard_input_whose_format_cannot_be_told_asks_for_it(monkeypatch):
    long = b'[{"question": "' + b"x" * (2 << 20) + b'", "positive_ctxs": []}]'
    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=io.BytesIO(long)))
    with pytest.raises(DataError, match="--format"):
        detect("-")


def test_links_to_folders_are_not_followed(tmp_path):
    (tmp_path / "a.md").write_text("# A\n")
    (tmp_path / "loop").symlink_to(tmp_path, target_is_directory=True)
    assert [source.name for source in source_of(tmp_path).files()] == ["a.md"]


def test_a_missing_file_is_a_sentence(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        source_of(tmp_path / "nowhere.jsonl")


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"good\nb\0d\n", "line 2: the line contains a NUL"),
        (b"good\ncaf\xe9\n", "line 2: byte 4 of the line, 0xe9, is not UTF-8"),
        ("x".encode("utf-16"), "line 1: this is UTF-16"),
        (b"good\n\xed\xa0\x80\n", "line 2: byte 1"),
    ],
)
def test_a_line_that_is_no_text_is_named(tmp_path, data, match):
    (tmp_path / "x.txt").write_bytes(data)
    with pytest.raises(DataError, match=match):
        list(lines(source_of(tmp_path / "x.txt")))


def test_byte_order_mark_and_carriage_returns_are_no_text(tmp_path):
    (tmp_path / "x.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\rthree\nlast")
    assert list(lines(source_of(tmp_path / "x.txt"))) == [(1, "one"), (2, "two\rthree"), (3, "last")]
    assert whole_text(source_of(tmp_path / "x.txt")) == ("one\ntwo\rthree\nlast", "utf-8")


def test_csv_rows_know_the_line_they_start_at(tmp_path):
    (tmp_path / "x.csv").write_bytes(b'a,b\r\n"two\r\nlines",c\r\nd,"e ""f"""\r\n')
    rows = [(where.line, row) for where, row in csv_rows(source_of(tmp_path / "x.csv"))]
    assert rows == [(1, ["a", "b"]), (2, ["two\r\nlines", "c"]), (4, ["d", 'e "f"'])]


def test_a_quote_that_never_closes_is_refused_where_it_opens(tmp_path, monkeypatch):
    monkeypatch.setattr("liebig.formats.rows.MAX_QUOTED", 1000)
    (tmp_path / "x.csv").write_text('a,b\n"open,c\n' + "more,text\n" * 500)
    with pytest.raises(DataError, match="line 2: a quote is opened here"):
        list(csv_rows(source_of(tmp_path / "x.csv")))
    (tmp_path / "y.csv").write_text('a,"open\n')
    with pytest.raises(DataError, match="line 1: the row is not valid CSV"):
        list(csv_rows(source_of(tmp_path / "y.csv")))
