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
from dataclasses import astuple, dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from pydantic import Field

from liebig.base.config import Config, InputPath
from liebig.base.errors import DataError, RecipeError
from liebig.base.machine import checked, computing_threads, cores
from liebig.base.pipeline import Stage
from liebig.base.progress import Progress
from liebig.base.records import Title
from liebig.base.workspace import Folder
from liebig.model.encoder import Encoder
from liebig.search import embed as source
from liebig.search.embed import (
    TOKENS_CPU,
    TOKENS_CUDA,
    TOKENS_ONNX,
    Cut,
    Encoded,
    Item,
    Model,
    Plan,
    TorchModel,
    Wish,
    Workers,
    encode,
    frame_of,
)
from liebig.text.layout import Role, RoleLayout
from liebig.train.distributed import World, connect
from liebig.vectors.quantise import Type
from liebig.vectors.vector_folder import SHARDS, Shard, write_shard, write_summary

# The recipe of encoding, and of exporting to ONNX.


class EncodeConfig(Config):
    """`liebig encode`: texts to shards of vectors."""

    source: InputPath | None = Field(
        None,
        description="A collection, a token store, or any file that liebig init reads; standard input if not given.",
    )
    model: InputPath = Field(description="The model's folder (or its ONNX export).")
    what: Literal["passages", "queries", "documents"] = Field(
        "passages", description="What of the source is encoded."
    )
    split: str | None = Field(None, description="The split whose queries are encoded; all if not given.")
    prompt: str | None = Field(
        None, description="Name of the model's prompt; by `what` if not given, '' for none."
    )
    title: Title | None = Field(
        None,
        description="Put the title before the text: with a space, with the separator token, or not at all "
        "[default: as the model was trained, else space].",
    )
    type: Literal["fp32", "fp16", "int8", "binary"] = Field("fp16", description="How vectors are stored.")
    unit: bool | None = Field(
        None, description="Scale vectors to length 1; as the model's similarity asks, if not given."
    )
    long: Literal["first", "max", "mean"] = Field(
        "first",
        description="Of texts longer than the model takes: the beginning, a vector a piece, the pieces' mean.",
    )
    overlap: int = Field(32, ge=0, description="Tokens that a piece shares with the one before.")
    most_pieces: int | None = Field(None, ge=1, description="The most pieces of a text.")
    max_length: int | None = Field(
        None,
        ge=8,
        description="Tokens of a text or piece, up to the model's positions [default: the model's length of use].",
    )
    shard: int = Field(65_536, ge=1, description="Texts of a shard.")
    window: int = Field(8192, ge=1, description="Texts tokenised and sorted by length together.")
    budget: int | None = Field(None, ge=1, description="Tokens of a row; by device if not given.")
    workers: int | None = Field(None, ge=0, description="Processes that tokenise; by device if not given.")
    threads: int | None = Field(
        None,
        ge=1,
        description="Threads on a CPU [default: OMP_NUM_THREADS, else by how busy the machine is].",
    )
    device: str | None = Field(None, description="cpu or cuda; the GPU if there is one.")
    half: bool | None = Field(None, description="Compute in bfloat16; on a GPU if not given.")
    compile: bool | None = Field(None, description="Compile the model; on a GPU if not given.")


# The model of an encoding run: by torch on a device, or an ONNX export by ONNX Runtime.

MOST_WORKERS = 12
ROLES: dict[str, Role] = {"passages": "passage", "documents": "passage", "queries": "query"}


@dataclass(frozen=True)
class Loaded:
    """An encoder on its device, and what the run needs to know of it."""

    encoder: Encoder
    role: Role
    prompt: str
    folder: Path
    unit: bool
    half: bool | None
    workers: int
    onnx: bool

    @property
    def layout(self) -> RoleLayout:
        """How texts become token ids."""
        return self.encoder.layout_for(self.role, self.prompt)

    @property
    def cuda(self) -> bool:
        """Whether it runs on a GPU."""
        return self.encoder.device.type == "cuda"

    def model(self, threads: int | None = None) -> Model:
        """What makes the vectors."""
        if self.onnx:
            from liebig.search.embed_onnx import OnnxModel

            return OnnxModel(self.folder, self.encoder, unit=self.unit, threads=threads)
        skip = self.encoder.skip(self.layout)
        return TorchModel(self.encoder, half=self.half, unit=self.unit, skip=skip)


def load(path: Path, device: torch.device | str, config: EncodeConfig) -> Loaded:
    """Load a model's folder."""
    from liebig.search.embed_onnx import is_export

    onnx = is_export(path)
    role = ROLES[config.what]
    encoder = Encoder.load(path)
    longest = {"query_length" if role == "query" else "max_length": config.max_length}
    encoder.use(title=config.title, **longest)
    encoder = encoder.to("cpu" if onnx else device)
    cuda = encoder.device.type == "cuda"
    if cuda if config.compile is None else config.compile:
        encoder.backbone.compile()
    workers = (
        config.workers if config.workers is not None else (min(MOST_WORKERS, cores() - 1) if cuda else 0)
    )
    unit = encoder.similarity == "cosine" if config.unit is None else config.unit
    return Loaded(
        encoder,
        role,
        role if config.prompt is None else config.prompt,
        path,
        unit,
        config.half,
        workers,
        onnx,
    )


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


STAGE = Stage(
    "encode",
    EncodeConfig,
    run,
    "liebig encode runs/collection --model runs/condenser/model --out runs/vectors",
    positional="source",
)
