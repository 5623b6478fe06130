"""Passages and vectors as a Milvus collection: on a server, or embedded in a file by milvus-lite.

An embedded one is made beside and moved into place without its lock and what Milvus can make again.
The primary key is the id; title, text, document and metadata lie beside the vector and can be filtered by.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

from liebig.base.errors import DataError, LiebigError, MissingDependency
from liebig.base.progress import track
from liebig.export.exported import Row, Target

FILE = "milvus.db"
BATCH = 512
LONGEST = {"id": 512, "passage": 512, "title": 4096, "doc": 512, "text": 65535}  # bytes of the fields


def to_milvus(target: Target, path: Path, collection: str, uri: str | None) -> str:
    """Fill a collection; one of this name is refused, not replaced."""
    with tempfile.TemporaryDirectory(prefix="liebig-milvus-") as home:
        embedded = Path(home) / FILE
        with _client(uri or str(embedded), embedded=uri is None) as client:
            if client.has_collection(collection):
                raise DataError(
                    f"Milvus has a collection {collection!r} already", fix="name another with --name"
                )
            count = _whole(client, collection, target)
        if uri is None:
            shutil.copytree(embedded, path / FILE, ignore=shutil.ignore_patterns("LOCK", "indexes"))
    where = uri or FILE
    settings = {"uri": uri or FILE, "collection": collection, "metric_type": "IP", "rows": count}
    (path / "milvus.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    return f"{count:,} rows in the collection {collection!r} of {where}"


@contextmanager
def _client(uri: str, *, embedded: bool) -> Iterator[Any]:
    """A connection; what goes wrong with it is a sentence."""
    if find_spec("pymilvus") is None:
        raise MissingDependency("pymilvus", "milvus", "an export to Milvus")
    if embedded and find_spec("milvus_lite") is None:
        raise MissingDependency("milvus-lite", "milvus", "an embedded Milvus collection")
    from pymilvus import MilvusClient
    from pymilvus.exceptions import MilvusException

    try:
        client = MilvusClient(uri, timeout=30)
        try:
            yield client
        finally:
            client.close()
    except MilvusException as error:
        raise LiebigError(f"Milvus at {uri} failed: {error.message}", fix="check the address") from None


def _whole(client: Any, collection: str, target: Target) -> int:
    """Make and fill a collection; one that is not filled to its end is taken away again."""
    _create(client, collection, target.vectors.width)
    try:
        count = _fill(client, collection, track(target.rows(), "export", unit="rows"))
        client.flush(collection)
    except BaseException:
        client.drop_collection(collection)
        raise
    return count


def _create(client: Any, name: str, width: int) -> None:
    from pymilvus import DataType

    schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
    for field, longest in LONGEST.items():
        schema.add_field(field, DataType.VARCHAR, max_length=longest, is_primary=field == "id")
    schema.add_field("metadata", DataType.JSON)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=width)
    indexes = client.prepare_index_params()
    indexes.add_index("vector", index_type="AUTOINDEX", metric_type="IP")
    client.create_collection(name, schema=schema, index_params=indexes)


def _fill(client: Any, name: str, rows: Iterable[Row]) -> int:
    count = 0
    for batch in _batches(rows):
        client.insert(name, [_entity(row) for row in batch])
        count += len(batch)
    return count


def _batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    rest = iter(rows)
    while batch := list(islice(rest, BATCH)):
        yield batch


def _entity(row: Row) -> dict[str, Any]:
    values = {"id": row.id, "passage": row.passage, "title": row.title, "doc": row.doc, "text": row.text}
    for field, value in values.items():
        if len(value.encode()) > LONGEST[field]:
            raise DataError(
                f"the {field} of {row.id[:60]!r} is longer than the {LONGEST[field]:,} bytes Milvus takes"
            )
    return {**values, "metadata": dict(row.metadata), "vector": row.vector.tolist()}
