"""Requests a second of `liebig serve`, with and without dynamic batching, beside FastAPI + sentence-transformers.

    python bench/serve.py [--model FOLDER] [--seconds 4] [--rounds 3]

Every request embeds one question. All servers run on the same two cores as the client, one asyncio process that
writes ready-made bytes; they take turns, round after round, and the best round of each counts. The plain server is
what one writes first; it is tried both ways there are, with `def` (a thread pool) and with `async def`, and the better
one is the peer. The vectors are compared before anything is timed. The last line is `ratio: X`: requests a second at
64 clients, ours over the peer's.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

CLIENTS = (1, 8, 64)
QUESTIONS = Path(__file__).parent.parent / "src/liebig/demo/questions.jsonl"
PLAIN = ("plain, def", "plain, async def")
OURS = ("liebig, no batching", "liebig")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--model", type=Path, help="a sentence-transformers folder [default: the bundled one]"
    )
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--plain", choices=("def", "async"), help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.plain:
        plain_server(args.model, args.plain, args.port)
    else:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
        compare(args)


def plain_server(model: Path, how: str, port: int) -> None:
    """The server one writes first."""
    import torch
    import uvicorn
    from fastapi import FastAPI
    from pydantic import BaseModel
    from sentence_transformers import SentenceTransformer

    app = FastAPI()
    encoder = SentenceTransformer(str(model), device="cpu", model_kwargs={"dtype": torch.float32})

    class Body(BaseModel):
        inputs: list[str]

    def embed(body: Body) -> list[list[float]]:
        return encoder.encode(body.inputs).tolist()

    async def embed_async(body: Body) -> list[list[float]]:
        return embed(body)

    chosen: Callable[..., Any] = embed if how == "def" else embed_async
    chosen.__annotations__["body"] = Body
    app.post("/embed")(chosen)
    uvicorn.run(app, port=port, log_level="warning", access_log=False)


def retriever_folder(out: Path, model: Path, texts: list[str]) -> None:
    """A small retriever around the model: what `liebig serve` needs."""
    from liebig.base import pipeline
    from liebig.search.retriever_folder import RetrieverDescription, write
    from liebig.stages import STAGES

    (out / "collection").mkdir(parents=True)
    rows = (json.dumps({"id": str(i), "title": "", "text": text, "doc": ""}) for i, text in enumerate(texts))
    (out / "collection" / "passages.jsonl").write_text("".join(row + "\n" for row in rows))
    recipe = {
        "bm25": {"collection": str(out / "collection")},
        "index": {"kind": "encode", "source": str(out / "collection"), "model": str(model)},
    }
    pipeline.run(pipeline.plan_stages(STAGES, recipe, out), lambda line: None)
    (out / "model").symlink_to(model.resolve())
    write(out, RetrieverDescription(1, "hybrid", "collection", "bm25", "index", "model"))


@dataclass
class Server:
    """A running server."""

    name: str
    port: int
    process: subprocess.Popen[bytes]

    def cpu(self) -> float:
        """CPU seconds it has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def servers(model: Path, folder: Path) -> Iterator[list[Server]]:
    """All servers, started."""
    here, started = [sys.executable, __file__, "--model", str(model)], []
    liebig = [sys.executable, "-m", "liebig", "serve", str(folder)]
    commands = {
        PLAIN[0]: [*here, "--plain", "def"],
        PLAIN[1]: [*here, "--plain", "async"],
        OURS[0]: [*liebig, "--no-batching"],
        OURS[1]: liebig,
    }
    try:
        for number, (name, command) in enumerate(commands.items()):
            port = 18_700 + number
            started.append(Server(name, port, subprocess.Popen([*command, "--port", str(port)])))
        yield started
    finally:
        for server in started:
            server.process.terminate()
        for server in started:
            server.process.wait()


def request(text: str) -> bytes:
    body = json.dumps({"inputs": [text]}).encode()
    head = f"POST /embed HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, payload: bytes) -> bytes:
    """One request and its answer."""
    writer.write(payload)
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
    return await reader.readexactly(int(length.split(b":")[1]))


async def connect(port: int, patience: float = 1.0) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    end = time.monotonic() + patience
    while True:
        try:
            return await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            if time.monotonic() > end:
                raise
            await asyncio.sleep(0.5)


async def client(port: int, payloads: list[bytes], begin: float, end: float) -> list[float]:
    """Asks without pause; the times of the answers that came between begin and end."""
    reader, writer = await connect(port)
    times, number = [], 0
    while (asked := time.perf_counter()) < end:
        await exchange(reader, writer, payloads[number % len(payloads)])
        answered = time.perf_counter()
        if begin <= answered <= end:
            times.append(answered - asked)
        number += 1
    writer.close()
    return times


async def measure(server: Server, clients: int, payloads: list[bytes], seconds: float) -> dict[str, float]:
    begin = time.perf_counter() + 0.5
    shares = [payloads[i::clients] or payloads for i in range(clients)]
    used = server.cpu()
    found = await asyncio.gather(*(client(server.port, s, begin, begin + seconds) for s in shares))
    used = server.cpu() - used
    times = np.sort(np.concatenate(found)) * 1000
    p50, p99 = np.percentile(times, [50, 99])
    rate = len(times) / seconds
    return {"rate": rate, "p50": p50, "p99": p99, "cpu_ms": 1000 * used / (rate * (seconds + 0.5))}


async def vectors(server: Server, texts: list[str]) -> np.ndarray:
    reader, writer = await connect(server.port, patience=180)
    answers = [json.loads(await exchange(reader, writer, request(text))) for text in texts]
    writer.close()
    return np.array(answers)[:, 0]


async def rounds(
    running: list[Server], texts: list[str], args: argparse.Namespace
) -> dict[tuple[str, int], dict[str, float]]:
    same = [await vectors(server, texts[:40]) for server in running]
    print(
        f"largest difference of a number of the vectors: {max(np.abs(v - same[0]).max() for v in same):.1e}"
    )
    payloads = [request(text) for text in texts]
    best: dict[tuple[str, int], dict[str, float]] = {}
    for number in range(args.rounds):
        for clients in CLIENTS:
            for server in running:
                found = await measure(server, clients, payloads, args.seconds)
                key = (server.name, clients)
                print(
                    f"round {number + 1}: {server.name:20} {clients:3} clients {found['rate']:8.1f} requests/s",
                    flush=True,
                )
                if key not in best or found["rate"] > best[key]["rate"]:
                    best[key] = found
    return best


def compare(args: argparse.Namespace) -> None:
    from liebig import encoders

    model = args.model or encoders.folder()
    texts = [json.loads(line)["text"] for line in QUESTIONS.read_text().splitlines()]
    with tempfile.TemporaryDirectory() as folder:
        retriever_folder(Path(folder), model, texts)
        with servers(model, Path(folder)) as running:
            best = asyncio.run(rounds(running, texts, args))
    print(f"\n{'':20} {'clients':>8} {'requests/s':>11} {'p50 ms':>8} {'p99 ms':>8} {'server CPU ms':>14}")
    for (name, clients), found in best.items():
        numbers = f"{found['rate']:11.1f} {found['p50']:8.1f} {found['p99']:8.1f} {found['cpu_ms']:14.2f}"
        print(f"{name:20} {clients:8} {numbers}")
    for clients in CLIENTS:
        peer = max(best[name, clients]["rate"] for name in PLAIN)
        alone, together = (best[name, clients]["rate"] / peer for name in OURS)
        print(
            f"{clients} clients: {together:.2f} times the better plain server, {alone:.2f} without batching"
        )
    print(f"ratio: {together:.2f}")


if __name__ == "__main__":
    main()
