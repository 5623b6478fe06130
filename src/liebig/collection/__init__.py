"""A collection folder, read: documents, passages, queries, judgements, groups, pairs, tuples and their splits.

    documents.jsonl  passages.jsonl  queries.jsonl  judgements/SPLIT.tsv  groups/SPLIT.jsonl
    pairs/SPLIT.jsonl  tuples/SPLIT.jsonl  splits/SPLIT.txt (ids of queries)  index/*.npy  summary.json

Files that do not apply are absent. Everything is streamed; a record is found by its id through the index, with one
read, whatever the size.
"""

from __future__ import annotations

import mmap
from array import array
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import compress
from pathlib import Path
from typing import Any, Literal, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from liebig.base.errors import CorruptError, DataError
from liebig.base.json_file import FileModel, read_json
from liebig.base.records import Document, Group, Judgement, Passage, Query, ScoredPair, Tuple
from liebig.collection.lookup import Hashes, hash64, hash_line
from liebig.collection.offset_index import OffsetIndex
from liebig.formats import beir, documents, rows as json_input
from liebig.formats.items import (
    Row,
    Where,
    as_grade,
    as_id,
    as_list,
    as_row,
    as_score,
    as_text,
    as_texts,
    field,
)
from liebig.formats.on_disk import DiskSource
from liebig.formats.rows import tab_fields, text_lines

T = TypeVar("T")
KINDS = ("documents", "passages", "queries")
SPLIT_KINDS = {
    "judgements": ".tsv",
    "groups": ".jsonl",
    "pairs": ".jsonl",
    "tuples": ".jsonl",
    "splits": ".txt",
}
GENERATED = "generated"  # the split of queries that were made from passages


class SummaryFile(FileModel):
    """What is read of `summary.json`."""

    languages: dict[str, int] = {}


