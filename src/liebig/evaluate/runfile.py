"""Run files as blocks of whole queries, read a piece at a time: 10^6 queries × 1,000 hits in bounded memory.

A compiled kernel splits a piece of the file at white space, remembers where ids and queries stand, and reads ranks and
scores; ids stay bytes. Scores become float32 exactly as C's `(float) atof(text)`: digits are read into an integer and
scaled in float64, and the rare number whose float32 rounding that could change is read again by Python. DPR's results,
which are JSON, come through `liebig.data`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np

from liebig.data import formats
from liebig.data.items import Options
from liebig.data.sniff import Sample
from liebig.data.sources import DAMAGE, Source, source_of
from liebig.errors import DataError
from liebig.evaluate.parse import AGAIN, BAD_RANK, BAD_SCORE, FEW_COLUMNS, MANY_COLUMNS, parse_lines
from liebig.measures.arrays import Bytes, Hits, Longs
from liebig.measures.blocks import Block, from_mapping, regroup
from liebig.measures.engine import Ungrouped
from liebig.records import Hit

T = TypeVar("T")
RunFormat = Literal["trec", "marco", "scores"]
PIECE = 4 << 20


@dataclass(frozen=True, slots=True)
class Columns:
    """Where a format keeps what, counted from 0; -1 for what it does not have."""

    count: int
    passage: int
    rank: int
    score: int
    example: str


FORMATS: dict[RunFormat, Columns] = {
    "trec": Columns(6, 2, 3, 4, "query Q0 passage rank score tag"),
    "marco": Columns(3, 1, 2, -1, "query passage rank"),
    "scores": Columns(3, 1, -1, 2, "query passage score"),
}
DETECTED: dict[str, RunFormat] = {"trec-run": "trec", "msmarco-run": "marco", "tevatron-run": "scores"}


def run_file(path: Path) -> Path | None:
    """The run a path stands for: a file itself, or the only .trec of a folder or of its runs/; none if it has none."""
    if not path.is_dir():
        return path
    found = sorted(path.glob("*.trec")) or sorted(path.glob("runs/*.trec"))
    named = [file for file in found if file.name == "run.trec"] or found
    if len(named) > 1:
        raise DataError(
            f"the folder has several runs: {', '.join(file.name for file in named)}",
            file=path,
            fix=f"name one, such as {named[0]}",
        )
    return named[0] if named else None


def needed_run(path: Path) -> Path:
    """The same where only a run will do."""
    file = run_file(path)
    if file is None:
        raise DataError("the folder has no run in it", file=path, fix="name a run file (.trec)")
    return file


def open_run(path: Path) -> Iterator[Block]:
    """The blocks of a run in any format that is known; an empty file is a run without hits."""
    source = source_of(path)
    if not source.head(1 << 12).strip():
        return iter(())
    found = _detected(path)
    if found.format.name in DETECTED:
        return read_blocks(path, DETECTED[found.format.name])
    if found.format.name in ("beir-qrels", "msmarco-id-triples") and _has_ranks(source):
        return read_blocks(path, "marco")
    if found.format.name == "dpr-results":
        return _from_hits(item.record for item in found.items(Options()))
    raise DataError(
        f"this looks like {found.format.about}, not like a run",
        file=path,
        fix="name a TREC, MS MARCO or DPR run",
    )


def _has_ranks(source: Source) -> bool:
    """Whether the last of three columns can be ranks, in any order: none twice for a query, several for some."""
    table = Sample(source).tabs
    ranks = {(row[0], row[2]) for row in table if row[2].isdecimal() and int(row[2])}
    return len(ranks) == len(table) > len({row[0] for row in table})


def _detected(path: Path) -> formats.Found:
    try:
        return formats.find(path)[0]
    except DataError as error:
        raise DataError(
            error.what, file=error.file, line=error.line, fix="name a TREC, MS MARCO or DPR run"
        ) from None


def of_run(run: Path, use: Callable[[Iterable[Block]], T]) -> tuple[T, bool]:
    """What `use` makes of a run, and whether the lines of a query lay apart and had to be brought together first.

    What is refused is said with the run's file, since several runs may be compared.
    """
    try:
        try:
            return use(open_run(run)), False
        except Ungrouped:
            return use([regroup(list(open_run(run)))]), True
    except DataError as error:
        if error.file is not None:
            raise
        raise DataError(error.what, file=run, fix=error.fix) from None


def read_blocks(path: Path, form: RunFormat = "trec", piece: int = PIECE) -> Iterator[Block]:
    """The queries of a run file, block after block; the hits of a query must lie together."""
    source = source_of(path)
    line, rest = 1, b""
    for text in _pieces(source, piece):
        chunk = rest + text
        cut = _last_whole_query(chunk)
        lines = chunk.count(b"\n", 0, cut)
        if lines:
            yield _block(source.label, np.frombuffer(chunk, dtype=np.uint8)[:cut], lines, form, line)
        line += lines
        rest = chunk[cut:]
    if rest.strip():
        rest = rest if rest.endswith(b"\n") else rest + b"\n"
        yield _block(source.label, np.frombuffer(rest, dtype=np.uint8), rest.count(b"\n"), form, line)


def _pieces(source: Source, size: int) -> Iterator[bytes]:
    try:
        with source.open() as stream:
            while text := stream.read(size):
                yield text
    except DAMAGE as error:
        raise source.damaged(error) from None


def _last_whole_query(chunk: bytes) -> int:
    """Where the last query of the chunk begins; 0 if there is one query only. Its hits may go on after the chunk."""
    end = chunk.rfind(b"\n") + 1
    start = end
    query = None
    while start > 0:
        begin = chunk.rfind(b"\n", 0, start - 1) + 1
        fields = chunk[begin:start].split(None, 1)
        if fields and query is not None and fields[0] != query:
            return start
        query = fields[0] if fields else query
        start = begin
    return 0


def _block(label: str, data: Bytes, lines: int, form: RunFormat, first_line: int) -> Block:
    columns = FORMATS[form]
    parsed = parse_lines(data, lines, columns.count, columns.passage, columns.rank, columns.score)
    if parsed.bad_line >= 0:
        raise _malformed(label, first_line + parsed.bad_line, parsed.reason, columns)
    for i in np.flatnonzero(parsed.states == AGAIN):
        parsed.scores[i] = _read_again(data, parsed.score_starts[i], parsed.score_ends[i])
        if np.isnan(parsed.scores[i]):
            line = first_line + int(np.count_nonzero(data[: parsed.score_starts[i]] == 10))
            raise _malformed(label, line, BAD_SCORE, columns)
    queries, segments = _segments(data, parsed.query_starts, parsed.query_ends, parsed.changes)
    return Block(queries, Hits(segments, data, parsed.starts, parsed.ends, parsed.scores, parsed.ranks))


def _segments(data: Bytes, starts: Longs, ends: Longs, changes: Longs) -> tuple[tuple[bytes, ...], Longs]:
    queries = tuple(data[starts[i] : ends[i]].tobytes() for i in changes)
    return queries, np.append(changes, starts.size)


def _read_again(data: Bytes, start: int, end: int) -> np.float32:
    try:
        number = float(data[start:end].tobytes())
    except ValueError:
        return np.float32(np.nan)
    with np.errstate(over="ignore"):
        return np.float32(number)


def _malformed(label: str, line: int, reason: int, columns: Columns) -> DataError:
    what = {
        FEW_COLUMNS: f"the line has fewer than {columns.count} columns",
        MANY_COLUMNS: f"the line has more than {columns.count} columns",
        BAD_RANK: "the rank is not a whole number of at least 1",
        BAD_SCORE: "the score is not a number",
    }[reason]
    return DataError(what, file=label, line=line, fix=f"each line should read: {columns.example}")


def _from_hits(records: Iterator[object]) -> Iterator[Block]:
    hits = (record for record in records if isinstance(record, Hit))
    for query, group in groupby(hits, key=lambda hit: hit.query):
        yield from_mapping({query: {hit.passage: hit.score for hit in group}})
