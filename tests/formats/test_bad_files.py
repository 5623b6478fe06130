"""One bad file does not stop the reading of a folder: it is skipped with the reason, or refused where that is asked."""

import io
import os
import subprocess
import warnings
import zipfile

import pytest

from liebig.base.errors import DataError
from liebig.base.workspace import digest
from liebig.formats import detect
from liebig.formats.items import Options
from liebig.formats.ledger import Ledger
from liebig.formats.on_disk import DiskSource, source_of


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "folder"
    made.mkdir()
    (made / "good.md").write_text("# Good\n\nText.\n")
    return made


def read(path, strict=False):
    """Names of the documents that were read, and the reasons of what was not."""
    skipped = Ledger(strict)
    options = Options(ledger=skipped)
    names = [item.record.id for found in detect(path, None, skipped) for item in found.items(options)]
    return names, [str(error) for error in skipped.errors], skipped.guessed


def dangling(folder):
    (folder / "bad.md").symlink_to(folder / "nowhere.md")


def looping(folder):
    (folder / "bad.md").symlink_to(folder / "bad.md")


def pipe(folder):
    os.mkfifo(folder / "bad.md")


def broken_pdf(folder):
    (folder / "bad.pdf").write_bytes(b"%PDF-1.4\nrubbish")


def binary(folder):
    (folder / "bad.txt").write_bytes(bytes(range(256)) * 8)


def not_utf8(folder):
    with open(os.fsencode(folder) + b"/bad\xff.md", "w") as file:
        file.write("text")


def broken_archive(folder):
    (folder / "bad.zip").write_bytes(b"PK\x03\x04rubbish")


def outside(folder):
    (folder.parent / "secret.md").write_text("# Secret\n")
    (folder / "bad.md").symlink_to(folder.parent / "secret.md")


def outside_folder(folder):
    (folder.parent / "other").mkdir()
    (folder / "bad").symlink_to(folder.parent / "other", target_is_directory=True)


BAD = {
    dangling: "the symlink is broken",
    looping: "the symlink is broken",
    pipe: "this is a pipe, socket or device",
    broken_pdf: "damaged or truncated",
    binary: "NUL bytes|cannot detect",
    not_utf8: "the name is not UTF-8",
    broken_archive: "damaged or truncated",
    outside: "the symlink points outside of the folder",
    outside_folder: "the symlink points outside of the folder",
}


@pytest.mark.parametrize("spoil", BAD, ids=lambda spoil: spoil.__name__)
def test_a_bad_file_is_skipped_with_the_reason_and_refused_when_strict(folder, spoil):
    spoil(folder)
    names, reasons, _ = read(folder)
    assert names == ["good.md"]
    assert len(reasons) == 1
    assert "bad" in reasons[0]
    with pytest.raises(DataError, match=BAD[spoil]):
        read(folder, strict=True)


def test_a_file_without_permission_is_skipped(folder, monkeypatch):
    (folder / "bad.md").write_text("no")
    (folder / "bad.html").write_text("no")
    raw = DiskSource.raw

    def refuse(self):
        if self.path.stem == "bad":
            raise PermissionError(13, "Permission denied", str(self.path))
        return raw(self)

    monkeypatch.setattr(DiskSource, "raw", refuse)
    names, reasons, _ = read(folder)
    assert names == ["good.md"]
    assert [reason.partition(": ")[2].partition(".")[0] for reason in reasons] == ["permission denied"] * 2


def test_a_folder_without_permission_is_skipped(folder, monkeypatch):
    (folder / "closed").mkdir()
    iterdir = type(folder).iterdir

    def refuse(self):
        if self.name == "closed":
            raise PermissionError(13, "Permission denied", str(self))
        return iterdir(self)

    monkeypatch.setattr(type(folder), "iterdir", refuse)
    names, [reason], _ = read(folder)
    assert names == ["good.md"]
    assert "closed: the folder cannot be listed (Permission denied)" in reason


