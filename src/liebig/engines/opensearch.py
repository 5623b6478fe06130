"""OpenSearch: an index per table, asked over HTTP with the standard library.

BM25 as an inner product: a passage's terms are one field of tokens `t7|41932`, whose number the filter
`delimited_term_freq` takes as the term's frequency, and a scripted similarity multiplies it with the boost of the
query's term. Weights are stored as whole multiples of 1 / SCALE, which changes a score by less than 1e-5 of a term's
idf. Vectors are asked for with `knn` (Faiss, HNSW), whose scores are turned back into inner products.

Written from the documentation of OpenSearch 2.19 and 3. Tests hold every request to that; it has never run against a
cluster.
"""

from __future__ import annotations

import base64
import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import quote, urlsplit

import numpy as np
from numpy.typing import NDArray

from liebig.base.errors import RecipeError, ResourceError
from liebig.engines import (
    EngineHits,
    EngineRow,
    EngineText,
    FilterCondition,
    SearchEngine,
    TableShape,
    TermWeights,
    no_answer,
    ordered,
    token_for,
)
from liebig.queries.endpoint import OPENER

SCALE = 1 << 17  # the frequencies of a passage's terms have a sum below 2^31: 16,000 terms at least
BULK_BYTES = 40_000_000  # of one request, which http.max_content_length bounds with 100 MB
LARGEST_ANSWER = 1 << 28  # bytes
TEXTS = ("passage", "title", "text", "doc", "language", "metadata")
RANGES = {">": "gt", ">=": "gte", "<": "lt", "<=": "lte"}
JSON, LINES = "application/json", "application/x-ndjson"


def index_body(shape: TableShape, mark: str) -> dict[str, Any]:
    fields: dict[str, Any] = {"passage": {"type": "keyword"}, "place": {"type": "long"}}
    fields |= {"fields": {"type": "flat_object"}}
    settings: dict[str, Any] = {}
    if shape.texts:
        fields |= {"title": {"type": "text"}, "text": {"type": "text"}, "doc": {"type": "keyword"}}
        fields |= {"language": {"type": "keyword"}, "metadata": {"type": "object", "enabled": False}}
    if shape.terms:
        weights = {"type": "custom", "tokenizer": "whitespace", "filter": ["delimited_term_freq"]}
        product = {"type": "scripted", "script": {"source": f"return query.boost * doc.freq / {SCALE}.0;"}}
        settings |= {"analysis": {"analyzer": {"weights": weights}}, "similarity": {"product": product}}
        fields["terms"] = {
            "type": "text", "analyzer": "weights", "search_analyzer": "whitespace", "similarity": "product",
            "index_options": "freqs", "norms": False,
        }  # fmt: skip
    if shape.width is not None:
        settings["knn"] = True
        method = {"name": "hnsw", "engine": "faiss", "space_type": "innerproduct"}
        fields["vector"] = {"type": "knn_vector", "dimension": shape.width, "method": method}
    doubles = [
        {name: {"path_match": f"{name}.*", "mapping": {"type": "double"}}} for name in ("numbers", "dates")
    ]
    mappings = {"_meta": {"liebig": mark}, "dynamic_templates": doubles, "properties": fields}
    return {"settings": {"index": settings}, "mappings": mappings}


def row_body(shape: TableShape, row: EngineRow) -> dict[str, Any]:
    names = TEXTS if shape.texts else TEXTS[:1]
    body: dict[str, Any] = {name: getattr(row.shown, name) for name in names}
    body |= {"place": row.place, "fields": row.fields, "numbers": row.numbers, "dates": row.dates}
    if shape.terms:
        body["terms"] = " ".join(
            f"t{term}|{max(1, round(w * SCALE))}" for term, w in (row.terms or {}).items()
        )
    if shape.width is not None:
        assert row.vector is not None, "the table has vectors"
        body["vector"] = [float(f"{number:.8g}") for number in row.vector.tolist()]
    return body


def terms_body(query: TermWeights, k: int, where: Sequence[FilterCondition]) -> dict[str, Any]:
    """The search for the largest inner products of terms."""
    should = [{"term": {"terms": {"value": f"t{term}", "boost": weight}}} for term, weight in query.items()]
    return _search_body({"bool": {"should": should, "minimum_should_match": 1, **_conditions(where)}}, k)


def vector_body(query: Sequence[float], k: int, where: Sequence[FilterCondition]) -> dict[str, Any]:
    """The search for the largest inner products of vectors."""
    knn: dict[str, Any] = {"vector": query, "k": k}
    if where:
        knn["filter"] = {"bool": _conditions(where)}
    return _search_body({"knn": {"vector": knn}}, k)


def _search_body(query: dict[str, Any], k: int) -> dict[str, Any]:
    return {"size": k, "_source": ["place"], "track_total_hits": False, "query": query}


def _conditions(where: Iterable[FilterCondition]) -> dict[str, Any]:
    """Comparisons as clauses of a bool query."""
    clauses: dict[str, list[Any]] = {}
    for one in where:
        name = f"{one.column}.{one.name}" if one.name else one.column
        if one.operator == "in":
            clause: dict[str, Any] = {"terms": {name: list(one.values)}}
        else:
            clause = {"range": {name: {RANGES[one.operator]: one.values[0]}}}
        clauses.setdefault("must_not" if one.excluded else "filter", []).append(clause)
    return clauses


def inner_product(score: float) -> float:
    """What a score of the space `innerproduct` was made from: 1 + p for a product p > 0, else 1 / (1 - p)."""
    return score - 1 if score > 1 else 1 - 1 / score


