"""Run folders are whole or absent, resumable, locked, and know whether they are up to date."""

import json
import multiprocessing
import os
import signal
from pathlib import Path

import pytest

from liebig.base import durable, hashes, workspace
from liebig.base.errors import CorruptError, DataError, TrainingError, WorkspaceError


def make(out: Path, text: str = "hello", **changes) -> Path:
    options = {"kind": "test", "recipe": {"text": text}, "inputs": {}} | changes
    with workspace.stage(out, **options) as folder:
        folder.write_text("a/b.txt", text)
    return out


def test_a_finished_folder_matches_its_manifest(tmp_path):
    manifest = workspace.verify(make(tmp_path / "out"))
    assert set(manifest.outputs) == {"a/b.txt"}
    assert manifest.recipe == {"text": "hello"}
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["a", "manifest.json"]
    assert os.listdir(tmp_path) == ["out"]


def test_bad_input_leaves_nothing_behind(tmp_path):
    with (
        pytest.raises(DataError),
        workspace.stage(tmp_path / "out", kind="t", recipe={}, inputs={}) as folder,
    ):
        folder.write_text("half", "written")
        raise DataError("bad line", file="x", line=3)
    assert os.listdir(tmp_path) == []


def test_broken_training_keeps_its_folder_for_inspection(tmp_path):
    with (
        pytest.raises(TrainingError),
        workspace.stage(tmp_path / "out", kind="t", recipe={}, inputs={}) as folder,
    ):
        folder.write_text("batch", "kept")
        raise TrainingError("loss is nan")
    assert (tmp_path / "out.partial" / "batch").read_text() == "kept"


def interrupt(out: Path, recipe: dict, inputs: dict | None = None) -> None:
    with (
        pytest.raises(KeyboardInterrupt),
        workspace.stage(out, kind="t", recipe=recipe, inputs=inputs or {}) as folder,
    ):
        folder.write_text("first", "kept")
        raise KeyboardInterrupt


def test_the_same_recipe_takes_up_an_interrupted_folder(tmp_path):
    interrupt(tmp_path / "out", {"a": 1})
    with workspace.stage(tmp_path / "out", kind="t", recipe={"a": 1}, inputs={}) as folder:
        assert folder.resumed
        assert (folder.path / "first").read_text() == "kept"
    assert set(workspace.verify(tmp_path / "out").outputs) == {"first"}


def test_what_a_killed_writer_left_does_not_stop_the_next_run(tmp_path):
    interrupt(tmp_path / "out", {"a": 1})
    stray = tmp_path / "out.partial" / "checkpoints" / ".step-00000009.123.tmp"  # a checkpoint is a folder
    stray.mkdir(parents=True)
    (stray / "objective.safetensors").write_bytes(b"half")
    (tmp_path / "out.partial" / ".plan.json.123.tmp").write_bytes(b"half")
    with workspace.stage(tmp_path / "out", kind="t", recipe={"a": 1}, inputs={}) as folder:
        assert folder.resumed
    assert set(workspace.verify(tmp_path / "out").outputs) == {"first"}


def test_another_recipe_discards_an_interrupted_folder_and_says_so(tmp_path, capsys):
    interrupt(tmp_path / "out", {"a": {"b": 1, "c": 3}})
    other = {"a": {"b": 2, "c": 3}, "d": None}
    with workspace.stage(tmp_path / "out", kind="t", recipe=other, inputs={}) as folder:
        assert not folder.resumed
        assert not (folder.path / "first").exists()
    assert "out.partial was left by a run that differs in a.b, d: it is begun anew" in capsys.readouterr().err


def test_changed_contents_are_refused(tmp_path):
    out = make(tmp_path / "out")
    (out / "a/b.txt").write_text("hellO")
    with pytest.raises(CorruptError, match=r"a/b\.txt does not match"):
        workspace.verify(out)
    (out / "a/b.txt").unlink()
    with pytest.raises(CorruptError, match="missing"):
        workspace.verify(out)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"kind": 1}'])
def test_a_broken_manifest_is_one_sentence(tmp_path, text):
    out = make(tmp_path / "out")
    (out / "manifest.json").write_text(text)
    with pytest.raises(CorruptError, match="manifest"):
        workspace.verify(out)


def test_a_file_is_hashed_again_only_when_it_changed(tmp_path, monkeypatch):
    out = make(tmp_path / "out")
    file, hashed, hash_file = out / "a" / "b.txt", [], hashes.hash_file
    monkeypatch.setattr(hashes, "hash_file", lambda path: hashed.append(path.name) or hash_file(path))
    an_hour_ago = file.stat().st_mtime_ns - 3600 * 10**9 + 1
    os.utime(file, ns=(an_hour_ago, an_hour_ago))
    for _ in range(2):
        workspace.verify(out)
    hashes.link(str(file), str(tmp_path / "link"))  # as the next generation of an index does it
    workspace.verify(out)
    assert hashed.count("b.txt") == 1
    file.write_bytes(file.read_bytes()[::-1])
    os.utime(file, ns=(an_hour_ago, an_hour_ago))  # a copy in its place may have its number, size and time
    with pytest.raises(CorruptError, match="does not match"):
        workspace.verify(out)


