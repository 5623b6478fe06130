"""`liebig encode`: reads texts and a model, writes shards of vectors; alone or as one of torchrun's processes.

Shard s holds texts s * shard … and is made by process s mod W. A shard that is already there is left alone, so an
interrupted run goes on where it was. The first process writes the summary when all shards are there.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import numpy as np

from liebig.data.vectors import SHARDS, Shard, write_shard, write_summary
from liebig.encode.config import EncodeConfig
from liebig.encode.engine import TOKENS_CPU, TOKENS_CUDA, TOKENS_ONNX, Floats, Model, Plan, encode
from liebig.encode.loading import Loaded, load
from liebig.encode.rows import Frame
from liebig.encode.source import Item, Wish, items, lines
from liebig.encode.tokens import Preparing, Workers
from liebig.errors import DataError, RecipeError
from liebig.machine import checked
from liebig.progress import Progress
from liebig.train.distributed import World, connect
from liebig.workspace import Folder

ROLES = {"passages": "passage", "documents": "passage", "queries": "query"}


def run(config: EncodeConfig, folder: Folder) -> None:
    """Write the shards."""
    checked(config.device)
    world = connect(cpu=config.device == "cpu")
    if config.source is None:
        _refuse_to_share(world)
        shutil.rmtree(folder.path / SHARDS, ignore_errors=True)  # nobody knows whether it says the same again
    world.barrier()  # the first process has prepared the folder
    loaded = load(config.model, world.device if config.device is None else config.device, config)
    (folder.path / SHARDS).mkdir(parents=True, exist_ok=True)
    shards = Shards(folder.path / SHARDS, config.shard, world)
    texts = _items(config, loaded)
    _encode(loaded, config, shards, texts)
    total = world.largest(shards.count)
    if world.first:
        _finish(folder.path, total, config, loaded)
    world.barrier()


def _refuse_to_share(world: World) -> None:
    if world.size > 1:
        raise RecipeError("standard input cannot be read by several processes", fix="name a source")


def _items(config: EncodeConfig, loaded: Loaded) -> Iterator[Item]:
    wish = Wish(config.what, config.split, config.title, loaded.separator)
    if config.source is None:
        return lines(sys.stdin, wish)
    return items(config.source, wish, loaded.encoder.tokenizer.digest)


class Shards:
    """Which texts are this process's to encode; `count` is the number of shards of all processes, once all are read."""

    def __init__(self, path: Path, size: int, world: World) -> None:
        self.path, self.size, self._world = path, size, world
        self.count = 0
        self.owners: deque[int] = deque()

    def groups(self, texts: Iterable[Item], window: int, done: Callable[[int], None]) -> Iterator[list[Item]]:
        """Texts of shards that are this process's and not there yet, a window at a time; `owners` are their shards."""
        rest, read = iter(texts), 0
        while True:
            shard, place = divmod(read, self.size)
            group = list(islice(rest, min(window, self.size - place)))
            if not group:
                return
            read += len(group)
            self.count = shard + 1
            if shard % self._world.size != self._world.rank:
                continue
            if self.file(shard).is_dir():
                done(len(group))
            else:
                self.owners.append(shard)
                yield group

    def file(self, shard: int) -> Path:
        """Where a shard lies."""
        return self.path / f"{shard:05d}"


def _encode(loaded: Loaded, config: EncodeConfig, shards: Shards, texts: Iterable[Item]) -> None:
    """Encode this process's shards; each is written beside the next one's computation."""
    with Progress("encode", unit="texts") as bar, ThreadPoolExecutor(1) as writer:
        groups = shards.groups(texts, config.window, bar.advance)
        writing: Future[None] | None = None
        for shard, ids, vectors in _by_shard(_vectors(loaded, config, groups, bar), shards.owners):
            if writing is not None:
                writing.result()
            writing = writer.submit(write_shard, shards.file(shard), ids, vectors, config.type)
        if writing is not None:
            writing.result()


def _vectors(
    loaded: Loaded, config: EncodeConfig, groups: Iterable[list[Item]], bar: Progress
) -> Iterator[tuple[list[str], Floats]]:
    """Ids and vectors of each window."""
    prompt = ROLES[config.what] if config.prompt is None else config.prompt
    frame = loaded.frame(prompt)
    preparing = Preparing(loaded.encoder.prompt_text(prompt), loaded.encoder.lowercase, frame.again)
    model: Model = loaded.model(frame)
    with Workers(loaded.encoder.tokenizer, loaded.folder, loaded.workers) as workers:
        batches = workers.windows(groups, preparing)
        for ids, vectors in encode(batches, model, _plan(config, loaded, frame)):
            bar.advance(len(ids))
            yield ids, vectors


def _plan(config: EncodeConfig, loaded: Loaded, frame: Frame) -> Plan:
    room = frame.room - len(frame.again)
    if config.long != "first" and config.overlap >= room:
        raise RecipeError(
            f"overlap = {config.overlap}: a piece has room for {room} tokens of text",
            fix="give a smaller overlap, or a larger max_length",
        )
    budget = config.budget or (TOKENS_CUDA if loaded.cuda else TOKENS_ONNX if loaded.onnx else TOKENS_CPU)
    return Plan(frame, budget, config.long, config.overlap, config.most_pieces, loaded.unit)


def _by_shard(
    found: Iterable[tuple[list[str], Floats]], owners: deque[int]
) -> Iterator[tuple[int, list[str], Floats]]:
    """Windows put together to shards."""
    ids: list[str] = []
    parts: list[Floats] = []
    current = -1
    for names, vectors in found:
        shard = owners.popleft()
        if shard != current and parts:
            yield current, ids, np.concatenate(parts)
            ids, parts = [], []
        current = shard
        ids += names
        parts.append(vectors)
    if parts:
        yield current, ids, np.concatenate(parts)


def _finish(path: Path, total: int, config: EncodeConfig, loaded: Loaded) -> None:
    """The summary of all shards; an id that occurs twice is refused."""
    names = [f"{number:05d}" for number in range(total)]
    counts = [json.loads((path / SHARDS / name / "shard.json").read_text())["count"] for name in names]
    width = loaded.encoder.width
    hashes = [np.asarray(Shard.open(path / SHARDS / name, config.type, width).ids.hashes) for name in names]
    every = np.concatenate([np.zeros(0, np.uint64), *hashes])
    if len(np.unique(every)) < len(every):
        raise DataError(
            "an id occurs twice in the source", file=config.source, fix="give every text an id of its own"
        )
    prompt = ROLES[config.what] if config.prompt is None else config.prompt
    about = {
        "model": str(config.model), "what": config.what, "prompt": prompt, "unit": loaded.unit,
        "pieces": config.long == "max", "similarity": loaded.encoder.similarity,
        "title": config.title, "long": config.long, "max_length": loaded.encoder.max_length,
    }  # fmt: skip
    write_summary(path, config.type, width, names, about, sum(counts))