class Collection:
    """A collection on disk. Iterators read it once, in order; `passage`, `query` and `document` find one by its id."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._lookups: dict[str, Lookup] = {}
        if not is_collection(self.path):
            raise DataError("this is not a collection", file=self.path, fix="make one with liebig init")

    def __repr__(self) -> str:
        return f"Collection({str(self.path)!r})"

    @cached_property
    def splits(self) -> tuple[str, ...]:
        return tuple(sorted({split for kind in SPLIT_KINDS for split in self.splits_of(kind)}))

    @property
    def languages(self) -> dict[str, int]:
        """How many documents (or passages) `liebig init` counted in each language, by code; the most frequent first."""
        path = self.path / "summary.json"
        counts = read_json(path, SummaryFile).languages if path.is_file() else {}
        return dict(sorted(counts.items(), key=lambda item: (not item[0], -item[1])))

    def splits_of(self, kind: str) -> tuple[str, ...]:
        """The splits that have `judgements`, `groups`, `pairs` or `tuples`."""
        suffix = SPLIT_KINDS[kind]
        return tuple(sorted(p.name.removesuffix(suffix) for p in (self.path / kind).glob(f"*{suffix}")))

    def has(self, kind: str) -> bool:
        """Whether the collection has any documents, passages, queries, judgements, …; what is open stays there."""
        if kind in SPLIT_KINDS:
            return bool(self.splits_of(kind))
        return kind in self._lookups or self._file(kind).is_file()

    def open(self) -> None:
        """Open what records are found by, which is otherwise done with the first: they are found in it from now on,
        even if the folder is removed."""
        for kind in KINDS:
            if self.has(kind):
                self._lookup(kind).open()

    def documents(self) -> Iterator[Document]:
        return self._all("documents", documents.document)

    def passages(self) -> Iterator[Passage]:
        return self._all("passages", beir.passage)

    def line_hashes(self, kind: Literal["documents", "passages"]) -> Hashes:
        """A hash of every line of a kind of record, in order: equal lines are equal records."""
        return np.fromiter(map(hash_line, self.lines(kind)), np.uint64)

    def lines(self, kind: Literal["documents", "passages"]) -> Iterator[bytes]:
        """The lines of a kind of record, as they are stored."""
        if self._file(kind).is_file():
            with self._file(kind).open("rb") as file:
                yield from file

    def document_of(self, line: bytes) -> Document:
        where = Where(str(self._file("documents")))
        return documents.document(
            as_row(json_input.parse(line.decode("utf-8", "replace"), where), where), where
        )

    def id_hashes(self, kind: Literal["documents", "passages"]) -> tuple[Hashes, NDArray[np.uint64]]:
        """The hashes of the ids of a kind of record and where each begins, in the order of the file."""
        return self._lookup(kind).in_order()

    @overload
    def some(self, kind: Literal["documents"], lines: NDArray[np.bool_]) -> Iterator[Document]: ...
    @overload
    def some(self, kind: Literal["passages"], lines: NDArray[np.bool_]) -> Iterator[Passage]: ...
    def some(
        self, kind: Literal["documents", "passages"], lines: NDArray[np.bool_]
    ) -> Iterator[Document | Passage]:
        """The records of some lines, in order."""
        parse = documents.document if kind == "documents" else beir.passage
        where = Where(str(self._file(kind)))
        for line in compress(self.lines(kind), lines.tolist()):
            yield parse(as_row(json_input.parse(line.decode("utf-8", "replace"), where), where), where)

    def own(
        self, kind: Literal["documents", "passages"], takes: Callable[[int], bool]
    ) -> Iterator[Document | Passage | None]:
        """A kind of record in order, by number; those not taken are not parsed, and None."""
        parse = documents.document if kind == "documents" else beir.passage
        source = DiskSource(self._file(kind))
        for place, (number, line) in enumerate(text_lines(source)):
            if takes(place):
                where = Where(source.label, number)
                yield parse(as_row(json_input.parse(line, where), where), where)
            else:
                yield None

    def queries(self, split: str | None = None) -> Iterator[Query]:
        queries = self._all("queries", beir.question)
        if split is None:
            return queries
        ids = set(self.query_ids(split))
        return (query for query in queries if query.id in ids)

    def query_ids(self, split: str) -> list[str]:
        """The ids of a split's queries: those its list names, else those judged or grouped in it."""
        path = self.path / "splits" / f"{split}.txt"
        if path.is_file():
            return [line for _, line in text_lines(DiskSource(path))]
        self._require(split)
        judged = dict.fromkeys(judgement.query for judgement in self.judgements(split))
        return list(judged | dict.fromkeys(group.query for group in self.groups(split)))

    def judgements(self, split: str) -> Iterator[Judgement]:
        """The judgements of a split; none where it has none."""
        return (judgement for _, judgement in self.placed_judgements(split))

    def placed_judgements(self, split: str) -> Iterator[tuple[Where, Judgement]]:
        path = self._split_file("judgements", split)
        for where, (query, passage, grade) in (
            tab_fields(DiskSource(path), 3, "query, passage, grade") if path else ()
        ):
            yield where, Judgement(query, passage, as_grade(grade, where))

    def groups(self, split: str) -> Iterator[Group]:
        """The training groups of a split; none where it has none."""
        return self._split("groups", split, _group)

    def placed_groups(self, split: str) -> Iterator[tuple[Where, Group]]:
        return self._split("groups", split, lambda row, where: (where, _group(row, where)))

    def pairs(self, split: str) -> Iterator[ScoredPair]:
        """The scored pairs of a split; none where it has none."""
        return self._split("pairs", split, _pair)

    def tuples(self, split: str) -> Iterator[Tuple]:
        """The tuples of texts of a split; none where it has none."""
        return self._split("tuples", split, _tuple)

    def document(self, name: str) -> Document:
        return self._one("documents", name, documents.document)

    def passage(self, name: str) -> Passage:
        return self._one("passages", name, beir.passage)

    def passage_at(self, place: int) -> Passage:
        """A passage by its place in the index, 0 … count - 1: for drawing at random, the order means nothing."""
        lookup = self._lookup("passages")
        return beir.passage(lookup.at(place), lookup.where)

    def query(self, name: str) -> Query:
        return self._one("queries", name, beir.question)

    def some_passages(self, names: Iterable[str]) -> Iterator[Passage]:
        """Those of the passages with these ids that are there, each once, in the order of the file."""
        lookup = self._lookup("passages")
        return (beir.passage(row, lookup.where) for row in lookup.find_all(names))

    def count(self, kind: str) -> int:
        """How many documents, passages or queries there are."""
        return len(self._lookup(kind)) if self.has(kind) else 0

    def _file(self, kind: str) -> Path:
        return self.path / f"{kind}.jsonl"

    def _all(self, kind: str, parse: Callable[[Row, Where], T]) -> Iterator[T]:
        path = self._file(kind)
        return _rows(path, parse) if path.is_file() else iter(())

    def _split(self, kind: str, split: str, parse: Callable[[Row, Where], T]) -> Iterator[T]:
        path = self._split_file(kind, split)
        return _rows(path, parse) if path else iter(())

    def _split_file(self, kind: str, split: str) -> Path | None:
        self._require(split)
        path = self.path / kind / f"{split}{SPLIT_KINDS[kind]}"
        return path if path.is_file() else None

    def _require(self, split: str) -> None:
        if split not in self.splits:
            has = f"it has {', '.join(self.splits)}" if self.splits else "it has none"
            raise DataError(f"the collection has no split {split!r}; {has}", file=self.path)

    def _one(self, kind: str, name: str, parse: Callable[[Row, Where], T]) -> T:
        lookup = self._lookup(kind)
        row = lookup.find(name)
        if row is None:
            what = {"queries": "query"}.get(kind, kind.removesuffix("s"))
            raise DataError(f"there is no {what} with the id {name!r}", file=self.path)
        return parse(row, lookup.where)

    def _lookup(self, kind: str) -> Lookup:
        if kind not in self._lookups:
            self._lookups[kind] = Lookup(self._file(kind), self.path / "index" / kind)
        return self._lookups[kind]