def test_only_what_lasts_is_waited_for_on_its_way_to_the_disk(tmp_path, monkeypatch):
    synced, sync = [], durable.sync
    monkeypatch.setattr(workspace, "sync", lambda path: synced.append(path.name) or sync(path))
    make(tmp_path / "work", lasting=False)
    assert "b.txt" not in synced
    make(tmp_path / "out")
    assert "b.txt" in synced


def test_up_to_date_depends_on_recipe_inputs_and_contents_not_on_times(tmp_path):
    source = tmp_path / "in.txt"
    source.write_text("one")
    same = {"kind": "test", "recipe": {"text": "x"}, "inputs": {"in": source}}
    out = make(tmp_path / "out", **same)
    os.utime(source, (1, 1))
    assert workspace.is_up_to_date(out, **same)
    assert not workspace.is_up_to_date(out, **(same | {"recipe": {"text": "y"}}))
    source.write_text("two")
    assert not workspace.is_up_to_date(out, **same)
    source.write_text("one")
    assert workspace.is_up_to_date(out, **same)
    (out / "a/b.txt").write_text("tampered")
    assert not workspace.is_up_to_date(out, **same)


def test_a_folder_of_the_users_own_is_never_replaced(tmp_path):
    precious = tmp_path / "out" / "precious.txt"
    precious.parent.mkdir()
    precious.write_text("mine")
    with pytest.raises(WorkspaceError, match="refusing to overwrite"):
        make(tmp_path / "out")
    assert precious.read_text() == "mine"


def hold(out: Path, ready, leave) -> None:
    with workspace.stage(out, kind="t", recipe={}, inputs={}):
        ready.set()
        leave.wait(30)


@pytest.mark.parametrize("year", ["1970", "2100"])
def test_a_clock_that_jumps_changes_nothing(tmp_path, monkeypatch, year):
    (tmp_path / "input").write_text("text")
    recipe = {"kind": "t", "recipe": {"a": 1}, "inputs": {"input": tmp_path / "input"}}
    interrupt(tmp_path / "out", {"a": 1}, {"input": tmp_path / "input"})
    monkeypatch.setattr(workspace, "_now", lambda: f"{year}-01-01T00:00:00+00:00")
    os.utime(tmp_path / "input", (int(year), int(year)))
    with workspace.stage(tmp_path / "out", **recipe) as folder:
        assert folder.resumed
    os.utime(tmp_path / "out" / "first", (0, 0))
    assert workspace.is_up_to_date(tmp_path / "out", **recipe)


def test_two_writers_are_told_apart(tmp_path):
    context = multiprocessing.get_context("fork")
    ready, leave = context.Event(), context.Event()
    child = context.Process(target=hold, args=(tmp_path / "out", ready, leave))
    child.start()
    assert ready.wait(30)
    with (
        pytest.raises(WorkspaceError, match="another process"),
        workspace.stage(tmp_path / "out", kind="t", recipe={}, inputs={}),
    ):
        pass
    leave.set()
    child.join()
    assert child.exitcode == 0


def test_a_killed_writer_leaves_no_lock(tmp_path):
    context = multiprocessing.get_context("fork")
    ready, leave = context.Event(), context.Event()
    child = context.Process(target=hold, args=(tmp_path / "out", ready, leave))
    child.start()
    assert ready.wait(30)
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    make(tmp_path / "out")
    assert (tmp_path / "out" / "a/b.txt").exists()


def build_forever(out: Path, ready) -> None:
    number = 0
    while True:
        number += 1
        ready.set()
        make(out, text="x" * 1000 + str(number))


def test_a_reader_never_sees_half_a_folder(tmp_path):
    context = multiprocessing.get_context("fork")
    for pause in (0.01, 0.02, 0.03, 0.05, 0.08):
        ready = context.Event()
        child = context.Process(target=build_forever, args=(tmp_path / "out", ready))
        child.start()
        assert ready.wait(30)
        child.join(pause)
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        if (tmp_path / "out").exists():
            assert len(workspace.verify(tmp_path / "out").outputs) == 1


def test_a_finished_but_unrenamed_folder_is_taken_up(tmp_path):
    interrupt(tmp_path / "out", {"a": 1})
    (tmp_path / "out.partial" / "manifest.json").write_text(json.dumps({"stale": True}))
    with workspace.stage(tmp_path / "out", kind="t", recipe={"a": 1}, inputs={}) as folder:
        assert folder.resumed
    assert set(workspace.verify(tmp_path / "out").outputs) == {"first"}