class OpenSearch(SearchEngine):
    """An OpenSearch server; LIEBIG_ENGINE_TOKEN is `user:password`, or a token of another kind."""

    kind = "opensearch"
    deepest = 10_000  # index.max_result_window

    def __init__(self, uri: str, timeout: float = 60.0) -> None:
        self.uri, self._timeout = uri.rstrip("/"), timeout
        self._headers = {}
        if token := token_for(uri):
            basic = base64.b64encode(token.encode()).decode()
            self._headers["Authorization"] = f"Basic {basic}" if ":" in token else f"Bearer {token}"

    @classmethod
    def connect(cls, uri: str) -> OpenSearch:
        if urlsplit(uri).scheme not in ("http", "https") or not urlsplit(uri).netloc:
            raise RecipeError(f"{uri!r} is not the address of a server", fix="write http://localhost:9200")
        engine = cls(uri)
        engine._ask("GET", "/")
        return engine

    def make(self, shape: TableShape, mark: str) -> None:
        self._ask("PUT", _path(shape.name), index_body(shape, mark))

    def mark(self, name: str) -> str | None:
        answer = self._ask("GET", _path(name, "_mapping"), missing={})
        return next(
            (str(index["mappings"].get("_meta", {}).get("liebig")) for index in answer.values()), None
        )

    def drop(self, name: str) -> None:
        self._ask("DELETE", _path(name), missing={})

    def write(self, shape: TableShape, rows: Sequence[EngineRow]) -> None:
        part: list[bytes] = []
        for row in rows:
            action = {"index": {"_index": shape.name, "_id": row.id}}
            part.append(_lines([action, row_body(shape, row)]))
            if sum(map(len, part)) > BULK_BYTES:
                self._bulk(part)
                part = []
        if part:
            self._bulk(part)

    def _bulk(self, part: list[bytes]) -> None:
        answer = self._ask("POST", "/_bulk", b"".join(part))
        if answer["errors"]:
            said = next(item["index"]["error"] for item in answer["items"] if "error" in item["index"])
            raise ResourceError(f"OpenSearch at {self.uri} refused a row: {said.get('reason', said)}")

    def delete(self, name: str, passages: Sequence[str]) -> None:
        for start in range(0, len(passages), self.deepest):
            query = {"terms": {"passage": list(passages[start : start + self.deepest])}}
            self._ask(
                "POST", _path(name, "_delete_by_query?refresh=true&conflicts=proceed"), {"query": query}
            )

    def settle(self, name: str) -> int:
        self._ask("POST", _path(name, "_refresh"))
        return int(self._ask("GET", _path(name, "_count"))["count"])

    def by_terms(
        self, name: str, queries: Sequence[TermWeights], k: int, where: Sequence[FilterCondition]
    ) -> list[EngineHits]:
        return self._search(name, [terms_body(query, k, where) for query in queries], k)

    def by_vectors(
        self, name: str, queries: NDArray[np.float32], k: int, where: Sequence[FilterCondition]
    ) -> list[EngineHits]:
        lists = self._search(name, [vector_body(query, k, where) for query in queries.tolist()], k)
        return [[(id, inner_product(score)) for id, score in hits] for hits in lists]

    def _search(self, name: str, bodies: Sequence[dict[str, Any]], k: int) -> list[EngineHits]:
        if not bodies:
            return []
        lines = _lines([part for body in bodies for part in ({"index": name}, body)])
        lists = []
        for answer in self._ask("POST", "/_msearch", lines)["responses"]:
            if "error" in answer:
                raise ResourceError(f"OpenSearch at {self.uri} refused a search: {answer['error']}")
            rows = answer["hits"]["hits"]
            lists.append(ordered([(r["_id"], float(r["_score"]), r["_source"]["place"]) for r in rows], k))
        return lists

    def texts(self, name: str, where: Sequence[FilterCondition], most: int) -> list[EngineText]:
        body = {"size": most, "_source": list(TEXTS), "sort": [{"place": "asc"}]}
        body |= {"query": {"bool": _conditions(where)}}
        rows = self._ask("POST", _path(name, "_search"), body)["hits"]["hits"]
        return [EngineText(**row["_source"]) for row in rows]

    def terms(self, name: str, ids: Sequence[str]) -> dict[str, TermWeights]:
        rows = self._ask("POST", _path(name, "_mget"), {"ids": list(ids)})["docs"]
        return {row["_id"]: _weights(row["_source"]["terms"]) for row in rows if row.get("found")}

    def _ask(
        self, method: str, path: str, body: dict[str, Any] | bytes | None = None, missing: Any = None
    ) -> Any:
        """The answer to a request; `missing` where there is no such index."""
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        kind = {"Content-Type": LINES if isinstance(body, bytes) else JSON}
        request = urllib.request.Request(self.uri + path, data, {**self._headers, **kind}, method=method)
        try:
            with OPENER.open(request, timeout=self._timeout) as answer:
                return json.loads(answer.read(LARGEST_ANSWER))
        except urllib.error.HTTPError as error:
            if error.code == 404 and missing is not None:
                return missing
            said = error.read(300).decode("utf-8", "replace").strip()
            where = f"{method} {path.partition('?')[0]} ({error.code})"
            raise no_answer("OpenSearch", self.uri, f"refuses {where}: {said}") from None
        except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            raise no_answer("OpenSearch", self.uri, f"does not answer: {reason}") from None


def _path(name: str, more: str = "") -> str:
    return f"/{quote(name)}/{more}" if more else f"/{quote(name)}"


def _lines(values: Iterable[Any]) -> bytes:
    return "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values).encode()


def _weights(tokens: str) -> dict[int, float]:
    pairs = (token[1:].split("|") for token in tokens.split())
    return {int(term): int(frequency) / SCALE for term, frequency in pairs}
