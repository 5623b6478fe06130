"""What is refused: each time with the right status, and one sentence as JSON."""

import asyncio
import contextlib
import json
import socket
import threading
import time
import types
from concurrent.futures import ThreadPoolExecutor, as_completed
from urllib.parse import urlsplit

import httpx
import pytest
from fastapi import APIRouter, Response
from pydantic import ValidationError

from liebig.base.errors import LiebigError, RecipeError
from liebig.base.machine import WINDOWS
from liebig.search.answer import Result, SearchAnswer
from liebig.serve import middleware
from liebig.serve.connections import PIPELINED, _open_files
from liebig.serve.middleware import Limits, is_loopback
from liebig.serve.requests import EmbeddingsRequest, EmbedRequest, RerankRequest, SearchRequest
from liebig.serve.routes import _search
from liebig.serve.server import check_token, listen
from tests.formats.test_linear_work import work
from tests.serve.conftest import until

JSON = {"Content-Type": "application/json"}
SMALL = Limits(body=1 << 20, texts=8, characters=500, query=50, k=5, queue=4, seconds=1.0)


@pytest.fixture(scope="module")
def small(serving, retriever):
    with serving(retriever, SMALL) as address:
        yield address


@pytest.fixture(scope="module")
def locked(serving, retriever):
    with serving(retriever, token="s3cret") as address:
        yield address


@pytest.mark.parametrize(
    ("path", "body", "status", "sentence"),
    [
        ("/search", {"query": "x " * 40}, 413, "The query has 80 characters; the limit is 50."),
        ("/search", {"query": "  "}, 422, "The query is empty."),
        ("/search", {"query": "a", "k": 6}, 422, "k = 6 is larger than this server's limit"),
        ("/compare", {"query": "a", "systems": ["bm25"], "k": 6}, 422, "k = 6 is larger than this server's limit"),
        ("/search", {"query": "a", "k": 0}, 422, "k: input should be greater than or equal to 1."),
        ("/search", {"query": "a", "system": "magic"}, 422, "system: input should be 'hybrid', 'dense', 'bm25'"),
        ("/search", {"question": "a"}, 422, "query: field required."),
        ("/embed", {"inputs": ["a"] * 9}, 413, "inputs has 9 texts; the limit is 8 per request."),
        ("/embed", {"inputs": ["a", ""]}, 422, "Text 1 of inputs is empty."),
        ("/embed", {"inputs": []}, 422, "inputs is empty."),
        ("/embed", {"inputs": ["x" * 501]}, 413, "Text 0 of inputs has 501 characters; the limit is 500."),
        ("/embed", {"inputs": ["a"] * 5}, 503, "The server is busy"),
        ("/rerank", {"query": "a", "texts": []}, 422, "texts is empty."),
        ("/explain", {"query": "a", "id": "nobody"}, 404, "There is no passage 'nobody'."),
        ("/nowhere", {}, 404, "There is no route /nowhere"),
        ("/search/", {"query": "a"}, 404, "There is no route /search/"),
        ("/health", {}, 405, "/health does not accept POST."),
    ],
)  # fmt: skip
def test_every_refusal_is_one_sentence(small, path, body, status, sentence):
    answer = httpx.post(small + path, json=body)
    assert answer.status_code == status
    assert sentence in answer.json()["error"]
    assert set(answer.json()) == {"error", "error_type"}


def test_as_many_passages_as_are_served_are_given_where_no_number_was_asked_for(small):
    posted = httpx.post(f"{small}/search", json={"query": "the comet", "system": "dense"})
    got = httpx.get(f"{small}/search", params={"q": "the comet", "system": "dense"})
    both = httpx.post(f"{small}/compare", json={"query": "the comet", "systems": ["dense"]})
    found = (posted.json(), got.json(), both.json()["lists"][0])
    assert [len(answer["results"]) for answer in found] == [5, 5, 5]


def test_a_full_line_says_when_to_come_back(small):
    answer = httpx.post(f"{small}/embed", json={"inputs": ["a"] * 5})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    from openai import InternalServerError, OpenAI

    client = OpenAI(base_url=f"{small}/v1", api_key="none", max_retries=0)
    with pytest.raises(InternalServerError, match="The server is busy"):
        client.embeddings.create(model="any", input=["a"] * 5)


def test_a_large_body_is_refused_whether_or_not_it_tells_its_size(small):
    said = httpx.post(f"{small}/embed", content=b"x" * (SMALL.body + 1))
    untold = httpx.post(f"{small}/embed", content=(b"x" * 70_000 for _ in range(20)))
    assert (said.status_code, untold.status_code) == (413, 413)
    assert said.json()["error"] == "The request is larger than 1 MB; send fewer texts per request."


