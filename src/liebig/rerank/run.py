"""`liebig rerank train` and `liebig rerank score`: groups in, a reranker out; a run or groups in, their scores out."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import torch

from liebig.data.collection import Collection, group_row
from liebig.data.items import Options
from liebig.data.output import json_line
from liebig.data.sources import DiskSource
from liebig.data.trec import read_run, run_lines
from liebig.errors import DataError
from liebig.machine import chosen
from liebig.measures.judgements import from_mapping
from liebig.measures.names import parse_all
from liebig.model.build import make_backbone
from liebig.model.config import FolderBackbone, HubBackbone
from liebig.model.loading import local_folder
from liebig.progress import Progress, track
from liebig.records import Hit
from liebig.rerank.config import RerankScoreConfig, RerankTrainConfig
from liebig.rerank.cross import CrossEncoder
from liebig.rerank.score import rerank, scorer, soft_labels
from liebig.rerank.train import Dev, Maker, Reranker
from liebig.rng import key
from liebig.text.layout import RoleLayout
from liebig.text.tokenizer import Tokenizer
from liebig.train.distributed import World, joined
from liebig.train.labelled.examples import Read, read_examples, read_groups
from liebig.train.labelled.samplers import random_batches
from liebig.train.labelled.texts import Texts, cached
from liebig.train.labelled.tokenise import tokenised
from liebig.train.loop import Epochs, train
from liebig.train.sharding import sharded
from liebig.train.state import load_checkpoint, put_module, take_module
from liebig.workspace import Folder

MODEL, CACHE, RUN, SCORES = "model", "cache", "run.trec", "scores.trec"


def run_train(config: RerankTrainConfig, folder: Folder) -> None:
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
        from_mapping(known),
        parse_all(config.measures),
    )


def run_score(config: RerankScoreConfig, folder: Folder) -> None:
    """Write `run.trec` and, without the hits below the depth, `scores.trec`; or `groups/SPLIT.jsonl` with scores."""
    device = chosen(config.device)
    models = [CrossEncoder.load(path).to(device) for path in config.models]
    score, collection = scorer(models, config.title), Collection(config.collection)
    if config.run is not None:
        hits = track(_hits(config.run), "rerank", unit="hits")
        found = rerank(hits, config.depth, score, collection.query, collection.passage)
        with (folder.path / RUN).open("w", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in run_lines(found, config.tag))
        with (folder.path / SCORES).open("w", encoding="utf-8") as file:
            file.writelines(_scored(folder.path / RUN, config.depth))
        return
    assert config.groups is not None, "there is a run, or there are groups"
    path = folder.path / "groups" / f"{config.split}.jsonl"
    path.parent.mkdir(exist_ok=True)
    groups = (found.group for found in read_groups(config.groups, config.split))
    with Progress("score", unit="queries") as bar, path.open("w", encoding="utf-8") as file:
        for group in soft_labels(groups, score, collection.query, collection.passage):
            file.write(json_line(group_row(group)) + "\n")
            bar.advance()


def _scored(run: Path, depth: int) -> Iterator[str]:
    """The lines of a reranked run whose scores are the cross-encoder's, not made up to keep an order."""
    with run.open(encoding="utf-8") as file:
        yield from (line for line in file if int(line.split()[3]) <= depth)


def _hits(path: Path) -> Iterator[Hit]:
    for item in read_run(DiskSource(path), Options()):
        assert isinstance(item.record, Hit), "a run holds hits"
        yield item.record
