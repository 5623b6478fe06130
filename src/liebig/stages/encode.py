"""`liebig encode`: reads texts and a model, writes shards of vectors; alone or as one of torchrun's processes.

Texts come from `encode_texts.py`; which are this process's, and how their vectors become shards and parts of them, is
in `encode_shards.py`. The first process writes the summary when all shards are there, and says how many texts were cut.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import accumulate, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import numpy as np
from pydantic import Field, model_validator

from liebig import encoders
from liebig.base import workspace
from liebig.base.config import Config, InputPath, ModelPath, Unrecorded
from liebig.base.durable import atomic_write
from liebig.base.errors import DataError, RecipeError
from liebig.base.machine import checked, computing_threads, may_have_gpu, process_count
from liebig.base.pipeline import Stage
from liebig.base.progress import Progress, say
from liebig.base.records import Title
from liebig.base.workspace import WHOLE, Folder
from liebig.collection import Collection
from liebig.model.settings import Precision
from liebig.search.embed import CHARACTERS, Embedder, pools_sentences
from liebig.search.encode_shards import PARTS, SENTENCES, Alone, VectorShards, by_shard, cut_of, write_window
from liebig.search.encode_texts import ROLES, What, count_items, read_items
from liebig.search.known_vectors import FormerVectors, KnownVectors, known_vectors
from liebig.search.pieces import Cut, frame_of
from liebig.search.taken import STAGE as TAKEN, TakenConfig
from liebig.search.token_windows import TextItem, Workers
from liebig.search.window_vectors import EncodingPlan, Model, encode
from liebig.text.layout import RoleLayout
from liebig.vectors import SHARDS, Shard, ShardFile, write_summary

if TYPE_CHECKING:
    import torch

    from liebig.train.distributed import World


class EncodeConfig(Config):
    """`liebig encode`: texts to shards of vectors."""

    source: InputPath = Field(description="A collection, or any file that liebig init reads.")
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
        "on a processor with int8 dot products (VNNI; asimddp on aarch64), where they have enough tokens to "
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


IN_CONTEXT = "in_context"  # said of sentences that were pooled from the states of their passages
PRECISION = "precision.txt"  # in PARTS: what `auto` was, so that a run that is resumed computes as it began
CUT = 512  # tokens: about where texts are cut


def run(config: EncodeConfig, folder: Folder) -> None:
    checked(config.device)
    world: World | Alone = Alone()
    if process_count() > 1 or (config.device != "cpu" and may_have_gpu()):
        from liebig.train.distributed import connect

        world = connect(cpu=config.device == "cpu")
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
        atomic_write(path, precision_of(config).encode())


def precision_of(config: EncodeConfig) -> Precision:
    """As the config says; `auto` is fp32 for queries, which cost little, and for texts of few tokens."""
    if config.precision != "auto":
        return config.precision
    if ROLES[config.what] == "query":
        return "fp32"
    from liebig.model.kernels.int8 import pays_from

    enough = pays_from()
    return "auto" if any(total >= enough for total in accumulate(_tokens(config))) else "fp32"


def _tokens(config: EncodeConfig) -> Iterator[int]:
    """About how many tokens are encoded of each text."""
    most = config.max_length or CUT
    for item in read_items(
        config.source, "passages" if config.what == "sentences" else config.what, config.split
    ):
        text = item.record if isinstance(item.record, str) else item.record.text
        count = len(text.encode()) // CHARACTERS
        yield min(count, most) if config.long == "first" and config.what != "sentences" else count


def layout_of(config: EncodeConfig, embedder: Embedder) -> RoleLayout:
    """How texts become tokens: as the model says for their role, with another prompt where one is named."""
    return embedder.reader.layout_for(ROLES[config.what], config.prompt)


def _encode(embedder: Embedder, config: EncodeConfig, shards: VectorShards) -> None:
    """Encode this process's shards; each is written beside the next one's computation."""
    tokenizer, layout = embedder.reader.tokenizer, layout_of(config, embedder)
    items = read_items(config.source, config.what, config.split, shards.takes)
    total = count_items(config.source, config.what, config.split)
    mine = shards.share(total)
    # Before the time of a text is measured: it may compile.
    model: Model = embedder.model(layout, unit=embedder.unit)
    known = known_vectors(_former(config, embedder, layout), tokenizer, layout)
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
        for path, window, whole in by_shard(windows, shards, embedder.width):
            if writing is not None:
                writing.result()
            writing = writer.submit(write_window, path, window, config.type if whole else "fp32")
        if writing is not None:
            writing.result()


def _former(config: EncodeConfig, embedder: Embedder, layout: RoleLayout) -> Iterator[FormerVectors]:
    """The folders to take over that the same model made of texts that it read in the same way."""
    models = model_digests(config.model) if config.reuse else ()
    for path in config.reuse:
        manifest = workspace.read_manifest(path)
        if manifest.kind != TAKEN.name:
            before = EncodeConfig.model_validate(manifest.recipe)
        elif Collection(path).has("passages"):
            before = _encoding_of(TakenConfig.model_validate(manifest.recipe), path)
        else:
            continue
        settings = ("prompt", "title", "unit", "max_length", "half")
        alike = all(getattr(before, name) == getattr(config, name) for name in settings)
        if manifest.inputs["model"] in models and alike and (before.sentences or not config.sentences):
            items = read_items(before.source, before.what, before.split)
            sentences = path / SENTENCES if before.sentences else None
            yield FormerVectors(
                path, sentences, _groups(items, before.window), _plan(before, embedder, layout)
            )


def _encoding_of(taken: TakenConfig, folder: Path) -> EncodeConfig:
    """The encoding that would have made a folder of vectors of an index."""
    return EncodeConfig(
        source=folder,
        model=taken.model,
        what=taken.what,
        long=taken.long,
        most_pieces=taken.most_pieces,
        sentences=taken.sentences is not None,
    )


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
        sum((cut_of(path / SHARDS / name) for name in names), Cut()),
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
