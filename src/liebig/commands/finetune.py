"""`liebig finetune`: labelled data and a starting model in, a model folder and a log out.

Reads and checks the examples, tokenises their texts once, builds objective, sampler and evaluation from the recipe,
trains (taking up what an interrupted run left), and saves the best model of the evaluations, or the last one. An untied
retriever leaves its passage encoder in `model/` and its query encoder in `query/`. Under torchrun every process runs
this; the first one writes.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from liebig.base.pipeline import Stage
from liebig.base.workspace import Folder
from liebig.collection.collection import Collection
from liebig.measures.names import parse_all
from liebig.methods import lora, similarity_tasks as similarity
from liebig.methods.abs.sampler import plain_sampler, sampler_of
from liebig.methods.contrastive import Choice, Drawn, Maker
from liebig.methods.dev_evaluation import read_candidates, read_search, too_small
from liebig.methods.finetune_building import Start, layouts_of, similarity_of, start
from liebig.methods.finetuning import CosineConfig, DistillConfig, FinetuneConfig, TripletConfig
from liebig.methods.labelled import Sampler, cached, read_examples, tokenised
from liebig.methods.ltr import Ltr, evaluate_ltr
from liebig.text.layout import RoleLayout
from liebig.train.batch import Batch
from liebig.train.checkpoint import load_checkpoint, put_module, take_module
from liebig.train.distributed import World, joined, sharded
from liebig.train.loop import Epochs, train
from liebig.train.objective import Objective

MODEL, QUERY, ADAPTER, CACHE, SCHEDULE = "model", "query", "adapter", "cache", "schedule"
Say = Callable[[str], None]
Evaluate = Callable[[Objective], Mapping[str, float]]


def run(config: FinetuneConfig, folder: Folder) -> None:
    """Fine-tune, and save the model."""
    with joined() as world:
        finetune(config, folder.path, world)


@dataclass(frozen=True)
class Data:
    """Batches by step, how they are drawn, and the evaluation where there is one."""

    batches: Callable[[int], Batch]
    sampler: Sampler
    evaluate: Evaluate | None


def finetune(config: FinetuneConfig, folder: Path, world: World) -> None:
    """The same for a process that has joined the others; leaves `model/` and `log.jsonl` in the folder."""
    say = _speaker(world)
    made = start(config)
    say(made.encoder.describe())
    local = isinstance(config.objective, CosineConfig | TripletConfig)
    data = (_read_texts if local else _read_retrieval)(config, made, folder, world, say)
    try:
        train(
            made.objective,
            data.batches,
            folder,
            loop=config.loop,
            optim=config.optim,
            schedule=config.schedule,
            world=world,
            epochs=Epochs(data.sampler.steps, data.sampler.begin),
            evaluate=data.evaluate,
            label=config.objective.kind,
        )
    finally:
        data.sampler.close()
    if data.evaluate is not None:
        say(f"keeping the weights of step {load_checkpoint(made.objective, folder):,}, the best on dev")
    save(config, made, folder, world)
    world.barrier()
    if world.first:
        shutil.rmtree(folder / CACHE, ignore_errors=True)


def _read_retrieval(config: FinetuneConfig, made: Start, folder: Path, world: World, say: Say) -> Data:
    collection = Collection(config.collection)
    read = read_examples(
        collection,
        config.split,
        groups=config.groups,
        relevant=config.relevant,
        queries=config.limit,
        subset_seed=config.limit_seed,
        scored=isinstance(config.objective, DistillConfig),
    )
    examples = read.examples
    say(
        f"{len(examples):,} queries, {len(examples.passages):,} passages, "
        f"{len(examples.negatives.values) / len(examples):.1f} negatives a query"
    )
    query, passage = layouts_of(made.encoder)
    queries = cached(folder / CACHE / "queries", tokenised(read.queries, query), world)
    passages = cached(folder / CACHE / "passages", tokenised(read.passages, passage), world)
    sampler = sampler_of(config, made.objective, examples, queries, passages, folder / SCHEDULE, world)
    pool = collection.count("passages") if config.hard < 1 else 0
    choice = Choice(config.negatives, config.positives, config.rotate, config.hard, config.seed, pool)
    mask = getattr(config.objective, "mask", True)
    drawn = Drawn(collection, passage) if pool else None
    maker = Maker(examples, queries, passages, sampler, choice, world, mask, drawn)
    return Data(maker, sampler, _dev(config, (query, passage), folder, world, say))


def _dev(
    config: FinetuneConfig, layouts: tuple[RoleLayout, RoleLayout], folder: Path, world: World, say: Say
) -> Evaluate | None:
    dev = config.evaluation
    if dev.split is None:
        return None
    collection = Collection(dev.collection or config.collection)
    measures = parse_all(dev.measures)
    compared = similarity_of(config)
    if dev.over == "candidates":
        found = read_candidates(
            collection,
            dev.split,
            layouts,
            groups=dev.groups,
            candidates=dev.candidates,
            measures=measures,
            similarity=compared,
        )
        _warn(len(found.query_ids), say)
        return (lambda o: evaluate_ltr(found, o)) if config.objective.kind == "ltr" else found
    searched = read_search(
        collection,
        dev.split,
        layouts,
        folder / CACHE / "dev",
        world,
        measures=measures,
        similarity=compared,
        passages=dev.passages,
    )
    _warn(len(searched.query_ids), say)
    return searched


def _warn(queries: int, say: Say) -> None:
    warning = too_small(queries)
    if warning is not None:
        say(warning)


def _read_texts(config: FinetuneConfig, made: Start, folder: Path, world: World, say: Say) -> Data:
    """Scored pairs or triplets; they are neither queries nor passages, so a prompt is the one of any text."""
    layout = made.encoder.layout_for(None)

    def read(collection: Collection, split: str, limit: int | None) -> similarity.Texted:
        if isinstance(config.objective, CosineConfig):
            scale = config.objective.scale
            return similarity.read_pairs(collection, split, layout, scale, limit, config.limit_seed)
        return similarity.read_triplets(collection, split, layout, limit, config.limit_seed)

    data = read(Collection(config.collection), config.split, config.limit)
    say(f"{len(data):,} examples")
    sampler = plain_sampler(config, len(data), world)
    dev, evaluate = config.evaluation, None
    if dev.split is not None:
        held = read(Collection(dev.collection or config.collection), dev.split, None)
        _warn(len(held), say)
        evaluate = similarity.evaluator(held, getattr(config.objective, "distance", "cosine"))
    return Data(similarity.Maker(data, sampler, world), sampler, evaluate)


def save(config: FinetuneConfig, made: Start, folder: Path, world: World) -> None:
    """Write the model folders; parameters divided over processes are put together first."""
    if sharded(made.objective):
        whole = take_module(made.objective)
        made = start(config) if world.first else made
        if world.first:
            put_module(made.objective, whole)
    if not world.first:
        return
    towers = {MODEL: made.passage} | ({QUERY: made.encoder} if made.passage is not made.encoder else {})
    for name, tower in towers.items():
        if config.lora is not None:
            if config.lora.adapter:
                lora.save_adapter(tower.backbone, folder / ADAPTER / name, tower.backbone.source)
            lora.merge(tower.backbone)
        tower.save(folder / name)
    if isinstance(made.objective, Ltr):
        made.objective.save_head(folder / MODEL)


def _speaker(world: World) -> Say:
    def say(text: str) -> None:
        if world.first:
            sys.stderr.write(text + "\n")

    return say


STAGE = Stage(
    "finetune", FinetuneConfig, run, "liebig finetune recipe.toml loop.epochs=3 --out runs/retriever"
)
