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
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import astuple
from itertools import accumulate, count, islice, takewhile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Literal, cast

import numpy as np
from pydantic import Field, model_validator

from liebig import encoders
from liebig.base import workspace
from liebig.base.config import Config, InputPath, ModelPath, Unrecorded
from liebig.base.errors import DataError, RecipeError
from liebig.base.machine import checked, computing_threads, may_have_gpu, process_count
from liebig.base.pipeline import Stage
from liebig.base.progress import Progress, say
from liebig.base.records import Document, Passage, Query, Title
from liebig.base.workspace import WHOLE, Folder, StagePart
from liebig.collection import Collection, is_collection
from liebig.collection.writer import CollectionWriter
from liebig.formats import detect
from liebig.formats.items import Item, Options, Where
from liebig.indexes import open_index
from liebig.indexes.base import Index
from liebig.model.settings import Precision
from liebig.search.embed import (
    CHARACTERS,
    WINDOW,
    Cut,
    Embedder,
    EncodingPlan,
    KnownVectors,
    Model,
    TextItem,
    WindowVectors,
    Workers,
    encode,
    frame_of,
    pools_sentences,
)
from liebig.text.layout import Role, RoleLayout
from liebig.text.sentences import spans
from liebig.vectors import SHARDS, Shard, ShardFile, Vectors, write_shard, write_summary
from liebig.vectors.quantise import Floats, Type

if TYPE_CHECKING:
    import torch

    from liebig.train.distributed import World

What = Literal["passages", "queries", "documents", "sentences"]


class EncodeConfig(Config):
    """`liebig encode`: texts to shards of vectors."""

    source: InputPath | None = Field(
        None, description=("A collection, or any file that liebig init reads [default: standard input].")
    )
    model: ModelPath = Field(
        Path(encoders.PREFIX + encoders.DEFAULT),
        description="The model's folder (or its ONNX export), liebig:NAME, or org/name of the hub.",
    )
    what: What = Field(
        "passages",
        description="Part of the source to encode; sentences are those of its passages, without titles.",
    )
    split: str | None = Field(None, description="Split whose queries are encoded [default: all].")
    prompt: str | None = Field(
        None, description="Name of the model's prompt, '' for none [default: by `what`]."
    )
    title: Title | None = Field(
        None,
        description="Put the title before the text: with a space, with the separator token, or not at all [default: as "
        "in training, else space].",
    )
    type: Literal["fp32", "fp16", "int8"] = Field(
        "fp16", description=("Number format of the stored vectors.")
    )
    unit: bool | None = Field(
        None, description="Scale vectors to length 1 [default: as the model's similarity requires]."
    )
    long: Literal["first", "max"] = Field(
        "first",
        description="What to encode of a text that is too long for the model: its beginning (first), or one vector per "
        "piece (max).",
    )
    overlap: int = Field(32, ge=0, description="Number of tokens that consecutive pieces share.")
    most_pieces: int | None = Field(None, ge=1, description="Maximum number of pieces per text.")
    max_length: int | None = Field(
        None,
        ge=8,
        description="Maximum length of a text or piece in tokens, up to the model's positions [default: the length "
        "stored with the model].",
    )
    shard: int = Field(65_536, ge=1, description="Number of texts per shard.")
    window: int = Field(
        8192, ge=1, description=("Number of texts that are tokenised and sorted by length together.")
    )
    budget: int | None = Field(
        None, ge=1, description=("Number of tokens per packed batch [default: by device].")
    )
    workers: int | None = Field(
        None, ge=0, description="Number of tokenising processes [default: some for many texts and a GPU]."
    )
    threads: int | None = Field(
        None,
        ge=1,
        description="Number of CPU threads [default: OMP_NUM_THREADS, else by the machine's load].",
    )
    device: str | None = Field(None, description="cpu or cuda [default: the GPU if there is one].")
    half: bool | None = Field(None, description="Compute in bfloat16 [default: on a GPU].")
    precision: Precision = Field(
        "auto",
        description="Numbers that the model computes with on a CPU; auto is int8 for passages by the bundled encoder "
        "on a processor with int8 dot products (AVX-512 VNNI; asimddp on aarch64), where they have enough tokens to "
        "save more time than the kernels take to compile, else fp32.",
    )
    compile: bool | None = Field(None, description="Compile the model [default: on a GPU].")
    sentences: bool = Field(
        False,
        description="Write the vectors of the passages' sentences too, to sentences/: the means of the states that "
        "their tokens have in the passage, which cost nothing more (models with mean pooling).",
    )
    reuse: Annotated[tuple[Path, ...], Unrecorded()] = Field(
        (), description="Folders of vectors; those that the same model made of the same text are taken over."
    )

    @model_validator(mode="after")
    def _sentences_are_pieces(self) -> EncodeConfig:
        if self.what == "sentences" and self.long != "first":
            raise ValueError("what = sentences makes one vector of each sentence: set long = first")
        if self.sentences and self.what != "passages":
            raise ValueError("sentences = true needs what = passages")
        return self


