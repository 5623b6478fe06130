"""`liebig prepare`: the same bytes from any number of processes, from documents or passages, with lines in errors."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from liebig.base import workspace
from liebig.base.config import inputs, parse, recorded
from liebig.base.errors import DataError
from liebig.formats.documents import document_row
from liebig.stages.prepare import PrepareConfig, run
from liebig.store import TokenStore, prepare as preparing
from liebig.store.prepare import cut
from tests.worlds.store import documents, store, tokenizer


def write_lines(folder: Path, name: str, rows: list[dict]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(
        "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8"
    )
    return folder


@pytest.fixture(scope="module")
def collection(tmp_path_factory):
    return write_lines(
        tmp_path_factory.mktemp("c") / "collection", "documents.jsonl", [document_row(d) for d in documents()]
    )


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    folder = tmp_path_factory.mktemp("t") / "tokenizer"
    tokenizer().save(folder)
    return folder


def prepared(collection: Path, vocabulary: Path, out: Path, **values) -> TokenStore:
    config = parse(PrepareConfig, {"collection": str(collection), "tokenizer": str(vocabulary), **values})
    recipe = recorded(config)
    with workspace.stage(out, kind="prepare", recipe=recipe, inputs=inputs(config)) as folder:
        run(config, folder)
    return TokenStore.open(out)


def contents(folder: Path) -> dict[str, bytes]:
    found = {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    manifest = json.loads(found["manifest.json"])
    del manifest["started"], manifest["finished"]
    return found | {"manifest.json": json.dumps(manifest).encode()}


def test_a_prepared_store_is_the_one_written_whole(collection, vocabulary, tmp_path, monkeypatch):
    monkeypatch.setattr(preparing, "PIECE", 2000)
    found = prepared(collection, vocabulary, tmp_path / "a", processes=1)
    whole = store(tmp_path / "b")
    for name in ("tokens", "sentences", "paragraphs", "sections", "documents"):
        assert np.array_equal(getattr(found, name), getattr(whole, name))
    assert list(found.ids) == list(whole.ids)
    assert not (tmp_path / "a" / "shards").exists()


def test_the_number_of_processes_does_not_change_a_byte(collection, vocabulary, tmp_path, monkeypatch):
    monkeypatch.setattr(preparing, "PIECE", 3000)
    for processes in (1, 2):
        prepared(collection, vocabulary, tmp_path / str(processes), processes=processes)
    assert contents(tmp_path / "1") == contents(tmp_path / "2")


def test_the_size_of_pieces_does_not_change_a_byte(collection, vocabulary, tmp_path, monkeypatch):
    for size in (1, 2500, 1 << 20):
        monkeypatch.setattr(preparing, "PIECE", size)
        prepared(collection, vocabulary, tmp_path / str(size), processes=1)
    assert contents(tmp_path / "1") == contents(tmp_path / "2500") == contents(tmp_path / str(1 << 20))


@pytest.mark.parametrize("size", [1, 700, 5000, 10**9])
def test_pieces_are_whole_lines_and_together_the_file(collection, size):
    data = (collection / "documents.jsonl").read_bytes()
    parts = [data[p.begin : p.end] for p in cut(collection, size)]
    assert b"".join(parts) == data
    assert all(part.endswith(b"\n") for part in parts)
    assert len(parts) == {1: 40, 10**9: 1}.get(size, len(parts))


PASSAGES = [
    {"id": f"{doc}-{i}", "title": f"Title {doc}", "text": f"Ka lo {i}. Mi nu.", "doc": doc}
    for doc, count in (("a", 3), ("b", 1), ("", 2), ("c", 9), ("a", 2))
    for i in range(count)
]


@pytest.mark.parametrize("size", [1, 150, 600, 10**6])
def test_neighbouring_passages_of_a_document_become_its_paragraphs_however_the_file_is_cut(tmp_path, size):
    folder = write_lines(tmp_path, "passages.jsonl", PASSAGES)
    found = [d for piece in cut(folder, size) for d in piece.documents()]
    assert [d.id for d in found] == ["a", "b", "-0", "-1", "c", "a"]
    assert [len(d.sections[0].paragraphs) for d in found] == [3, 1, 1, 1, 9, 2]
    assert found[0].title == "Title a"


def test_a_collection_of_passages_is_prepared(vocabulary, tmp_path):
    folder = write_lines(tmp_path / "c", "passages.jsonl", PASSAGES)
    found = prepared(folder, vocabulary, tmp_path / "s", processes=1)
    assert list(found.ids) == ["a", "b", "-0", "-1", "c", "a"]
    assert list(np.diff(found.sections)) == [3, 1, 1, 1, 9, 2]


@pytest.mark.parametrize("processes", [1, 2])
def test_a_broken_line_is_named_and_nothing_is_left(
    vocabulary, tmp_path, monkeypatch, forked_helpers, processes
):
    monkeypatch.setattr(preparing, "PIECE", 2000)
    folder = write_lines(tmp_path / "c", "documents.jsonl", [document_row(d) for d in documents()])
    lines = (folder / "documents.jsonl").read_text().split("\n")
    lines[27] = lines[27][:-5]
    (folder / "documents.jsonl").write_text("\n".join(lines))
    with pytest.raises(DataError, match=r"documents.jsonl, line 28: this is not valid JSON"):
        prepared(folder, vocabulary, tmp_path / "s", processes=processes)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["c"]


def test_a_changed_collection_and_one_without_text_are_refused(vocabulary, tmp_path):
    with workspace.stage(tmp_path / "c", kind="init", recipe={}, inputs={}) as folder:
        folder.write_text("documents.jsonl", json.dumps(document_row(documents()[5])) + "\n")
    (tmp_path / "c" / "documents.jsonl").write_text(json.dumps(document_row(documents()[6])) + "\n")
    with pytest.raises(workspace.CorruptError, match=r"documents\.jsonl"):
        prepared(tmp_path / "c", vocabulary, tmp_path / "s")
    folder = write_lines(tmp_path / "d", "documents.jsonl", [document_row(documents()[0])])
    with pytest.raises(DataError, match="no text"):
        prepared(folder, vocabulary, tmp_path / "s")
