"""A retriever's passages with their vectors for databases: PostgreSQL (pgvector) and Parquet files.

Each `to_*` writes what its database loads: SQL with rows for COPY, or a table. Vectors are compared by inner product.
Memory: one row group.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from liebig.base.progress import counted, track
from liebig.export import ExportRow, Target
from liebig.formats.output import write_lines
from liebig.formats.rows import arrow_package

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
