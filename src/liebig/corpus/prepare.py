"""`liebig prepare`: a collection becomes a token store.

The collection's file is cut into pieces; several processes each turn a piece into a shard, one file that is whole
or absent; the shards are joined in order. A run that was killed finds the shards that were finished and makes the
others, so its bytes are those of an uninterrupted run, as they are for any number of processes.
Cost: the tokenizer's time and about a tenth of it; about 150 MB of memory a process.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from liebig.corpus.prepare_pieces import Piece, cut
from liebig.data.store import SUMMARY
from liebig.data.store_write import Shard, build, join
from liebig.errors import DataError
from liebig.processes import helpers
from liebig.progress import Progress, quantity
from liebig.text import sentences
from liebig.text.tokenizer import Tokenizer

PIECE = 4 << 20  # bytes of JSON lines
SHARDS = "shards"
Finish = Callable[[Shard], Shard]


@dataclass(frozen=True)
class Work:
    """What every process needs to make a shard of a piece."""

    tokenizer: Tokenizer
    language: str | None
    finish: Finish

    def make(self, piece: Piece, path: Path) -> int:
        """Write the shard of a piece; gives the number of its tokens."""
        spans = partial(sentences.spans, language=self.language)
        shard = self.finish(build(piece.documents(), self.tokenizer, spans))
        shard.save(path)
        return len(shard.tokens)


def unfinished(shard: Shard) -> Shard:
    """The shard as it is: no passages are cut."""
    return shard


def prepare(
    collection: Path,
    folder: Path,
    tokenizer: Tokenizer,
    *,
    language: str | None = None,
    finish: Finish = unfinished,
    processes: int = 1,
    piece: int | None = None,
) -> dict[str, Any]:
    """Write the store of a collection into `folder`, going on where an earlier run was broken off."""
    if not (folder / SUMMARY).is_file():
        pieces = cut(collection, piece or PIECE)
        paths = [folder / SHARDS / f"{number:06}.npz" for number in range(len(pieces))]
        (folder / SHARDS).mkdir(exist_ok=True)
        tasks = [task for task in zip(pieces, paths) if not task[1].is_file()]
        done = sum(p.end - p.begin for p in pieces) - sum(p.end - p.begin for p, _ in tasks)
        _make_all(Work(tokenizer, language, finish), tasks, done, processes)
        join(paths, folder, tokenizer)
    shutil.rmtree(folder / SHARDS, ignore_errors=True)
    for stray in folder.glob(".*.tmp"):
        stray.unlink()
    summary: dict[str, Any] = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
    if summary["tokens"] == 0:
        raise DataError("the collection has no text", file=collection, fix="look at it with liebig init")
    return summary


Task = tuple[Piece, Path]


def _make_all(work: Work, tasks: Sequence[Task], done: int, processes: int) -> None:
    """Make the shards that are missing, with a bar in megabytes of the collection."""
    total = done + sum(piece.end - piece.begin for piece, _ in tasks)
    with Progress("prepare", total / 1e6, "MB", done / 1e6) as bar:
        tokens = 0
        for piece, count in _in_order_of_completion(work, tasks, processes):
            tokens += count
            bar.note(f"{quantity(tokens)} tokens")
            bar.advance((piece.end - piece.begin) / 1e6)


def _in_order_of_completion(work: Work, tasks: Sequence[Task], processes: int) -> Iterator[tuple[Piece, int]]:
    """Each piece with the number of its tokens."""
    processes = min(processes, len(tasks))
    if processes <= 1:
        yield from ((piece, work.make(piece, path)) for piece, path in tasks)
        return
    with helpers(processes, _set_up, work) as pool:
        futures = {pool.submit(_make, task): task[0] for task in tasks}
        yield from ((futures[future], future.result()) for future in as_completed(futures))


_work: list[Work] = []


def _set_up(work: Work) -> None:
    os.putenv("TOKENIZERS_PARALLELISM", "false")  # one thread here: there is a process for every core
    _work.append(work)


def _make(task: Task) -> int:
    return _work[0].make(*task)
