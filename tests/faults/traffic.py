"""A server under requests that are mostly malformed, and under load with slow clients, disconnects and reloads.

Requests are made from the server's own OpenAPI description. Every answer must be JSON, an error one sentence without a
trace of ours, and results of a search those that the folder gives when it is opened by itself: ids, order and scores,
for the generation that the answer names.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from liebig.builder.user_questions import read_file
from liebig.search.retriever import Retriever
from tests.faults.torture import Tally
from tests.worlds import faults

SYSTEMS = ("bm25", "dense", "hybrid")
QUERIES = (
    "the origin of the comet", "violin strings", "barley", "who keeps steam", "glacier at school", "quince",
    "harbour ?", "centuries since", "Children learn about barley at school", "ünïcode 漢字", "a", "the the the",
    "'; DROP TABLE x; --", "<script>alert(1)</script>", "comet AND NOT barley", "0",
)  # fmt: skip
HOSTILE: tuple[Any, ...] = (
    None, True, -1, 0, 1, 10**6, 10**30, 1e308, 0.5, "", " ", "a", "\0", "\u202e", "x" * 5000, "../../etc/passwd", [],
    ["a"], [[]], ["a"] * 2000, {}, {"a": 1}, {"language": "en"}, {"language": ["en", "de"]}, [None], [1, 2], "NaN",
    "query", "bm25", "dense", "hybrid", "reranked", "1", "true", "\ud800", "💥" * 100,
)  # fmt: skip
DEPTHS = (1, 3, 8, 50)
CLIENTS, EACH = 8, 250  # clients at once, and requests of each
JSON = {"Content-Type": "application/json"}
PATIENCE = 60  # seconds for an answer; far more than the server's own limit, on a machine that is busy
ALLOWED = {200, 400, 401, 403, 404, 405, 408, 413, 414, 422, 431, 503}
UNPARSED = b"Invalid HTTP request received."  # what is no HTTP is refused before it is a request
Answers = dict[tuple[str, str, int], list[tuple[str, float]]]


def answers(folder: Path) -> tuple[int, Answers]:
    """What every question must be answered with by the folder as it is now, and its generation."""
    retriever = Retriever.from_folder(folder)
    found: Answers = {}
    for k in DEPTHS:
        by_system = retriever.search_systems(QUERIES, k, SYSTEMS)
        for system, rows in zip(SYSTEMS, by_system):
            for query, row in zip(QUERIES, rows):
                found[query, system, k] = [(result.id, result.score) for result in row]
    return retriever.generation, found


def agrees(rows: list[dict[str, Any]], expected: list[tuple[str, float]]) -> bool:
    """The same passages and scores; in another order only where scores tie to within rounding.

    Batches of other sizes add floats in another order, so scores agree to 1e-4 and not to the bit.
    """
    if len(rows) != len(expected):
        return False
    scores = dict(expected)
    close = all(
        abs(row["score"] - scores.get(row["id"], 1e9)) <= 1e-4 * (1 + abs(row["score"])) for row in rows
    )
    return close and [row["score"] for row in rows] == sorted((row["score"] for row in rows), reverse=True)


@contextlib.contextmanager
def server(
    folder: Path, log: Path, *options: str, name: str = "serve", killed: bool = False
) -> Iterator[tuple[int, int]]:
    """`liebig serve` in a process of its own: its port and process id. It must end with 0 when it is told to."""
    command = [sys.executable, "-m", "liebig", name, str(folder), "--port", "0", *options]
    with log.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
    try:
        until = time.monotonic() + 300
        while " at http://" not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < until, "the server did not start"
            time.sleep(0.2)
        yield int(log.read_text().split(" at http://127.0.0.1:")[1].split()[0].partition("/")[0]), process.pid
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        code = process.wait(120)
    assert code == 0 or (killed and code == -signal.SIGKILL), f"the server ended with {code}"


def judge(port: int, topics: Sequence[str], questions: Sequence[str]) -> set[tuple[str, str]]:
    """Judge passages until all are judged or the server is gone; gives what it acknowledged."""
    client, acknowledged = Client(port), set[tuple[str, str]]()
    with contextlib.suppress(OSError, http.client.HTTPException):
        for question, topic in itertools.product(questions, topics):
            row = {"question": question, "passage": f"{topic}.md-0", "relevance": 1}
            status, said, _ = client.ask("POST", "/label/judgement", json.dumps(row).encode(), **JSON)
            assert status == 200, said
            acknowledged.add((question, row["passage"]))
    return acknowledged


def judged(file: Path) -> set[tuple[str, str]]:
    """The judgements of a file."""
    questions, _ = read_file(file) if file.is_file() and file.stat().st_size else ([], [])
    return {(question.text, id) for question in questions for id in question.grades}


def memory(pid: int) -> int:
    """Resident bytes of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


