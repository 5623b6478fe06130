"""The teacher of soft labels: a cross-encoder from the same start, on the same questions and negatives."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import torch
from methods import NEGATIVES, Bench, loop
from prepared import PAIR
from stopwatch import Stopwatch

from liebig.methods.reranker import RerankBatches, Reranker
from liebig.methods.samplers import GroupChoice, random_batches
from liebig.model.cross_encoder import CrossEncoder
from liebig.train.distributed import World
from liebig.train.loop import Epochs, train
from liebig.train.optim import AdamWConfig

LR, EPOCHS, BATCH = 2e-4, 2, 32


def teach(bench: Bench, folder: Path) -> dict[str, float]:
    """A cross-encoder from the same start on the same negatives; its scores of every group are the soft labels."""
    plan, world, watch = bench.plan, World(device=bench.plan.device), Stopwatch()
    with watch("data"):
        shutil.rmtree(folder, ignore_errors=True)
        torch.manual_seed(0)
        cross = CrossEncoder.start(plan.encoder, length=PAIR)
        data, asked, known = bench.bm25, bench.data.train.bare, bench.data.bare
        sampler, choice = random_batches(len(data), BATCH, 0), GroupChoice(2 * NEGATIVES)
    with watch("steps"):
        train(
            Reranker(cross), RerankBatches(cross, data, asked, known, sampler, choice, world), folder,
            loop=loop(EPOCHS, BATCH, 0), optim=AdamWConfig(lr=LR), world=world,
            epochs=Epochs(sampler.steps), label=f"{bench.name} teacher",
        )  # fmt: skip
    shutil.rmtree(folder)
    with watch("scores"):
        groups = [np.concatenate((data.positives[i], data.negatives[i])) for i in range(len(data))]
        owners = np.repeat(np.arange(len(data)), [len(group) for group in groups])
        found = cross.eval().scores(
            asked.take(owners).to_lists(), known.take(np.concatenate(groups)).to_lists()
        )
        beside = plan.teacher(bench.name).with_suffix(".new.npy")
        np.save(beside, found)
        beside.replace(plan.teacher(bench.name))
    return watch.seconds
