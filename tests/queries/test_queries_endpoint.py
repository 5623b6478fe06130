"""A server that speaks the OpenAI API, started here: answers, limits, nonsense, and its death."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from liebig.base import config as recipes, pipeline
from liebig.base.errors import ResourceError
from liebig.base.records import Passage
from liebig.collection import Collection
from liebig.queries.endpoint import Prompts, lines_of, read_journal
from liebig.stages import STAGES
from liebig.stages.queries_generate import QueriesGenerateConfig
from tests.worlds.queries import question

STAGE = STAGES["queries generate"]


class Server(ThreadingHTTPServer):
    """Answers with the questions of the passage it is asked about; `trouble` decides what else happens."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[dict] = []
        self.keys: list[str | None] = []
        self.trouble = lambda number: None
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.asked.append(body)
            self.server.keys.append(self.headers.get("Authorization"))
            number = len(self.server.asked)
        status, headers, data = self.server.trouble(number) or (200, {}, answer(body))
        if status == 0:
            self.connection.close()
            return
        self.send_response(status if self.path == "/v1/chat/completions" else 404)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        with self.server.lock:
            self.server.keys.append(self.headers.get("Authorization"))
        self.send_error(404)

    def log_message(self, *_: object) -> None:
        pass


def answer(body: dict) -> bytes:
    prompt = body["messages"][0]["content"]
    text = f'1. about {prompt.split()[-1]}\n2) "who built {prompt.split()[0]}"\n\n- who built {prompt.split()[0]}\n'
    return json.dumps({"choices": [{"message": {"role": "assistant", "content": text}}]}).encode()


@contextmanager
def serving() -> Iterator[Server]:
    started = Server()
    thread = threading.Thread(target=started.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield started
    started.shutdown()
    started.server_close()
    thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as started:
        yield started


def recipe(collection: Path, url: str, **told: object) -> QueriesGenerateConfig:
    source = {
        "kind": "endpoint",
        "url": url,
        "model": "tiny",
        "prompt": "{title} {count} {passage} END",
        "wait": 0.0,
    }
    values = {
        "collection": str(collection),
        "source": {**source, "retries": 2, "workers": 2, **told},
        "shard": 8,
    }
    return recipes.load(QueriesGenerateConfig, None, [], values)


def run(config: QueriesGenerateConfig, out: Path) -> list[str]:
    pipeline.run_stage(STAGE, config, out)
    return [query.text for query in Collection(out).queries()]


def test_every_passage_is_asked_about_once_with_the_recipes_prompt(server, collection, tmp_path):
    (tmp_path / "key").write_text("secret\n")
    found = run(recipe(collection, server.url, key_file=str(tmp_path / "key")), tmp_path / "out")
    assert len(server.asked) == 20
    assert found[:2] == ["about END", "who built Oslo"]
    assert server.asked[0]["model"] == "tiny"
    assert set(server.keys) == {"Bearer secret"}
    assert json.loads((tmp_path / "out" / "generation.json").read_text())["duplicates"] == 20
    assert "secret" not in (tmp_path / "out" / "manifest.json").read_text()


def test_a_limit_is_waited_for_and_a_bad_answer_asked_again(server, collection, tmp_path):
    troubles = {
        2: (429, {"Retry-After": "0.01"}, b"slow down"),
        5: (200, {}, b"<html>"),
        7: (503, {}, b""),
        9: (0, {}, b""),
    }
    server.trouble = troubles.get
    # On a busy machine one passage may meet all four.
    assert len(run(recipe(collection, server.url, retries=4), tmp_path / "out")) == 40
    assert len(server.asked) == 24


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        ((429, {}, b""), "the limit of requests is reached, 3 times"),
        ((200, {}, b'{"choices": []}'), "not of the API's form"),
        ((0, {}, b""), "does not answer"),
        ((401, {}, b"no such key"), "refuses the request.*no such key"),
    ],
    ids=["limit", "malformed", "dead", "refused"],
)
def test_trouble_that_stays_is_one_sentence_and_nothing_answered_is_asked_again(
    server, collection, tmp_path, trouble, said
):
    server.trouble = lambda number: trouble if number > 11 else None
    config = recipe(collection, server.url)
    with pytest.raises(ResourceError, match=said) as caught:
        run(config, tmp_path / "out")
    assert "kept" in str(caught.value)
    server.trouble, before = lambda number: None, len(server.asked)
    assert len(run(config, tmp_path / "out")) == 40
    assert len(server.asked) - before == 20 - 11


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_the_key_does_not_follow_a_redirect(server, collection, tmp_path, status):
    (tmp_path / "key").write_text("secret\n")
    config = recipe(collection, server.url, key_file=str(tmp_path / "key"))
    with serving() as thief:
        server.trouble = lambda number: (status, {"Location": thief.url + "/chat/completions"}, b"")
        with pytest.raises(ResourceError, match=f"redirects to {thief.url}"):
            run(config, tmp_path / "out")
        assert thief.keys == []