def test_what_is_no_json_is_told(small):
    answer = httpx.post(f"{small}/search", content=b"{", headers={"Content-Type": "application/json"})
    assert answer.json()["error"] == "The request is not JSON."
    half = b'{"query": "\\ud800"}'
    assert (
        httpx.post(f"{small}/search", content=half, headers={"Content-Type": "application/json"}).status_code
        == 422
    )


@pytest.mark.parametrize(
    "body",
    [
        {"query": "cut inside \ud83d"},
        {"query": "a", "\udc00": 1},
        {"query": "a", "filters": {"language": ["\ud800"]}},
    ],
)
def test_half_of_a_character_is_refused_and_a_whole_one_is_not(small, server, body):
    answer = httpx.post(f"{small}/search", content=json.dumps(body))
    assert (answer.status_code, "lone surrogate" in answer.json()["error"]) == (422, True)
    whole = httpx.post(f"{server}/search", content=json.dumps({"query": "a comet \U0001f320"}), headers=JSON)
    assert (whole.status_code, whole.json()["query"]) == (200, "a comet \U0001f320")


def test_json_sent_as_a_form_is_told_what_to_do(small):
    form = {"Content-Type": "application/x-www-form-urlencoded"}  # what curl -d says by itself
    answer = httpx.post(f"{small}/search", content='{"query": "a"}', headers=form)
    assert answer.status_code == 422
    assert "Content-Type: application/json" in answer.json()["error"]


MANY = 20_000
NUMBERS = {str(number): 1 for number in range(MANY)}


@pytest.mark.parametrize(
    ("path", "body", "sentence"),
    [
        ("/embed", {"inputs": [1] * MANY}, "has more than 9216 JSON values"),
        ("/v1/embeddings", {"input": [[1, 2]] * MANY}, "and texts instead of token ids"),
        ("/v1/embeddings", {"input": [[]] * MANY}, "has more than 9216 JSON values"),
        ("/rerank", {"query": "a", "texts": [1] * MANY}, "has more than 9216 JSON values"),
        ("/search", {"query": "a", "filters": NUMBERS}, "has more than 9216 JSON values"),
        ("/search", {"query": "a", **NUMBERS}, "has more than 9216 JSON values"),
        ("/search", {"query": "a", "filters": dict.fromkeys(map(str, range(300)), 1)}, "has more than 256 fields"),
    ],
)  # fmt: skip
def test_requests_of_too_many_values_are_refused_before_any_is_checked(server, path, body, sentence):
    answer = httpx.post(server + path, json=body)
    assert answer.status_code == 413
    assert sentence in answer.text


def test_texts_may_look_like_many_values(server):
    text = 'a, [b], {c: "d"}, \\" \\' * 3000
    answer = httpx.post(f"{server}/embed", json={"inputs": [text, text[:-1]]})
    assert (answer.status_code, len(answer.json())) == (200, 2)


@pytest.mark.parametrize(
    ("model", "body"),
    [
        (EmbedRequest, {"inputs": [1] * 99}),
        (EmbeddingsRequest, {"input": [None] * 99}),
        (RerankRequest, {"query": "a", "texts": [1] * 99}),
        (SearchRequest, {"query": "a", "filters": {"language": [1] * 99}}),
    ],
)
def test_validation_ends_at_the_first_wrong_item(model, body):
    with pytest.raises(ValidationError) as raised:
        model.model_validate(body)
    assert raised.value.error_count() <= 4  # one of each type that a field may have


def test_others_are_answered_while_a_large_body_is_parsed(serving, retriever, monkeypatch):
    begun, go_on = threading.Event(), threading.Event()
    parse = middleware.parse_body

    def slow(body, limits):
        begun.set()
        assert go_on.wait(60)
        return parse(body, limits)

    with serving(retriever) as address, ThreadPoolExecutor(1) as pool:
        monkeypatch.setattr(middleware, "parse_body", slow)
        body = {"inputs": ["a comet"], "more": "x" * middleware.LARGE}
        large = pool.submit(httpx.post, f"{address}/embed", json=body)
        assert begun.wait(60)
        assert httpx.get(f"{address}/health").status_code == 200
        go_on.set()
        assert large.result().status_code == 200


def connected(address):
    where = urlsplit(address)
    return socket.create_connection((where.hostname, where.port), timeout=60)