KINDS: dict[What, type[Passage | Query | Document]] = {
    "passages": Passage, "queries": Query, "documents": Document, "sentences": Passage
}  # fmt: skip


def every(number: int) -> bool:
    return True


def read_items(
    path: Path, what: What, split: str | None = None, takes: Callable[[int], bool] = every
) -> Iterator[TextItem]:
    """The items of a collection, or of a file that liebig init reads; those not taken may be `OTHERS`."""
    if is_collection(path):
        items = _collection_items(Collection(path), what, split, takes if what != "sentences" else every)
    else:
        items = _file_items(path, what, split)
    return sentence_items(items) if what == "sentences" else items


def count_items(path: Path, what: What, split: str | None) -> int | None:
    """How many items there are, where that is known before they are read."""
    if not is_collection(path) or what == "sentences":
        return None
    collection = Collection(path)
    if what == "queries" and split is not None:
        return len(set(collection.query_ids(split)))
    return collection.count(what)


def sentence_items(items: Iterable[TextItem]) -> Iterator[TextItem]:
    """The sentences of passages, named passage#0, passage#1, …; a text without any is one."""
    for item in items:
        text = item.record if isinstance(item.record, str) else item.record.text
        for number, (begin, end) in enumerate(spans(text) or [(0, len(text))]):
            yield TextItem(name := f"{item.id}#{number}", Passage(name, text[begin:end]))


OTHERS = TextItem("", "")  # in place of a text that another process encodes


def _collection_items(
    collection: Collection, what: What, split: str | None, takes: Callable[[int], bool]
) -> Iterator[TextItem]:
    kind = "passages" if what == "sentences" else what
    if not collection.has(kind):
        raise DataError(f"the collection has no {kind}", file=collection.path, fix="encode what it has")
    if kind == "queries":
        return (TextItem(query.id, query) for query in collection.queries(split))
    return (
        OTHERS if record is None else TextItem(record.id, record) for record in collection.own(kind, takes)
    )


def _file_items(path: Path, what: What, split: str | None) -> Iterator[TextItem]:
    seen: Counter[type] = Counter()
    for file in detect(path):
        for item in file.items(Options(split=split)):
            seen[type(item.record)] += 1
            if isinstance(item.record, KINDS[what]):
                yield TextItem(item.record.id, item.record)
    if not seen[KINDS[what]]:
        others = [what for what, kind in KINDS.items() if seen[kind]]
        fix = f"it holds {' and '.join(others)}: --what {others[0]}" if others else "name another file"
        raise DataError(f"there are no {what} in it", file=path, fix=fix)


def read_lines(stream: IO[str], what: What) -> Iterator[TextItem]:
    """Lines of standard input: JSON with `id` and `text`, or plain text numbered from 1."""
    empty = True
    try:
        for number, line in enumerate(stream, 1):
            text = line.rstrip("\r\n")
            if text.strip():
                empty = False
                yield _json_item(text, number, what) if text.startswith("{") else TextItem(str(number), text)
    except UnicodeDecodeError:
        raise DataError(
            "is not UTF-8", file="standard input", fix="convert it, for example with iconv"
        ) from None
    if empty:
        raise DataError(
            "there is nothing to encode", file="standard input", fix="name a source, or pipe texts in"
        )


def _json_item(line: str, number: int, what: What) -> TextItem:
    try:
        row = json.loads(line)
        id, text, title = row["id"] if "id" in row else row["_id"], row["text"], row.get("title") or ""
    except (ValueError, KeyError):
        id = text = title = None
    if not (isinstance(id, str | int) and isinstance(text, str) and isinstance(title, str)):
        raise DataError(
            "is not JSON with an id and a text", file="standard input", line=number, fix="or give plain lines"
        )
    record = Query(str(id), text) if what == "queries" else Passage(str(id), text, title)
    return TextItem(record.id, record)


