"""Data sets of the package ir_datasets, by their names: `ir_datasets:beir/scifact/test`."""

from __future__ import annotations

from collections.abc import Iterator

from liebig.base.errors import MissingDependency
from liebig.base.records import Judgement, Passage, Query
from liebig.formats.base import Format
from liebig.formats.inputs import InputSource
from liebig.formats.items import Item, Options, Where, as_grade, as_id, as_text
from liebig.formats.preview import Preview

PREFIX = "ir_datasets:"


def is_ir_datasets(preview: Preview) -> bool:
    """A name such as ir_datasets:beir/scifact/test."""
    return preview.source.label.startswith(PREFIX)


def read_ir_datasets(source: InputSource, options: Options) -> Iterator[Item]:
    """Passages, queries and judgements of a data set."""
    try:
        import ir_datasets  # type: ignore[import-not-found]  # an extra
    except ImportError:
        raise MissingDependency("ir_datasets", "ir", f"reading {source.label}") from None
    name, where = source.label.removeprefix(PREFIX), Where(source.label)
    try:
        dataset = ir_datasets.load(name)
    except KeyError:
        raise where.error(f"ir_datasets has no data set {name!r}") from None
    split = options.split or name.rpartition("/")[2] or "test"
    if dataset.has_docs():
        for doc in dataset.docs_iter():
            text = as_text(getattr(doc, "text", None) or doc.default_text(), where)
            title = as_text(getattr(doc, "title", None), where, "title")
            yield Item(Passage(as_id(doc.doc_id, where), text, title), where)
    if dataset.has_queries():
        for query in dataset.queries_iter():
            text = as_text(getattr(query, "text", None) or query.default_text(), where)
            yield Item(Query(as_id(query.query_id, where), text), where, split)
    if dataset.has_qrels():
        for qrel in dataset.qrels_iter():
            grade = as_grade(qrel.relevance, where)
            yield Item(Judgement(as_id(qrel.query_id, where), as_id(qrel.doc_id, where), grade), where, split)


IR_DATASETS = Format(
    name="ir-datasets",
    about="a data set of ir_datasets",
    fields="documents, queries and judgements of the package ir_datasets, if it is installed",
    yields=("passages", "queries", "judgements"),
    prefix=PREFIX,
    rule=is_ir_datasets,
    read=read_ir_datasets,
)
