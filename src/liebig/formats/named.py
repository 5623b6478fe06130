"""Sources that are not files: `stdlib:`, `ir_datasets:NAME`; and a collection, read as a source like any other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from liebig.base.errors import DataError, MissingDependency
from liebig.base.records import Judgement, Passage, Query
from liebig.collection.collection import Collection
from liebig.formats import stdlib
from liebig.formats.inputs import DiskSource, Source
from liebig.formats.items import Item, Options, Where, as_grade, as_id, as_text

IR_DATASETS = "ir_datasets:"


class NamedSource(Source):
    """A source that is a name and has no bytes."""

    def __init__(self, name: str) -> None:
        self.name = self.label = name

    def raw(self) -> BinaryIO:
        raise DataError("has no bytes to read; it is a format of its own", file=self.label)


def named(text: str) -> Source | None:
    """The source that a name with a colon stands for, where it is one."""
    return NamedSource(text) if text.startswith((stdlib.PREFIX, IR_DATASETS)) else None


def is_named(text: str) -> bool:
    """Whether a path is the name of a source and no file."""
    return text == "-" or named(text) is not None


def read_stdlib(source: Source, options: Options) -> Iterator[Item]:
    """Python's own documentation."""
    return stdlib.read_stdlib(source.label)


def read_collection(source: Source, options: Options) -> Iterator[Item]:
    """Everything in a collection."""
    if not isinstance(source, DiskSource):
        raise DataError("a collection is read from a folder on disk", file=source.label, fix="unpack it")
    collection, where = Collection(source.path), Where(source.label)
    yield from (Item(document, where) for document in collection.documents())
    yield from (Item(passage, where) for passage in collection.passages())
    listed = set(collection.splits_of("splits"))
    for split in collection.splits:
        records: tuple[Callable[[str], Iterator[Any]], ...] = (
            *((collection.queries,) if split in listed else ()),
            collection.judgements,
            collection.groups,
            collection.pairs,
            collection.tuples,
        )
        for read in records:
            yield from (Item(found, where, options.split or split) for found in read(split))
    yield from (Item(query, where) for query in collection.queries())


def read_ir_datasets(source: Source, options: Options) -> Iterator[Item]:
    """A data set of the package ir_datasets: `ir_datasets:beir/scifact/test`."""
    try:
        import ir_datasets  # type: ignore[import-not-found]  # an extra
    except ImportError:
        raise MissingDependency("ir_datasets", "ir", f"reading {source.label}") from None
    name, where = source.label.removeprefix(IR_DATASETS), Where(source.label)
    try:
        found = ir_datasets.load(name)
    except KeyError:
        raise where.error(f"ir_datasets has no data set {name!r}") from None
    split = options.split or name.rpartition("/")[2] or "test"
    if found.has_docs():
        for doc in found.docs_iter():
            text = as_text(getattr(doc, "text", None) or doc.default_text(), where)
            title = as_text(getattr(doc, "title", None), where, "title")
            yield Item(Passage(as_id(doc.doc_id, where), text, title), where)
    if found.has_queries():
        for query in found.queries_iter():
            text = as_text(getattr(query, "text", None) or query.default_text(), where)
            yield Item(Query(as_id(query.query_id, where), text), where, split)
    if found.has_qrels():
        for qrel in found.qrels_iter():
            grade = as_grade(qrel.relevance, where)
            yield Item(Judgement(as_id(qrel.query_id, where), as_id(qrel.doc_id, where), grade), where, split)


def path_of(text: str) -> Path | str:
    """A path, or the name itself where it is no file."""
    return text if is_named(text) else Path(text)
