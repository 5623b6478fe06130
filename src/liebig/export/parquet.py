"""A retriever's passages with their vectors as one Parquet file, which pandas, DuckDB, Polars, LanceDB and Spark read.

Columns: id, passage, title, text, doc, metadata (JSON text) and vector (a list of `width` float32 numbers). How the
vectors were made (model, prompts, whether they have length 1) is in the file's own metadata under the key `liebig`.
Vectors are compared by inner product. Memory: one row group.
"""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from liebig.base.progress import counted, track
from liebig.export import Target
from liebig.formats.rows import arrow_package

ROW_GROUP = 16_384  # rows of a row group
COLUMNS = {"passage": "id", "title": "title", "text": "text", "doc": "doc"}  # of a passage, and its fields


def to_parquet(target: Target, path: Path, name: str) -> str:
    arrow = arrow_package()
    from pyarrow import parquet

    width = target.vectors.width
    texts = [(column, arrow.large_string()) for column in ("id", *COLUMNS, "metadata")]
    about = json.dumps({"width": width, **target.vectors_about}, default=str)
    schema = arrow.schema([*texts, ("vector", arrow.list_(arrow.float32(), width))], {"liebig": about})
    count, file = 0, f"{name}.parquet"
    with parquet.ParquetWriter(path / file, schema, compression="zstd") as writer:
        rest = track(target.rows(), "export", unit="rows")
        while rows := list(islice(rest, ROW_GROUP)):
            writer.write_table(_table(arrow, schema, rows, width))
            count += len(rows)
    return f"{counted(count, 'rows')} in {file}, which pandas, DuckDB, Polars and LanceDB read as it is"


def _table(arrow: Any, schema: Any, rows: Any, width: int) -> Any:
    ids, passages, vectors_of = zip(*rows)
    texts = [ids, *([getattr(passage, name) for passage in passages] for name in COLUMNS.values())]
    texts.append([json.dumps(dict(passage.metadata), ensure_ascii=False) for passage in passages])
    numbers = np.concatenate(vectors_of).astype(np.float32, copy=False)
    vectors = arrow.FixedSizeListArray.from_arrays(arrow.array(numbers), width)
    columns = [*(arrow.array(text, arrow.large_string()) for text in texts), vectors]
    return arrow.Table.from_arrays(columns, schema=schema)
