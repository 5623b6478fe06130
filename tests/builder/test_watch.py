"""A watched folder: a file that is saved is found, also by a server, and what nobody means starts no update."""

import json
import re
import subprocess
import sys
import threading
import time
import urllib.request
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from liebig.base.errors import RecipeError
from liebig.builder import watch as watch_module
from liebig.builder.update import update
from liebig.builder.watch import is_meant, watch
from liebig.cli import make_app
from liebig.model.encoder import Encoder
from liebig.search.embed import keep_models
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
    wait_for(lambda: sum("Generation" in line for line in lines) == 2)  # said after the switch
    assert [line.split(":")[0] for line in lines if "Generation" in line] == [
        "1 new, 0 changed and 0 deleted documents",
        "0 new, 0 changed and 1 deleted documents",
    ]


def test_the_model_is_loaded_once_for_all_changes(made, tmp_path, monkeypatch):
    loaded, load = [], Encoder.load
    monkeypatch.setattr(Encoder, "load", lambda path: loaded.append(path) or load(path))
    source, out = write_documents(tmp_path / "source"), tmp_path / "out"
    made(source, out)
    with keep_models():
        for word in ("zither", "lyre"):
            loaded.clear()
            (source / "new.md").write_text(f"# The {word}\n\nA {word} lies in the attic.\n")
            update(out, [], lambda line: None)
    assert not loaded


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


def test_a_server_that_watches_finds_what_is_saved_and_answers_all_the_time(made, tmp_path):
    source, out = write_documents(tmp_path / "source"), tmp_path / "out"
    made(source, out)
    command = [sys.executable, "-m", "liebig", "serve", str(out), "--watch", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        lines, address = [], None
        while address is None and (line := server.stderr.readline()):
            lines.append(line)
            address = re.search(r"http://[\d.]+:\d+", line)
        assert address, lines
        said = list[str]()
        reader = threading.Thread(
            target=lambda: said.extend(server.stderr)
        )  # a full pipe would stop the server
        reader.start()

        def ask(words):
            with urllib.request.urlopen(
                f"{address[0]}/search?q={words}&k=3&system=bm25", timeout=60
            ) as answer:
                return json.load(answer)

        stop, generations, failed = threading.Event(), [], []

        def ask_on():
            while not stop.is_set():
                try:
                    answer = ask("barley")
                    assert answer["results"][0]["doc"] == "barley.md"
                    generations.append(answer["generation"])
                except (OSError, ValueError, LookupError, AssertionError) as error:
                    failed.append(error)
                time.sleep(0.1)

        client = threading.Thread(target=ask_on)
        client.start()
        try:
            for word in ("zither", "lyre"):  # the first may be read as the watching begins
                (source / f"{word}.md").write_text(f"# The {word}\n\nA {word} lies in the attic.\n")
                wait_for(
                    lambda word=word: [hit["doc"] for hit in ask(word)["results"]] == [f"{word}.md"], 600
                )
            (source / "lyre.md").rename(source / "harp.md")
            wait_for(lambda: [hit["doc"] for hit in ask("lyre")["results"]] == ["harp.md"], 600)
        finally:
            stop.set()
            client.join()
            last = ask("barley")["generation"]
            server.terminate()
            reader.join()
        assert server.wait(60) == 0
    assert not failed
    assert [*generations, last] == sorted([*generations, last])
    assert last >= 4
    assert any(line.startswith("now serving generation ") for line in said)


def test_a_server_that_watches_updates_with_its_converters(tmp_path, monkeypatch):
    started = []

    def start(words):
        started.append(words)
        return SimpleNamespace(terminate=lambda: None, wait=lambda: None)

    monkeypatch.setattr("liebig.commands.serve.subprocess.Popen", start)
    monkeypatch.setattr("liebig.serve.server.serve", lambda *args, **options: None)
    words = ["serve", str(tmp_path), "--convert", ".log=cat {path}"]
    assert "add --watch" in CliRunner().invoke(make_app(), words).stderr
    done = CliRunner().invoke(make_app(), [*words, "--watch"])
    assert (done.exit_code, "--convert=.log=cat {path}" in started[0]) == (0, True), done.output
