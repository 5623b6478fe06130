"""Run files as blocks of whole queries, read a piece at a time: 10^6 queries × 1,000 hits in bounded memory.

A compiled kernel splits a piece of the file at white space, remembers where ids and queries stand, and reads ranks and
scores; ids stay bytes. Scores become float32 exactly as C's `(float) atof(text)`: digits are read into an integer and
scaled in float64, and the rare number whose float32 rounding that could change is read again by Python. DPR's results,
which are JSON, are read by `formats/dpr.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

import numba
import numpy as np
from numpy.typing import NDArray

from liebig.base.errors import DataError
from liebig.base.records import Hit
from liebig.formats import Match, detect
from liebig.formats.inputs import DAMAGE, InputSource
from liebig.formats.items import Options
from liebig.formats.on_disk import source_of
from liebig.formats.preview import Preview
from liebig.measures.evaluator import RunBlock, Ungrouped, block_from_mapping, found_twice, regroup
from liebig.measures.ranking import Bytes, Hits, Longs, compare, sort_hits

# A score keeps up to 19 digits, scaled by an exact power of ten, which is within two units in the last place of the
# nearest float64. A line is marked to be parsed again by Python only if that error could change its float32, or if the
# number is unusual (more digits, a large exponent, inf).

READ, AGAIN = 0, 1
FEW_COLUMNS, MANY_COLUMNS, BAD_RANK, BAD_SCORE = 1, 2, 3, 4
POWERS = np.array([10.0**i for i in range(23)])


class HitColumns(NamedTuple):
    """One row per hit; `changes` are the rows where a new query begins, `bad_line` the first wrong line or -1."""

    query_starts: Longs
    query_ends: Longs
    starts: Longs
    ends: Longs
    ranks: NDArray[np.int32]
    scores: NDArray[np.float32]
    score_starts: Longs
    score_ends: Longs
    states: NDArray[np.uint8]
    changes: Longs
    bad_line: int
    reason: int


def parse_lines(data: Bytes, lines: int, columns: int, passage: int, rank: int, score: int) -> HitColumns:
    """The hits in whole lines of text; a column of -1 is absent: ranks are then counted, scores fall with the rank.

    A rank that is not a number is 0: a run with scores may say anything there, as trec_eval does not look at it.
    """
    longs = np.empty((6, lines), dtype=np.int64)
    ranks, scores = np.empty(lines, dtype=np.int32), np.empty(lines, dtype=np.float32)
    states, changes = np.zeros(lines, dtype=np.uint8), np.empty(lines, dtype=np.int64)
    n, queries, bad, reason = _parse(
        data, columns, passage, rank, score, longs, ranks, scores, states, changes
    )
    return HitColumns(
        longs[0, :n], longs[1, :n], longs[2, :n], longs[3, :n], ranks[:n], scores[:n], longs[4, :n], longs[5, :n],
        states[:n], changes[:queries], bad, reason,
    )  # fmt: skip


@numba.njit(cache=True, nogil=True)
def _parse(
    data: Bytes, columns: int, passage: int, rank: int, score: int, longs: NDArray[np.int64],
    ranks: NDArray[np.int32], scores: NDArray[np.float32], states: NDArray[np.uint8], changes: Longs,
) -> tuple[int, int, int, int]:  # fmt: skip
    n, queries, line, place = 0, 0, 0, 0
    starts, ends = np.empty(columns, dtype=np.int64), np.empty(columns, dtype=np.int64)
    i = 0
    while i < data.size:
        count, i = _split(data, i, starts, ends)
        if count == 0:
            line += 1
            continue
        if count != columns:
            return n, queries, line, FEW_COLUMNS if count < columns else MANY_COLUMNS
        longs[0, n], longs[1, n] = starts[0], ends[0]
        longs[2, n], longs[3, n] = starts[passage], ends[passage]
        if n == 0 or compare(data, starts[0], ends[0], data, longs[0, n - 1], longs[1, n - 1]) != 0:
            changes[queries] = n
            queries += 1
            place = 0
        place += 1
        ranks[n] = place if rank < 0 else _whole(data, starts[rank], ends[rank])
        if score < 0:
            scores[n] = -ranks[n]
            if ranks[n] < 1:
                return n, queries, line, BAD_RANK
        else:
            longs[4, n], longs[5, n] = starts[score], ends[score]
            scores[n], states[n] = _decimal(data, starts[score], ends[score])
            if np.isnan(scores[n]):
                return n, queries, line, BAD_SCORE
        n += 1
        line += 1
    return n, queries, -1, 0


@numba.njit(cache=True, nogil=True)
def _split(data: Bytes, i: int, starts: Longs, ends: Longs) -> tuple[int, int]:
    """The columns of the line that begins at i, and where the next line begins."""
    count = 0
    while data[i] != 10:
        if _blank(data[i]):
            i += 1
            continue
        if count < starts.size:
            starts[count] = i
        while not _blank(data[i]):
            i += 1
        if count < starts.size:
            ends[count] = i
        count += 1
    return count, i + 1


@numba.njit(cache=True, nogil=True)
def _blank(byte: np.uint8) -> bool:
    return bool(byte == 32 or (9 <= byte <= 13))


@numba.njit(cache=True, nogil=True)
def _whole(data: Bytes, start: int, end: int) -> int:
    """A number of at least 1 written in digits; 0 for anything else."""
    total = 0
    for i in range(start, end):
        digit = int(data[i]) - 48
        if digit < 0 or digit > 9 or total > 200_000_000:
            return 0
        total = 10 * total + digit
    return total


@numba.njit(cache=True, nogil=True)
def _decimal(data: Bytes, start: int, end: int) -> tuple[np.float32, int]:
    """The float32 of a decimal, and whether it must be read again; NaN for what cannot be a number."""
    i, sign = start, 1.0
    if data[i] == 45 or data[i] == 43:
        sign = -1.0 if data[i] == 45 else 1.0
        i += 1
    if i < end and data[i] > 57:
        return np.float32(0), AGAIN
    mantissa, digits, exponent, dot, any_digit = np.uint64(0), 0, 0, False, False
    while i < end and (data[i] == 46 or 48 <= data[i] <= 57):
        if data[i] == 46:
            if dot:
                return np.float32(np.nan), READ
            dot = True
        else:
            any_digit = True
            if digits < 19:
                mantissa = mantissa * np.uint64(10) + np.uint64(data[i] - 48)
                digits += 1 if mantissa > 0 else 0
                exponent -= dot
            else:
                exponent += not dot
        i += 1
    if not any_digit:
        return np.float32(np.nan), READ
    if i < end:
        if data[i] != 101 and data[i] != 69:
            return np.float32(np.nan), READ
        shift, i = _exponent(data, i + 1, end)
        if i < end:
            return np.float32(0), AGAIN
        exponent += shift
    return _scale(sign, mantissa, exponent)


@numba.njit(cache=True, nogil=True)
def _exponent(data: Bytes, i: int, end: int) -> tuple[int, int]:
    sign = 1
    if i < end and (data[i] == 45 or data[i] == 43):
        sign = -1 if data[i] == 45 else 1
        i += 1
    total, first = 0, i
    while i < end and 48 <= data[i] <= 57 and total < 1000:
        total = 10 * total + int(data[i]) - 48
        i += 1
    return sign * total, (i if i > first else -1)


@numba.njit(cache=True, nogil=True)
def _scale(sign: float, mantissa: np.uint64, exponent: int) -> tuple[np.float32, int]:
    """mantissa × 10^exponent; marked where the error of float64 could change the float32."""
    if mantissa == 0:
        return np.float32(sign * 0.0), READ
    if abs(exponent) > 22:
        return np.float32(0), AGAIN
    number = np.float64(mantissa)
    number = number * POWERS[exponent] if exponent >= 0 else number / POWERS[-exponent]
    if number < 1e-36 or number > 1e38:
        return np.float32(0), AGAIN
    single = np.float64(np.float32(number))
    slack = number * 2e-15
    if np.float64(np.float32(number - slack)) != single or np.float64(np.float32(number + slack)) != single:
        return np.float32(0), AGAIN
    return np.float32(sign * number), READ


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
    files = sorted(path.glob("*.trec")) or sorted(path.glob("runs/*.trec"))
    named = [file for file in files if file.name == "run.trec"] or files
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


def open_run(path: Path) -> Iterator[RunBlock]:
    """The blocks of a run in any format that is known; an empty file is a run without hits."""
    source = source_of(path)
    if not source.head(1 << 12).strip():
        return iter(())
    detected = _detected(path)
    if detected.format.name in DETECTED:
        return read_blocks(path, DETECTED[detected.format.name])
    if detected.format.name in ("beir-qrels", "msmarco-id-triples") and _has_ranks(source):
        return read_blocks(path, "marco")
    if detected.format.name == "dpr-results":
        return _from_hits(item.record for item in detected.items(Options()))
    raise DataError(
        f"this looks like {detected.format.about}, not like a run",
        file=path,
        fix="name a TREC, MS MARCO or DPR run",
    )


def _has_ranks(source: InputSource) -> bool:
    """Whether the last of three columns can be ranks, in any order: none twice for a query, several for some."""
    table = Preview(source).tabs
    ranks = {(row[0], row[2]) for row in table if row[2].isdecimal() and int(row[2])}
    return len(ranks) == len(table) > len({row[0] for row in table})


def _detected(path: Path) -> Match:
    try:
        return detect(path)[0]
    except DataError as error:
        raise DataError(
            error.what, file=error.file, line=error.line, fix="name a TREC, MS MARCO or DPR run"
        ) from None


def of_run(
    run: Path, use: Callable[[Iterable[RunBlock]], T], blocks: Sequence[RunBlock] | None = None
) -> tuple[T, bool]:
    """What `use` makes of a run, and whether the lines of a query lay apart and had to be brought together first.

    What is refused is said with the run's file, since several runs may be compared; it is not read where its `blocks`
    are given.
    """
    try:
        try:
            return use(open_run(run) if blocks is None else blocks), False
        except Ungrouped:
            return use([regroup(list(open_run(run)))]), True
    except DataError as error:
        if error.file is not None:
            raise
        raise DataError(error.what, file=run, fix=error.fix) from None


def read_blocks(path: Path, form: RunFormat = "trec", piece: int = PIECE) -> Iterator[RunBlock]:
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


def _pieces(source: InputSource, size: int) -> Iterator[bytes]:
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


def _block(label: str, data: Bytes, lines: int, form: RunFormat, first_line: int) -> RunBlock:
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
    return RunBlock(queries, Hits(segments, data, parsed.starts, parsed.ends, parsed.scores, parsed.ranks))


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


def _from_hits(records: Iterator[object]) -> Iterator[RunBlock]:
    hits = (record for record in records if isinstance(record, Hit))
    for query, group in groupby(hits, key=lambda hit: hit.query):
        yield block_from_mapping({query: {hit.passage: hit.score for hit in group}})


@dataclass(frozen=True, slots=True)
class FirstHits:
    """The first hits of a query, best first, and the ranks after which a hit of the same score follows."""

    ids: list[str]
    tied: frozenset[int]


def found_in(
    run: Path, depth: int, queries: Iterable[str] | None = None, blocks: Sequence[RunBlock] | None = None
) -> dict[str, FirstHits]:
    """The first hits of each query of a run file, or of each wanted one; its lines may lie apart."""
    return of_run(run, lambda hits: _found(hits, depth, queries), blocks)[0]


def ranked_in(run: Path, depth: int, queries: Iterable[str] | None = None) -> dict[str, list[str]]:
    """Their ids alone."""
    return {query: hits.ids for query, hits in found_in(run, depth, queries).items()}


def _found(blocks: Iterable[RunBlock], depth: int, queries: Iterable[str] | None) -> dict[str, FirstHits]:
    chosen, result = None if queries is None else set(queries), dict[str, FirstHits]()
    for block in blocks:
        for i, raw in enumerate(block.queries):
            query = _text(raw)
            if query in result:
                raise Ungrouped()
            if chosen is None or query in chosen:
                result[query] = _of_query(block, i, query, depth)
    return result


def _of_query(block: RunBlock, i: int, query: str, depth: int) -> FirstHits:
    hits = block.hits
    rows = sort_hits(hits, np.arange(hits.segments[i], hits.segments[i + 1]))[: depth + 1]
    ids = [_text(hits.data[hits.starts[row] : hits.ends[row]].tobytes()) for row in rows[:depth]]
    if len(set(ids)) < len(ids):
        raise found_twice(next(name for name in ids if ids.count(name) > 1), query)
    scores = hits.scores[rows]
    return FirstHits(ids, frozenset((np.flatnonzero(scores[:-1] == scores[1:]) + 1).tolist()))


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise DataError(
            f"the id {raw.decode(errors='backslashreplace')!r} is not UTF-8 text",
            fix="convert the file, e.g. with iconv -f latin1 -t utf-8",
        ) from None
