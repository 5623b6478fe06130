"""The middleware in front of all routes: token, host, size limits, timeouts, security headers, metrics, errors as JSON.

Errors under /v1 have OpenAI's form (`{"error": {"message": …}}`), the others that of text-embeddings-inference
(`{"error": "…", "error_type": "…"}`), so that the clients of both show the sentence. The file also holds the limits of
a server and the checks of queries, depths and texts against them. Without a token only requests to a loopback name are
served, so that a web page cannot reach the server through DNS rebinding; other origins cannot read responses. Cost:
about 20 µs per request.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import re
import time
from codecs import BOM_UTF8
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.exceptions import HTTPException

from liebig.base.errors import LiebigError
from liebig.base.json_output import to_json

KINDS = {
    400: "invalid_request", 401: "unauthorized", 403: "forbidden", 404: "not_found", 405: "method_not_allowed",
    408: "timeout", 413: "too_large", 422: "validation", 500: "internal", 503: "overloaded", 504: "timeout",
    507: "storage",
}  # fmt: skip


class Refusal(Exception):
    """An error response: its status and one sentence."""

    def __init__(self, status: int, sentence: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.headers = status, sentence, dict(headers or {})


class Busy(Refusal):
    """The queue is full, or the server is shutting down."""

    def __init__(self, waiting: int, *, closing: bool = False) -> None:
        sentence = (
            "The server is shutting down."
            if closing
            else f"The server is busy: {waiting} texts or requests are waiting. Try again in a second."
        )
        super().__init__(503, sentence, {"Retry-After": "1"})


def error_body(path: str, status: int, sentence: str) -> dict[str, Any]:
    """The JSON of an error, in the form that clients of the path expect."""
    kind = KINDS.get(status, "error")
    if path.startswith("/v1/"):
        return {"error": {"message": sentence, "type": kind, "param": None, "code": status}}
    return {"error": sentence, "error_type": kind}


def reply(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(to_json(value), status, headers, media_type="application/json")


def handle_errors(app: FastAPI) -> None:
    """Turn every error into JSON with one sentence."""

    @app.exception_handler(Refusal)
    async def refused(request: Request, error: Refusal) -> Response:
        return reply(error_body(request.url.path, error.status, error.sentence), error.status, error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        return reply(error_body(request.url.path, 422, _sentence(error)), 422)

    @app.exception_handler(LiebigError)
    async def wrong(request: Request, error: LiebigError) -> Response:
        return reply(error_body(request.url.path, 422, str(error)), 422)

    @app.exception_handler(HTTPException)
    async def other(request: Request, error: HTTPException) -> Response:
        sentences = {
            404: f"There is no route {request.url.path}; GET /docs lists all routes.",
            405: f"{request.url.path} does not accept {request.method}.",
        }
        sentence = sentences.get(error.status_code, f"{error.detail}.")
        return reply(
            error_body(request.url.path, error.status_code, sentence),
            error.status_code,
            dict(error.headers or {}),
        )

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        sentence = "Internal server error; see the server's log."
        return reply(error_body(request.url.path, 500, sentence), 500)


def _sentence(error: RequestValidationError) -> str:
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return "The request is not JSON."
    if isinstance(first.get("input"), bytes):
        return "The request is not JSON: send the header Content-Type: application/json."
    where = [str(part) for part in first["loc"][1:] if not str(part).startswith(("list[", "str"))]
    name = ".".join(where) or "The body"
    said = str(first["msg"]).rstrip(".")
    return f"{name}: {said[0].lower()}{said[1:]}."


SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics:
    """Prometheus metrics of one server, in a registry of its own: several servers can run in one process."""

    def __init__(self) -> None:
        own = self._registry = CollectorRegistry()
        self.requests = Counter(
            "liebig_requests", "Requests by path and status.", ["path", "status"], registry=own
        )
        self.seconds = Histogram(
            "liebig_request_seconds", "Latency of a request.", ["path"], buckets=SECONDS, registry=own
        )
        self.batch = Histogram(
            "liebig_batch_items", "Texts in a batch.", ["work"], buckets=TEXTS, registry=own
        )
        self.batch_seconds = Histogram(
            "liebig_batch_seconds", "Time of a batch.", ["work"], buckets=SECONDS, registry=own
        )
        self.tokens = Counter("liebig_tokens", "Tokens embedded.", registry=own)
        self.waiting = Gauge("liebig_waiting_items", "Texts in the queue.", ["work"], registry=own)
        self.generation = Gauge("liebig_generation", "Generation of the folder being served.", registry=own)
        self.takeovers = Counter("liebig_takeovers", "New generations loaded while serving.", registry=own)
        self.failures = Counter(
            "liebig_takeover_failures", "New generations that could not be loaded.", registry=own
        )

    def served(self, path: str, status: int, seconds: float) -> None:
        """Count a finished request."""
        self.requests.labels(path, str(status)).inc()
        self.seconds.labels(path).observe(seconds)

    def batched(self, work: str, size: int, seconds: float) -> None:
        self.batch.labels(work).observe(size)
        self.batch_seconds.labels(work).observe(seconds)

    def text(self) -> bytes:
        return generate_latest(self._registry)


@dataclass(frozen=True)
class Limits:
    """Limits of a request (bytes, texts, characters, results, seconds) and of the queues; errors name the limit."""

    body: int = 8 << 20
    texts: int = 1024
    characters: int = 100_000
    query: int = 4096
    k: int = 1000
    seconds: float = 30.0
    queue: int = 4096
    requests: int = 1024
    connections: int = 512  # that wait for the headers of a request
    per_address: int = 512  # connections of one client
    all_connections: int = 2048
    bodies: int = 256 << 20  # bytes of all bodies, without the first LARGE of each
    unsent: int = 256 << 20  # bytes of answers that clients have not read
    wait_ms: float = 1.0
    budget: int | None = None
    batching: bool = True
    poll: float = 0.25
    grace: float = 20.0

    @property
    def values(self) -> int:
        """JSON values of a request: its texts, with room for filters and what a client may add."""
        return 8 * self.texts + 1024


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
PARSED = "liebig.json"  # where the scope of a request has its parsed body
SLOW = {"/ask": 600.0}  # seconds of routes that wait for another server
HELD = "liebig.held"  # where it has the bytes that it counts for
LARGE = 64 << 10  # bytes of a body that is parsed in a thread
FIELDS = 256  # names and values in the objects of a request
OPEN = ("/", "/docs", "/label", "/health", "/favicon.ico", "/favicon.svg", "/original")  # these need no token
HEADERS = [
    (
        b"content-security-policy",
        b"default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]


class Guard:
    """ASGI middleware around the application."""

    def __init__(self, app: App, *, limits: Limits, metrics: Metrics, token: str | None) -> None:
        self._app, self._limits, self._metrics = app, limits, metrics
        self._token = None if token is None else f"Bearer {token}".encode()
        self._active = self._held = 0
        self._large = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer, seconds = _Answer(scope, send), SLOW.get(scope["path"], self._limits.seconds)
        began = time.perf_counter()
        self._active += 1
        try:
            self._check(scope["path"], dict(scope["headers"]))
            body = await self._body(scope, receive)
            async with asyncio.timeout(seconds):
                if body:
                    scope[PARSED] = await self._parse(body)
                await self._app(scope, _replay(body, receive), answer)
        except Refusal as refusal:
            await answer.refuse(refusal)
        except TimeoutError:
            await answer.refuse(Refusal(504, f"The request timed out after {seconds:g} seconds."))
        except asyncio.CancelledError:  # by uvicorn, when the time to finish requests after a signal is over
            await answer.refuse(Busy(self._active, closing=True))
        finally:
            self._active -= 1
            self._held -= scope.pop(HELD, 0)
            route = scope.get("route")
            path = getattr(route, "path", "other")
            self._metrics.served(path, answer.status, time.perf_counter() - began)

    def _check(self, path: str, headers: dict[bytes, bytes]) -> None:
        if self._active > self._limits.requests and path != "/health":
            raise Busy(self._active)
        if self._token is None:
            host = headers.get(b"host", b"").decode("latin-1")
            if not is_loopback(_host_name(host)):
                sentence = f"This server has no token and accepts only requests to a loopback address, not to {host!r}."
                raise Refusal(403, sentence)
            origin = headers.get(b"origin")
            if origin is not None and not is_loopback(
                _host_name(origin.decode("latin-1").partition("://")[2])
            ):
                # A browser sends what a page of another site tells it to, even if that page cannot read the answer.
                raise Refusal(
                    403, "This server has no token and accepts no requests from pages of other sites."
                )
        elif path not in OPEN and not path.startswith("/page/"):
            given = headers.get(b"authorization", b"")
            if not hmac.compare_digest(given, self._token):
                sentence = "This server requires a token: send the header Authorization: Bearer TOKEN."
                raise Refusal(401, sentence, {"WWW-Authenticate": "Bearer"})

    async def _body(self, scope: Scope, receive: Receive) -> bytes | None:
        """Read the whole body before the route sees the request; None for methods without one."""
        if scope["method"] in ("GET", "HEAD"):
            return None
        try:
            async with asyncio.timeout(self._limits.seconds):
                return await self._read(scope, receive)
        except TimeoutError:
            raise Refusal(
                408, f"The request body did not arrive within {self._limits.seconds:g} seconds."
            ) from None

    async def _parse(self, body: bytes) -> Any:
        if len(body) <= LARGE:
            return parse_body(body, self._limits)
        # One at a time: parsing holds the interpreter's lock, and other requests must get it in between.
        async with self._large:
            return await asyncio.to_thread(parse_body, body, self._limits)

    async def _read(self, scope: Scope, receive: Receive) -> bytes:
        parts, size, more = [], 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Refusal(400, "The connection was closed before the request was complete.")
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            more = message.get("more_body", False)
            if size > self._limits.body:
                sentence = (
                    f"The request is larger than {self._limits.body >> 20} MB; send fewer texts per request."
                )
                raise Refusal(413, sentence, {"Connection": "close"})
            # The first part of each is free, so that slow senders of large bodies do not shut out searches.
            self._held -= scope.get(HELD, 0)
            scope[HELD] = max(0, size - LARGE)
            self._held += scope[HELD]
            if self._held > self._limits.bodies:
                sentence = f"The server is busy with {self._limits.bodies >> 20} MB of requests. Try again in a second."
                raise Refusal(503, sentence, {"Retry-After": "1", "Connection": "close"})
        return b"".join(parts)


class _Answer:
    """The response: adds security headers and records the status."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._path, self._send, self.status, self._begun = scope["path"], send, 500, False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status, self._begun = message["status"], True
            own = list(message.get("headers", ()))
            names = {name for name, _ in own}  # a route may have a stricter policy of its own
            message["headers"] = [*own, *(header for header in HEADERS if header[0] not in names)]
        await self._send(message)

    async def refuse(self, refusal: Refusal) -> None:
        """Send an error, unless a response has begun."""
        if self._begun:
            return
        payload = to_json(error_body(self._path, refusal.status, refusal.sentence))
        headers = {"Content-Type": "application/json", "Content-Length": str(len(payload)), **refusal.headers}
        pairs = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await self({"type": "http.response.start", "status": refusal.status, "headers": pairs})
        await self({"type": "http.response.body", "body": payload})


