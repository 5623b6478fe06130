"""What rows come in: JSON lines, one JSON array or object, CSV with a header, Parquet, Arrow.

The container is told by the suffix for tables and by the first value for JSON; its rows are mappings from names
to values whatever it is, so a format is written once for all of them. Cost: one row, or one batch of a table.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from typing import Any, Literal

from liebig.data import json_input
from liebig.data.fields import Row, as_row
from liebig.data.items import Where
from liebig.data.lines import BOM, csv_rows
from liebig.data.sources import DAMAGE, Source
from liebig.errors import DataError

Container = Literal["parquet", "arrow", "csv", "json lines", "json array", "json object"]
TABLES: dict[str, Container] = {".parquet": "parquet", ".arrow": "arrow", ".feather": "arrow", ".csv": "csv"}
PROSE = frozenset((".txt", ".text"))
ROWS = re.compile(rb'(\[\s*)?\{\s*"')
HEAD = 1 << 20
BATCH = 1024


def container_of(source: Source) -> Container | None:
    """How the rows of a file are kept; None where it is none of these."""
    if source.suffix in TABLES:
        return TABLES[source.suffix]
    head = source.head(HEAD)
    start = head.removeprefix(BOM).lstrip()
    if head.startswith(b"PAR1"):
        return "parquet"
    if start[:1] not in (b"{", b"["):
        return None
    line = _complete(start.split(b"\n", 1)[0])
    if source.suffix in PROSE and line is None and not ROWS.match(start):
        return None  # a text, too, may begin with a bracket
    if start.startswith(b"["):
        is_row = isinstance(line, list) and bool(line) and all(isinstance(x, str | int) for x in line)
        return "json lines" if is_row else "json array"
    if isinstance(line, dict):
        return "json object" if _is_results(line) else "json lines"
    return "json object" if _spreads(start) else "json lines"


def _complete(line: bytes) -> Any:
    """The value of a whole line, or None."""
    with contextlib.suppress(ValueError, RecursionError):
        return json.loads(line)
    return None


def _is_results(value: dict[str, Any]) -> bool:
    """Whether it is one object of many results, as Pyserini writes them, and not one row of many."""
    inner = next(iter(value.values()), None)
    return isinstance(inner, dict) and bool({"contexts", "ctxs"} & set(inner))


def _spreads(start: bytes) -> bool:
    """Whether a first line that is no whole value begins a large object: it ends early, or its value is a result."""
    first, found, _ = start.partition(b"\n")
    if found and len(first.strip()) < 2:
        return True
    return b'"contexts"' in start[:HEAD] or b'"ctxs"' in start[:HEAD]


def values(source: Source) -> Iterator[tuple[Where, Any]]:
    """The JSON values of a file, from lines or from one large array."""
    if container_of(source) == "json array":
        return ((where, value) for where, _, value in json_input.elements(source))
    return json_input.json_lines(source)


def rows(source: Source) -> Iterator[tuple[Where, Row]]:
    """The rows of a file in any container."""
    kind = container_of(source)
    if kind == "parquet":
        return _parquet(source)
    if kind == "arrow":
        return _arrow(source)
    if kind == "csv":
        return _csv(source)
    return ((where, as_row(value, where)) for where, value in values(source))


def _csv(source: Source) -> Iterator[tuple[Where, Row]]:
    """Rows under a header."""
    names: list[str] = []
    for where, row in csv_rows(source):
        if not names:
            names = row
            if len(set(names)) != len(names):
                where.refuse("two columns of the header have the same name")
            continue
        if len(row) != len(names):
            where.refuse(f"the row has {len(row)} columns, the header {len(names)}")
        yield where, dict(zip(names, row))


def _parquet(source: Source) -> Iterator[tuple[Where, Row]]:
    from pyarrow import parquet

    with _as_sentences(source), source.seekable() as file:
        table = parquet.ParquetFile(file)
        yield from _batches(source, table.iter_batches(batch_size=BATCH))


def _arrow(source: Source) -> Iterator[tuple[Where, Row]]:
    """Both forms of Arrow files: the stream, which `datasets` writes, and the file with a table at its end."""
    from pyarrow import ipc

    with _as_sentences(source), source.seekable() as file:
        is_file = file.read(6) == b"ARROW1"
        file.seek(0)
        if is_file:
            table = ipc.open_file(file)
            yield from _batches(source, (table.get_batch(i) for i in range(table.num_record_batches)))
        else:
            yield from _batches(source, ipc.open_stream(file))


def _batches(source: Source, batches: Any) -> Iterator[tuple[Where, Row]]:
    """Rows of record batches, a thousand at a time; a row's number stands for its line.

    Every batch is checked whole before a value is looked at: offsets out of a damaged file would end the process.
    """
    number = 0
    for batch in batches:
        batch.validate(full=True)
        for start in range(0, batch.num_rows, BATCH):
            for row in batch.slice(start, BATCH).to_pylist():
                number += 1
                yield Where(source.label, number), row


@contextlib.contextmanager
def _as_sentences(source: Source) -> Iterator[None]:
    import pyarrow

    try:
        yield
    except DataError:
        raise
    except (pyarrow.ArrowException, KeyError, TypeError, OverflowError, MemoryError, *DAMAGE) as error:
        raise source.damaged(error) from None
