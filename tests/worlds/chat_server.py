"""A small server that speaks the OpenAI API for chats: it streams a text that the test gives it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class ChatServer(ThreadingHTTPServer):
    """Streams `answer` in parts of `size` characters; remembers requests and keys."""

    daemon_threads = True

    def __init__(self, answer: str, size: int, stream: bool) -> None:
        super().__init__(("127.0.0.1", 0), ChatHandler)
        self.answer, self.size, self.stream = answer, size, stream
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class ChatHandler(BaseHTTPRequestHandler):
    server: ChatServer

    def do_POST(self) -> None:
        self.server.requests.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.server.keys.append(self.headers.get("Authorization"))
        if self.path != "/v1/chat/completions":
            self.send_error(404)
            return
        text, size = self.server.answer, self.server.size
        self.send_response(200)
        if not self.server.stream:
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps({"choices": [{"message": {"content": text}}]}).encode())
            return
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.end_headers()
        for start in range(0, len(text), size):
            event = {"choices": [{"delta": {"content": text[start : start + size]}}]}
            self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
            self.wfile.flush()
        self.wfile.write(b'data: {"choices": [{"delta": {}}]}\n\ndata: [DONE]\n\n')

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def chatting(answer: str, size: int = 3, stream: bool = True) -> Iterator[ChatServer]:
    """A running server."""
    server = ChatServer(answer, size, stream)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
