"""Passages and vectors for PostgreSQL with pgvector: the tables as SQL, the rows as text for COPY.

Inner product is `<#>`, which pgvector gives negated; vectors of length 1 make it cosine. Values are escaped as COPY's
text format asks (backslash, tab, line feed, carriage return), and characters PostgreSQL refuses (NUL) are left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from liebig.base.progress import track
from liebig.export.exported import Row, Target
from liebig.formats.output import write_lines

MOST_INDEXED = 2000  # numbers of a vector that pgvector's HNSW takes
ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\0": None})


def to_pgvector(target: Target, path: Path, table: str) -> str:
    """Write schema.sql, rows.copy and load.sql."""
    width = target.vectors.width
    (path / "schema.sql").write_text(schema(table, width), encoding="utf-8")
    (path / "load.sql").write_text(load(table, width), encoding="utf-8")
    count = write_lines(path / "rows.copy", copy_lines(target))
    return f"{count:,} rows; psql -f schema.sql && psql -f load.sql"


def schema(table: str, width: int) -> str:
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


def load(table: str, width: int) -> str:
    """Reading the rows, the indexes, and how to ask."""
    approximate = (
        f"CREATE INDEX ON {table} USING hnsw (embedding vector_ip_ops);\n" if width <= MOST_INDEXED else ""
    )
    return f"""\\copy {table} (id, passage, title, body, doc, metadata, embedding) FROM 'rows.copy'
{approximate}CREATE INDEX ON {table} USING gin (to_tsvector('simple', title || ' ' || body));
ANALYZE {table};
-- SELECT passage, title, -(embedding <#> '[...]') AS score FROM {table} ORDER BY embedding <#> '[...]' LIMIT 10;
"""  # nosec B608: the table's name is checked, and nothing is executed here


def copy_lines(target: Target) -> Iterator[str]:
    """The rows in COPY's text format."""
    return (copy_line(row) for row in track(target.rows(), "export", unit="rows"))


def copy_line(row: Row) -> str:
    """One row."""
    metadata = json.dumps(dict(row.metadata), ensure_ascii=False).replace("\\u0000", "")
    vector = "[" + ",".join(f"{number:.8g}" for number in row.vector.tolist()) + "]"
    values = (row.id, row.passage, row.title, row.text, row.doc, metadata, vector)
    return "\t".join(value.translate(ESCAPES) for value in values)
