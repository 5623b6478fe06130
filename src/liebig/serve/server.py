"""`liebig serve`: a socket, a retriever, and uvicorn between them until it is asked to stop.

The address is taken before anything is loaded, so a port in use is told at once. SIGINT and SIGTERM stop taking
requests, finish those under way, and end with exit code 0.
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
    from fastapi import FastAPI

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
    say: Callable[[str], None],
) -> None:
    """Serve a retriever's folder until a signal comes."""
    from liebig.serve.app import make_app

    check_token(host, token)
    limits = limits or Limits()
    listening = listen(host, port)
    with listening:
        app = make_app(_engine(folder, limits, workers, reranker, device, say), token=token)
        address = f"http://{_shown(host)}:{listening.getsockname()[1]}"

        def ready() -> None:
            say(
                f"Serving {folder} at {address}  (the search page; {address}/docs lists the API; Ctrl-C stops)"
            )
            if open_page:
                webbrowser.open(address)

        make_server(app, limits, ready).run(sockets=[listening])
    say("Stopped.")


def check_token(host: str, token: str | None) -> None:
    """Without a token only this machine may ask."""
    if token is not None and not token.strip():
        raise RecipeError("the token is empty", fix="give one with --token or LIEBIG_TOKEN")
    if token is None and not is_loopback(host):
        fix = "give one with --token or LIEBIG_TOKEN, or leave --host at 127.0.0.1"
        raise RecipeError(f"a server at {host}, which others can reach, needs a token", fix=fix)


def listen(host: str, port: int) -> socket.socket:
    """A socket bound to the address, or one sentence about why not."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, kind, proto)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
    except (OSError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        fix = "choose another with --host and --port (--port 0 takes any that is free)"
        raise LiebigError(f"cannot listen at {host}, port {port}: {reason}", fix=fix) from None
    return made


def _engine(
    folder: Path,
    limits: Limits,
    workers: int | None,
    reranker: Path | None,
    device: str | None,
    say: Callable[[str], None],
) -> Engine:
    """Everything opened and loaded, so that what is wrong with it is told before the server runs."""
    from liebig.methods.reranker import CrossEncoder
    from liebig.search.retriever import Retriever
    from liebig.serve.engine import Engine

    retriever = Retriever.from_folder(folder, device=device)
    cross = None if reranker is None else CrossEncoder.load(reranker).to(device or "cpu")
    if "dense" in retriever.systems:
        _ = retriever.opened.encoder  # a model that cannot be loaded is told now
    say(f"Opened {len(retriever):,} passages ({', '.join(retriever.systems)}).")
    return Engine(retriever, limits, workers=workers, reranker=cross)


def make_server(app: FastAPI, limits: Limits, ready: Callable[[], None]) -> uvicorn.Server:
    """Uvicorn around an application: says when it is ready, and ends quietly on a signal."""
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
