"""A server that answers the requests of `liebig.engines.opensearch` as OpenSearch's documentation says."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import numpy as np


class OpenSearchDouble:
    """Indexes in memory; `requests` has every request that came."""

    def __init__(self, password: str | None = None) -> None:
        self.indexes: dict[str, Any] = {}
        self.requests: list[tuple[str, str, Any]] = []
        self.password = password

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        name, _, rest = path.partition("?")[0].strip("/").partition("/")
        if path == "/":
            return 200, {"version": {"distribution": "opensearch", "number": "2.19.0"}}
        if name == "_bulk":
            for action, source in zip(body[::2], body[1::2]):
                self.indexes[action["index"]["_index"]]["rows"][action["index"]["_id"]] = source
            return 200, {"errors": False, "items": []}
        if name == "_msearch":
            pairs = zip(body[::2], body[1::2])
            return 200, {"responses": [self.search(head["index"], request) for head, request in pairs]}
        if method == "PUT":
            self.indexes[name] = {"body": body, "rows": {}}
            return 200, {"acknowledged": True}
        if name not in self.indexes:
            return 404, {"error": {"reason": f"no such index [{name}]"}}
        rows = self.indexes[name]["rows"]
        if method == "DELETE":
            del self.indexes[name]
            return 200, {"acknowledged": True}
        if rest == "_mapping":
            return 200, {name: {"mappings": self.indexes[name]["body"]["mappings"]}}
        if rest == "_delete_by_query":
            gone = [id for id, row in rows.items() if matches(body["query"], row)]
            for id in gone:
                del rows[id]
            return 200, {"deleted": len(gone)}
        if rest == "_mget":
            found = {id: {"found": True, "_source": rows[id]} for id in body["ids"] if id in rows}
            return 200, {"docs": [{"_id": id, **found.get(id, {"found": False})} for id in body["ids"]]}
        if rest == "_search":
            return 200, self.search(name, body)
        return 200, {"_count": {"count": len(rows)}, "_refresh": {}}[rest]

    def search(self, name: str, body: Any) -> Any:
        index = self.indexes[name]
        script = index["body"]["settings"]["index"].get(
            "similarity", {"product": {"script": {"source": "/ 1.0"}}}
        )
        divided = re.search(r"/ ([\d.]+)", script["product"]["script"]["source"])
        assert divided is not None, script
        scale = float(divided[1])
        hits = []
        for id, row in index["rows"].items():
            score = score_of(body["query"], row, scale)
            if score is not None:
                source = {key: row[key] for key in body["_source"]}
                hits.append({"_id": id, "_score": score, "_source": source})
        if "sort" in body:
            hits.sort(key=lambda hit: index["rows"][hit["_id"]]["place"])
        else:
            hits.sort(key=lambda hit: -hit["_score"])
        return {"hits": {"hits": hits[: body["size"]]}}


def score_of(query: Any, row: Any, scale: float) -> float | None:
    """The score of a row, None where it does not match."""
    if "knn" in query:
        (knn,) = query["knn"].values()
        if not matches(knn.get("filter", {"bool": {}}), row):
            return None
        product = float(np.dot(np.float32(knn["vector"]), np.float32(row["vector"])))
        return 1 + product if product > 0 else 1 / (1 - product)
    if not matches({"bool": {k: v for k, v in query["bool"].items() if k in ("filter", "must_not")}}, row):
        return None
    if "should" not in query["bool"]:
        return 0.0
    tokens = dict(token.split("|") for token in row["terms"].split())
    clauses = [clause["term"]["terms"] for clause in query["bool"]["should"]]
    there = [clause for clause in clauses if clause["value"] in tokens]
    if len(there) < query["bool"]["minimum_should_match"]:
        return None
    return sum(clause["boost"] * int(tokens[clause["value"]]) / scale for clause in there)


def matches(query: Any, row: Any) -> bool:
    ((kind, about),) = query.items()
    if kind == "bool":
        return all(matches(q, row) for q in about.get("filter", ())) and not any(
            matches(q, row) for q in about.get("must_not", ())
        )
    ((name, wanted),) = about.items()
    column, _, key = name.partition(".")
    value = row.get(column, {}).get(key) if key else row.get(column)
    if kind == "terms":
        return value in wanted
    compare = {"gt": np.greater, "gte": np.greater_equal, "lt": np.less, "lte": np.less_equal}
    return value is not None and all(compare[op](value, limit) for op, limit in wanted.items())


@contextmanager
def serving(double: OpenSearchDouble) -> Iterator[str]:
    """The server's address."""

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            lines = self.headers.get("Content-Type") == "application/x-ndjson"
            body = [json.loads(line) for line in data.splitlines()] if lines else json.loads(data or "null")
            double.requests.append((self.command, self.path, body))
            status, answer = double.answer(self.command, self.path, body)
            if double.password is not None and self.headers.get("Authorization") != double.password:
                status, answer = 401, {"error": "Unauthorized"}
            text = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_PUT = do_POST = do_DELETE = handle_any

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
