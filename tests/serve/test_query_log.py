"""The log of queries: nothing unless a file is named, what was asked and opened, and nothing of who asked."""

import contextlib
import json
import os
import threading

import httpx
import pytest

from liebig.base.errors import RecipeError
from liebig.builder.user_questions import read_texts
from liebig.serve.engine import ServingEngine
from liebig.serve.middleware import Limits
from liebig.serve.query_log import QueryLog
from liebig.serve.routes import make_app
from liebig.serve.server import listen, make_server


@contextlib.contextmanager
def logging_server(retriever, path, settled=60.0):
    limits = Limits()
    log = QueryLog(path, settled)
    app = make_app(ServingEngine(retriever, limits), log=log)
    listening, ready = listen("127.0.0.1", 0), threading.Event()
    server = make_server(app, limits, ready.set)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        assert ready.wait(60)
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with httpx.Client(base_url=address, timeout=60) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join(30)
        listening.close()


def rows(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_what_was_asked_and_opened_is_written_and_what_was_typed_on_the_way_is_not(retriever, tmp_path):
    path = tmp_path / "new" / "queries.jsonl"
    with logging_server(retriever, path) as client:
        for typed in ("bar", "barley g", "barley growth"):
            client.post("/compare", json={"query": typed, "systems": ["bm25"]})
        client.get("/document", params={"passage": "plants/barley#0", "query": "barley growth"})
        client.get("/search", params={"q": "comets"})
        client.post("/search", json={"query": "violins"})
        client.post("/search", json={"query": " "})  # refused
        client.get("/document", params={"passage": "nosuch", "query": "violins"})  # not found
        client.get("/document", params={"passage": "comet#0"})  # by a program, for no query
        client.post("/embed", json={"inputs": "private"})
    said = [{name: value for name, value in row.items() if name != "time"} for row in rows(path)]
    assert said == [
        {"query": "barley growth"},
        {"query": "barley growth", "opened": "plants/barley#0"},
        {"query": "comets"},
        {"query": "violins"},
    ]
    assert {name for row in rows(path) for name in row} == {"time", "query", "opened"}
    assert path.stat().st_mode & 0o077 == 0, "others on the machine cannot read it"


def test_a_query_is_written_when_it_is_not_continued_for_a_while(retriever, tmp_path, until):
    path = tmp_path / "queries.jsonl"
    with logging_server(retriever, path, settled=0.01) as client:
        client.post("/search", json={"query": "comets"})
        until(lambda: len(rows(path)) == 1)


def test_the_log_is_a_file_of_questions(retriever, tmp_path):
    path = tmp_path / "queries.jsonl"
    path.write_text('{"time": "2026-01-01T00:00:00+00:00", "query": "old"}\n')
    with logging_server(retriever, path) as client:
        client.post("/search", json={"query": "comets"})
    assert list(read_texts(path)) == ["old", "comets"]


def test_a_log_that_cannot_be_written_is_refused_at_the_start(tmp_path):
    with pytest.raises(RecipeError, match="cannot write the log"):
        QueryLog(tmp_path)


def test_a_line_that_a_full_disk_cut_off_takes_no_other_with_it(tmp_path, monkeypatch):
    path, write = tmp_path / "queries.jsonl", os.write
    log = QueryLog(path)
    room = [10, 0, 5, 1000, 1000]
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda file, data: write(file, data[: room.pop(0)]))
        for number in range(5):
            log.opened("", f"query {number}", "comet#0")
    log.close()
    *cut, third, last = path.read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["query"] for line in (third, last)] == ["query 3", "query 4"]
    assert len(cut) == 2


def test_a_query_that_is_too_long_is_not_written(retriever, tmp_path):
    path = tmp_path / "queries.jsonl"
    with logging_server(retriever, path) as client:
        long = {"passage": "comet#0", "query": "a" * 5000}
        assert client.get("/document", params=long).status_code == 413
    assert path.read_text() == ""