class Lookup:
    """Rows of a JSON lines file by id; the index is made in memory where the folder has none."""

    def __init__(self, path: Path, stem: Path) -> None:
        self._path, self.where = path, Where(str(path))
        if not path.is_file():
            raise DataError("the collection has no such file", file=path)
        is_saved = stem.with_name(f"{stem.name}.hashes.npy").is_file()
        self._index = OffsetIndex.load(stem) if is_saved else _scan(path)

    def __len__(self) -> int:
        return len(self._index)

    def open(self) -> None:
        _ = self._bytes

    @cached_property
    def _bytes(self) -> mmap.mmap | bytes:
        if not self._path.stat().st_size:
            return b""
        with self._path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def find(self, name: str) -> Row | None:
        rows = map(self._row, self._index.candidates(name))
        return next((row for row in rows if row.get("id") == name), None)

    def in_order(self) -> tuple[Hashes, NDArray[np.uint64]]:
        """The hashes of the ids and the offsets of the rows, in the order of the file."""
        order = np.argsort(self._index.offsets)
        return self._index.hashes[order], self._index.offsets[order]

    def at(self, place: int) -> Row:
        """The row at a place of the index, which is sorted by the hashes of ids."""
        return self._row(int(self._index.offsets[place]))

    def find_all(self, names: Iterable[str]) -> Iterator[Row]:
        """Those of the rows with these ids that are there, in the order of the file: one search in the index."""
        ids = set(names)
        rows = map(self._row, self._index.all_candidates(ids))
        return (row for row in rows if row.get("id") in ids)

    def _row(self, offset: int) -> Row:
        offset = min(offset, len(self._bytes))  # an index may have been crafted
        end = self._bytes.find(b"\n", offset)
        text = self._bytes[offset : end if end >= 0 else len(self._bytes)].decode("utf-8", "replace")
        try:
            return as_row(json_input.parse(text, self.where), self.where)
        except DataError as error:
            raise CorruptError(
                f"the index points to a missing record ({error.what})", file=self._path
            ) from None


def is_collection(path: Path) -> bool:
    """Whether a folder has any file of a collection."""
    kinds = any((path / f"{kind}.jsonl").is_file() for kind in KINDS)
    return path.is_dir() and (kinds or any(any((path / k).glob(f"*{s}")) for k, s in SPLIT_KINDS.items()))


def _scan(path: Path) -> OffsetIndex:
    """The index of a file that came without one: one pass over it."""
    hashes, offsets, at = array("Q"), array("Q"), 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            where = Where(str(path), number)
            row = as_row(json_input.parse(line.decode("utf-8", "replace"), where), where)
            hashes.append(hash64(as_id(field(row, ("id",), where), where)))
            offsets.append(at)
            at += len(line)
    return OffsetIndex.build(np.asarray(hashes), np.asarray(offsets))


def _rows(path: Path, parse: Callable[[Row, Where], T]) -> Iterator[T]:
    for where, value in json_input.json_lines(DiskSource(path)):
        yield parse(as_row(value, where), where)


def _group(row: Row, where: Where) -> Group:
    ids = [
        tuple(as_id(name, where) for name in as_list(row.get(key), where, key))
        for key in ("positives", "negatives")
    ]
    scores = [
        tuple(as_score(score, where) for score in as_list(row.get(key), where, key))
        for key in ("positive_scores", "negative_scores")
    ]
    return Group(as_id(field(row, ("query",), where), where), ids[0], ids[1], scores[0], scores[1])


def _pair(row: Row, where: Where) -> ScoredPair:
    texts = [as_text(field(row, (name,), where), where, name) for name in ("a", "b")]
    return ScoredPair(texts[0], texts[1], as_score(field(row, ("score",), where), where))


def _tuple(row: Row, where: Where) -> Tuple:
    texts = [as_text(field(row, (name,), where), where, name) for name in ("anchor", "positive")]
    return Tuple(texts[0], texts[1], as_texts(row.get("negatives"), where, "negatives"))


def group_row(record: Group) -> dict[str, Any]:
    row: dict[str, Any] = {
        "query": record.query,
        "positives": record.positives,
        "negatives": record.negatives,
    }
    return row | {"positive_scores": record.positive_scores, "negative_scores": record.negative_scores}