class Client:
    """A connection that is kept alive, and opened again where the server closed it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._line = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)

    def ask(
        self, method: str, path: str, body: bytes | None = None, **headers: str
    ) -> tuple[int, bytes, dict[str, str]]:
        """Status, body and headers of an answer."""
        for last in (False, True):
            try:
                self._line.request(method, path, body, headers)
                answer = self._line.getresponse()
                return answer.status, answer.read(), {k.lower(): v for k, v in answer.getheaders()}
            except (http.client.HTTPException, ConnectionError):
                self.close()
                if last:
                    raise
        raise AssertionError

    def close(self) -> None:
        """Close it; the next request opens a new one."""
        self._line.close()


def wrong_in(status: int, body: bytes, headers: dict[str, str]) -> str | None:
    """What an answer must never be."""
    if status == 400 and body == UNPARSED:
        return None
    if status not in ALLOWED:
        return f"status {status}: {body[:200]!r}"
    if b"Traceback" in body or b'File "' in body:
        return f"a traceback: {body[:200]!r}"
    if "content-security-policy" not in headers or headers.get("x-content-type-options") != "nosniff":
        return f"status {status} without security headers"
    if status != 200:
        try:
            sentence = json.loads(body)["error"]
        except (ValueError, KeyError, TypeError):
            return f"status {status} without a sentence: {body[:200]!r}"
        if isinstance(sentence, dict):  # as OpenAI's clients expect it
            sentence = sentence["message"]
        if not isinstance(sentence, str) or "\n" in sentence:
            return f"status {status} with more than a sentence: {body[:200]!r}"
    return None


class Hostile:
    """Requests made from an OpenAPI description."""

    def __init__(self, description: dict[str, Any], rng: random.Random) -> None:
        self._rng, self._schemas = rng, description["components"]["schemas"]
        self._operations = [
            (method.upper(), path, operation)
            for path, methods in description["paths"].items()
            for method, operation in methods.items()
        ]

    def request(self) -> tuple[str, str, bytes | None, dict[str, str]]:
        """Method, path, body and headers."""
        rng = self._rng
        method, path, operation = rng.choice(self._operations)
        query = {
            parameter["name"]: self._value(parameter.get("schema", {}))
            for parameter in operation.get("parameters", ())
            if rng.random() < 0.9
        }
        words = {k: v.encode("utf-8", "replace") if isinstance(v, str) else str(v) for k, v in query.items()}
        target = path + (f"?{urlencode(words)}" if words else "")
        headers, body = {}, None
        if "requestBody" in operation:
            schema = operation["requestBody"]["content"]["application/json"]["schema"]
            body = json.dumps(self._value(schema)).encode()
            headers["Content-Type"] = "application/json"
        match rng.randrange(20):
            case 0 if body:
                body = body[: rng.randrange(len(body))]
            case 1 if body:
                at = rng.randrange(len(body))
                body = body[:at] + bytes([rng.randrange(256)]) + body[at + 1 :]
            case 2:
                headers["Content-Type"] = rng.choice(
                    ("text/plain", "application/x-www-form-urlencoded", "\x01", "x" * 999)
                )
            case 3:
                method = rng.choice(("GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH", "TRACE"))
            case 4:
                target = "/" + quote(
                    rng.choice(("..", "page/../../x", "search/", "%00", "é" * 50, "page/x.html", "a" * 3000))
                )
            case 5:
                headers["Host"] = rng.choice(
                    ("evil.example", "127.0.0.1.evil.example", "", "localhost:1", "[::1]")
                )
            case 6 if body:
                body = rng.choice(
                    (b"[" * 5000, b"{" * 100, b"null", b"\xff\xfe", b'{"query": "\\ud83d"}', b"[]", b"")
                )
            case 7 if body and b"{" in body:
                body = body.replace(b"{", b'{"\\u0000": 1, "extra": [[[]]],', 1)
            case _:
                pass
        return method, target, body, headers

    def _value(self, schema: dict[str, Any]) -> Any:
        """A value of a schema, or now and then something else."""
        rng = self._rng
        if rng.random() < 0.15:
            return rng.choice(HOSTILE)
        if "$ref" in schema:
            return self._value(self._schemas[schema["$ref"].rsplit("/", 1)[1]])
        if choices := schema.get("anyOf") or schema.get("oneOf"):
            return self._value(rng.choice(choices))
        if "enum" in schema:
            return rng.choice(schema["enum"])
        match schema.get("type"):
            case "object":
                required = schema.get("required", ())
                return {
                    name: self._value(inner)
                    for name, inner in schema.get("properties", {}).items()
                    if (name in required and rng.random() < 0.97) or rng.random() < 0.4
                }
            case "array":
                return [self._value(schema.get("items", {})) for _ in range(rng.randrange(4))]
            case "integer":
                return rng.choice((1, 2, 5, 10, 100, 1000))
            case "number":
                return rng.random()
            case "boolean":
                return rng.random() < 0.5
            case "string":
                return rng.choice((*QUERIES, "comet.md#0", "nobody"))
            case _:
                return None


def build(home: Path) -> Path:
    """A retriever to serve, with its documents in `source`."""
    shutil.rmtree(home, ignore_errors=True)
    source, model = faults.write_documents(home / "source", faults.TOPICS), faults.write_model(home / "model")
    faults.build_retriever(source, model, home / "out")
    return home / "out"


def run_requests(tally: Tally, out: Path, wanted: int) -> None:
    """Requests by several clients at once; every tenth is a search whose answer is known."""
    folder = build(out / "requests")
    _, expected = answers(folder)
    with server(folder, out / "requests" / "log") as (port, pid):
        description = json.loads(Client(port).ask("GET", "/openapi.json")[1])
        while tally["requests"] < wanted:
            counts, wrong = Counter[str](), list[str]()
            with ThreadPoolExecutor(CLIENTS) as pool:
                seeds = [f"{tally.seed}-{tally['requests']}-{number}" for number in range(CLIENTS)]
                for done in pool.map(lambda seed: _requests(port, seed, description, expected), seeds):
                    counts += done[0]
                    wrong += done[1]
            for name, count in counts.items():
                tally.add(name, count)
            tally.add("requests", CLIENTS * EACH)
            tally.counts.setdefault("MiB after the first of them", memory(pid) >> 20)
            tally.counts["MiB at the end"] = memory(pid) >> 20
            tally.save(wrong)
    said = (out / "requests" / "log").read_text()
    tally.save(["the server logged a traceback"] if "Traceback" in said else [])
    shutil.rmtree(out / "requests")


def _requests(
    port: int, seed: str, description: dict[str, Any], expected: Answers
) -> tuple[Counter[str], list[str]]:
    """The requests of one client: how many had which status, and what was wrong."""
    rng, client, counts, wrong = random.Random(seed), Client(port), Counter[str](), list[str]()
    hostile = Hostile(description, rng)
    for number in range(EACH):
        if number % 10 == 0:
            query, system, k = rng.choice(list(expected))
            asked = json.dumps({"query": query, "system": system, "k": k})
            status, said, headers = client.ask("POST", "/search", asked.encode(), **JSON)
            if status == 200 and not agrees(json.loads(said)["results"], expected[query, system, k]):
                wrong.append(f"{asked}: other results than the folder gives")
            counts["searches checked"] += status == 200
        else:
            method, path, data, more = hostile.request()
            asked = f"{method} {path[:200]} {(data or b'')[:200]!r} {more}"
            status, said, headers = client.ask(method, path, data, **more)
        problem = None if asked.startswith("HEAD") else wrong_in(status, said, headers)
        wrong += [] if problem is None else [f"{asked}: {problem}"]
        counts[f"status {status}"] += 1
    client.close()
    return counts, wrong


class Load:
    """Clients of every kind against one server, and a writer that updates its folder."""

    def __init__(self, folder: Path, port: int, seed: int) -> None:
        self.folder, self.port, self.seed = folder, port, seed
        self.stop, self.lock = threading.Event(), threading.Lock()
        self.counts, self.wrong, self.seconds = Counter[str](), list[str](), list[float]()
        self.refused_after = list[float]()
        generation, known = answers(folder)
        self.known = {generation: known}
        self.open: list[tuple[int, tuple[str, str, int], list[dict[str, Any]]]] = []

    def note(self, name: str, wrong: str | None = None) -> None:
        """Count a case."""
        with self.lock:
            self.counts[name] += 1
            self.wrong += [] if wrong is None else [wrong]

    def good(self, number: int) -> None:
        """Searches whose answers are checked, now or when the answers of their generation are known."""
        rng, client = random.Random(f"{self.seed}-{number}"), Client(self.port)
        while not self.stop.is_set():
            key = (rng.choice(QUERIES), rng.choice(SYSTEMS), rng.choice(DEPTHS))
            body = json.dumps({"query": key[0], "system": key[1], "k": key[2]}).encode()
            began = time.monotonic()
            status, said, headers = client.ask("POST", "/search", body, **JSON)
            took = time.monotonic() - began
            self.note(f"searches, status {status}", wrong_in(status, said, headers))
            if status == 200:
                found = json.loads(said)
                with self.lock:
                    self.seconds.append(took)
                    self.open.append((found["generation"], key, found["results"]))
            time.sleep(rng.random() * 0.02)

    def check(self, last: bool = False) -> None:
        """Hold answers against those of the folder, where they are known by now."""
        with self.lock:
            pending, self.open = self.open, []
        for generation, key, rows in pending:
            if generation in self.known:
                same = agrees(rows, self.known[generation][key])
                self.note(
                    "answers checked", None if same else f"{key} of generation {generation}: other results"
                )
            elif last:
                self.note("answers of an unknown generation", f"generation {generation} was never written")
            else:
                with self.lock:
                    self.open.append((generation, key, rows))

    def hostile(self, number: int) -> None:
        """Malformed requests."""
        rng, client = random.Random(f"{self.seed}-{number}"), Client(self.port)
        source = Hostile(json.loads(client.ask("GET", "/openapi.json")[1]), rng)
        while not self.stop.is_set():
            method, path, body, headers = source.request()
            status, said, more = client.ask(method, path, body, **headers)
            problem = None if method == "HEAD" else wrong_in(status, said, more)
            self.note(
                "malformed requests", problem and f"{method} {path[:200]} {(body or b'')[:200]!r}: {problem}"
            )
            time.sleep(rng.random() * 0.05)

    def slow(self, number: int) -> None:
        """Headers and bodies that come a byte at a time, and answers that are not read."""
        rng = random.Random(f"{self.seed}-{number}")
        request = b'POST /search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 18\r\n\r\n{"query": "comet"}'
        while not self.stop.is_set():
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", self.port), PATIENCE) as line,
            ):
                for at in range(rng.randrange(len(request) + 1)):
                    line.sendall(request[at : at + 1])
                    if self.stop.wait(rng.random() * 0.05):
                        break
            self.note("slow clients")

    def gone(self, number: int) -> None:
        """Clients that leave before their answer comes."""
        rng = random.Random(f"{self.seed}-{number}")
        texts = json.dumps({"inputs": ["a text of a few words " * 20] * 64}).encode()
        head = (
            b"POST /embed HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: "
        )
        request = head + str(len(texts)).encode() + b"\r\n\r\n" + texts
        while not self.stop.is_set():
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", self.port), PATIENCE) as line,
            ):
                line.sendall(request[: rng.choice((len(request), len(request) // 2))])
            self.note("clients that left")
            time.sleep(0.2)

    def large(self, number: int) -> None:
        """Bodies above the limit, with and without a length."""
        while not self.stop.is_set():
            client = Client(self.port)
            with contextlib.suppress(OSError, http.client.HTTPException):  # it may stop reading
                status, said, _ = client.ask("POST", "/embed", b"x" * (9 << 20))
                self.note("bodies of 9 MB", None if status == 413 else f"status {status}: {said[:200]!r}")
            client.close()
            self.stop.wait(2)

    def burst(self, number: int) -> None:
        """More texts at once than the queue holds: refused at once, and not after a wait."""
        rng, body = (
            random.Random(f"{self.seed}-{number}"),
            json.dumps({"inputs": ["a few words " * 9] * 1000}).encode(),
        )

        def ask() -> None:
            client, began = Client(self.port), time.monotonic()
            with contextlib.suppress(OSError, http.client.HTTPException):
                status, said, headers = client.ask("POST", "/embed", body, **JSON)
                late = (
                    status == 504
                )  # a thousand texts that were taken in, on a slow machine: the time limit's answer
                self.note(f"bursts, status {status}", None if late else wrong_in(status, said, headers))
                if status == 503:
                    with self.lock:
                        self.refused_after.append(time.monotonic() - began)
            client.close()

        while not self.stop.wait(5):
            together = [threading.Thread(target=ask) for _ in range(rng.randint(4, 10))]
            for thread in together:
                thread.start()
            for thread in together:
                thread.join()

    def writer(self, number: int) -> None:
        """Updates of the folder under the server; each makes a new generation."""
        source, there = self.folder.parent / "source", False
        while not self.stop.wait(5):
            if there:
                (source / "quince.md").unlink()
            else:
                faults.write_documents(source, ["quince"])
            there = not there
            faults.finish("update", self.folder)
            generation, known = answers(self.folder)
            self.known[generation] = known
            self.note("reloads")
            self.check()

    def guarded(self, run: Any, number: int) -> None:
        """A client; one that breaks is a mistake of the server, or of ours."""
        try:
            run(number)
        except Exception as error:
            self.note("clients that broke", f"{run.__name__} {number}: {type(error).__name__}: {error}")


def run_load(tally: Tally, out: Path, minutes: float) -> None:
    """Mixed traffic for some minutes."""
    if tally["minutes"] >= minutes:
        return
    folder = build(out / "load")
    log = out / "load" / "log"
    with server(folder, log, "--queue", "2048", "--timeout", "20") as (port, pid):
        load, samples = Load(folder, port, tally.seed), list[int]()
        clients = (
            [load.good] * 4
            + [load.hostile] * 2
            + [load.slow] * 6
            + [load.gone, load.large, load.burst, load.writer]
        )
        threads = [
            threading.Thread(target=load.guarded, args=(run, number)) for number, run in enumerate(clients)
        ]
        for thread in threads:
            thread.start()
        until = time.monotonic() + 60 * minutes
        while time.monotonic() < until:
            time.sleep(min(5, max(0.1, until - time.monotonic())))
            samples.append(memory(pid) >> 20)
        load.stop.set()
        for thread in threads:
            thread.join(5 * PATIENCE)
            assert not thread.is_alive(), "a client hangs"
        load.check(last=True)
    tally.counts |= dict(load.counts)
    seconds, refused = sorted(load.seconds), sorted(load.refused_after)
    tally.counts["seconds of a search, median"] = f"{seconds[len(seconds) // 2]:.3f}"
    tally.counts["seconds of a search, 99 %"] = f"{seconds[int(len(seconds) * 0.99)]:.3f}"
    tally.counts["seconds of a search, most"] = f"{seconds[-1]:.3f}"
    if refused:
        tally.counts["seconds until refused, median"] = f"{refused[len(refused) // 2]:.3f}"
        tally.counts["seconds until refused, most"] = f"{refused[-1]:.3f}"
    third = max(1, len(samples) // 3)
    early, late = sum(samples[third : 2 * third]) / third, sum(samples[-third:]) / third
    tally.counts["MiB, second third"], tally.counts["MiB, last third"] = f"{early:.0f}", f"{late:.0f}"
    wrong = load.wrong
    if late > 1.1 * early + 16:
        wrong.append(f"memory grew from {early:.0f} to {late:.0f} MiB")
    if seconds[int(len(seconds) * 0.99)] > 20:
        wrong.append("one search in a hundred took longer than the server's own limit")
    if "Traceback" in log.read_text():
        wrong.append(f"the server logged a traceback: {log.read_text()[-2000:]}")
    tally.counts["minutes"] = minutes
    tally.save(wrong)
    shutil.rmtree(out / "load")
