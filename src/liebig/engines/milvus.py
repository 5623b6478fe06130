"""Milvus: a server by its address, or milvus-lite inside this process by the path of a file, with the same code.

A row's id is the primary key; title, text, document and metadata lie beside the vectors. Vectors have an exact index in
a file and Milvus' AUTOINDEX on a server, terms an inverted index with inner products. One process at a time can open a
file. Written against Milvus 2.5 and milvus-lite; tests run milvus-lite.
"""

from __future__ import annotations

import json
import logging
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liebig.base.errors import DataError, MissingDependency, ResourceError
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

BYTES = {
    "id": 512,
    "passage": 512,
    "title": 4096,
    "doc": 512,
    "language": 64,
    "text": 65535,
}  # of the columns
TEXTS = ("passage", "title", "text", "doc", "language")
MARK = "liebig"  # the property that says whose a collection is
ASKED = 2048  # ids of one request
QUERIES = 64  # of one search: the answer has k rows for each
STARTS = logging.getLogger("milvus_lite.server_manager")
TIES = 8  # hits beyond k, so that equal scores at the end are ordered too


class Milvus(SearchEngine):
    """A Milvus server, or a file of milvus-lite."""

    kind = "milvus"
    deepest = 16_000

    def __init__(self, uri: str, client: Any) -> None:
        self.uri, self._client = uri, client
        self._closing = weakref.finalize(self, disconnect, client, uri)

    @classmethod
    def connect(cls, uri: str) -> Milvus:
        with _opening:
            if (known := _open_files.get(uri)) is not None:
                return known
            engine = cls(uri, client_of(uri))
            if _is_file(uri):
                _open_files[uri] = engine
            return engine

    def close(self) -> None:
        with _opening:
            _open_files.pop(self.uri, None)
        self._closing()

    def make(self, shape: TableShape, mark: str) -> None:
        from pymilvus import DataType

        schema = self._client.create_schema(auto_id=False, enable_dynamic_field=False, description=mark)
        names = BYTES if shape.texts else ("id", "passage")
        for name in names:
            schema.add_field(name, DataType.VARCHAR, max_length=BYTES[name], is_primary=name == "id")
        schema.add_field("place", DataType.INT64)
        for name in ("fields", "numbers", "dates", *(["metadata"] if shape.texts else [])):
            schema.add_field(name, DataType.JSON)
        indexes = self._client.prepare_index_params()
        if shape.terms:
            schema.add_field("terms", DataType.SPARSE_FLOAT_VECTOR)
            indexes.add_index("terms", index_type="SPARSE_INVERTED_INDEX", metric_type="IP")
        if shape.width is not None:
            schema.add_field("vector", DataType.FLOAT_VECTOR, dim=shape.width)
            kind = "FLAT" if _is_file(self.uri) else "AUTOINDEX"
            indexes.add_index("vector", index_type=kind, metric_type="IP")
        # milvus-lite keeps properties and loses descriptions.
        more = {"properties": {MARK: mark}} if _is_file(self.uri) else {}
        with self._sentences():
            self._client.create_collection(
                shape.name, schema=schema, index_params=indexes, consistency_level="Strong", **more
            )
            self._client.load_collection(shape.name)

    def mark(self, name: str) -> str | None:
        with self._sentences():
            if not self._client.has_collection(name):
                return None
            self._client.load_collection(name)
            about = self._client.describe_collection(name)
        return str(about["properties"].get(MARK) or about["description"])

    def drop(self, name: str) -> None:
        with self._sentences():
            self._client.drop_collection(name)

    def write(self, shape: TableShape, rows: Sequence[EngineRow]) -> None:
        with self._sentences():
            self._client.upsert(shape.name, [_entity(shape, row) for row in rows])

    def delete(self, name: str, passages: Sequence[str]) -> None:
        for start in range(0, len(passages), ASKED):
            some = FilterCondition("passage", "", "in", tuple(passages[start : start + ASKED]))
            with self._sentences():
                self._client.delete(name, filter=expression([some]))

    def settle(self, name: str) -> int:
        with self._sentences():
            self._client.flush(name)
            return int(self._client.query(name, filter="", output_fields=["count(*)"])[0]["count(*)"])

    def by_terms(
        self, name: str, queries: Sequence[TermWeights], k: int, where: Sequence[FilterCondition]
    ) -> list[EngineHits]:
        hits: list[EngineHits] = [[] for _ in queries]
        places = [place for place, query in enumerate(queries) if query]  # Milvus refuses an empty one
        found = self._search(name, "terms", [dict(queries[place]) for place in places], k, where)
        for place, of_query in zip(places, found):
            hits[place] = [(id, score) for id, score in of_query if score > 0]
        return hits

    def by_vectors(
        self, name: str, queries: NDArray[np.float32], k: int, where: Sequence[FilterCondition]
    ) -> list[EngineHits]:
        return self._search(name, "vector", queries.tolist(), k, where)

    def _search(
        self, name: str, column: str, queries: list[Any], k: int, where: Sequence[FilterCondition]
    ) -> list[EngineHits]:
        hits = []
        for start in range(0, len(queries), QUERIES):
            with self._sentences():
                hits += self._client.search(
                    name, data=queries[start : start + QUERIES], anns_field=column, limit=min(k + TIES, self.deepest),
                    filter=expression(where), output_fields=["place"], search_params={"metric_type": "IP"},
                )  # fmt: skip
        return [
            ordered([(h["id"], float(h["distance"]), h["entity"]["place"]) for h in of], k) for of in hits
        ]

    def texts(self, name: str, where: Sequence[FilterCondition], most: int) -> list[EngineText]:
        with self._sentences():
            rows = self._client.query(
                name, filter=expression(where), output_fields=[*TEXTS, "place", "metadata"], limit=most
            )
        rows.sort(key=lambda row: row["place"])
        return [EngineText(**{name: row[name] for name in (*TEXTS, "metadata")}) for row in rows]

    def terms(self, name: str, ids: Sequence[str]) -> dict[str, TermWeights]:
        with self._sentences():
            rows = self._client.get(name, ids=list(ids), output_fields=["id", "terms"])
        return {row["id"]: row["terms"] for row in rows}

    @contextmanager
    def _sentences(self) -> Iterator[None]:
        """Turn what Milvus refuses, and its silence, into one sentence."""
        from pymilvus.exceptions import MilvusException

        try:
            yield
        except MilvusException as error:
            raise no_answer("Milvus", self.uri, f"failed: {error.message}") from None


