"""Consistency: a query is kept if it finds its passage, by BM25 or in a run that a retriever made of these queries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from liebig.data.items import Options
from liebig.data.sources import DiskSource
from liebig.data.trec import read_run
from liebig.machine import cores
from liebig.queries.found import Finder
from liebig.records import Hit

Named = tuple[str, int, str]
"""A passage's id, the number of one of its queries, and the query."""
Keeps = Callable[[Sequence[Named]], list[bool]]


def query_id(passage: str, number: int) -> str:
    """The id of a generated query."""
    return f"{passage}#{number}"


def by_bm25(index: Path, k: int) -> Keeps:
    """Keeps what BM25 finds among the first k."""
    finder = Finder([index], cores())

    def keeps(named: Sequence[Named]) -> list[bool]:
        ranks = finder.ranks([text for _, _, text in named], [passage for passage, _, _ in named], k)
        return [bool(found) for found in ranks > 0]

    return keeps


def by_run(path: Path, k: int) -> Keeps:
    """Keeps what a run has among the first k. Memory: the ids of what is kept."""
    found = set()
    for item in read_run(DiskSource(path), Options()):
        hit = item.record
        assert isinstance(hit, Hit), "a run holds hits"
        if hit.rank <= k and hit.query.rpartition("#")[0] == hit.passage:
            found.add(hit.query)

    def keeps(named: Sequence[Named]) -> list[bool]:
        return [query_id(passage, number) in found for passage, number, _ in named]

    return keeps
