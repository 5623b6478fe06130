"""An update reads and encodes what changed and nothing else, and ends where a build from the beginning would."""

import json
import os
import sys

import numpy as np
import pytest

from liebig.base.errors import RecipeError
from liebig.builder.update import update
from liebig.builder.watch import watch
from liebig.collection import Collection
from liebig.formats import read_before
from liebig.formats.convert import config_file, given_converters
from liebig.formats.on_disk import DiskSource
from liebig.indexes import open_index
from liebig.search.known_vectors import KnownVectors
from liebig.search.retriever_folder import read
from liebig.stages import encode
from tests.worlds.books import write_documents


@pytest.fixture
def world(made, tmp_path, monkeypatch):
    """A source, a retriever built from it, and a function that updates it and gives the files opened for it."""
    monkeypatch.setattr(read_before, "RACY", -1.0)  # as if the files had been there for a while
    source = write_documents(tmp_path / "source")
    (source / "table.csv").write_text(
        "name,remark\npump,The pump is in the cellar and hums all night long there.\n"
    )
    made(source, tmp_path / "out")

    def run():
        opened = []
        raw = DiskSource.raw
        with monkeypatch.context() as patch:
            patch.setattr(DiskSource, "raw", lambda self: opened.append(self.name) or raw(self))
            update(tmp_path / "out", [], lambda line: None)
        return {name for name in opened if (source / name).exists()}

    return source, tmp_path / "out", run


def collection_of(out):
    return Collection(out / read(out).collection)


def vectors_of(out, part="index"):
    """Stored vectors by id."""
    index = open_index(out / getattr(read(out), part))
    rows = {}
    for shard in index.stored():
        for row in set(range(len(shard))) - set(shard.deleted.tolist()):
            rows[shard.ids[row]] = shard.vectors[np.array([row])].decode()[0]
    return rows


def test_only_files_that_changed_are_opened(world):
    source, _, run = world
    (source / "zither.md").write_text("# The zither\n\nA zither lies in the attic.\n")
    opened = run()
    assert "zither.md" in opened
    assert not {"barley.md", "steam.md"} & opened
    (source / "zither.md").write_text("# The zither\n\nA zither lies in the cellar.\n")
    os.utime(source / "steam.md")
    opened = run()
    assert {"zither.md", "steam.md"} <= opened
    assert "barley.md" not in opened


def test_an_update_gives_what_a_build_gives(world, made, tmp_path, monkeypatch):
    source, out, run = world
    (source / "zither.md").write_text("# The zither\n\nA zither lies in the attic.\n")
    (source / "barley.md").unlink()
    (source / "comet.md").rename(source / "comets.md")
    (source / "table.csv").write_text(
        "name,remark\nvalve,The valve is in the cellar and drips all night long there.\n"
    )
    run()
    made(source, tmp_path / "other")
    ours, theirs = collection_of(out), collection_of(tmp_path / "other")
    for kind in ("documents", "passages"):
        assert list(getattr(ours, kind)()) == list(getattr(theirs, kind)())
    ours, theirs = vectors_of(out), vectors_of(tmp_path / "other")
    assert ours.keys() == theirs.keys()
    assert all(np.allclose(ours[id], theirs[id], atol=2e-3) for id in ours)
    told = [json.loads((place / "files.json").read_text()) for place in (out, tmp_path / "other")]
    assert told[0] == told[1]


def test_a_file_that_changes_while_it_is_read_is_read_again(world, monkeypatch):
    monkeypatch.setattr(read_before, "RACY", 2.0)
    source, _, run = world
    (source / "zither.md").write_text("# The zither\n\nA zither lies in the attic.\n")
    run()
    (source / "lyre.md").write_text("# The lyre\n\nA lyre lies there too.\n")
    assert "zither.md" in run(), "it was written less than two seconds before it was read"


@pytest.mark.parametrize("inside", [False, True])
def test_a_renamed_file_is_not_encoded_again(world, monkeypatch, inside):
    source, out, run = world
    before = vectors_of(out)
    (source / "sub").mkdir()
    (source / "comet.md").rename(source / "sub" / "new.md" if inside else source / "new.md")
    used = []
    monkeypatch.setattr(
        encode, "KnownVectors", lambda model, known: used.append(1) or KnownVectors(Refusing(model), known)
    )
    run()
    assert used
    now = vectors_of(out)
    moved = {
        id: id.replace("sub/new.md", "comet.md").replace("new.md", "comet.md") for id in now if "new.md" in id
    }
    assert moved
    assert not any(id.startswith("comet.md") for id in now)
    for id, old in moved.items():
        assert np.array_equal(now[id], before[old])


class Refusing:
    """A model that has nothing to compute."""

    def __init__(self, model):
        self._model = model

    def __getattr__(self, name):
        return getattr(self._model, name)

    def start(self, packed, *more, **others):
        """As every model."""
        rows = list(packed)
        assert not rows, "there is a text to encode"
        return self._model.start(iter(rows), *more, **others)


def test_converters_of_the_user_read_files_of_a_build_once(made, tmp_path, monkeypatch):
    monkeypatch.setattr(read_before, "RACY", -1.0)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    script, runs = tmp_path / "convert.py", tmp_path / "runs"
    script.write_text(f"print('a zither')\nopen({str(runs)!r}, 'a').write('x')\n")
    config_file().parent.mkdir(parents=True)
    config_file().write_text(f"[convert]\n'.odd' = '{sys.executable} {script} {{path}}'\n")
    source = write_documents(tmp_path / "source")
    (source / "note.odd").write_bytes(b"\0")
    made(source, tmp_path / "out")
    told = (tmp_path / "out" / "retriever.json").read_text()
    assert json.loads(told)["converted"] == [".odd"]
    assert str(script) not in told
    assert collection_of(tmp_path / "out").document("note.odd").text == "a zither"
    (source / "zither.md").write_text("# The zither\n\nA zither lies in the attic.\n")
    update(tmp_path / "out", [], lambda line: None)
    assert collection_of(tmp_path / "out").document("note.odd").text == "a zither"
    assert runs.read_text() == "x"
    other = given_converters([f".odd={sys.executable} -c 'print(1, 2, 3)' {{path}}"])
    update(tmp_path / "out", [], lambda line: None, convert=other)
    assert collection_of(tmp_path / "out").document("note.odd").text == "1 2 3"


def test_an_update_reads_no_source_that_only_the_folder_names(world, tmp_path, monkeypatch):
    source, out, run = world
    monkeypatch.setenv("LIEBIG_STATE", str(tmp_path / "of_somebody_else"))
    (source / "zither.md").write_text("# The zither\n\nA zither lies in the attic.\n")
    for follow in (update, watch):
        with pytest.raises(RecipeError, match="was not indexed by you on this machine"):
            follow(out, [], lambda line: None)
    assert read(out).generation == 1
    update(out, [str(source)], lambda line: None)
    assert read(out).generation == 2
    (source / "zither.md").unlink()
    assert run() is not None, "it was named once"
    assert read(out).generation == 3
