"""Connections of a server: time limits for a request's headers and for reading an answer, and limits on their number.

uvicorn starts no clock until the headers are there, and none for a client that does not read its answer, so a few
hundred clients could hold every file descriptor of the process and any amount of memory. Here a connection that waits
for headers is closed after `Limits.seconds`, and of more than `Limits.connections` that wait, the one that has waited
longest is closed, so that a client that sends its request at once is always served. An idle connection that is kept
alive waits in the same way. A connection with an unread answer is aborted when less than PROGRESS was read in
`Limits.seconds`, or when all unread answers exceed `Limits.unsent` and it is the oldest. Of more than
`Limits.per_address` connections of a client, and of more than `Limits.all_connections` in all, one that keeps the
server waiting is aborted: the oldest that does not read, then that waits, then whose body has not arrived.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from importlib.util import find_spec

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from liebig.serve.middleware import Limits

HEAD = 64 << 10  # bytes of a request line and headers
FILES = 256  # that the server itself may have open
PROGRESS = 64 << 10  # bytes of an answer that are read in time, however slow a network is
PIPELINED = 16  # requests of a connection that wait for the answer to an earlier one
LATE = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class ConnectionTable:
    """The connections of a server, by what they wait for."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.room = min(limits.all_connections, _open_files(limits.all_connections + FILES) - FILES)
        # Each in the order in which they began: for headers, with answers that are not read, whose body is not there.
        self.waiting: dict[LimitedConnection, asyncio.TimerHandle] = {}
        self.unread: dict[LimitedConnection, asyncio.TimerHandle] = {}
        self.arriving: dict[LimitedConnection, None] = {}
        self.clients: dict[str, dict[LimitedConnection, None]] = {}  # of each address, oldest first


class LimitedConnection(HttpToolsProtocol):
    """A connection of one server; `all` has every one of them."""

    all: ConnectionTable
    head = 0  # bytes of the next request, until its headers are complete
    address = ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        self.requests: deque[RequestResponseCycle] = deque()  # without a whole answer
        self.wait()
        self.address = self.client[0] if self.client else ""
        same = self.all.clients.setdefault(self.address, {})
        same[self] = None
        others = (
            other
            for other in itertools.chain(self.all.unread, self.all.waiting, self.all.arriving)
            if other is not self
        )
        if len(same) > self.all.limits.per_address:
            next((other for other in others if other in same), self).abort()
        elif sum(map(len, self.all.clients.values())) > self.all.room:
            next(others, self).abort()

    def wait(self) -> None:
        """Start the clock of the next request."""
        self.served()
        self.all.waiting[self] = self.loop.call_later(self.all.limits.seconds, self.close_late)
        if len(self.all.waiting) > self.all.limits.connections:
            next(iter(self.all.waiting)).abort()

    def served(self) -> None:
        self.head = 0
        _cancel(self.all.waiting.pop(self, None))

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
        _cancel(self.all.unread.pop(self, None))
        self.all.arriving.pop(self, None)
        same = self.all.clients.get(self.address, {})
        same.pop(self, None)
        if not same:
            self.all.clients.pop(self.address, None)

    def data_received(self, data: bytes) -> None:
        if self in self.all.waiting and not self.head:
            self.wait()  # the first bytes of a request: from now on it has the whole time
        self.head += len(data)
        super().data_received(data)
        if self in self.all.waiting and self.head > HEAD and not self.transport.is_closing():
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
        self.all.arriving[self] = None

    def on_message_complete(self) -> None:
        self.all.arriving.pop(self, None)
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
        while sum(one.transport.get_write_buffer_size() for one in self.all.unread) > self.all.limits.unsent:
            next(iter(self.all.unread)).abort()

    def resume_writing(self) -> None:
        super().resume_writing()
        _cancel(self.all.unread.pop(self, None))

    def await_reading(self) -> None:
        """Give the client time to read the next part of its answer."""
        _cancel(self.all.unread.get(self))  # its place in the order stays
        size = self.transport.get_write_buffer_size()
        self.all.unread[self] = self.loop.call_later(self.all.limits.seconds, self.check_reading, size)

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


def limited(limits: Limits) -> type[LimitedConnection]:
    """The protocol of one server, with its limits."""
    return type("Connection", (LimitedConnection,), {"all": ConnectionTable(limits)})


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
