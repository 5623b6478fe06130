"""Queries and passages of a collection become tokens, in several processes where there are very many of them.

A process finds its texts by their ids and sends back tokens, which are joined in order: the result is the same for any
number of processes. Nothing heavy is imported here, because every process imports this file. Cost: about 40
microseconds per passage of 100 words and core.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from liebig.base.machine import spread
from liebig.base.progress import Progress
from liebig.collection.collection import Collection
from liebig.ragged import Ragged
from liebig.text.layout import AT_ONCE, RoleLayout


@dataclass(frozen=True)
class NamedTexts:
    """Queries or passages of a collection by their ids, in this order."""

    collection: Path
    kind: Literal["query", "passage"]
    ids: Sequence[str]


def tokenise(named: NamedTexts, layout: RoleLayout) -> Iterator[Ragged]:
    """The tokens of all texts, a few thousand texts at a time."""
    work = _Worker(named.collection, named.kind, layout)
    tasks = [named.ids[at : at + AT_ONCE] for at in range(0, len(named.ids), AT_ONCE)]
    if len(tasks) < 2:
        yield from map(work, tasks)
        return
    with Progress(f"tokenise {named.kind} texts", len(named.ids), "texts") as bar:
        for task, rows in zip(tasks, spread(work, tasks)):
            yield rows
            bar.advance(len(task))


class _Worker:
    """Finds texts by their ids and tokenises them; each process opens the collection for itself."""

    def __init__(self, collection: Path, kind: Literal["query", "passage"], layout: RoleLayout) -> None:
        self._collection, self._kind, self._layout = Collection(collection), kind, layout

    def __call__(self, ids: Sequence[str]) -> Ragged:
        find = self._collection.query if self._kind == "query" else self._collection.passage
        return self._layout.ids([find(name) for name in ids])

    def __reduce__(self) -> tuple[type[_Worker], tuple[Any, ...]]:
        return _Worker, (self._collection.path, self._kind, self._layout)
