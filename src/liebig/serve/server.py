"""Run a server: bind the address, open the folder, and run uvicorn until a signal stops it.

The address is bound before anything is loaded, so a port in use is reported at once. On SIGINT or SIGTERM the server
refuses new requests, finishes those under way, and exits with code 0.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
import webbrowser
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from liebig.base.errors import LiebigError, RecipeError
from liebig.serve.middleware import Limits, is_loopback

if TYPE_CHECKING:
    import uvicorn
    from fastapi import APIRouter, FastAPI

    from liebig.serve.engine import Engine

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
    open_page: bool = False,
    page: str = "",
    more: Callable[[Engine], APIRouter] | None = None,
    say: Callable[[str], None],
) -> None:
    """Serve a retriever folder until SIGINT or SIGTERM; `more` are routes beside the usual, `page` is one of them."""
    from liebig.serve.app import make_app

    check_token(host, token)
    limits = limits or Limits()
    listening = listen(host, port)
    with listening:
        engine = _engine(folder, limits, workers, reranker, device, say)
        app = make_app(engine, token=token, more=[more(engine)] if more is not None else [])
        address = f"http://{_shown(host)}:{listening.getsockname()[1]}"

        def ready() -> None:
            said = "" if not page else f"; page to label: {address}{page}"
            say(
                f"Serving {folder} at {address} (search page{said}; API at {address}/docs; press Ctrl-C to stop)"
            )
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
    say: Callable[[str], None],
) -> Engine:
    """Open the folder and load its models, so that errors are reported before the server starts."""
    from liebig.search.retriever import Retriever
    from liebig.serve.engine import Engine

    retriever = Retriever.from_folder(folder, device=device, reranker=reranker)
    _ = retriever.reranker
    if "dense" in retriever.systems:
        _ = retriever.current.embedder
    say(f"Opened {len(retriever):,} passages ({', '.join(retriever.systems)}).")
    return Engine(retriever, limits, workers=workers)


def make_server(app: FastAPI, limits: Limits, ready: Callable[[], None]) -> uvicorn.Server:
    """A uvicorn server that calls `ready` when it has started and stops quietly on a signal."""
    import uvicorn

    from liebig.serve.connections import limited

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


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
