"""`liebig encode`: reads texts and a model, writes shards of vectors; alone or as one of torchrun's processes.

Shard s holds texts s * shard … and is made by process s mod W. A shard that is already there is left alone, so an
interrupted run goes on where it was. Where a shard takes long, what is done of it is kept in `parts/` about every
minute and taken from there after an interruption; the shards are the same bytes either way. The first process writes
the summary when all shards are there, and says how many texts were cut.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import astuple
from itertools import islice
from pathlib import Path

import numpy as np

from liebig.data.quantise import Type
from liebig.data.vectors import SHARDS, Shard, write_shard, write_summary
from liebig.encode import source
from liebig.encode.config import EncodeConfig
from liebig.encode.engine import TOKENS_CPU, TOKENS_CUDA, TOKENS_ONNX, Encoded, Plan, encode, frame_of
from liebig.encode.loading import Loaded, load
from liebig.encode.rows import Cut
from liebig.encode.source import Item, Wish
from liebig.encode.tokens import Workers
from liebig.errors import DataError, RecipeError
from liebig.machine import checked, computing_threads
from liebig.progress import Progress
from liebig.train.distributed import World, connect
from liebig.workspace import Folder

PARTS = "parts"
PART_SECONDS = 30.0  # work that an interruption may lose, besides a window


def run(config: EncodeConfig, folder: Folder) -> None:
    """Write the shards."""
    checked(config.device)
    world = connect(cpu=config.device == "cpu")
    if config.source is None:
        _refuse_to_share(world)
        for name in (SHARDS, PARTS):  # nobody knows whether standard input says the same again
            shutil.rmtree(folder.path / name, ignore_errors=True)
    world.barrier()  # the first process has prepared the folder
    loaded = load(config.model, world.device if config.device is None else config.device, config)
    (folder.path / SHARDS).mkdir(parents=True, exist_ok=True)
    shards = Shards(folder.path, config.shard, world)
    with computing_threads(config.threads) as threads:
        _encode(loaded, config, shards, threads)
    total = world.largest(shards.count)
    if world.first:
        _finish(folder.path, total, config, loaded)
        shutil.rmtree(folder.path / PARTS, ignore_errors=True)
    world.barrier()


def _refuse_to_share(world: World) -> None:
    if world.size > 1:
        raise RecipeError("standard input cannot be read by several processes", fix="name a source")


def _items(config: EncodeConfig, loaded: Loaded) -> Iterator[Item]:
    wish = Wish(config.what, config.split)
    if config.source is None:
        return source.lines(sys.stdin, wish)
    return source.items(config.source, wish, loaded.encoder.tokenizer.digest)


class Shards:
    """Which texts are this process's to encode; `count` is the number of shards of all processes, once all are read."""

    def __init__(self, path: Path, size: int, world: World) -> None:
        self.path, self.size, self._world = path, size, world
        self.count = 0
        self.owners: deque[int] = deque()

    def groups(self, texts: Iterable[Item], window: int, skip: Callable[[int], None]) -> Iterator[list[Item]]:
        """Texts that are this process's and not done yet, a window at a time; `owners` are their shards."""
        rest, read, kept = iter(texts), 0, 0
        while True:
            shard, place = divmod(read, self.size)
            if place == 0:
                kept = self.size if self.file(shard).is_dir() else kept_texts(self.parts(shard))
            group = list(islice(rest, min(window, self.size - place)))
            if not group:
                return
            read += len(group)
            self.count = shard + 1
            if shard % self._world.size != self._world.rank:
                continue
            if place < kept:
                skip(len(group))
            else:
                self.owners.append(shard)
                yield group

    def share(self, total: int | None) -> int | None:
        """How many of all texts are this process's."""
        if total is None:
            return None
        starts = range(self._world.rank * self.size, total, self._world.size * self.size)
        return sum(min(self.size, total - start) for start in starts)

    def file(self, shard: int) -> Path:
        """Where a shard lies."""
        return self.path / SHARDS / f"{shard:05d}"

    def parts(self, shard: int) -> Path:
        """Where its parts lie while it is made."""
        return self.path / PARTS / f"{shard:05d}"


def read_parts(folder: Path, width: int) -> Iterator[Encoded]:
    """The parts of a shard that an interrupted run left, in order."""
    for path in sorted(folder.glob("[0-9]*[0-9]")):
        shard = Shard.open(path, "fp32", width)
        ids = [shard.ids[i] for i in range(len(shard))]
        yield Encoded(ids, shard.vectors.decode(), _cut(path))


def kept_texts(folder: Path) -> int:
    """How many texts those are."""
    return sum(_cut(path).texts for path in folder.glob("[0-9]*[0-9]"))


