"""Run a server: bind the address, open the folder, and run uvicorn until a signal stops it.

The address is bound before anything is loaded, so a port in use is reported at once. On SIGINT or SIGTERM the server
refuses new requests, finishes those under way, and exits with code 0.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
import socket
import threading
import webbrowser
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from liebig.base.errors import LiebigError, RecipeError
from liebig.base.progress import counted, visible
from liebig.serve.middleware import Limits, is_loopback

if TYPE_CHECKING:
    import uvicorn
    from fastapi import APIRouter, FastAPI
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

    from liebig.integrations.ask import ChatModel
    from liebig.serve.engine import ServingEngine

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def serve(
    folder: Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8765,
    token: str | None = None,
    workers: int | None = None,
    reranker: Path | None = None,
    device: str | None = None,
    limits: Limits | None = None,
    llm: ChatModel | None = None,
    originals: Sequence[Path] = (),
    log: Path | None = None,
    open_page: bool = False,
    page: str = "",
    more: Callable[[ServingEngine], APIRouter] | None = None,
    say: Callable[[str], None],
) -> None:
    """Serve a retriever folder until SIGINT or SIGTERM; `more` are routes beside the usual, `page` is one of them."""
    from liebig.serve.query_log import QueryLog
    from liebig.serve.routes import make_app

    check_token(host, token)
    limits = limits or Limits()
    listening = listen(host, port)
    with listening:
        engine = _engine(folder, limits, workers, reranker, device, llm, originals, say)
        queries = None if log is None else QueryLog(log)
        app = make_app(engine, token=token, more=[more(engine)] if more is not None else [], log=queries)
        shown = f"[{host}]" if ":" in host else host
        address = f"http://{shown}:{listening.getsockname()[1]}"

        def ready() -> None:
            also = f"search page at {address}" if page else "search page"
            if log is not None:
                say(f"Queries and opened documents are written to {log}.")
            say(f"Serving {folder} at {address}{page} ({also}; API at {address}/docs; press Ctrl-C to stop)")
            if open_page:
                webbrowser.open(address + page)

        make_server(app, limits, ready).run(sockets=[listening])
    say("Stopped.")


def check_token(host: str, token: str | None) -> None:
    """Without a token, only addresses of this machine are allowed."""
    if token is not None and not token.strip():
        raise RecipeError("the token is empty", fix="give one with --token or LIEBIG_TOKEN")
    if token is None and not is_loopback(host):
        fix = "give one with --token or LIEBIG_TOKEN, or leave --host at 127.0.0.1"
        raise RecipeError(f"a server at {host} can be reached from other machines and needs a token", fix=fix)


def listen(host: str, port: int) -> socket.socket:
    """A socket bound to the address; raises an error that says why if it cannot be bound."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, kind, proto)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
    except (OSError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        fix = "choose another with --host and --port (--port 0 takes any free port)"
        raise LiebigError(f"cannot listen on {host} port {port}: {reason}", fix=fix) from None
    return made


def _engine(
    folder: Path,
    limits: Limits,
    workers: int | None,
    reranker: Path | None,
    device: str | None,
    llm: ChatModel | None,
    originals: Sequence[Path],
    say: Callable[[str], None],
) -> ServingEngine:
    """Open the folder and load its models, so that errors are reported before the server starts."""
    from liebig.search.retriever import Retriever
    from liebig.serve.engine import ServingEngine

    retriever = Retriever.from_folder(folder, device=device, reranker=reranker)
    _ = retriever.reranker
    if "dense" in retriever.systems:
        _ = retriever.current.embedder
    say(f"Opened {counted(len(retriever), 'passages')} ({', '.join(retriever.systems)}).")
    for root in originals:
        if not root.exists():
            raise RecipeError(
                "there is no such file or folder", file=root, fix="name another with --originals"
            )
    engine = ServingEngine(retriever, limits, workers=workers, llm=llm, originals=originals)
    if closed := engine.originals.closed:
        say(
            f"Original files are not opened: {', '.join(map(visible, closed))} was not indexed by this user here. "
            "To open them, add --originals with their folder."
        )
    return engine


def make_server(app: FastAPI, limits: Limits, ready: Callable[[], None]) -> uvicorn.Server:
    """A uvicorn server that calls `ready` when it has started and stops quietly on a signal."""
    import uvicorn

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                ready()

        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            if threading.current_thread() is not threading.main_thread():
                yield
                return
            before = {number: signal.signal(number, self.handle_exit) for number in SIGNALS}
            try:
                yield
            finally:
                for number, handler in before.items():
                    signal.signal(number, handler)

    return Server(
        uvicorn.Config(
            app,
            http=limited(limits),
            ws="none",
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            date_header=False,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=int(limits.grace),
        )
    )


# Connections: time limits for sending a request's headers and for reading an answer, and limits on their number.
#
# uvicorn starts no clock until the headers are there, and none for a client that does not read its answer, so a few
# hundred clients could hold every file descriptor of the process and any amount of memory. Here a connection that waits
# for headers is closed after `Limits.seconds`, and of more than `Limits.connections` that wait, the one that has waited
# longest is closed, so that a client that sends its request at once is always served. An idle connection that is kept
# alive waits in the same way. A connection with an unread answer is aborted when less than PROGRESS was read in
# `Limits.seconds`, or when all unread answers exceed `Limits.unsent` and it is the oldest. Of more than
# `Limits.per_address` connections of a client, and of more than `Limits.all_connections` in all, one that keeps the
# server waiting is aborted: the oldest that does not read, then that waits, then whose body has not arrived.

HEAD = 64 << 10  # bytes of a request line and headers
FILES = 256  # that the server itself may have open
PROGRESS = 64 << 10  # bytes of an answer that are read in time, however slow a network is
PIPELINED = 16  # requests of a connection that wait for the answer to an earlier one
LATE = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


def limited(limits: Limits) -> type[HttpToolsProtocol]:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    room = min(limits.all_connections, _open_files(limits.all_connections + FILES) - FILES)
    waiting: dict[Connection, asyncio.TimerHandle] = {}  # for headers, in the order they began to wait
    unread: dict[Connection, asyncio.TimerHandle] = {}  # with answers that clients do not read, likewise
    arriving: dict[Connection, None] = {}  # whose body is not there yet, likewise
    clients: dict[str, dict[Connection, None]] = {}  # the connections of each address, oldest first

    class Connection(HttpToolsProtocol):
        head = 0  # bytes of the next request, until its headers are complete
        address = ""

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
            super().connection_made(transport)
            self.requests: deque[RequestResponseCycle] = deque()  # without a whole answer
            self.wait()
            self.address = self.client[0] if self.client else ""
            same = clients.setdefault(self.address, {})
            same[self] = None
            others = (other for other in itertools.chain(unread, waiting, arriving) if other is not self)
            if len(same) > limits.per_address:
                next((other for other in others if other in same), self).abort()
            elif sum(map(len, clients.values())) > room:
                next(others, self).abort()

        def wait(self) -> None:
            """Start the clock of the next request."""
            self.served()
            waiting[self] = self.loop.call_later(limits.seconds, self.close_late)
            if len(waiting) > limits.connections:
                next(iter(waiting)).abort()

        def served(self) -> None:
            self.head = 0
            _cancel(waiting.pop(self, None))

        def close_late(self) -> None:
            """Close the connection; a client that has begun a request is told."""
            if self.transport.is_closing() or self.transport.get_write_buffer_size():
                self.abort()  # it would stay open until the client has read everything
                return
            if self.head:
                self.transport.write(LATE)
            self.served()
            self.transport.close()

        def abort(self) -> None:
            """Close the connection at once; `connection_lost`, which comes a little later, is not waited for."""
            self.forget()
            self.transport.abort()

        def forget(self) -> None:
            self.served()
            _cancel(unread.pop(self, None))
            arriving.pop(self, None)
            same = clients.get(self.address, {})
            same.pop(self, None)
            if not same:
                clients.pop(self.address, None)

        def data_received(self, data: bytes) -> None:
            if self in waiting and not self.head:
                self.wait()  # the first bytes of a request: from now on it has the whole time
            self.head += len(data)
            super().data_received(data)
            if self in waiting and self.head > HEAD and not self.transport.is_closing():
                self.send_400_response("The request's headers are too large.")

        def on_message_begin(self) -> None:
            if len(self.requests) > PIPELINED:
                self.abort()
                raise ConnectionAbortedError  # ends the parsing of what was received
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            self.served()
            super().on_headers_complete()
            self.requests.append(self.cycle)
            arriving[self] = None

        def on_message_complete(self) -> None:
            arriving.pop(self, None)
            super().on_message_complete()

        def on_response_complete(self) -> None:
            self.requests.popleft()
            super().on_response_complete()
            if self.transport.is_closing():
                self.await_reading()
            elif not self.requests:
                self.wait()

        def pause_writing(self) -> None:
            super().pause_writing()
            self.await_reading()
            while sum(connection.transport.get_write_buffer_size() for connection in unread) > limits.unsent:
                next(iter(unread)).abort()

        def resume_writing(self) -> None:
            super().resume_writing()
            _cancel(unread.pop(self, None))

        def await_reading(self) -> None:
            """Give the client time to read the next part of its answer."""
            _cancel(unread.get(self))  # its place in the order stays
            size = self.transport.get_write_buffer_size()
            unread[self] = self.loop.call_later(limits.seconds, self.check_reading, size)

        def check_reading(self, size: int) -> None:
            if self.transport.get_write_buffer_size() <= size - PROGRESS:
                self.await_reading()
            else:
                self.abort()

        def connection_lost(self, exc: Exception | None) -> None:
            self.forget()
            for request in self.requests:  # uvicorn tells only the last of them
                request.disconnected = True
                request.message_event.set()
            super().connection_lost(exc)

    return Connection


def _open_files(count: int) -> int:
    """How many files this process may have open, after asking the system for as many as `count`."""
    if find_spec("resource") is None:  # Windows: its sockets are not counted
        return count
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft == resource.RLIM_INFINITY or soft >= allowed:
        return count if soft == resource.RLIM_INFINITY else soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return allowed


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
