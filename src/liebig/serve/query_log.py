"""What people ask and open, as lines of JSON (`liebig serve --log FILE`); nothing is kept unless a file is named.

A line has `time` and `query`, and `opened` if a document was opened for it: a passage's id. There is no address and no
name in it. `liebig label --questions FILE` and `liebig build --questions FILE` read the file. The page searches while
one types, so a query that the next one continues is not written: of "bar", "barle" and "barley" only the last is.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from liebig.base.errors import RecipeError
from liebig.formats.output import json_line
from liebig.serve.middleware import PARSED, App, Message, Receive, Scope, Send

SETTLED = 3.0  # seconds after which a query is taken for finished
ASKING = ("/search", "/compare", "/context", "/ask")
log = logging.getLogger("liebig.serve")


class QueryLog:
    """The file, and for each client the query that may still be continued."""

    def __init__(self, path: Path, settled: float = SETTLED) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # What people search for is private, so only the owner may read it.
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)
            self._file = os.open(path, flags, 0o600)
        except OSError as error:
            raise RecipeError(
                f"cannot write the log: {error.strerror}", file=path, fix="name another file with --log"
            ) from None
        self.path, self._settled, self._failed, self._cut = path, settled, False, False
        self._pending: dict[str, tuple[str, asyncio.TimerHandle]] = {}

    def asked(self, client: str, query: str) -> None:
        """A query; it replaces the one before if one continues the other."""
        before, timer = self._pending.pop(client, (None, None))
        if before is not None and timer is not None:
            timer.cancel()
            if not (query.startswith(before) or before.startswith(query)):
                self._write({"query": before})
        timer = asyncio.get_running_loop().call_later(self._settled, self.settle, client)
        self._pending[client] = query, timer

    def opened(self, client: str, query: str, passage: str) -> None:
        self.settle(client)
        self._write({"query": query, "opened": passage})

    def settle(self, client: str) -> None:
        """Write the query of a client that is not continued any more."""
        query, timer = self._pending.pop(client, (None, None))
        if query is not None and timer is not None:
            timer.cancel()
            self._write({"query": query})

    def close(self) -> None:
        for client in list(self._pending):
            self.settle(client)
        os.close(self._file)

    def _write(self, row: dict[str, str]) -> None:
        line = {"time": datetime.now(UTC).isoformat(timespec="seconds"), **row}
        data = b"\n" * self._cut + json_line(line).encode() + b"\n"
        try:
            written = os.write(self._file, data)
            if written < len(data):  # a full disk has no room for the rest
                self._cut = self._cut or written > 0  # so that the next line begins as one
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._failed = self._cut = False
        except OSError as error:  # a search is worth more than its line in the log
            if not self._failed:
                log.warning("cannot write %s: %s", self.path, error.strerror)
            self._failed = True


class QueryLogging:
    """ASGI middleware that enters answered requests into a log."""

    def __init__(self, app: App, log: QueryLog) -> None:
        self._app, self._log = app, log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path")
        if path not in ASKING and path != "/document":
            await self._app(scope, receive, send)
            return
        status = 500

        async def observed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        await self._app(scope, receive, observed)
        if status < 400:
            self._enter(path, scope)

    def _enter(self, path: str, scope: Scope) -> None:
        given: dict[str, Any] = {
            k: v[0] for k, v in parse_qs(scope["query_string"].decode("latin-1")).items()
        }
        given |= scope.get(PARSED) or {}
        client = (scope.get("client") or ("",))[0]
        query = str(given.get("query") or given.get("q") or "").strip()
        if path != "/document":
            self._log.asked(client, query)
        elif query:
            self._log.opened(client, query, str(given["passage"]))
