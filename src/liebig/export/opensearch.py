"""Passages and vectors for OpenSearch: the mapping, and lines for its bulk interface.

Lines come in files of at most PART bytes, since a bulk request has to fit into memory (and http.max_content_length,
100 MB by default). Vectors are compared by inner product.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from liebig.base.progress import track
from liebig.export.exported import Row, Target
from liebig.formats.output import json_line

PART = 40_000_000
NAME = "passages"


def to_opensearch(target: Target, path: Path, index: str) -> str:
    """Write mapping.json, bulk-00000.ndjson, … and load.sh."""
    text = json.dumps(mapping(target.vectors.width), indent=2) + "\n"
    (path / "mapping.json").write_text(text, encoding="utf-8")
    (path / "load.sh").write_text(load(index), encoding="utf-8")
    count = _write(path, index, track(target.rows(), "export", unit="rows"))
    return f"{count:,} rows; sh load.sh http://localhost:9200"


def mapping(width: int) -> dict[str, Any]:
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


def load(index: str) -> str:
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


def bulk_lines(index: str, row: Row) -> tuple[str, str]:
    """The two lines of a row."""
    fields = {"passage": row.passage, "title": row.title, "text": row.text, "doc": row.doc}
    vector = [float(f"{number:.8g}") for number in row.vector.tolist()]
    action = {"index": {"_index": index, "_id": row.id}}
    return json_line(action), json_line({**fields, "metadata": dict(row.metadata), "vector": vector})


def _write(path: Path, index: str, rows: Iterable[Row]) -> int:
    count = 0
    for number, lines in enumerate(_parts(index, rows)):
        (path / f"bulk-{number:05d}.ndjson").write_bytes(b"".join(lines))
        count += len(lines)
    return count


def _parts(index: str, rows: Iterable[Row]) -> Iterator[list[bytes]]:
    """Rows as bytes, in parts that fit one request."""
    part: list[bytes] = []
    size = 0
    for row in rows:
        lines = "".join(line + "\n" for line in bulk_lines(index, row)).encode()
        if part and size + len(lines) > PART:
            yield part
            part, size = [], 0
        part.append(lines)
        size += len(lines)
    if part:
        yield part
