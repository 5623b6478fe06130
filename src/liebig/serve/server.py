"""Run a server: bind the address, open the folder, and run uvicorn until a signal stops it.

The address is bound before anything is loaded, so a port in use is reported at once. On SIGINT or SIGTERM the server
refuses new requests, finishes those under way, and exits with code 0.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import socket
import threading
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from liebig.base.errors import LiebigError, RecipeError
from liebig.base.machine import default_precision, multiply_alone, prefer_numpy
from liebig.base.progress import counted, visible
from liebig.search.retriever_folder import is_small
from liebig.serve.middleware import Limits, is_loopback

if TYPE_CHECKING:
    import uvicorn
    from fastapi import APIRouter, FastAPI

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
    check_token(host, token)
    logging.basicConfig(format="%(message)s")
    logging.getLogger("liebig.serve").setLevel(logging.INFO)  # says when a new generation is served
    limits = limits or Limits()
    listening = listen(host, port)
    with listening:
        prepare(folder)
        from liebig.serve.query_log import QueryLog
        from liebig.serve.routes import make_app

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


def prepare(folder: Path) -> None:
    """Say how a small folder is searched, before numpy is imported: first by numpy alone, since numba takes as long to
    import as all else. The engine loads it later where the processor has an instruction for int8.
    """
    if is_small(folder):
        multiply_alone() if default_precision() == "int8" else prefer_numpy()


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
    from liebig.search.embed import question_precision
    from liebig.search.retriever import Retriever
    from liebig.serve.engine import ServingEngine

    # Importing torch takes several times what all else does: where int8 cannot be used at once, numpy begins.
    light = is_small(folder) and question_precision() == "fp32"
    retriever = Retriever.from_folder(folder, device=device, reranker=reranker, light=light)
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
