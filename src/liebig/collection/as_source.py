"""A collection of Liebig's own, read as a source like any other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from liebig.base.errors import DataError
from liebig.collection import KINDS, SPLIT_KINDS, Collection
from liebig.formats.base import Format
from liebig.formats.inputs import InputSource
from liebig.formats.items import Item, Options, Where
from liebig.formats.on_disk import DiskSource
from liebig.formats.preview import Preview


def is_collection(preview: Preview) -> bool:
    """A folder with passages.jsonl, or with summary.json beside other files of a collection."""
    names = {child.name for child in preview.source.children()}
    parts = {f"{kind}.jsonl" for kind in KINDS} | set(SPLIT_KINDS)
    return "passages.jsonl" in names or ("summary.json" in names and bool(names & parts))


def read_collection(source: InputSource, options: Options) -> Iterator[Item]:
    if not isinstance(source, DiskSource):
        raise DataError("a collection must be a folder on disk", file=source.label, fix="unpack it")
    collection, where = Collection(source.path), Where(source.label)
    yield from (Item(document, where) for document in collection.documents())
    yield from (Item(passage, where) for passage in collection.passages())
    listed = set(collection.splits_of("splits"))
    for split in collection.splits:
        readers: tuple[Callable[[str], Iterator[Any]], ...] = (
            *((collection.queries,) if split in listed else ()),
            collection.judgements,
            collection.groups,
            collection.pairs,
            collection.tuples,
        )
        for read in readers:
            yield from (Item(record, where, options.split or split) for record in read(split))
    yield from (Item(query, where) for query in collection.queries())


COLLECTION = Format(
    name="collection",
    about="a collection made by liebig init",
    fields="`documents.jsonl`, `passages.jsonl`, `queries.jsonl`, `judgements/`, `groups/`, `pairs/`, `tuples/`, "
    "`splits/`, `summary.json`",
    yields=("documents", "passages", "queries", "judgements", "groups", "pairs", "tuples"),
    place="folder",
    rule=is_collection,
    read=read_collection,
    sample={
        "passages.jsonl": '{"id": "1", "title": "Matter", "text": "Alterations", "doc": ""}\n',
        "queries.jsonl": '{"id": "7", "text": "who", "answers": []}\n',
        "judgements/test.tsv": "7\t1\t1\n",
    },
)