def test_what_does_not_arrive_is_not_waited_for(small):
    """Headers, a body, and the next request of a connection that is kept alive: all wait at the same time."""
    get = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    post = b"POST /embed HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n"
    nothing, headers, body, kept_alive = lines = [connected(small) for _ in range(4)]
    headers.sendall(get)
    body.sendall(post + b'{"inp')
    for _ in range(3):
        kept_alive.sendall(get + b"\r\n")
        assert kept_alive.recv(65536).startswith(b"HTTP/1.1 200")
    kept_alive.sendall(get)  # and has the whole time for it
    for line in (headers, body, kept_alive):
        assert line.recv(65536).startswith(b"HTTP/1.1 408")
    assert nothing.recv(65536) == b""
    assert headers.recv(65536) == b""
    for line in lines:
        line.close()


def test_headers_without_an_end_are_refused(small):
    with connected(small) as line:
        line.sendall(b"GET /health HTTP/1.1\r\n" + b"X-Long: " + b"a" * (128 << 10))
        assert line.recv(65536).startswith(b"HTTP/1.1 400")


def test_connections_that_wait_do_not_shut_others_out(serving, retriever):
    """The one that has waited longest is closed, long before its time is over."""
    with serving(retriever, Limits(connections=8, seconds=600), token="s3cret") as address:
        lines = [connected(address) for _ in range(40)]
        for line in lines:
            line.sendall(b"GET /info HTTP/1.1\r\n")
        answer = httpx.get(address + "/info", headers={"Authorization": "Bearer s3cret"}, timeout=60)
        assert answer.status_code == 200
        for line in lines[:31]:
            with contextlib.suppress(ConnectionResetError):
                assert line.recv(1) == b""
        for line in lines:
            line.close()


LONG = 32 << 20  # bytes of an answer, more than sockets hold


def long_answers(engine):
    routes = APIRouter()

    @routes.get("/long")
    async def answer():
        return Response(bytes(LONG))

    return routes


def unread(address, *headers):
    """A connection that asks for a long answer and does not read it."""
    line = connected(address)
    line.sendall("\r\n".join(["GET /long HTTP/1.1", "Host: 127.0.0.1", *headers, "", ""]).encode())
    return line


def test_answers_that_are_not_read_are_given_up(serving, retriever):
    servers = []
    with serving(retriever, Limits(seconds=1.0), more=long_answers, servers=servers) as address:
        lines = [unread(address), unread(address, "Connection: close")]
        until(lambda: servers[0].server_state.total_requests == 2)
        until(lambda: not servers[0].server_state.connections)
        assert len(httpx.get(f"{address}/long").content) == LONG  # one that is read
        for line in lines:
            line.close()


