"""A fair sample of a stream in one pass, and the texts analyses draw from."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from liebig.data import formats
from liebig.data.collection import Collection
from liebig.data.items import Options
from liebig.records import Document, Passage
from liebig.rng import key, mix

T = TypeVar("T")


def draw(items: Iterable[T], count: int, seed: int) -> list[T]:
    """`count` items of a stream, each equally likely, in the order of the stream; a function of seed and places."""
    stream = ((int(mix(key(seed), place)), place, item) for place, item in enumerate(items))
    chosen = heapq.nsmallest(count, stream, key=lambda entry: entry[:2])
    return [item for _, _, item in sorted(chosen, key=lambda entry: entry[1])]


def section_texts(path: Path) -> Iterator[str]:
    """The sections of a source's documents, or its passages where it has no documents."""
    for record in records(path):
        if isinstance(record, Document):
            for section in record.sections:
                text = " ".join(section.paragraphs).strip()
                if text:
                    yield text
        elif isinstance(record, Passage) and record.text.strip():
            yield record.text


def named_texts(path: Path) -> Iterator[tuple[str, str]]:
    """Every document or passage with its id."""
    for record in records(path):
        if isinstance(record, Document | Passage):
            yield record.id, f"{record.title} {record.text}"


def records(path: Path) -> Iterator[object]:
    """Documents, or passages where there are none, of a collection or anything that can be read."""
    found = formats.find(path)
    if [one.format.name for one in found] == ["collection"]:
        collection = Collection(path)
        yield from collection.documents() if collection.has("documents") else collection.passages()
        return
    for one in found:
        for item in one.items(Options()):
            yield item.record