def _replay(body: bytes | None, receive: Receive) -> Receive:
    """`receive` as the route calls it, with the body that was read already."""
    if body is None:
        return receive
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return messages.pop() if messages else await receive()

    return replay


def parse_body(body: bytes, limits: Limits) -> Any:
    """The JSON value of a body. Bodies of too many values are refused before any of them is made, because errors of
    a million values would take minutes and gigabytes.
    """
    # Outside of strings every value but the first follows a comma or an opening bracket, every field has a colon.
    # Without escaped quotes, strings begin and end at each quote; backslashes are removed in pairs first.
    bare = body.replace(rb"\\", b"").replace(rb"\"", b"") if b"\\" in body else body
    if bare.count(b'"') > 2 * (limits.values + FIELDS) or _count(bare, b",[{") >= limits.values:
        advice = "send fewer texts per request, and texts instead of token ids"
        raise Refusal(413, f"The request has more than {limits.values} JSON values; {advice}.")
    if _count(bare, b":") > FIELDS:
        raise Refusal(413, f"The request has more than {FIELDS} fields.")
    try:
        return orjson.loads(body.removeprefix(BOM_UTF8))
    except orjson.JSONDecodeError as error:
        # JSON can contain lone surrogates, UTF-8 cannot. They come from texts cut inside a character.
        if "surrogate" in str(error):
            raise Refusal(422, "The request contains a lone surrogate (half of a character).") from None
        raise Refusal(422, "The request is not JSON.") from None