def test_links_inside_the_folder_are_followed(folder):
    (folder / "again.md").symlink_to(folder / "good.md")
    (folder / "here").symlink_to(folder, target_is_directory=True)
    assert read(folder)[:2] == (["good.md", "again.md"], [])  # links after files


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("cp1252", "fine\ncaf\u00e9 \u201cquoted\u201d"),
        (
            "cp1251",
            "Привет, мир! Это текст по-русски.",
        ),
        ("utf-16", "caf\u00e9"),
        ("utf-32", "caf\u00e9"),
        ("shift_jis", "これは日本語のテキストです。"),
    ],
)
def test_the_encoding_of_a_document_is_guessed(folder, encoding, text):
    for name in ("old.txt", "old.md"):
        (folder / name).write_bytes(text.encode(encoding))
        [found] = detect(folder / name)
        assert [item.record.sections[0].paragraphs for item in found.items(Options())] == [(text,)]
    names, reasons, guessed = read(folder)
    assert (names, reasons) == (["good.md", "old.md", "old.txt"], [])
    assert set(guessed.values()) == {encoding}


def test_a_byte_order_mark_is_no_text(folder):
    (folder / "mark.md").write_bytes(b"\xef\xbb\xbf# Title\n\nText.\n")
    [found] = detect(folder / "mark.md")
    assert [item.record.title for item in found.items(Options())] == ["Title"]


def deep(folder, name, depth):
    """A file so many folders below."""
    here = os.getcwd()
    try:
        os.chdir(folder)
        for _ in range(depth):
            os.mkdir(name)
            os.chdir(name)
        with open("deep.md", "w") as file:
            file.write("# Deep\n")
    finally:
        os.chdir(here)


@pytest.fixture
def shallow(tmp_path):
    """A folder that is removed by a program without recursion: pytest's own cleaning fails on deep folders."""
    made = tmp_path / "shallow"
    made.mkdir()
    (made / "good.md").write_text("# Good\n")
    yield made
    subprocess.run(["rm", "-rf", made], check=True)


def test_a_deep_folder_is_read(shallow):
    deep(shallow, "d", 1100)
    assert read(shallow)[:2] == (["d/" * 1100 + "deep.md", "good.md"], [])
    assert digest(shallow)


def test_a_file_whose_path_is_too_long_is_skipped(shallow):
    deep(shallow, "d" * 150, 40)
    names, [reason], _ = read(shallow)
    assert names == ["good.md"]
    assert "File name too long" in reason
    assert digest(shallow)


def test_members_of_one_name_are_told(tmp_path):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive, warnings.catch_warnings(action="ignore"):
        archive.writestr("a.md", "# Old\n")
        archive.writestr("b.md", "# B\n")
        archive.writestr("a.md", "# New\n")
    (tmp_path / "x.zip").write_bytes(buffer.getvalue())
    [found] = detect(tmp_path / "x.zip", None, skipped := Ledger(strict=False))
    assert [item.record.title for item in found.items(Options())] == ["New", "B"]
    [error] = skipped.errors
    assert (
        "x.zip!a.md (not the last): the archive has 2 members of this name; only the last one is read"
        in str(error)
    )


def test_a_deep_member_of_an_archive_is_told(tmp_path):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a/" * 1500 + "deep.md", "# Deep\n")
        archive.writestr("b/" * 20_000 + "deeper.md", "# Deeper\n")
        archive.writestr("good.md", "# Good\n")
    (tmp_path / "x.zip").write_bytes(buffer.getvalue())
    names, reasons, _ = read(tmp_path / "x.zip")
    assert names == ["good.md"]
    assert len(reasons) == 2
    assert all("the path is too long" in reason for reason in reasons)


def test_data_whose_format_cannot_be_told_is_skipped_beside_data_that_can(tmp_path):
    (tmp_path / "corpus.jsonl").write_text('{"_id": "1", "text": "x"}\n')
    (tmp_path / "settings.json").write_text("[1.5]")
    [found] = detect(tmp_path, None, skipped := Ledger(strict=False))
    assert found.source.name == "corpus.jsonl"
    assert "settings.json" in str(skipped.errors[0])


def test_the_files_of_a_source_come_in_the_order_of_their_names(tmp_path):
    for name in ("b/x.md", "a.md", "b/a.md", "c.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("text")
    assert [path for path, s in source_of(tmp_path).walk() if not s.is_folder] == [
        "a.md",
        "b/a.md",
        "b/x.md",
        "c.md",
    ]