def _cut(shard: Path) -> Cut:
    return Cut(*json.loads((shard / "shard.json").read_text()).get("cut", ()))


def _encode(loaded: Loaded, config: EncodeConfig, shards: Shards, threads: int) -> None:
    """Encode this process's shards; each is written beside the next one's computation."""
    known = None if config.source is None else source.total(config.source, Wish(config.what, config.split))
    with (
        Progress("encode", shards.share(known), "texts") as bar,
        ThreadPoolExecutor(1) as writer,
        Workers(loaded.encoder.tokenizer, loaded.folder, loaded.workers) as workers,
    ):
        groups = shards.groups(_items(config, loaded), config.window, bar.skip)
        batches = workers.windows(groups, loaded.layout)
        windows = encode(batches, loaded.model(threads), _plan(config, loaded), bar.advance)
        writing: Future[None] | None = None
        for path, found, whole in _by_shard(windows, shards, loaded.encoder.width):
            if writing is not None:
                writing.result()
            kind = config.type if whole else "fp32"
            writing = writer.submit(_write, path, found, kind)
        if writing is not None:
            writing.result()


def _write(path: Path, found: Encoded, kind: Type) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_shard(path, found.ids, found.vectors, kind, {"cut": astuple(found.cut)})


def _plan(config: EncodeConfig, loaded: Loaded) -> Plan:
    frame = frame_of(loaded.layout)
    room = frame.room - len(frame.again)
    if config.long != "first" and config.overlap >= room:
        raise RecipeError(
            f"overlap = {config.overlap}: a piece has room for {room} tokens of text",
            fix="give a smaller overlap, or a larger max_length",
        )
    budget = config.budget or (TOKENS_CUDA if loaded.cuda else TOKENS_ONNX if loaded.onnx else TOKENS_CPU)
    return Plan(frame, budget, config.long, config.overlap, config.most_pieces, loaded.unit)


def _by_shard(windows: Iterable[Encoded], shards: Shards, width: int) -> Iterator[tuple[Path, Encoded, bool]]:
    """Windows put together to shards (True), and what is done of one that takes long to its parts (False)."""
    parts: list[Encoded] = []
    current, kept, since = -1, 0, time.monotonic()
    for window in windows:
        shard = shards.owners.popleft()
        if shard != current:
            if parts:
                yield shards.file(current), _joined(parts), True
            parts = list(read_parts(shards.parts(shard), width))
            current, kept, since = shard, len(parts), time.monotonic()
        elif time.monotonic() - since > PART_SECONDS:
            # Never the window that may be a shard's last: a shard that is made has one that is encoded.
            path = shards.parts(shard) / f"{sum(part.cut.texts for part in parts[:kept]):08d}"
            yield path, _joined(parts[kept:]), False
            kept, since = len(parts), time.monotonic()
        parts.append(window)
    if parts:
        yield shards.file(current), _joined(parts), True


def _joined(parts: list[Encoded]) -> Encoded:
    return Encoded(
        [name for part in parts for name in part.ids],
        np.concatenate([part.vectors for part in parts]),
        sum((part.cut for part in parts), Cut()),
    )


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
    layout = loaded.layout
    about = {
        "model": str(config.model), "what": config.what, "prompt": loaded.prompt, "unit": loaded.unit,
        "pieces": config.long == "max", "similarity": loaded.encoder.similarity,
        "title": loaded.encoder.layout.title, "long": config.long, "max_length": layout.length,
    }  # fmt: skip
    write_summary(path, config.type, width, names, about, sum(counts))
    said = cut_says(
        sum((_cut(path / SHARDS / name) for name in names), Cut()),
        layout.length,
        loaded.encoder.backbone.max_positions,
        config,
    )
    if said:
        sys.stderr.write(said + "\n")


def cut_says(cut: Cut, length: int, positions: int, config: EncodeConfig) -> str:
    """How many texts were cut, by how much, and what to do; nothing where none was."""
    if not cut.cut:
        return ""
    one = cut.cut == 1
    fixes = [f"max_length={positions} (now {length})"] if length < positions else []
    if config.long == "first":
        fixes.append("long=max (a vector for each piece of a long text)")
    elif config.most_pieces is not None:
        fixes.append(f"most_pieces above {config.most_pieces}")
    fixes.append("shorter passages")
    return (
        f"{cut.cut:,} of {cut.texts:,} texts ({cut.cut / cut.texts:.1%}) {'is' if one else 'are'} longer than what is "
        f"encoded; the end was cut off: {cut.tokens / cut.cut:,.0f} tokens on average, {cut.most:,} at most. "
        f"To encode the whole texts: {', or '.join(fixes)}."
    )
