"""The sampler a recipe asks for: random, sequential, or scheduled now or ahead of time."""

from __future__ import annotations

from pathlib import Path

import torch

from liebig.finetune import adaptive
from liebig.finetune.ahead import Ahead
from liebig.finetune.build import similarity_of
from liebig.finetune.config import AdaptiveConfig, FinetuneConfig, RandomConfig
from liebig.finetune.contrastive import Retriever
from liebig.finetune.hardness import Similarity
from liebig.finetune.ltr import Ltr
from liebig.finetune.schedule import Order, Way
from liebig.train.config import LoopConfig
from liebig.train.distributed import World
from liebig.train.labelled.examples import Examples
from liebig.train.labelled.samplers import Sampler, random_batches, sequential_batches, steps_of
from liebig.train.labelled.texts import Texts
from liebig.train.objective import Objective


def sampler_of(
    config: FinetuneConfig,
    objective: Objective,
    examples: Examples,
    queries: Texts,
    passages: Texts,
    home: Path,
    world: World,
) -> Sampler:
    """Which examples meet; schedules lie in `home`."""
    choice, n, batch = config.batching, len(examples), config.loop.batch
    if not isinstance(choice, AdaptiveConfig):
        return plain_sampler(config, n, world)
    unit = similarity_of(config) == "cosine"
    retriever = objective.retriever if isinstance(objective, Ltr) else objective
    assert isinstance(retriever, Retriever), "scheduling is for retrievers"

    def find(epoch: int) -> Similarity:
        if choice.run is not None and (epoch == 0 or choice.run_always):
            return adaptive.run_similarity(choice.run, examples)
        return adaptive.model_similarity(retriever, examples, queries, passages, unit)

    how = adaptive.Adaptive(batch, ways_of(choice), order_of(choice), config.seed, choice.parts)
    if not choice.ahead:
        return how.sampler(n, home, how.now(home, find), world)
    twin = torch.from_numpy(adaptive.twins(examples))
    last = last_epoch(config.loop, steps_of(n, batch, world.size))
    ahead = Ahead(how, home, find, twin, world.device, last)
    return how.sampler(n, home, ahead.begin, world, ahead.close)


def ways_of(choice: AdaptiveConfig) -> tuple[Way, ...]:
    """How an epoch is scheduled: our way, or the paper's."""
    if choice.preset == "paper":
        return adaptive.as_written(choice.search, choice.beam, choice.lists)
    return adaptive.searching(choice.search, choice.beam, choice.candidates, choice.start or "near")


def order_of(choice: AdaptiveConfig) -> Order:
    """The order of an epoch's batches; the paper trains on them as they are made."""
    return choice.order or ("made" if choice.preset == "paper" else "shuffled")


def plain_sampler(config: FinetuneConfig, n: int, world: World) -> Sampler:
    """The baselines: at random, or in the order of the file."""
    if isinstance(config.batching, RandomConfig):
        return random_batches(n, config.loop.batch, config.seed, world.size)
    return sequential_batches(n, config.loop.batch, world.size)


def last_epoch(loop: LoopConfig, steps: int) -> int | None:
    """The number of the last epoch, counted from 0, where the recipe says how long it trains."""
    if loop.minutes is not None:
        return None
    total = loop.steps if loop.steps is not None else max(1, round((loop.epochs or 1.0) * steps))
    return (total - 1) // steps