ROLES: dict[What, Role] = {
    "passages": "passage", "documents": "passage", "sentences": "passage", "queries": "query"
}  # fmt: skip
PARTS = "parts"
SENTENCES = "sentences"  # in the folder of passages: the vectors of their sentences
IN_CONTEXT = "in_context"  # said of sentences that were pooled from the states of their passages
PRECISION = "precision.txt"  # in PARTS: what `auto` was, so that a run that is resumed computes as it began
CUT = 512  # tokens: about where texts are cut
PART_SECONDS = 30.0  # work that an interruption may lose, besides a window


def run(config: EncodeConfig, folder: Folder) -> None:
    checked(config.device)
    world: World | Alone = Alone()
    if process_count() > 1 or (config.device != "cpu" and may_have_gpu()):
        from liebig.train.distributed import connect

        world = connect(cpu=config.device == "cpu")
    if config.source is None:
        if world.size > 1:
            raise RecipeError("standard input cannot be read by several processes", fix="name a source")
        for name in (SHARDS, PARTS):  # nobody knows whether standard input says the same again
            shutil.rmtree(folder.path / name, ignore_errors=True)
    if world.first:
        keep_precision(config, folder.path)
    world.barrier()  # the first process has prepared the folder
    precision = cast(Precision, (folder.path / PARTS / PRECISION).read_text(encoding="ascii"))
    embedder = load(config, world.device if config.device is None else config.device, precision)
    if config.sentences and not pools_sentences(config.model):
        raise RecipeError(
            "the model does not pool by the mean of its states, or is an ONNX export",
            file=config.model,
            fix="encode sentences by themselves, with what = sentences",
        )
    (folder.path / SHARDS).mkdir(parents=True, exist_ok=True)
    shards = VectorShards(folder.path, config.shard, world, folder.part)
    with computing_threads(config.threads):
        _encode(embedder, config, shards)
    total = world.largest(shards.count)
    if folder.part != WHOLE:
        world.barrier()
        if world.first:
            for unfinished in (folder.path / PARTS).glob("[0-9]*"):
                shutil.rmtree(unfinished)
    elif world.first:
        _finish(folder.path, total, config, embedder)
        shutil.rmtree(folder.path / PARTS, ignore_errors=True)
    world.barrier()


def load(config: EncodeConfig, device: torch.device | str | None, precision: Precision) -> Embedder:
    """The model on its device."""
    query = ROLES[config.what] == "query"
    embedder = Embedder.load(
        config.model,
        device,
        title=config.title,
        unit=config.unit,
        half=config.half,
        precision=precision,
        query_length=config.max_length if query else None,
        max_length=None if query else config.max_length,
    )
    if embedder.cuda if config.compile is None else config.compile:
        embedder.encoder.backbone.compile()
    return embedder


def keep_precision(config: EncodeConfig, folder: Path) -> None:
    """Write down what to compute in, unless an interrupted run has done it."""
    path = folder / PARTS / PRECISION
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        workspace.atomic_write(path, precision_of(config).encode())


def precision_of(config: EncodeConfig) -> Precision:
    """As the config says; `auto` is fp32 for queries, which cost little, and for texts of few tokens."""
    if config.precision != "auto":
        return config.precision
    if config.source is None or ROLES[config.what] == "query":
        return "fp32"
    from liebig.model.kernels.int8 import pays_from

    enough = pays_from()
    return "auto" if any(total >= enough for total in accumulate(_tokens(config, config.source))) else "fp32"


def _tokens(config: EncodeConfig, source: Path) -> Iterator[int]:
    """About how many tokens are encoded of each text."""
    most = config.max_length or CUT
    for item in read_items(source, "passages" if config.what == "sentences" else config.what, config.split):
        text = item.record if isinstance(item.record, str) else item.record.text
        count = len(text.encode()) // CHARACTERS
        yield min(count, most) if config.long == "first" and config.what != "sentences" else count


def layout_of(config: EncodeConfig, embedder: Embedder) -> RoleLayout:
    """How texts become tokens: as the model says for their role, with another prompt where one is named."""
    return embedder.reader.layout_for(ROLES[config.what], config.prompt)


class Alone:
    """A `World` of one process that computes on its CPU, for which torch need not be imported."""

    rank, size, device, first = 0, 1, None, True

    def largest(self, value: int) -> int:
        return value

    def barrier(self) -> None:
        pass


