"""A Hugging Face hub on this machine: a server with the models and data sets of a folder, and a client of it alone."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class FakeHub:
    """Serves `models/ORG/NAME` and `models/datasets/ORG/NAME`; `requests` has the paths that were asked for.

    `NAME@converted` beside a data set is the branch that the hub converts it into.
    """

    def __init__(self, models: Path) -> None:
        self.models, self.requests = models, list[str]()
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                self._answer(body=False)

            def do_GET(self) -> None:
                self._answer(body=True)

            def _path(self) -> str:
                path = unquote(urlsplit(self.path).path)
                hub.requests.append(path)
                return path

            def _answer(self, *, body: bool) -> None:
                self._send(*hub.answer(self._path()), body=body)

            def _send(
                self, status: int, content: bytes, headers: dict[str, str], *, body: bool = True
            ) -> None:
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(content))}.items():
                    self.send_header(name, value)
                self.end_headers()
                if body:
                    self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def answer(self, path: str) -> tuple[int, bytes, dict[str, str]]:
        """Status, content and headers, as the hub's own."""
        missing = 404, b"{}", {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"}
        parts = path.replace("refs/convert/parquet", "converted").strip("/").split("/")
        api = parts[:1] == ["api"]
        home = self.models / "datasets" if "datasets" in parts[:2] else self.models
        org, name, *rest = [part for part in parts if part not in ("api", "models", "datasets")]
        folder = home / org / name
        if not folder.is_dir():
            return missing
        if "converted" in rest[:2]:
            folder = folder.with_name(f"{name}@converted")
            if not folder.is_dir():
                return 404, b"{}", {"X-Error-Code": "RevisionNotFound"}
        files = {str(p.relative_to(folder)): p for p in folder.rglob("*") if p.is_file()}
        if not api:
            file = files["/".join(rest[2:])]
            content = file.read_bytes()
            return 200, content, {"ETag": f'"{_hash(content)}"', "X-Repo-Commit": COMMIT}
        if rest[:1] == ["tree"]:
            rows = [
                {"type": "file", "path": n, "size": p.stat().st_size, "oid": _hash(p.read_bytes())}
                for n, p in files.items()
            ]
            return 200, json.dumps(rows).encode(), {"Content-Type": "application/json"}
        about = {"id": f"{org}/{name}", "sha": COMMIT, "siblings": [{"rfilename": n} for n in files]}
        return 200, json.dumps(about).encode(), {"Content-Type": "application/json"}


def _hash(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


@contextmanager
def serving(models: Path) -> Iterator[FakeHub]:
    """The hub, while the block runs."""
    hub = FakeHub(models)
    thread = threading.Thread(target=hub.server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield hub
    finally:
        hub.server.shutdown()
        hub.server.server_close()
        thread.join()


def connect(monkeypatch: pytest.MonkeyPatch, hub: FakeHub, cache: Path) -> None:
    """Make the hub's client ask this hub, and no other."""
    constants = "huggingface_hub.constants."
    monkeypatch.setattr(constants + "ENDPOINT", hub.address)
    template = hub.address + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants + "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants + "HF_HUB_CACHE", str(cache))
