"""A folder as people have them, built as it is by default: every question is answered, and every file accounted for."""

import json
import shutil
import zipfile
from pathlib import Path

import pytest

from liebig.builder.build import BuildConfig, build
from liebig.formats.ledger import FILES
from liebig.search.retriever import Retriever
from tests.worlds import mixed_folder
from tests.worlds.mixed_folder import ASKED, LISTED, PLACES

pytestmark = pytest.mark.slow


def built(source: Path, out: Path) -> Retriever:
    out.mkdir()
    said: list[str] = []
    build(BuildConfig(sources=(str(source),)), out, said.append)
    (out / "said.txt").write_text("\n".join(said))
    return Retriever.from_folder(out)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("mixed")


@pytest.fixture(scope="module")
def folder(place):
    return mixed_folder.write(place / "in")


@pytest.fixture(scope="module")
def retriever(folder, place):
    return built(folder, place / "out")


@pytest.fixture(scope="module")
def hits(retriever):
    return {asked.kind: retriever.search(asked.question, 3) for asked in ASKED}


def test_the_folder_has_many_kinds_and_files():
    assert len(ASKED) >= 40
    assert len(mixed_folder.contents()) >= 60


@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: asked.kind)
def test_every_kind_is_answered_in_the_first_three_hits(asked, hits):
    assert asked.doc in [hit.doc for hit in hits[asked.kind]]


@pytest.mark.parametrize("kind", PLACES)
def test_hits_say_where_they_stand(kind, hits):
    asked = next(asked for asked in ASKED if asked.kind == kind)
    hit = next(hit for hit in hits[kind] if hit.doc == asked.doc)
    unit, place = PLACES[kind]
    assert hit.metadata[unit] == place


def test_every_document_says_what_file_it_is_from(hits, folder):
    for asked in ASKED:
        [hit] = [hit for hit in hits[asked.kind] if hit.doc == asked.doc][:1]
        fields = hit.metadata
        assert {"path", "folder", "type", "size", "modified"} <= fields.keys()
        if "packed/" not in fields["path"] or fields["path"].endswith(("gz", "xz", "bz2", "zst")):
            assert (folder / fields["path"]).stat().st_size == int(fields["size"])
    authors = {asked.kind: hits[asked.kind][0].metadata.get("author") for asked in ASKED}
    assert authors["docx"] == "Nora Vane"
    assert authors["mbox"] == "Ann <a@example.org>"


def test_files_seen_are_read_or_listed(retriever, place):
    files = json.loads((place / "out" / FILES).read_text())
    read = len(mixed_folder.contents()) + 2  # two archives hold two files each
    assert (files["seen"], files["read"]) == (read + len(LISTED), read)
    assert sum(row["files"] for row in files["not_read"]) == len(LISTED)
    reasons = {(Path(path.removesuffix(".gz")).suffix, reason) for path, (_, reason) in LISTED.items()}
    assert {(row["suffix"], row["reason"]) for row in files["not_read"]} == reasons
    said = (place / "out" / "said.txt").read_text()
    assert f"{files['seen']} files seen = {read} read + {len(LISTED)} not read. " in said
    listed = (place / "out" / "skipped.txt").read_text()
    assert listed.startswith(f"{files['seen']} files seen = {read} read + {len(LISTED)} not read\n")
    assert all(f"{path}: " in listed for path in LISTED)


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_the_same_folder_in_an_archive_gives_the_same_hits(kind, folder, place, hits):
    archive = Path(shutil.make_archive(str(place / "packed"), kind, folder))
    if kind == "zip":
        assert zipfile.is_zipfile(archive)
    packed = built(archive, place / f"out-{kind}")
    for asked in ASKED:
        now = packed.search(asked.question, 3)
        assert [(hit.id, hit.text) for hit in now] == [(hit.id, hit.text) for hit in hits[asked.kind]]
        assert [hit.metadata["path"] for hit in now] == [hit.metadata["path"] for hit in hits[asked.kind]]