class VectorShards:
    """Which texts are this process's to encode; `count` is the number of shards of all processes, once all are read."""

    def __init__(self, path: Path, size: int, world: World | Alone, part: StagePart = WHOLE) -> None:
        self.path, self.size, self._world, self._part = path, size, world, part
        self.count = 0
        self.owners: deque[int] = deque()

    def groups(
        self, texts: Iterable[TextItem], window: int, skip: Callable[[int], None]
    ) -> Iterator[list[TextItem]]:
        """Texts that are this process's and not done yet, a window at a time; `owners` are their shards."""
        rest, read, kept = iter(texts), 0, 0
        while True:
            shard, place = divmod(read, self.size)
            if place == 0:
                kept = (
                    self.size
                    if self.file(shard).is_dir()
                    else sum(_cut(path).texts for path in self.parts(shard).glob("[0-9]*[0-9]"))
                )
            group = list(islice(rest, min(window, self.size - place)))
            if not group:
                return
            read += len(group)
            self.count = shard + 1
            if not self.takes(read - 1):
                continue
            if place < kept:
                skip(len(group))
            else:
                self.owners.append(shard)
                yield group

    def takes(self, number: int) -> bool:
        """Whether a text is this process's."""
        return self._part.takes(number // self.size, self._world.rank, self._world.size)

    def share(self, total: int | None) -> int | None:
        """How many of all texts are this process's."""
        if total is None:
            return None
        size, rank = self._part.of * self._world.size, self._part.place * self._world.size + self._world.rank
        starts = range(rank * self.size, total, size * self.size)
        return sum(min(self.size, total - start) for start in starts)

    def file(self, shard: int) -> Path:
        return self.path / SHARDS / f"{shard:05d}"

    def parts(self, shard: int) -> Path:
        """Where its parts lie while it is made."""
        return self.path / PARTS / f"{shard:05d}"


def read_parts(folder: Path, width: int) -> Iterator[WindowVectors]:
    """The parts of a shard that an interrupted run left, in order."""
    for path in sorted(folder.glob("[0-9]*[0-9]")):
        beside = sentences_beside(path)
        yield _read_part(path, width)._replace(
            sentences=_read_part(beside, width) if beside.is_dir() else None
        )


def _read_part(path: Path, width: int) -> WindowVectors:
    shard = Shard.open(path, "fp32", width)
    ids = [shard.ids[i] for i in range(len(shard))]
    return WindowVectors(ids, shard.vectors.decode(), _cut(path))


def sentences_beside(shard: Path) -> Path:
    """Where the sentences of a shard's passages lie, or those of a part of it."""
    if shard.parent.name != SHARDS:
        return shard.with_name(shard.name + "s")
    return shard.parents[1] / SENTENCES / SHARDS / shard.name


def _cut(shard: Path) -> Cut:
    return Cut(*ShardFile.read(shard).cut)


def _encode(embedder: Embedder, config: EncodeConfig, shards: VectorShards) -> None:
    """Encode this process's shards; each is written beside the next one's computation."""
    tokenizer, layout = embedder.reader.tokenizer, layout_of(config, embedder)
    if config.source is None:
        items, total = read_lines(sys.stdin, config.what), None
    else:
        items = read_items(config.source, config.what, config.split, shards.takes)
        total = count_items(config.source, config.what, config.split)
    mine = shards.share(total)
    # Before the time of a text is measured: it may compile.
    model: Model = embedder.model(layout, unit=embedder.unit)
    known = known_vectors(config, embedder, layout)
    model = KnownVectors(model, known) if known else model
    with (
        Progress("encode", mine, "texts") as bar,
        ThreadPoolExecutor(1) as writer,
        Workers(tokenizer, embedder.folder, config.workers, most=embedder.workers, texts=mine) as workers,
    ):
        groups = shards.groups(items, config.window, bar.skip)
        batches = workers.windows(groups, layout, sentences=config.sentences)
        windows = encode(batches, model, _plan(config, embedder, layout), bar.advance)
        writing: Future[None] | None = None
        for path, window, whole in _by_shard(windows, shards, embedder.width):
            if writing is not None:
                writing.result()
            writing = writer.submit(_write, path, window, config.type if whole else "fp32")
        if writing is not None:
            writing.result()


class TakenConfig(Config):
    """Vectors of an index, beside the texts that they were made of, for an encoding to take over."""

    source: InputPath = Field(description="Collection of passages of the index.")
    model: ModelPath = Field(description="The model that made the vectors.")
    index: InputPath = Field(description="The index.")
    sentences: InputPath | None = Field(
        None, description="The index of the sentences that came with the passages."
    )
    what: What = Field("passages", description="What the vectors stand for.")
    long: Literal["first", "max"] = Field("first", description="As they were encoded.")
    most_pieces: int | None = Field(None, description="As they were encoded.")

    def encoding(self, folder: Path) -> EncodeConfig:
        """The encoding that would have made the folder."""
        return EncodeConfig(
            source=folder,
            model=self.model,
            what=self.what,
            long=self.long,
            most_pieces=self.most_pieces,
            sentences=self.sentences is not None,
        )


def take(config: TakenConfig, folder: Folder) -> None:
    """Copy the vectors of the passages that all have some."""
    several = config.long == "max" or config.what == "sentences"
    indexes = [(folder.path, open_index(config.index), several)]
    if config.sentences is not None:
        indexes.append((folder.path / SENTENCES, open_index(config.sentences), True))
    rows: list[list[tuple[str, int]]] = [[] for _ in indexes]
    for part in (SHARDS, SENTENCES):
        shutil.rmtree(folder.path / part, ignore_errors=True)
    with CollectionWriter(folder.path) as writer:
        for passage in Collection(config.source).passages():
            numbered = [_rows_of(index, passage.id, pieces) for _, index, pieces in indexes]
            if all(numbered):
                writer.add(Item(passage, Where(str(config.source))))
                for all_rows, own in zip(rows, numbered):
                    all_rows += own
    for (path, index, pieces), named in zip(indexes, rows):
        shards = index.stored() or ()
        kind = shards[0].vectors.type if shards else "fp16"
        ends = np.cumsum([len(shard) for shard in shards])
        numbers = np.array([number for _, number in named], np.int64)
        owners = np.searchsorted(ends, numbers, side="right")
        vectors = np.zeros((len(numbers), index.width), np.float32)
        for place, shard in enumerate(shards):
            mine = np.flatnonzero(owners == place)
            vectors[mine] = shard.vectors[numbers[mine] - (ends[place] - len(shard))].decode()
        (path / SHARDS).mkdir(parents=True)
        write_shard(path / SHARDS / "00000", [name for name, _ in named], vectors, kind)
        write_summary(path, kind, index.width, ["00000"], {"pieces": pieces}, len(named))


def _rows_of(index: Index, id: str, pieces: bool) -> list[tuple[str, int]]:
    """The ids and numbers of a passage's vectors; none where the back end keeps no vectors."""
    names = (f"{id}#{number}" for number in count()) if pieces else iter([id])
    rows = ((name, index.find(name)) for name in names) if index.stored() is not None else iter(())
    return [(name, row) for name, row in takewhile(lambda pair: pair[1] is not None, rows) if row is not None]


TAKEN = Stage("taken", TakenConfig, take, part_of="update")


def known_vectors(config: EncodeConfig, embedder: Embedder, layout: RoleLayout) -> dict[bytes, Floats]:
    """The vectors of the folders to take over that the same model made, by the tokens that they were made of.

    Rows of a piece: its own vector, then those of its sentences, if they were made with it.
    """
    known: dict[bytes, Floats] = {}
    models = model_digests(config.model) if config.reuse else ()
    for path in config.reuse:
        manifest = workspace.read_manifest(path)
        if manifest.kind == TAKEN.name:
            before = TakenConfig.model_validate(manifest.recipe).encoding(path)
            if not Collection(path).has("passages"):
                continue
        else:
            before = EncodeConfig.model_validate(manifest.recipe)
        settings = ("prompt", "title", "unit", "max_length", "half")
        alike = all(getattr(before, name) == getattr(config, name) for name in settings)
        if (
            manifest.inputs["model"] not in models
            or before.source is None
            or not alike
            or (config.sentences and not before.sentences)
        ):
            continue
        vectors, inner = _all_vectors(path), None
        if before.sentences:
            inner = _all_vectors(path / SENTENCES)
        items = read_items(before.source, before.what, before.split)
        plan, start, first = _plan(before, embedder, layout), 0, 0
        with Workers(embedder.reader.tokenizer, None) as workers:
            groups = _groups(items, before.window)
            for batch in workers.windows(groups, layout, sentences=before.sentences):
                pieces = plan.pieces(batch)
                rows: dict[int, bytes] = {}
                stored = pieces.first if before.long == "first" else np.ones(len(pieces.text), bool)
                places, spans = np.cumsum(stored) - 1, batch.spans(pieces, plan.frame)
                bounds = None if spans is None else np.searchsorted(spans.piece, np.arange(len(stored) + 1))
                for tokens, numbers in plan.packed(batch, pieces):
                    rows |= {n: row.tobytes() for row, n in zip(tokens, numbers.tolist()) if stored[n]}
                for n, piece in rows.items():
                    known[piece] = vectors[start + places[n], None]
                    if inner is not None and bounds is not None:
                        own = inner[first + bounds[n] : first + bounds[n + 1]]
                        known[piece] = np.concatenate([known[piece], own])
                start += int(stored.sum())
                first += 0 if spans is None else len(spans)
        assert start == len(vectors), "a vector for each piece"
    return known


def _all_vectors(path: Path) -> Floats:
    return np.concatenate([rows for _, rows in Vectors.open(path).chunks(WINDOW)])


def _groups(items: Iterator[TextItem], size: int) -> Iterator[list[TextItem]]:
    while group := list(islice(items, size)):
        yield group


def model_digests(model: Path) -> tuple[str, ...]:
    """The digest of a model's folder, and where a build copied it from another one, that one's."""
    own = workspace.digest(model)
    if not (model / workspace.MANIFEST).is_file():
        return (own,)
    manifest = workspace.read_manifest(model)
    return (own, manifest.inputs["model"]) if manifest.kind == "model" else (own,)


def _write(path: Path, window: WindowVectors, kind: Type) -> None:
    if window.sentences is not None:  # first, because a shard that is there is complete
        _write(sentences_beside(path), window.sentences, kind)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_shard(path, window.ids, window.vectors, kind, {"cut": astuple(window.cut)})


def _plan(config: EncodeConfig, embedder: Embedder, layout: RoleLayout) -> EncodingPlan:
    frame = frame_of(layout)
    room = frame.room - len(frame.again)
    if config.long != "first" and config.overlap >= room:
        raise RecipeError(
            f"overlap = {config.overlap}: a piece has room for {room} tokens of text",
            fix="give a smaller overlap, or a larger max_length",
        )
    budget = config.budget or embedder.budget
    return EncodingPlan(frame, budget, config.long, config.overlap, config.most_pieces)


def _by_shard(
    windows: Iterable[WindowVectors], shards: VectorShards, width: int
) -> Iterator[tuple[Path, WindowVectors, bool]]:
    """Windows put together to shards (True), and what is done of one that takes long to its parts (False)."""
    parts: list[WindowVectors] = []
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


def _joined(parts: list[WindowVectors]) -> WindowVectors:
    sentences = [part.sentences for part in parts if part.sentences is not None]
    return WindowVectors(
        [name for part in parts for name in part.ids],
        np.concatenate([part.vectors for part in parts]),
        sum((part.cut for part in parts), Cut()),
        _joined(sentences) if sentences else None,
    )


def _finish(path: Path, total: int, config: EncodeConfig, embedder: Embedder) -> None:
    """The summary of all shards; an id that occurs twice is refused."""
    names = [f"{number:05d}" for number in range(total)]
    counts = [ShardFile.read(path / SHARDS / name).count for name in names]
    encoder, layout = embedder.reader, layout_of(config, embedder)
    width = embedder.width
    if config.sentences:
        (path / SENTENCES).mkdir(exist_ok=True)
        of_sentences = [ShardFile.read(path / SENTENCES / SHARDS / name).count for name in names]
    hashes = [np.asarray(Shard.open(path / SHARDS / name, config.type, width).ids.hashes) for name in names]
    every = np.concatenate([np.zeros(0, np.uint64), *hashes])
    if len(np.unique(every)) < len(every):
        raise DataError(
            "an id occurs twice in the source", file=config.source, fix="give every text an id of its own"
        )
    about = {
        "model": str(config.model), "what": config.what, "unit": embedder.unit,
        "prompt": ROLES[config.what] if config.prompt is None else config.prompt,
        "pieces": config.long == "max" or config.what == "sentences", "similarity": encoder.similarity,
        "title": encoder.layout.title, "long": config.long, "max_length": layout.length,
        "precision": embedder.precision,
    }  # fmt: skip
    write_summary(path, config.type, width, names, about, sum(counts))
    if config.sentences:
        inner = about | {"what": "sentences", "pieces": True, "long": "first", IN_CONTEXT: True}
        write_summary(path / SENTENCES, config.type, width, names, inner, sum(of_sentences))
    said = cut_says(
        sum((_cut(path / SHARDS / name) for name in names), Cut()),
        layout.length,
        encoder.max_positions,
        config,
    )
    if said:
        say(said)


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
    in_parts=True,
)
