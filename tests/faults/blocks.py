"""The longest time that one callback of a server's event loop takes, under requests that are made to be expensive.

While a callback runs, nobody is answered, `/health` neither. CPU time of the loop's thread is measured, so that other
processes and threads do not count. The server runs in a process of its own on asyncio's loop, whose callbacks are
timed; the requests and the probe of `/health` come from this one.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.faults import traffic
from tests.faults.torture import Tally

MOST = 1.0  # CPU seconds of a callback
MB = 1 << 20
JSON = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


def requests() -> dict[str, tuple[str, str, bytes, dict[str, str]]]:
    """Requests that ask for much, by name: method, path, body and headers."""

    def post(path: str, value: Any) -> tuple[str, str, bytes, dict[str, str]]:
        return "POST", path, value if isinstance(value, bytes) else json.dumps(value).encode(), JSON

    def call(name: str, arguments: dict[str, Any]) -> tuple[str, str, bytes, dict[str, str]]:
        params = {"name": name, "arguments": arguments}
        return post("/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})

    words = " ".join(f"w{n:x}" for n in range(4096))[:4096]
    return {
        "numbers": post("/embed", b'{"inputs": [%b1]}' % (b"1," * (4 * MB - 20))),
        "numbers that are few enough": post("/embed", {"inputs": list(range(9000))}),
        "wrong texts": post("/embed", {"inputs": ["x"] * 9000 + [1]}),
        "texts": post("/embed", {"inputs": ["word " * 1600] * 1024}),
        "token ids": post("/v1/embeddings", {"input": [[1] * 9 for _ in range(900)]}),
        "texts to rank": post("/rerank", {"query": "barley", "texts": ["word " * 1500] * 1024}),
        "nested": post("/search", b"[" * (8 * MB - 1)),
        "quotes": post("/search", b'"' * (8 * MB - 1)),
        "escapes": post("/search", b'{"query": "' + b'\\"' * (4 * MB - 20) + b'"}'),
        "backslashes": post("/search", b'{"query": "' + b"\\\\" * (4 * MB - 20) + b'"}'),
        "spaces": post("/search", b" " * (8 * MB - 1)),
        "no UTF-8": post("/search", b'{"query": "' + b"\xff" * (8 * MB - 20) + b'"}'),
        "escaped surrogates": post("/search", b'{"query": "' + b"\\ud83d" * MB + b'"}'),
        "keys": post("/search", {f"key{n}": 1 for n in range(250)}),
        "filters": post("/search", {"query": "x", "filters": {f"f{n}": ["a"] * 30 for n in range(250)}}),
        "values": post("/search", {"query": "x", "filters": {"language": ["a"] * 9000}}),
        "ranges": post("/search", {"query": "x", "filters": {"language": {f"g{n}": 1 for n in range(250)}}}),
        "all passages": post("/search", {"query": "the a of barley", "k": 1000, "snippets": True, "group": True}),
        "unknown words": post("/search", {"query": words, "snippets": True}),
        "conditions": post("/search", {"query": ("-title:a " * 460)[:4096]}),
        "excluded words": post("/search", {"query": ("-ab " * 1000)[:4096]}),
        "prefixes": post("/search", {"query": "bar* " * 800}),
        "quotation marks": post("/search", {"query": '"a"b' * 1000}),
        "facets": post("/search", {"query": "barley", "facets": ["doc"] * 16}),
        "two systems": post("/compare", {"query": words, "systems": ["bm25", "dense"], "k": 100}),
        "a context": post("/context", {"query": words, "tokens": 100_000}),
        "a long question of an assistant": call("search", {"question": "barley " * 1_000_000}),
        "arguments of an assistant": call("search", {f"a{n}": 1 for n in range(200)}),
        "calls of an assistant": post("/mcp", [{"jsonrpc": "2.0", "id": n, "method": "ping"} for n in range(60)]),
        "a long address": ("GET", "/search?q=" + "%C3%A9" * 10_000, b"", {}),
        "parameters": ("GET", "/search?" + "&".join(f"q={n}" for n in range(8000)), b"", {}),
        "headers": ("GET", "/health", b"", {f"X-{n}": "v" * 20 for n in range(1500)}),
    }  # fmt: skip


def run(tally: Tally, out: Path, rounds: int) -> None:
    """Every request alone, and then all of them at once."""
    folder, result = traffic.build(out / "blocks"), out / "blocks" / "longest.json"
    log = out / "blocks" / "log"
    with log.open("w") as file:
        command = [sys.executable, "-m", "tests.faults.blocks", str(folder), str(result)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=file)
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        every, stop, waits = requests(), threading.Event(), list[float]()
        for name in every:
            before = longest(result)
            ask(port, *every[name])
            time.sleep(0.2)
            if longest(result) > before:
                tally.counts["longest callback, CPU s"] = f"{longest(result):.3f} ({name})"
        tally.add("requests", len(every))
        probe = threading.Thread(target=watch, args=(port, stop, waits))
        probe.start()
        with ThreadPoolExecutor(16) as pool:
            for answer in pool.map(lambda name: ask(port, *every[name]), [*every] * rounds):
                tally.add("requests")
                tally.add(f"status {answer}")
        stop.set()
        probe.join()
    finally:
        process.kill()
        process.wait()
    tally.counts["longest callback with all at once, CPU s"] = f"{longest(result):.3f}"
    tally.counts["longest wait for /health, s"] = f"{max(waits):.3f} of {len(waits)}"
    slow = [name for name, value in json.loads(result.read_text()).items() if value > MOST]
    said = [log.read_text()[-2000:]] if "Traceback" in log.read_text() else []
    tally.save([f"a callback took more than {MOST} s: {name}" for name in slow] + said)


def longest(result: Path) -> float:
    """The longest callback so far."""
    return float(max(json.loads(result.read_text()).values(), default=0)) if result.is_file() else 0.0


def ask(port: int, method: str, path: str, body: bytes, headers: dict[str, str]) -> int:
    """The status of an answer; 0 where the server closed the connection."""
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(line):
        line.request(method, path, body or None, headers)
        answer = line.getresponse()
        answer.read()
        return answer.status
    return 0


def watch(port: int, stop: threading.Event, waits: list[float]) -> None:
    """Ask for /health ten times a second."""
    while not stop.wait(0.1):
        began = time.monotonic()
        ask(port, "GET", "/health", b"", {})
        waits.append(time.monotonic() - began)


def serve(folder: Path, result: Path) -> None:
    """The server, whose loop notes every callback that takes longer than those before."""
    import uvicorn

    from liebig.search.retriever import Retriever
    from liebig.serve.engine import ServingEngine
    from liebig.serve.middleware import Limits
    from liebig.serve.routes import make_app
    from liebig.serve.server import listen, make_server

    made, limits = uvicorn.Config, Limits(seconds=60)
    uvicorn.Config = lambda *given, **more: made(*given, loop="asyncio", **more)  # type: ignore[assignment, misc]
    run: Callable[[asyncio.Handle], None] = asyncio.Handle._run  # type: ignore[attr-defined]
    slowest: dict[str, float] = {}

    def timed(handle: asyncio.Handle) -> None:
        began = time.thread_time()
        run(handle)
        took = time.thread_time() - began
        name = repr(handle._callback)  # type: ignore[attr-defined]
        name = name.partition(" at 0x")[0]
        if took > max(0.01, slowest.get(name, 0.0)):
            slowest[name] = took
            result.with_suffix(".new").write_text(json.dumps(slowest))
            result.with_suffix(".new").replace(result)

    app = make_app(ServingEngine(Retriever.from_folder(folder), limits))
    listening = listen("127.0.0.1", 0)

    def ready() -> None:
        asyncio.Handle._run = timed  # type: ignore[attr-defined]
        print(listening.getsockname()[1], flush=True)

    make_server(app, limits, ready).run(sockets=[listening])


if __name__ == "__main__":
    serve(Path(sys.argv[1]), Path(sys.argv[2]))
