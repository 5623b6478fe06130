"""Where the text of a passage found is looked up: in a BM25 index that keeps texts, or in a collection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from liebig import workspace
from liebig.data.collection import Collection, is_collection
from liebig.errors import LiebigError
from liebig.lexical import bm25
from liebig.lexical.bm25 import BM25
from liebig.records import Passage
from liebig.search.fold import document_of
from liebig.search.systems import Lexical, System

Texts = Callable[[str], Passage]


def texts_of(systems: Sequence[System], path: Path | None) -> Texts:
    """The texts of a collection or BM25 index, else of a BM25 index among the systems, else ids alone."""
    if path is not None:
        return _from_index(BM25.open(path)) if _is_bm25(path) else Collection(path).passage
    for system in systems:
        if (
            isinstance(system, Lexical)
            and system.index.segments
            and system.index.segments[0].texts is not None
        ):
            return _from_index(system.index)
    return ids_alone


def ids_alone(id: str) -> Passage:
    """A passage of which nothing is known but its id."""
    return Passage(id, "")


def _is_bm25(path: Path) -> bool:
    if is_collection(path):
        return False
    return bm25.SUMMARY in workspace.read_manifest(path).outputs


def _from_index(index: BM25) -> Texts:
    def passage(id: str) -> Passage:
        number = index.find(id)
        if number is None:
            number = index.find(document_of(id))
        if number is None:
            raise LiebigError(f"there is no passage {id!r} in the BM25 index")
        return index.passage(number)

    return passage