def test_the_digest_of_a_folder_follows_its_contents_only(tmp_path):
    first, second = make(tmp_path / "one"), make(tmp_path / "two")
    assert workspace.digest(first) == workspace.digest(second)
    assert workspace.digest(make(tmp_path / "three", text="other")) != workspace.digest(first)


def test_the_manifest_of_another_program_protects_its_folder(tmp_path):
    web = tmp_path / "out" / "manifest.json"
    web.parent.mkdir()
    web.write_text('{"name": "a web page", "icons": []}')
    with pytest.raises(WorkspaceError, match="refusing to overwrite"):
        make(tmp_path / "out")
    assert os.listdir(web.parent) == ["manifest.json"]
    assert workspace.digest(web.parent) == workspace.digest(web.parent)


def test_a_damaged_folder_of_ours_does_not_block_its_repair(tmp_path):
    out = make(tmp_path / "out")
    text = (out / "manifest.json").read_text()
    (out / "manifest.json").write_text(text[:60])
    assert workspace.verify(make(tmp_path / "out", text="again")).recipe == {"text": "again"}


@pytest.mark.parametrize("name", ["out.partial", "out.old"])
def test_folders_of_similar_names_are_left_alone(tmp_path, name):
    kept = tmp_path / name / "kept.txt"
    kept.parent.mkdir()
    kept.write_text("mine")
    if name.endswith("partial"):
        with pytest.raises(WorkspaceError, match="refusing to overwrite"):
            make(tmp_path / "out")
    else:
        make(make(tmp_path / "out"), text="other")
    assert kept.read_text() == "mine"


def test_what_a_stage_reads_is_never_written(tmp_path):
    source = make(tmp_path / "source")
    for out in (source, source / "inner", tmp_path / "source" / "a" / ".." / "inner"):
        with pytest.raises(WorkspaceError, match="one is inside the other"):
            make(out, inputs={"source": source})
    with pytest.raises(WorkspaceError, match="one is inside the other"):
        make(source, inputs={"source": source / "a"})
    assert workspace.verify(source)
    assert os.listdir(tmp_path) == ["source"]


def test_a_link_leads_to_the_folder_that_is_written(tmp_path):
    disk, link = tmp_path / "disk" / "big", tmp_path / "link"
    disk.mkdir(parents=True)
    link.symlink_to(disk)
    make(link)
    make(link, text="again")
    assert link.is_symlink()
    assert workspace.verify(disk).recipe == {"text": "again"}
    assert os.listdir(disk.parent) == ["big"]


def test_an_impossible_place_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for out in (
        Path("/"),
        loop,
        Path(os.devnull),
        tmp_path / "file",
        tmp_path / "file" / "out",
        tmp_path / "file" / "a" / "out",
    ):
        with pytest.raises(WorkspaceError):
            make(out)
    assert sorted(os.listdir(tmp_path)) == ["file", "loop"]


def test_damaged_inputs_are_refused_before_anything_opens_them(tmp_path):
    source = make(tmp_path / "source")
    (source / "a/b.txt").write_text("hellO")
    for damaged in (source, source / "a", source / "a" / "b.txt"):
        with pytest.raises(CorruptError, match=r"a/b\.txt does not match"):
            make(tmp_path / "out", inputs={"source": damaged})
    assert os.listdir(tmp_path) == ["source"]


def test_a_run_that_dies_while_it_discards_a_folder_does_not_block_the_next(tmp_path, monkeypatch):
    make(tmp_path / "out")

    def dies(path, **_):
        if path.is_dir():
            (path / workspace.MANIFEST).unlink()
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(workspace.shutil, "rmtree", dies)
        workspace.discard(tmp_path / "out")
    make(tmp_path / "out", "again")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_folder_that_is_being_emptied_is_not_taken_up(tmp_path, monkeypatch):
    interrupt(tmp_path / "out", {"a": 1})
    removed = []
    monkeypatch.setattr(Path, "unlink", lambda path, missing_ok=False: removed.append(path.name))
    workspace._clear(tmp_path / "out.partial")
    assert removed[0] == ".intent.json"


@pytest.mark.parametrize("part", ["outputs", "sizes", "inputs"])
def test_a_manifest_with_parts_of_the_wrong_kind_is_corrupt(tmp_path, part):
    out = make(tmp_path / "out")
    value = json.loads((out / "manifest.json").read_text())
    (out / "manifest.json").write_text(json.dumps(value | {part: 3}))
    with pytest.raises(CorruptError, match=rf"manifest\.json: {part} = 3"):
        workspace.verify(out)


def test_an_unfinished_folder_says_to_run_the_same_command_again(tmp_path):
    interrupt(tmp_path / "out", {"text": "hello"})
    for folder in (tmp_path / "out", tmp_path / "out.partial"):
        with pytest.raises(WorkspaceError, match=r"is not finished\. To fix it: run the same command again"):
            workspace.verify(folder)
    make(tmp_path / "out")
    interrupt(tmp_path / "out", {"text": "another"})
    workspace.verify(tmp_path / "out")  # the finished one is there while the next is written
