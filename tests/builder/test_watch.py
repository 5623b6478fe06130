"""A watched folder: a file that is saved is found, also by a server, and what nobody means starts no update."""

import threading
import time

import pytest

from liebig.base.errors import RecipeError
from liebig.builder import watch as watch_module
from liebig.builder.watch import is_meant, watch
from liebig.search.retriever import Retriever
from tests.worlds.books import write_documents


def wait_for(condition, seconds=120):
    for _ in range(seconds * 10):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError("waited in vain")


@pytest.fixture
def watched(made, tmp_path):
    source = write_documents(tmp_path / "source")
    made(source, tmp_path / "out")
    lines, stop = [], threading.Event()
    thread = threading.Thread(target=watch, args=(tmp_path / "out", [], lines.append, False, stop.is_set))
    thread.start()
    wait_for(lambda: any("Watching" in line for line in lines))
    yield source, tmp_path / "out", lines
    stop.set()
    thread.join(60)
    assert not thread.is_alive()


def test_a_saved_file_is_found_and_a_deleted_one_is_not(watched):
    source, out, lines = watched
    retriever = Retriever.from_folder(out)
    (source / "zither.md").write_text("# The zither\n\nA zither lies in the attic.\n")
    wait_for(lambda: retriever.reload())
    assert retriever.search("zither", k=1, system="bm25")[0].doc == "zither.md"
    (source / "zither.md").unlink()
    wait_for(lambda: retriever.reload())
    assert retriever.search("zither", k=1, system="bm25") == []
    assert [line.split(":")[0] for line in lines if "Generation" in line] == [
        "1 new, 0 changed and 0 deleted documents",
        "0 new, 0 changed and 1 deleted documents",
    ]


def test_an_update_that_fails_is_said_and_the_next_one_is_tried(watched, monkeypatch):
    source, _, lines = watched
    update = watch_module.update

    def fail(*args):
        monkeypatch.setattr(watch_module, "update", update)
        raise RecipeError("the disk is full")

    monkeypatch.setattr(watch_module, "update", fail)
    (source / "zither.md").write_text("# The zither\n\nA zither lies in the attic.\n")
    wait_for(lambda: "Nothing was updated: the disk is full." in lines)
    (source / "lyre.md").write_text("# The lyre\n\nA lyre lies there too.\n")
    wait_for(lambda: any("Generation 2" in line for line in lines))


def test_only_what_is_read_starts_an_update(tmp_path):
    source, out = tmp_path / "source", tmp_path / "source" / ".liebig"
    meant = ["a.md", "notes/b.txt", ".gitignore", "notes/.liebigignore"]
    others = [
        ".git/index",
        "~$a.docx",
        "node_modules/x.md",
        "notes/.b.txt.swp",
        "a.md~",
        ".liebig/retriever.json",
    ]
    assert all(is_meant(source / name, [source], out) for name in meant)
    assert not any(is_meant(source / name, [source], out) for name in others)
    assert is_meant(tmp_path / "single.md", [tmp_path / "single.md"], out)
    assert not is_meant(tmp_path / "other.md", [source], out)


def test_names_without_files_cannot_be_watched(made, tmp_path, monkeypatch):
    made(write_documents(tmp_path / "source"), tmp_path / "out")
    with pytest.raises(RecipeError, match="stdlib: cannot be watched"):
        watch(tmp_path / "out", ["stdlib:"], lambda line: None)
