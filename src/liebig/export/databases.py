"""A retriever's passages with their vectors for databases: PostgreSQL (pgvector), OpenSearch, Milvus, Parquet files.

Each `to_*` writes what its database loads: SQL with rows for COPY, lines for the bulk interface, a collection on a
server or embedded in a file, or a table. Vectors are compared by inner product. Memory: one request or row group.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from liebig.base.errors import DataError, LiebigError
from liebig.base.progress import counted, track
from liebig.export import ExportRow, Target
from liebig.formats.output import json_line, write_lines
from liebig.formats.rows import arrow_package
from liebig.indexes.milvus import connect, disconnect

# PostgreSQL with pgvector: the table as SQL, the rows as text for COPY. Inner product is `<#>`, which pgvector gives
# negated; vectors of length 1 make it cosine. Values are escaped as COPY's text format requires (backslash, tab, line
# feed, carriage return), and characters PostgreSQL refuses (NUL) are left out.

MOST_INDEXED = 2000  # numbers of a vector that pgvector's HNSW takes
ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\0": None})


LOAD = Template("""\\copy $table (id, passage, title, body, doc, metadata, embedding) FROM 'rows.copy'
${approximate}CREATE INDEX ON $table USING gin (to_tsvector('simple', title || ' ' || body));
ANALYZE $table;
-- SELECT passage, title, -(embedding <#> '[...]') AS score FROM $table ORDER BY embedding <#> '[...]' LIMIT 10;
""")


def to_pgvector(target: Target, path: Path, table: str) -> str:
    """Write schema.sql, rows.copy and load.sql."""
    width = target.vectors.width
    (path / "schema.sql").write_text(pgvector_schema(table, width), encoding="utf-8")
    (path / "load.sql").write_text(pgvector_load(table, width), encoding="utf-8")
    count = write_lines(path / "rows.copy", copy_lines(target))
    return f"{counted(count, 'rows')}; psql -f schema.sql && psql -f load.sql"


def pgvector_schema(table: str, width: int) -> str:
    """The table."""
    return f"""CREATE EXTENSION IF NOT EXISTS vector;
CREATE TABLE {table} (
  id text PRIMARY KEY,
  passage text NOT NULL,
  title text NOT NULL,
  body text NOT NULL,
  doc text NOT NULL,
  metadata jsonb NOT NULL,
  embedding vector({width}) NOT NULL
);
"""


def pgvector_load(table: str, width: int) -> str:
    """Reading the rows, the indexes, and how to ask."""
    approximate = (
        f"CREATE INDEX ON {table} USING hnsw (embedding vector_ip_ops);\n" if width <= MOST_INDEXED else ""
    )
    return LOAD.substitute(table=table, approximate=approximate)


def copy_lines(target: Target) -> Iterator[str]:
    """The rows in COPY's text format."""
    return (copy_line(row) for row in track(target.rows(), "export", unit="rows"))


def copy_line(row: ExportRow) -> str:
    """One row."""
    metadata = json.dumps(dict(row.metadata), ensure_ascii=False).replace("\\u0000", "")
    vector = "[" + ",".join(f"{number:.8g}" for number in row.vector.tolist()) + "]"
    values = (row.id, row.passage, row.title, row.text, row.doc, metadata, vector)
    return "\t".join(value.translate(ESCAPES) for value in values)


# OpenSearch: the mapping, and lines for its bulk interface. Lines come in files of at most BULK_BYTES, since a bulk
# request has to fit into memory (and http.max_content_length, 100 MB by default).

BULK_BYTES = 40_000_000


def to_opensearch(target: Target, path: Path, index: str) -> str:
    """Write mapping.json, bulk-00000.ndjson, … and load.sh."""
    text = json.dumps(opensearch_mapping(target.vectors.width), indent=2) + "\n"
    (path / "mapping.json").write_text(text, encoding="utf-8")
    (path / "load.sh").write_text(opensearch_load(index), encoding="utf-8")
    count = _write_bulk(path, index, track(target.rows(), "export", unit="rows"))
    return f"{counted(count, 'rows')}; sh load.sh http://localhost:9200"


def opensearch_mapping(width: int) -> dict[str, Any]:
    """Settings and fields of the index."""
    vector = {"type": "knn_vector", "dimension": width, "method": {
        "name": "hnsw", "engine": "faiss", "space_type": "innerproduct"}}  # fmt: skip
    fields: dict[str, Any] = {
        "passage": {"type": "keyword"},
        "title": {"type": "text"},
        "text": {"type": "text"},
        "doc": {"type": "keyword"},
        "metadata": {"type": "flat_object"},
        "vector": vector,
    }
    return {"settings": {"index": {"knn": True}}, "mappings": {"properties": fields}}


def opensearch_load(index: str) -> str:
    """A script that makes the index and sends the lines."""
    return f"""#!/bin/sh
# Usage: sh load.sh http://localhost:9200
set -e
curl -fsS -X PUT "$1/{index}" -H 'Content-Type: application/json' --data-binary @mapping.json
for part in bulk-*.ndjson; do
  curl -fsS -X POST "$1/_bulk" -H 'Content-Type: application/x-ndjson' --data-binary "@$part" -o "$part.answer"
  if grep -q '"errors":true' "$part.answer"; then echo "$part: see $part.answer"; exit 1; fi
done
"""


def bulk_lines(index: str, row: ExportRow) -> tuple[str, str]:
    """The two lines of a row."""
    fields = {"passage": row.passage, "title": row.title, "text": row.text, "doc": row.doc}
    vector = [float(f"{number:.8g}") for number in row.vector.tolist()]
    action = {"index": {"_index": index, "_id": row.id}}
    return json_line(action), json_line({**fields, "metadata": dict(row.metadata), "vector": vector})


def _write_bulk(path: Path, index: str, rows: Iterable[ExportRow]) -> int:
    count = 0
    for number, lines in enumerate(_bulk_parts(index, rows)):
        (path / f"bulk-{number:05d}.ndjson").write_bytes(b"".join(lines))
        count += len(lines)
    return count


def _bulk_parts(index: str, rows: Iterable[ExportRow]) -> Iterator[list[bytes]]:
    """Rows as bytes, in parts that fit one request."""
    part: list[bytes] = []
    size = 0
    for row in rows:
        lines = "".join(line + "\n" for line in bulk_lines(index, row)).encode()
        if part and size + len(lines) > BULK_BYTES:
            yield part
            part, size = [], 0
        part.append(lines)
        size += len(lines)
    if part:
        yield part


# Milvus: a collection on a server, or embedded in a file by milvus-lite. An embedded one is made beside and moved into
# place without its lock and what Milvus can make again. The primary key is the id; title, text, document and metadata
# lie beside the vector and can be filtered by.

EMBEDDED = "milvus.db"
ROWS_AT_ONCE = 512
MILVUS_BYTES = {"id": 512, "passage": 512, "title": 4096, "doc": 512, "text": 65535}  # bytes of the fields


def to_milvus(target: Target, path: Path, collection: str, uri: str | None) -> str:
    """Fill a collection; one of this name is refused, not replaced."""
    with tempfile.TemporaryDirectory(prefix="liebig-milvus-") as home:
        embedded = Path(home) / EMBEDDED
        with _client(uri or str(embedded)) as client:
            if client.has_collection(collection):
                raise DataError(
                    f"Milvus has a collection {collection!r} already", fix="name another with --name"
                )
            count = _whole(client, collection, target)
        if uri is None:
            shutil.copytree(embedded, path / EMBEDDED, ignore=shutil.ignore_patterns("LOCK", "indexes"))
    where = uri or EMBEDDED
    settings = {"uri": uri or EMBEDDED, "collection": collection, "metric_type": "IP", "rows": count}
    (path / "milvus.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    return f"{counted(count, 'rows')} in the collection {collection!r} of {where}"


@contextmanager
def _client(uri: str) -> Iterator[Any]:
    """A connection; what goes wrong with it is a sentence."""
    client = connect(uri)
    from pymilvus.exceptions import MilvusException

    try:
        yield client
    except MilvusException as error:
        raise LiebigError(f"Milvus at {uri} failed: {error.message}", fix="check the address") from None
    finally:
        disconnect(client, uri)


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
    for field, longest in MILVUS_BYTES.items():
        schema.add_field(field, DataType.VARCHAR, max_length=longest, is_primary=field == "id")
    schema.add_field("metadata", DataType.JSON)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=width)
    indexes = client.prepare_index_params()
    indexes.add_index("vector", index_type="AUTOINDEX", metric_type="IP")
    client.create_collection(name, schema=schema, index_params=indexes)


def _fill(client: Any, name: str, rows: Iterable[ExportRow]) -> int:
    count = 0
    for batch in _batches(rows):
        client.insert(name, [_entity(row) for row in batch])
        count += len(batch)
    return count


def _batches(rows: Iterable[ExportRow]) -> Iterator[list[ExportRow]]:
    rest = iter(rows)
    while batch := list(islice(rest, ROWS_AT_ONCE)):
        yield batch


def _entity(row: ExportRow) -> dict[str, Any]:
    values = {"id": row.id, "passage": row.passage, "title": row.title, "doc": row.doc, "text": row.text}
    for field, value in values.items():
        if len(value.encode()) > MILVUS_BYTES[field]:
            raise DataError(
                f"the {field} of {row.id[:60]!r} is longer than the {MILVUS_BYTES[field]:,} bytes Milvus takes"
            )
    return {**values, "metadata": dict(row.metadata), "vector": row.vector.tolist()}


# Parquet: one file, which pandas, DuckDB, Polars, LanceDB and Spark read as it is. Columns: id, passage, title, text,
# doc, metadata (JSON text) and vector (a list of `width` float32 numbers). How the vectors were made (model, prompts,
# whether they have length 1) is in the file's own metadata under the key `liebig`.

ROW_GROUP = 16_384  # rows of a row group


def to_parquet(target: Target, path: Path, name: str) -> str:
    """Write the file."""
    arrow = arrow_package()
    from pyarrow import parquet

    width = target.vectors.width
    texts = [
        (column, arrow.large_string()) for column in ("id", "passage", "title", "text", "doc", "metadata")
    ]
    about = json.dumps({"width": width, **target.vectors_about}, default=str)
    schema = arrow.schema([*texts, ("vector", arrow.list_(arrow.float32(), width))], {"liebig": about})
    count, file = 0, f"{name}.parquet"
    with parquet.ParquetWriter(path / file, schema, compression="zstd") as writer:
        rest = track(target.rows(), "export", unit="rows")
        while rows := list(islice(rest, ROW_GROUP)):
            writer.write_table(_table(arrow, schema, rows, width))
            count += len(rows)
    return f"{counted(count, 'rows')} in {file}, which pandas, DuckDB, Polars and LanceDB read as it is"


def _table(arrow: Any, schema: Any, rows: Sequence[ExportRow], width: int) -> Any:
    columns = [[getattr(row, name) for row in rows] for name in ("id", "passage", "title", "text", "doc")]
    columns.append([json.dumps(dict(row.metadata), ensure_ascii=False) for row in rows])
    numbers = np.concatenate([row.vector.astype(np.float32, copy=False) for row in rows])
    vectors = arrow.FixedSizeListArray.from_arrays(arrow.array(numbers), width)
    return arrow.Table.from_arrays(
        [*(arrow.array(c, arrow.large_string()) for c in columns), vectors], schema=schema
    )