def test_unread_answers_are_bounded_together(serving, retriever):
    """The oldest is given up, long before its time is over."""
    servers = []
    limits = Limits(seconds=600, unsent=LONG + LONG // 2)
    with serving(retriever, limits, more=long_answers, servers=servers) as address:
        lines = [unread(address) for _ in range(3)]
        until(lambda: servers[0].server_state.total_requests == 3)
        until(lambda: len(servers[0].server_state.connections) == 1)
        for line in lines:
            line.close()


def test_a_client_may_send_some_requests_ahead_and_not_many(serving, retriever):
    get = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with serving(retriever, Limits(seconds=600)) as address:
        with connected(address) as some:
            some.sendall(get * PIPELINED)
            answers = b""
            while answers.count(b'"ok"') < PIPELINED:
                answers += some.recv(65536)
        with connected(address) as many, contextlib.suppress(ConnectionResetError):
            many.sendall(get * 1000)
            answers = b""
            while part := many.recv(65536):
                answers += part
        assert answers.count(b'"ok"') < 1000


def test_connections_of_one_address_are_bounded(serving, retriever):
    """Those that do not read go first, then those that wait; never one that is being answered."""
    servers = []
    limits = Limits(seconds=600, per_address=4)
    with serving(retriever, limits, more=long_answers, servers=servers) as address:
        waiting = [connected(address) for _ in range(2)]
        lines = [unread(address) for _ in range(2)]
        until(lambda: servers[0].server_state.total_requests == 2)
        for _ in range(2):
            assert httpx.get(f"{address}/health").status_code == 200
        for line in waiting:
            line.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert line.recv(65536).startswith(b"HTTP/1.1 200")
        more = [connected(address) for _ in range(8)]
        with contextlib.suppress(ConnectionResetError):
            assert waiting[0].recv(1) == b""
        assert httpx.get(f"{address}/health").status_code == 200
        until(lambda: len(servers[0].server_state.connections) <= 4)
        for line in (*waiting, *lines, *more):
            line.close()


def half_sent(address, size, *, sent):
    line = connected(address)
    line.sendall(
        b"POST /embed HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n" % size + b" " * sent
    )
    return line


def test_connections_of_all_addresses_are_bounded(serving, retriever):
    """Bodies that do not arrive hold no place either, and one that comes later is answered."""
    servers = []
    with serving(retriever, Limits(seconds=600, all_connections=8), servers=servers) as address:
        lines = [half_sent(address, 100, sent=1) for _ in range(40)]
        assert httpx.get(f"{address}/health", timeout=60).status_code == 200
        until(lambda: len(servers[0].server_state.connections) <= 8)
        with contextlib.suppress(ConnectionResetError):
            assert lines[0].recv(1) == b""
        for line in lines:
            line.close()


def test_connections_leave_room_for_the_files_of_the_process(monkeypatch):
    resource = pytest.importorskip("resource")
    if WINDOWS:
        pytest.skip("Windows has no such limit")
    allowed = []
    monkeypatch.setattr(resource, "getrlimit", lambda which: (1024, 1500))
    monkeypatch.setattr(resource, "setrlimit", lambda which, limits: allowed.append(limits))
    assert [_open_files(count) for count in (1000, 1200, 9999)] == [1024, 1200, 1500]
    assert allowed == [(1200, 1500), (1500, 1500)]


def test_bodies_are_bounded_together_and_small_ones_always_taken(serving, retriever):
    large = {"inputs": ["a"], "more": "x" * (2 << 20)}
    with serving(retriever, Limits(seconds=600, bodies=3 << 20)) as address:
        assert httpx.post(f"{address}/embed", json=large).status_code == 200
        with half_sent(address, 4 << 20, sent=2 << 20):
            until(lambda: httpx.post(f"{address}/embed", json=large).status_code == 503)
            assert httpx.post(f"{address}/search", json={"query": "comet"}).status_code == 200
        until(lambda: httpx.post(f"{address}/embed", json=large).status_code == 200)


def test_answers_of_many_results_take_no_python_for_each(retriever):
    """It would run on the loop, and everybody else would wait for it."""
    engine = types.SimpleNamespace(limits=Limits(), retriever=retriever)

    async def search(question):
        return SearchAnswer(1, ([Result("a#0", 1.0, 1, "", "text", "a")] * question.k,))

    engine.search = search
    lines = [
        work(lambda k=k: asyncio.run(_search(engine, SearchRequest(query="a", k=k)))) for k in (10, 10, 1000)
    ]
    assert abs(lines[1] - lines[2]) < 100, lines


def test_an_answer_that_takes_too_long_is_given_up(serving, retriever, monkeypatch):
    monkeypatch.setattr(type(retriever), "explain", lambda *args: time.sleep(1.5))
    with serving(retriever, Limits(seconds=0.3)) as address:
        body = {"query": "a", "id": "comet#0"}
        answer = httpx.post(f"{address}/explain", json=body)
        assert answer.status_code == 504
        assert answer.json()["error"] == "The request timed out after 0.3 seconds."
        assert httpx.get(f"{address}/health").status_code == 200


def test_explanations_do_not_pile_up(serving, retriever, monkeypatch):
    go_on = threading.Event()
    monkeypatch.setattr(type(retriever), "explain", lambda *args: go_on.wait(20) and [])
    with serving(retriever, workers=1) as address, ThreadPoolExecutor(9) as pool:
        body = {"query": "a", "id": "comet#0"}
        asked = [pool.submit(httpx.post, f"{address}/explain", json=body, timeout=30) for _ in range(9)]
        first = next(as_completed(asked)).result()
        go_on.set()
        assert (first.status_code, first.headers["retry-after"]) == (503, "1")
        assert sorted(answer.result().status_code for answer in asked) == [200] * 8 + [503]


def test_more_requests_than_are_served_at_once_are_refused(serving, retriever, monkeypatch):
    go_on = threading.Event()
    monkeypatch.setattr(type(retriever), "explain", lambda *args: go_on.wait(20) and [])
    with serving(retriever, Limits(requests=2)) as address, ThreadPoolExecutor(3) as pool:
        body = {"query": "a", "id": "comet#0"}
        asked = [pool.submit(httpx.post, f"{address}/explain", json=body, timeout=30) for _ in range(3)]
        first = next(as_completed(asked)).result()
        assert httpx.get(f"{address}/health").status_code == 200
        go_on.set()
        assert (first.status_code, first.headers["retry-after"]) == (503, "1")
        assert sorted(answer.result().status_code for answer in asked) == [200, 200, 503]


def test_a_mistake_of_ours_is_json_too(serving, retriever, monkeypatch):
    monkeypatch.setattr(type(retriever), "explain", lambda *args: 1 / 0)
    with serving(retriever) as address:
        answer = httpx.post(f"{address}/explain", json={"query": "a", "id": "comet#0"})
    assert answer.status_code == 500
    assert answer.json()["error_type"] == "internal"


def test_only_loopback_names_reach_a_server_without_a_token(server):
    port = urlsplit(server).port
    for host in (f"localhost:{port}", f"127.0.0.1:{port}", "127.3.2.1:80", "[::1]:80", "LOCALHOST"):
        assert httpx.get(f"{server}/info", headers={"Host": host}).status_code == 200
    others = (f"evil.example:{port}", "localhost.evil.example", "127.0.0.1.evil.example", "")
    for host in (*others, "localhost:evil", "localhost:80:90", "[::1]:evil", "[::1]evil", "[[::1]"):
        answer = httpx.get(f"{server}/info", headers={"Host": host})
        assert (answer.status_code, answer.json()["error_type"]) == (403, "forbidden")


def test_pages_of_other_sites_can_make_a_browser_change_nothing(server):
    """What needs no consent of a server reaches one on this machine: addresses, forms, bodies without a media type."""
    others = ("https://evil.example", "http://localhost.evil.example", "null", "", "http://evil@localhost:x")
    for origin in others:
        answer = httpx.get(f"{server}/search?q=barley", headers={"Origin": origin})
        assert (answer.status_code, answer.json()["error_type"]) == (403, "forbidden")
    for origin in (server, "http://localhost:3000", "http://[::1]:80"):
        assert httpx.get(f"{server}/search?q=barley", headers={"Origin": origin}).status_code == 200
    assert httpx.post(f"{server}/search", content=b'{"query": "barley"}').status_code == 422


def test_no_other_origin_may_read_answers(server):
    answer = httpx.get(f"{server}/info", headers={"Origin": "https://evil.example"})
    assert "access-control-allow-origin" not in answer.headers
    assert "default-src 'self'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize(
    "path", ["/info", "/metrics", "/openapi.json", "/search?q=a", "/v1/models", "/nowhere"]
)
def test_a_token_is_wanted_for_everything_but_the_pages(locked, path):
    without = httpx.get(locked + path)
    assert (without.status_code, without.headers["www-authenticate"]) == (401, "Bearer")
    wrong = httpx.get(locked + path, headers={"Authorization": "Bearer s3cre"})
    right = httpx.get(locked + path, headers={"Authorization": "Bearer s3cret"})
    assert wrong.status_code == 401
    assert right.status_code != 401


