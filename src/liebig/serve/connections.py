"""Connections before a request is complete: a time limit for its headers, a size limit, and a limit on their number.

uvicorn starts no clock until the headers are there, so a few hundred clients that send nothing could hold every file
descriptor of the process. Here a connection that waits for headers is closed after `Limits.seconds`, and of more than
`Limits.connections` that wait, the one that has waited longest is closed, so that a client that sends its request at
once is always served. An idle connection that is kept alive waits in the same way.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from liebig.serve.middleware import Limits

HEAD = 64 << 10  # bytes of a request line and headers
LATE = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


def limited(limits: Limits) -> type[HttpToolsProtocol]:
    """The protocol of one server, with its limits."""
    waiting: dict[Connection, asyncio.TimerHandle] = {}  # in the order they began to wait

    class Connection(HttpToolsProtocol):
        head = 0  # bytes of the next request, until its headers are complete

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
            super().connection_made(transport)
            self.wait()

        def wait(self) -> None:
            """Start the clock of the next request."""
            self.served()
            waiting[self] = self.loop.call_later(limits.seconds, self.close_late)
            if len(waiting) > limits.connections:
                longest = next(iter(waiting))
                longest.served()
                longest.transport.abort()

        def served(self) -> None:
            """Stop the clock."""
            self.head = 0
            timer = waiting.pop(self, None)
            if timer is not None:
                timer.cancel()

        def close_late(self) -> None:
            """Close the connection; a client that has begun a request is told."""
            if self.head:
                self.transport.write(LATE)
            self.served()
            self.transport.close()

        def data_received(self, data: bytes) -> None:
            if self in waiting and not self.head:
                self.wait()  # the first bytes of a request: from now on it has the whole time
            self.head += len(data)
            super().data_received(data)
            if self in waiting and self.head > HEAD and not self.transport.is_closing():
                self.send_400_response("The request's headers are too large.")

        def on_headers_complete(self) -> None:
            self.served()
            super().on_headers_complete()

        def on_response_complete(self) -> None:
            more = bool(self.pipeline)
            super().on_response_complete()
            if not more and not self.transport.is_closing():
                self.wait()

        def connection_lost(self, exc: Exception | None) -> None:
            self.served()
            super().connection_lost(exc)

    return Connection
