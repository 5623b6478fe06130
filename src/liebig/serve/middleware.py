"""What stands before every route: host, token, size and time of the body, time of the answer, headers, metrics.

One plain ASGI layer. Without a token only requests to a loopback name are served, so that no web page can reach the
server through a name of its own (DNS rebinding); no other origin may read answers. Cost: some 20 µs a request.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import re
import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from liebig.serve.metrics import Metrics
from liebig.serve.replies import Busy, Refusal, body as error_body

# What a server allows: sizes, times, and how texts are put together; every refusal names the limit it met.


@dataclass(frozen=True)
class Limits:
    """Of requests: bytes, texts and characters, results, seconds; of the line: texts and requests that may wait."""

    body: int = 8 << 20
    texts: int = 1024
    characters: int = 100_000
    query: int = 4096
    k: int = 1000
    seconds: float = 30.0
    queue: int = 4096
    requests: int = 1024
    wait_ms: float = 1.0
    budget: int | None = None
    batching: bool = True
    poll: float = 1.0
    grace: float = 20.0


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
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
HALF = re.compile(rb"\\u[dD][89a-fA-F]")
OPEN = (
    "/",
    "/docs",
    "/health",
    "/favicon.ico",
    "/favicon.svg",
)  # without a token: the pages and that it lives
HEADERS = [
    (
        b"content-security-policy",
        b"default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]


class Guard:
    """The layer around the application."""

    def __init__(self, app: App, *, limits: Limits, metrics: Metrics, token: str | None) -> None:
        self._app, self._limits, self._metrics = app, limits, metrics
        self._token = None if token is None else f"Bearer {token}".encode()
        self._active = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _Answer(scope, send)
        began = time.perf_counter()
        self._active += 1
        try:
            self._check(scope["path"], dict(scope["headers"]))
            given = await self._body(scope, receive)
            async with asyncio.timeout(self._limits.seconds):
                await self._app(scope, given, answer)
        except Refusal as refusal:
            await answer.refuse(refusal)
        except TimeoutError:
            sentence = f"The answer took longer than {self._limits.seconds:g} seconds."
            await answer.refuse(Refusal(504, sentence))
        finally:
            self._active -= 1
            route = scope.get("route")
            path = getattr(route, "path", "other")
            self._metrics.served(path, answer.status, time.perf_counter() - began)

    def _check(self, path: str, headers: dict[bytes, bytes]) -> None:
        if self._active > self._limits.requests:
            raise Busy(self._active)
        if self._token is None:
            host = _host_name(headers.get(b"host", b"").decode("latin-1"))
            if not is_loopback(host):
                sentence = f"This server has no token and answers to a loopback name only, not to {host!r}."
                raise Refusal(403, sentence)
        elif path not in OPEN and not path.startswith("/page/"):
            given = headers.get(b"authorization", b"")
            if not hmac.compare_digest(given, self._token):
                sentence = "This server wants a token: send it as Authorization: Bearer TOKEN."
                raise Refusal(401, sentence, {"WWW-Authenticate": "Bearer"})

    async def _body(self, scope: Scope, receive: Receive) -> Receive:
        """The whole body, read before the route sees the request."""
        if scope["method"] in ("GET", "HEAD"):
            return receive
        try:
            async with asyncio.timeout(self._limits.seconds):
                whole = await self._read(receive)
        except TimeoutError:
            raise Refusal(
                408, f"The request took longer than {self._limits.seconds:g} seconds to arrive."
            ) from None
        _refuse_halves(whole)
        first: list[Message] = [{"type": "http.request", "body": whole, "more_body": False}]

        async def given() -> Message:
            return first.pop() if first else await receive()

        return given

    async def _read(self, receive: Receive) -> bytes:
        parts, size, more = [], 0, True
        while more:
            message = await receive()
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            more = message.get("more_body", False)
            if size > self._limits.body:
                sentence = (
                    f"The request is larger than {self._limits.body >> 20} MB; send fewer texts at once."
                )
                raise Refusal(413, sentence, {"Connection": "close"})
        return b"".join(parts)


class _Answer:
    """The way back: adds the headers, and remembers the status."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._path, self._send, self.status, self._begun = scope["path"], send, 500, False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status, self._begun = message["status"], True
            message["headers"] = [*message.get("headers", ()), *HEADERS]
        await self._send(message)

    async def refuse(self, refusal: Refusal) -> None:
        """Send the refusal, unless an answer has begun."""
        if self._begun:
            return
        payload = orjson.dumps(error_body(self._path, refusal.status, refusal.sentence))
        headers = {"Content-Type": "application/json", "Content-Length": str(len(payload)), **refusal.headers}
        pairs = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await self({"type": "http.response.start", "status": refusal.status, "headers": pairs})
        await self({"type": "http.response.body", "body": payload})


def _refuse_halves(body: bytes) -> None:
    """Refuse what JSON can write and no answer can hold: half of a character, as of a text that was cut inside one."""
    if not HALF.search(body):
        return
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return  # what is wrong with it is said by the route
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise Refusal(422, "The request has half of a character (a lone surrogate) in it.") from None


def _host_name(host: str) -> str:
    """A Host header without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()


# Checks of what is asked against the server's limits, each refusal one sentence with the limit in it.

USUAL = 10  # passages of an answer


def check_query(query: str, limits: Limits) -> str:
    """A question that can be asked."""
    if not query.strip():
        raise Refusal(422, "The query is empty.")
    if len(query) > limits.query:
        raise Refusal(413, f"The query has {len(query)} characters; at most {limits.query} are taken.")
    return query


def check_k(k: int | None, limits: Limits) -> int:
    """A depth that is served; the usual one, as far as it is, where none was asked for."""
    if k is None:
        return min(USUAL, limits.k)
    if k > limits.k:
        raise Refusal(422, f"k = {k} is more than the {limits.k} passages this server gives at once.")
    return k


def check_texts(texts: Sequence[str], name: str, limits: Limits) -> Sequence[str]:
    """Texts that can be embedded."""
    if not texts:
        raise Refusal(422, f"There is nothing in {name}.")
    if len(texts) > limits.texts:
        raise Refusal(
            413, f"There are {len(texts)} texts in {name}; at most {limits.texts} are taken at once."
        )
    for place, text in enumerate(texts):
        if not text.strip():
            raise Refusal(422, f"Text {place} of {name} is empty.")
        if len(text) > limits.characters:
            sentence = (
                f"Text {place} of {name} has {len(text)} characters; at most {limits.characters} are taken."
            )
            raise Refusal(413, sentence)
    return texts
