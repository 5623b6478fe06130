"""A server that speaks the OpenAI API, started here: answers, limits, nonsense, and its death."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from liebig.base.errors import ResourceError
from liebig.queries.endpoint import Client


class Server(ThreadingHTTPServer):
    """Repeats the prompt; `trouble` decides what else happens."""

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
    message = {"role": "assistant", "content": f"heard: {body['messages'][0]['content']}"}
    return json.dumps({"choices": [{"message": message}]}).encode()


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


def client(url: str, retries: int = 2, key: str | None = None) -> Client:
    return Client(url, "tiny", key, {"temperature": 0}, 60.0, retries, 0.0)


def test_a_question_is_asked_once_with_model_settings_and_key(server):
    assert client(server.url, key="secret").ask("why?") == "heard: why?"
    [asked] = server.asked
    assert (asked["model"], asked["temperature"]) == ("tiny", 0)
    assert server.keys == ["Bearer secret"]


def test_a_limit_is_waited_for_and_a_bad_answer_asked_again(server):
    troubles = {
        1: (429, {"Retry-After": "0.01"}, b"slow down"),
        2: (200, {}, b"<html>"),
        3: (503, {}, b""),
        4: (0, {}, b""),
    }
    server.trouble = troubles.get
    assert client(server.url, retries=4).ask("why?") == "heard: why?"
    assert len(server.asked) == 5


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
def test_trouble_that_stays_is_one_sentence(server, trouble, said):
    server.trouble = lambda number: trouble
    with pytest.raises(ResourceError, match=said) as caught:
        client(server.url).ask("why?")
    assert "kept" in str(caught.value)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_the_key_does_not_follow_a_redirect(server, status):
    with serving() as thief:
        server.trouble = lambda number: (status, {"Location": thief.url + "/chat/completions"}, b"")
        with pytest.raises(ResourceError, match=f"redirects to {thief.url}"):
            client(server.url, key="secret").ask("why?")
        assert thief.keys == []


def test_half_a_character_in_an_answer_is_replaced(server):
    text = '{"choices": [{"message": {"content": "who built \\ud83d Oslo"}}]}'
    server.trouble = lambda number: (200, {}, text.encode())
    assert client(server.url).ask("why?") == "who built \ufffd Oslo"


def test_a_server_cannot_ask_for_an_endless_wait(server, monkeypatch):
    waits: list[float] = []
    monkeypatch.setattr("threading.Event.wait", _waiting(waits, threading.Event.wait))
    server.trouble = lambda number: (429, {"Retry-After": "999999999"}, b"") if number == 1 else None
    client(server.url).ask("why?")
    assert [wait for wait in waits if wait > 100] == [300.0]


def _waiting(waits, original):
    """Waits of minutes are recorded and not waited."""

    def wait(self, timeout=None):
        if timeout is not None:
            waits.append(timeout)
        return original(self, timeout if timeout is None or timeout < 100 else 0)

    return wait


def test_an_answer_that_does_not_end_is_given_up(server, monkeypatch):
    monkeypatch.setattr("liebig.queries.endpoint.LARGEST_ANSWER", 1 << 16)
    server.trouble = lambda number: (200, {}, b" " * (1 << 20))
    with pytest.raises(ResourceError, match="the answer is larger than"):
        client(server.url, retries=0).ask("why?")


def test_a_server_that_is_not_there_is_said():
    with pytest.raises(ResourceError, match="does not answer"):
        client("http://127.0.0.1:9/v1", retries=1).ask("why?")