def test_pages_and_health_need_no_token_and_any_name(locked):
    for path in ("/", "/docs", "/page/main.js", "/health"):
        assert httpx.get(locked + path, headers={"Host": "search.example.org"}).status_code == 200


def test_the_openai_client_sends_the_token(locked):
    from openai import AuthenticationError, OpenAI

    assert OpenAI(base_url=f"{locked}/v1", api_key="s3cret").embeddings.create(model="any", input="a").data
    with pytest.raises(AuthenticationError, match="requires a token"):
        OpenAI(base_url=f"{locked}/v1", api_key="other").embeddings.create(model="any", input="a")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.3.2.1", "::1", "localhost"])
def test_loopback_needs_no_token(host):
    assert is_loopback(host)
    check_token(host, None)


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.7", "::", "example.org", "localhost.example.org"])
def test_any_other_address_needs_one(host):
    assert not is_loopback(host)
    with pytest.raises(RecipeError, match="needs a token"):
        check_token(host, None)
    check_token(host, "s3cret")


def test_an_empty_token_is_none():
    with pytest.raises(RecipeError, match="the token is empty"):
        check_token("127.0.0.1", " ")


def test_a_port_in_use_is_one_sentence():
    with listen("127.0.0.1", 0) as taken:
        taken.listen()
        with pytest.raises(LiebigError, match="cannot listen on"):
            listen("127.0.0.1", taken.getsockname()[1])


def test_answers_are_json_whatever_a_document_says(client):
    found = client.post("/search", json={"query": "Halley", "system": "bm25", "k": 1})
    assert json.loads(found.content)["results"][0]["text"].endswith("<b>bright</b> & early.")
