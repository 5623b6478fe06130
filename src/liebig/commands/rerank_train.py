"""`liebig rerank train` and `liebig rerank score`: groups in, a reranker out; a run or groups in, their scores out."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from pydantic import Field, field_validator, model_validator

from liebig.base.config import Config, InputPath
from liebig.base.errors import DataError
from liebig.base.pipeline import Stage
from liebig.base.records import Title
from liebig.base.rng import key
from liebig.base.workspace import Folder
from liebig.collection.collection import Collection
from liebig.measures.evaluator import judgements_from_mapping
from liebig.measures.names import known, parse_all
from liebig.methods.labelled import Read, Texts, cached, random_batches, read_examples, tokenised
from liebig.methods.reranker import CrossEncoder, Dev, Maker, Reranker
from liebig.model.backbone import make_backbone
from liebig.model.loading import BackboneConfig, FolderBackbone, HubBackbone, NewBackbone, local_folder
from liebig.text.layout import RoleLayout
from liebig.text.tokenizer import Tokenizer
from liebig.train.checkpoint import load_checkpoint, put_module, take_module
from liebig.train.distributed import World, joined, sharded
from liebig.train.loop import Epochs, train
from liebig.train.settings import AdamWConfig, LoopConfig, OptimConfig, ScheduleConfig

# The recipes of `liebig rerank train` and `liebig rerank score`.


class RerankTrainConfig(Config):
    """`liebig rerank train`: a cross-encoder on queries, their positives and hard negatives."""

    model: BackboneConfig = Field(description="The encoder to start from.")
    tokenizer: InputPath | None = Field(default=None, description="Tokenizer folder, for a new model only.")
    collection: InputPath = Field(description="A collection with queries, passages and groups.")
    split: str = Field(default="train", description="The split to train on.")
    groups: tuple[InputPath, ...] = Field(
        default=(), description="Folders of liebig mine, joined [default: the collection's groups]."
    )
    limit: int | None = Field(default=None, ge=1, description="Train on so many queries only, drawn by seed.")
    negatives: int = Field(default=7, ge=1, description="Negatives of a query in a step.")
    query_length: int = Field(default=64, ge=4, description="Tokens of a query.")
    length: int = Field(default=256, ge=16, description="Tokens of query and passage together.")
    title: Title = Field(
        default="space", description="What stands between title and text: space, separator, or no title."
    )
    dropout: float | None = Field(default=None, ge=0, lt=1, description="Dropout [default: the model's own].")
    dev: str | None = Field(default=None, description="A split with groups to evaluate on while training.")
    dev_groups: tuple[InputPath, ...] = Field(
        default=(), description="Folders with its groups, if elsewhere."
    )
    measures: tuple[str, ...] = Field(
        default=("RR@10", "nDCG@10"), description="Measures; the first decides which model is best."
    )
    optim: OptimConfig = Field(default=AdamWConfig(lr=2e-5), description="The optimiser.")
    schedule: ScheduleConfig = Field(default=ScheduleConfig(), description="The learning rate over time.")
    loop: LoopConfig = Field(
        default=LoopConfig(epochs=2, batch=16), description="Length, batch, precision, checkpoints, logs."
    )

    @property
    def seed(self) -> int:
        """Everything random follows from it."""
        return self.loop.seed

    @field_validator("measures")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        known(names)
        return names

    @model_validator(mode="after")
    def _sensible(self) -> RerankTrainConfig:
        if isinstance(self.model, NewBackbone) != (self.tokenizer is not None):
            raise ValueError("tokenizer is for a new model, which needs one; other models bring their own")
        if self.query_length + 8 > self.length:
            raise ValueError("length leaves no room for a passage: make it larger than query_length")
        if self.loop.patience is not None and self.dev is None:
            raise ValueError("loop.patience stops by dev, and nothing is evaluated: give dev")
        return self


MODEL, CACHE, RUN, SCORES = "model", "cache", "run.trec", "scores.trec"


def run(config: RerankTrainConfig, folder: Folder) -> None:
    """Train a cross-encoder, and save it."""
    with joined() as world:
        train_reranker(config, folder.path, world)


def train_reranker(config: RerankTrainConfig, folder: Path, world: World) -> None:
    """The same for a process that has joined the others; leaves `model/` and `log.jsonl` in the folder."""
    objective = Reranker(start(config))
    model = objective.model
    layouts = model.layouts()
    collection = Collection(config.collection)
    read = read_examples(
        collection, config.split, groups=config.groups, queries=config.limit, subset_seed=config.seed
    )
    if not len(read.examples.negatives.values):
        raise DataError(
            "no query has a negative, and a reranker learns from nothing else",
            file=config.collection,
            fix="make groups with liebig mine",
        )
    queries, passages = _texts(read, layouts, folder / CACHE / "train", world)
    sampler = random_batches(len(read.examples), config.loop.batch, config.seed, world.size)
    maker = Maker(model, read.examples, queries, passages, sampler, config.negatives, config.seed, world)
    dev = _dev(config, collection, layouts, folder / CACHE / "dev", world)
    train(
        objective,
        maker,
        folder,
        loop=config.loop,
        optim=config.optim,
        schedule=config.schedule,
        world=world,
        epochs=Epochs(sampler.steps),
        evaluate=dev,
        label="rerank",
    )
    if dev is not None:
        load_checkpoint(objective, folder)
    _save(config, objective, folder, world)


def _save(config: RerankTrainConfig, objective: Reranker, folder: Path, world: World) -> None:
    """Write the model folder; parameters divided over processes are put together first."""
    whole = take_module(objective) if sharded(objective) else None
    if world.first:
        if whole is not None:
            objective = Reranker(start(config))
            put_module(objective, whole)
        objective.model.save(folder / MODEL)
    world.barrier()
    if world.first:
        shutil.rmtree(folder / CACHE, ignore_errors=True)


def start(config: RerankTrainConfig) -> CrossEncoder:
    """The starting model with a fresh head, a function of the seed."""
    source = config.tokenizer
    if isinstance(config.model, FolderBackbone | HubBackbone):
        where = config.model.path if isinstance(config.model, FolderBackbone) else config.model.name
        source = local_folder(where)
    assert source is not None, "a new model has a tokenizer"
    tokenizer = Tokenizer.from_folder(source)
    backbone = make_backbone(config.model, tokenizer, config.seed)
    if config.dropout is not None:
        backbone.set_dropout(config.dropout)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(key(config.seed, 1) >> 1))
        return CrossEncoder(
            backbone, tokenizer, query_length=config.query_length, length=config.length, title=config.title
        )


def _texts(
    read: Read, layouts: tuple[RoleLayout, RoleLayout], cache: Path, world: World
) -> tuple[Texts, Texts]:
    """The queries and the passages of examples, tokenised."""
    return (
        cached(cache / "queries", tokenised(read.queries, layouts[0]), world),
        cached(cache / "passages", tokenised(read.passages, layouts[1]), world),
    )


def _dev(
    config: RerankTrainConfig,
    collection: Collection,
    layouts: tuple[RoleLayout, RoleLayout],
    cache: Path,
    world: World,
) -> Dev | None:
    if config.dev is None:
        return None
    read = read_examples(collection, config.dev, groups=config.dev_groups)
    found = read.examples
    known = {
        query: {found.passages[p]: 1 for p in found.positives[i]} for i, query in enumerate(found.queries)
    }
    return Dev(
        found,
        *_texts(read, layouts, cache, world),
        judgements_from_mapping(known),
        parse_all(config.measures),
    )


STAGE = Stage("rerank train", RerankTrainConfig, run, "liebig rerank train recipe.toml --out runs/reranker")