_opening = Lock()
_open_files: weakref.WeakValueDictionary[str, Milvus] = weakref.WeakValueDictionary()


def expression(where: Sequence[FilterCondition]) -> str:
    """Comparisons in Milvus' filter language."""
    return " and ".join(map(_compared, where))


def _compared(one: FilterCondition) -> str:
    column = f"{one.column}[{_literal(one.name)}]" if one.name else one.column
    values = [_literal(value) for value in one.values]
    if one.operator != "in":
        said = f"{column} {one.operator} {values[0]}"
    elif one.name:  # milvus-lite has no `in` inside JSON
        said = f"({' or '.join(f'{column} == {value}' for value in values)})"
    else:
        said = f"{column} in [{', '.join(values)}]"
    return f"not ({said})" if one.excluded else said


def _literal(value: str | float) -> str:
    return json.dumps(value, ensure_ascii=False)


def _entity(shape: TableShape, row: EngineRow) -> dict[str, Any]:
    entity: dict[str, Any] = {"id": row.id, "passage": row.shown.passage}
    if shape.texts:
        entity |= {name: getattr(row.shown, name) for name in TEXTS}
    for name, value in entity.items():
        if len(value.encode()) > BYTES[name]:
            raise DataError(
                f"the {name} of {row.id[:60]!r} is longer than the {BYTES[name]:,} bytes that Milvus takes",
                fix="use shorter passages and ids",
            )
    if shape.texts:
        entity["metadata"] = dict(row.shown.metadata)
    entity |= {"place": row.place, "fields": dict(row.fields)}
    entity |= {"numbers": dict(row.numbers), "dates": dict(row.dates)}
    if shape.terms:
        entity["terms"] = dict(row.terms or {})
    if shape.width is not None:
        assert row.vector is not None, "the table has vectors"
        entity["vector"] = row.vector.tolist()
    return entity


def client_of(uri: str) -> Any:
    """A client of the server at an address, or of one inside this process for the path of a file.

    A client asks once whether its server is there. An embedded one is a thread that waits for the processor like
    others, so it gets more time, and another is started if it does not answer.
    """
    try:
        from pymilvus import MilvusClient
        from pymilvus.exceptions import MilvusException
    except ImportError:
        raise MissingDependency("pymilvus", "milvus", "a Milvus collection") from None
    embedded = _is_file(uri)
    token = "" if embedded else token_for(uri)
    if embedded and find_spec("milvus_lite") is None:
        raise MissingDependency("milvus-lite", "milvus", "an embedded Milvus collection")
    reasons: list[str] = []

    def kept(record: logging.LogRecord) -> bool:
        """milvus-lite logs why a file cannot be opened, and raises nothing that says it."""
        if error := record.exc_info and record.exc_info[1]:
            reasons.append(str(error))
        return not error

    for _ in range(2 if embedded else 1):
        try:
            STARTS.addFilter(kept)
            # A shared connection would stay when its server stops, and meet whatever gets the port next.
            return MilvusClient(uri, token=token, timeout=60 if embedded else 10, dedicated=embedded)
        except MilvusException as error:
            failure = error.message
            if embedded:
                _stop(uri)
        finally:
            STARTS.removeFilter(kept)
        if reasons:
            fix = "one process at a time can open it; if none has, push the retriever again"
            raise ResourceError(f"Milvus cannot open {uri}: {reasons[0]}", fix=fix)
    raise no_answer("Milvus", uri, f"does not answer: {failure}")


def disconnect(client: Any, uri: str) -> None:
    """Close a connection, and stop the server if it is embedded, so that its file is at rest."""
    client.close()
    if _is_file(uri):
        _stop(uri)


def _is_file(uri: str) -> bool:
    return "://" not in uri


def _stop(uri: str) -> None:
    from milvus_lite.server_manager import server_manager_instance

    server_manager_instance.release_server(uri)