def test_half_a_character_in_an_answer_is_replaced(server, collection, tmp_path):
    text = '{"choices": [{"message": {"content": "who built \\ud83d Oslo"}}]}'
    server.trouble = lambda number: (200, {}, text.encode()) if number == 1 else None
    found = run(recipe(collection, server.url), tmp_path / "out")
    assert "who built \ufffd Oslo" in found


def test_half_a_character_in_an_older_journal_is_replaced(tmp_path):
    (tmp_path / "journal").write_text(r'{"passage": "p", "queries": ["a \udc00 b"]}' + "\n")
    assert read_journal(tmp_path / "journal") == {"p": ["a \ufffd b"]}


def test_a_server_cannot_ask_for_an_endless_wait(server, collection, tmp_path, monkeypatch):
    waits: list[float] = []
    monkeypatch.setattr("threading.Event.wait", _waiting(waits, threading.Event.wait))
    server.trouble = lambda number: (429, {"Retry-After": "999999999"}, b"") if number == 1 else None
    run(recipe(collection, server.url, workers=1), tmp_path / "out")
    assert [wait for wait in waits if wait > 100] == [300.0]


def _waiting(waits, original):
    """Waits of minutes are recorded and not waited."""

    def wait(self, timeout=None):
        if timeout is not None:
            waits.append(timeout)
        return original(self, timeout if timeout is None or timeout < 100 else 0)

    return wait


def test_an_answer_that_does_not_end_is_given_up(server, collection, tmp_path, monkeypatch):
    monkeypatch.setattr("liebig.queries.endpoint.LARGEST_ANSWER", 1 << 16)
    server.trouble = lambda number: (200, {}, b" " * (1 << 20))
    with pytest.raises(ResourceError, match="the answer is larger than"):
        run(recipe(collection, server.url, retries=0), tmp_path / "out")


def test_a_server_that_is_not_there_is_said(collection, tmp_path):
    with pytest.raises(ResourceError, match="does not answer"):
        run(recipe(collection, "http://127.0.0.1:9/v1", retries=1), tmp_path / "out")


def test_requests_keep_their_pace(server, collection, tmp_path, monkeypatch):
    from liebig.queries import endpoint

    slept: list[float] = []
    monkeypatch.setattr(endpoint.time, "sleep", slept.append)
    run(recipe(collection, server.url, per_minute=6000, workers=1), tmp_path / "out")
    assert len(slept) == 20
    assert sum(slept) > 0


def test_a_prompt_is_filled_without_reading_braces_of_the_passage():
    prompts = Prompts("{count}: {passage}", 3, words=4)
    assert prompts.of(Passage("p", "a {title} b", "T")) == "3: a {title} b"
    assert prompts.of(Passage("p", "a b c d e f", "T")) == "3: a b c d"


def test_numbers_bullets_and_quotes_around_queries_are_taken_off():
    assert lines_of('1. one\n 2) "two"\n- three\n\n• 4 wheels', 9) == ["one", "two", "three", "4 wheels"]
    assert lines_of("a\nb\nc", 2) == ["a", "b"]
    assert question(0) in lines_of(question(0), 1)
