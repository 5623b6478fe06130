"""Shards of generated queries: each is made once, by one process, and is a whole file or none.

Shard s holds the passages s * size … in the order of the collection and is made by process s mod W. While one is
written, the next is prepared and the last one finished in threads, so a GPU does not wait for a tokenizer.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from liebig.base.durable import atomic_write
from liebig.base.progress import Progress
from liebig.base.records import Passage
from liebig.base.workspace import WHOLE, StagePart
from liebig.formats.output import json_line
from liebig.queries.consistency import clean
from liebig.train.distributed import World

Passages = Sequence[Passage]


@dataclass(frozen=True)
class Writer:
    """How passages become queries: prepared and finished in threads, written in between."""

    write: Callable[[Passages, Any], Any]
    prepare: Callable[[Passages], Any] = lambda passages: None
    finish: Callable[[Any], list[list[str]]] = list


@dataclass(frozen=True)
class QueryShards:
    """Where shards lie, how large they are, and what is done to their queries."""

    folder: Path
    size: int
    world: World
    part: StagePart = WHOLE

    def make(self, passages: Iterable[Passage], writer: Writer, total: int) -> None:
        """Make those of this process that are not there yet."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with Progress("generate", total, "passages") as bar, ThreadPoolExecutor(2) as pool:
            ahead = self._prepared(passages, writer, bar, pool)
            finishing: Future[None] | None = None
            for number, some, prepared in ahead:
                written = writer.write(some, prepared.result())
                if finishing is not None:
                    finishing.result()
                finishing = pool.submit(self._finish, number, some, written, writer)
                bar.advance(len(some))
            if finishing is not None:
                finishing.result()

    def _prepared(
        self, passages: Iterable[Passage], writer: Writer, bar: Progress, pool: ThreadPoolExecutor
    ) -> Iterator[tuple[int, Passages, Future[Any]]]:
        """Shards to be made, each with its preparation under way, one ahead."""
        waiting: tuple[int, Passages, Future[Any]] | None = None
        for number, some in self._mine(passages):
            if self.file(number).is_file():
                bar.advance(len(some))
                continue
            coming = (number, some, pool.submit(writer.prepare, some))
            if waiting is not None:
                yield waiting
            waiting = coming
        if waiting is not None:
            yield waiting

    def _mine(self, passages: Iterable[Passage]) -> Iterator[tuple[int, Passages]]:
        stream, number = iter(passages), 0
        while some := list(islice(stream, self.size)):
            if self.part.takes(number, self.world.rank, self.world.size):
                yield number, some
            number += 1

    def _finish(self, number: int, passages: Passages, written: Any, writer: Writer) -> None:
        """Clean and store a shard; its first line holds the counts."""
        counts: Counter[str] = Counter()
        rows = [
            {"passage": passage.id, "queries": clean(queries, counts)}
            for passage, queries in zip(passages, writer.finish(written))
        ]
        lines = [json_line(dict(counts)), *map(json_line, rows)]
        atomic_write(self.file(number), ("\n".join(lines) + "\n").encode("utf-8"))

    def file(self, number: int) -> Path:
        return self.folder / f"{number:05d}.jsonl"

    def read(self, counts: Counter[str]) -> Iterator[dict[str, Any]]:
        """The rows of all shards in order; their counts are added up."""
        for path in sorted(self.folder.glob("*.jsonl")):
            with path.open(encoding="utf-8") as file:
                counts.update(json.loads(next(file)))
                for line in file:
                    yield json.loads(line)
