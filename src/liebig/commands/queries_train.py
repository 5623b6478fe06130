"""`liebig queries train`: reads pairs and a starting model, writes a generator's folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from liebig.base.config import Config, InputPath
from liebig.base.pipeline import Stage
from liebig.base.progress import Progress
from liebig.base.records import Title
from liebig.base.workspace import Folder
from liebig.collection.lookup import hash_all
from liebig.methods.labelled import random_batches
from liebig.queries.consistency import Finder, rouge_l, share
from liebig.queries.decoding import Engine, Method, passage_keys
from liebig.queries.generator import Generator, Maker, Settings, Writing, from_encoder
from liebig.queries.labelled_pairs import Asked, drawn, read_asked
from liebig.text.tokenizer import Tokenizer
from liebig.train.checkpoint import load_checkpoint
from liebig.train.distributed import World, joined
from liebig.train.loop import Epochs, train
from liebig.train.objective import Objective
from liebig.train.settings import AdamWConfig, LoopConfig, OptimConfig, ScheduleConfig


class Seq2SeqStart(Config):
    """A seq2seq model folder: T5 and its relatives, BART, or a generator trained before."""

    kind: Literal["folder"] = "folder"
    path: InputPath = Field(description="A seq2seq model folder of transformers, or of liebig queries train.")


class EncoderStart(Config):
    """Both halves from an encoder, cross-attention new: a generator without any download."""

    kind: Literal["encoder"] = "encoder"
    path: InputPath = Field(description="An encoder's folder, or liebig:mini-v1.")
    decoder_layers: int | None = Field(
        default=None, ge=1, description="Layers of the decoder [default: as many as the encoder has]."
    )


StartConfig = Annotated[Seq2SeqStart | EncoderStart, Field(discriminator="kind")]


class TrainEvaluation(Config):
    """Queries written for held-out passages while training: ROUGE-L, and whether they find their passage."""

    split: str | None = Field(default=None, description="The held-out split; none if not given.")
    passages: int = Field(default=200, ge=1, description="Passages written for, drawn by seed.")
    bm25: tuple[InputPath, ...] = Field(
        default=(),
        description="BM25 indexes of the passages; a query must find its own in the first that has it.",
    )
    k: int = Field(default=20, ge=1, description="How far down a passage counts as found.")


class QueriesTrainConfig(Config):
    """`liebig queries train`: a seq2seq model learns to write queries from passages and their queries."""

    collections: tuple[InputPath, ...] = Field(
        min_length=1, description="Collections with passages, queries and judgements."
    )
    model: StartConfig = Field(description="What to start from: a seq2seq folder, or an encoder.")
    split: str = Field(default="train", description="The split whose pairs are learned.")
    relevant: int = Field(default=1, description="The least grade that makes a pair.")
    limit: int | None = Field(default=None, ge=1, description="Train on so many pairs only, drawn by seed.")
    prefix: str | None = Field(
        default=None, description="Text before every passage [default: the model's own, else none]."
    )
    title: Title | None = Field(
        default=None,
        description="Put the title before the passage: space, separator or no [default: the model's own, else space].",
    )
    passage_length: int | None = Field(
        default=None,
        ge=8,
        description="Tokens of a passage, special ones included [default: the model's own, else 256].",
    )
    query_length: int | None = Field(
        default=None,
        ge=2,
        description="Tokens of a query, its end included [default: the model's own, else 64].",
    )
    optim: OptimConfig = Field(default=AdamWConfig(lr=3e-4), description="The optimiser.")
    schedule: ScheduleConfig = Field(default=ScheduleConfig(), description="The learning rate over time.")
    loop: LoopConfig = Field(
        default=LoopConfig(epochs=3, batch=64),
        description="Length, batch, precision, checkpoints, logs.",
    )
    evaluation: TrainEvaluation = Field(default=TrainEvaluation(), description="Evaluation while training.")

    @property
    def seed(self) -> int:
        """Everything random follows from it."""
        return self.loop.seed

    @model_validator(mode="after")
    def _is_whole(self) -> QueriesTrainConfig:
        if self.loop.shard:
            raise ValueError("a generator is trained whole in every process: set loop.shard = false")
        return self


MODEL = "model"
LIMIT, HELD_OUT = 21, 22  # purposes of draws


def run(config: QueriesTrainConfig, folder: Folder) -> None:
    """Train a generator, and save it."""
    with joined() as world:
        train_generator(config, folder.path, world)


def train_generator(config: QueriesTrainConfig, folder: Path, world: World) -> None:
    """The same for a process that has joined the others; leaves `model/` and `log.jsonl` in the folder."""
    asked = read_asked(config.collections, config.split, config.relevant)
    generator = _labelled(start(config), config, asked)
    objective = Writing(generator)
    maker = _maker(config, generator, asked, world)
    evaluate = _evaluation(config, generator, world)
    train(
        objective,
        maker,
        folder,
        loop=config.loop,
        optim=config.optim,
        schedule=config.schedule,
        world=world,
        epochs=Epochs(maker.sampler.steps),
        evaluate=evaluate,
        label="queries",
    )
    if evaluate is not None:
        load_checkpoint(objective, folder)
    if world.first:
        generator.save(folder / MODEL)
        Progress("queries").say(f"trained on {generator.settings.labels[-1]}")


def start(config: QueriesTrainConfig) -> Generator:
    """The starting model: a seq2seq folder, or both halves from an encoder."""
    if isinstance(config.model, EncoderStart):
        tokenizer = Tokenizer.from_folder(config.model.path)
        model = from_encoder(config.model.path, tokenizer, config.model.decoder_layers, config.seed)
        generator = Generator(model, tokenizer, Settings())
    else:
        generator = Generator.load(config.model.path)
    return generator.with_settings(
        prefix=config.prefix,
        title=config.title,
        passage_length=config.passage_length,
        query_length=config.query_length,
    )


def _labelled(generator: Generator, config: QueriesTrainConfig, asked: Sequence[Asked]) -> Generator:
    """With a note of the labels that it is about to see."""
    pairs = sum(len(one.queries) for one in asked)
    names = " + ".join(path.name for path in config.collections)
    seen = f"{names}, {config.split}: {min(pairs, config.limit or pairs)} pairs"
    return generator.with_settings(labels=(*generator.settings.labels, seen))


def _maker(config: QueriesTrainConfig, generator: Generator, asked: Sequence[Asked], world: World) -> Maker:
    queries = [query for one in asked for query in one.queries]
    passage_of = np.repeat(np.arange(len(asked)), [len(one.queries) for one in asked])
    kept = drawn(len(queries), config.limit, config.seed, LIMIT)
    return Maker(
        sources=generator.sources([one.passage for one in asked]),
        targets=generator.targets([queries[i] for i in kept]),
        passage_of=passage_of[kept].tolist(),
        sampler=random_batches(len(kept), config.loop.batch, config.seed, world.size),
        world=world,
    )


def _evaluation(config: QueriesTrainConfig, generator: Generator, world: World) -> Evaluation | None:
    told = config.evaluation
    if told.split is None:
        return None
    held = read_asked(config.collections, told.split, config.relevant)
    chosen = [held[i] for i in drawn(len(held), told.passages, config.seed, HELD_OUT)]
    finder = Finder(told.bm25) if told.bm25 else None
    return Evaluation(generator, chosen, finder, told.k, config.seed, world)


class Evaluation:
    """Writes queries for held-out passages: the likeliest for ROUGE-L, a sampled one for BM25."""

    def __init__(
        self,
        generator: Generator,
        held: Sequence[Asked],
        finder: Finder | None,
        k: int,
        seed: int,
        world: World,
    ) -> None:
        self._generator, self._held, self._finder, self._k = generator, held, finder, k
        self._sources = generator.sources([one.passage for one in held])
        self._keys = passage_keys(seed, hash_all(one.passage.id for one in held))
        self._device = world.device

    def __call__(self, objective: Objective) -> Mapping[str, float]:
        likeliest, sampled = self._written(Method(1, top_k=1)), self._written(Method(1))
        scores = [rouge_l(text, one.queries) for text, one in zip(likeliest, self._held)]
        found = {"rouge-l": float(np.mean(scores))}
        if self._finder is not None:
            ranks = self._finder.ranks(sampled, [one.passage.id for one in self._held], self._k)
            found[f"found@{self._k}"] = share(ranks, self._k)
        return found

    def _written(self, method: Method) -> list[str]:
        rows = Engine(self._generator, self._device).write(self._sources, self._keys, method)
        return self._generator.texts([row[0] for row in rows])


STAGE = Stage(
    "queries train",
    QueriesTrainConfig,
    run,
    "liebig queries train runs/collection model.kind=folder model.path=runs/flan-t5 --out runs/generator",
    positional="collections",
)