def _count(bare: bytes, characters: bytes) -> int:
    """How often the characters occur outside of strings, in JSON without escaped quotes."""
    return sum(len(part) - len(part.translate(None, characters)) for part in bare.split(b'"')[::2])


HOST = re.compile(r"(?:\[([^\[\]]*)\]|([^:\[\]]*))(?::\d{0,5})?", re.ASCII)


def _host_name(host: str) -> str:
    """The name in a Host header, without brackets and port; "" if anything else follows it."""
    match = HOST.fullmatch(host)
    return "" if match is None else (match[1] or match[2] or "").lower()


DEFAULT_K = 10


def check_query(query: str, limits: Limits) -> str:
    """Return the query, or raise `Refusal` if it is empty or too long."""
    if not query.strip():
        raise Refusal(422, "The query is empty.")
    if len(query) > limits.query:
        raise Refusal(413, f"The query has {len(query)} characters; the limit is {limits.query}.")
    return query


def check_k(k: int | None, limits: Limits) -> int:
    """Return the number of passages to send, 10 by default, or raise `Refusal` if it is too large."""
    if k is None:
        return min(DEFAULT_K, limits.k)
    if k > limits.k:
        raise Refusal(422, f"k = {k} is larger than this server's limit of {limits.k} passages.")
    return k


def check_texts(texts: Sequence[str], name: str, limits: Limits) -> Sequence[str]:
    """Return the texts, or raise `Refusal` if there are none, too many, or one is empty or too long."""
    if not texts:
        raise Refusal(422, f"{name} is empty.")
    if len(texts) > limits.texts:
        raise Refusal(413, f"{name} has {len(texts)} texts; the limit is {limits.texts} per request.")
    for place, text in enumerate(texts):
        if not text.strip():
            raise Refusal(422, f"Text {place} of {name} is empty.")
        if len(text) > limits.characters:
            sentence = f"Text {place} of {name} has {len(text)} characters; the limit is {limits.characters}."
            raise Refusal(413, sentence)
    return texts
