"""Adaptive batching: before an epoch, batches are made from what the model finds hard, and kept in a file.

`schedule/epoch-N.npy` holds the order of an epoch, a function of seed, epoch and the vectors at its start; a resumed
run reads it instead of making another. The first process makes it, the others read it. The similarity of the first
epoch may come from a run (BM25), later ones from the towers as they are. Hardness of each epoch, and of random batches
beside it, goes into `epoch-N.json`. Cost: encoding all queries and first positives once per epoch, and the schedule.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from io import BytesIO
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, model_validator

from liebig.base import rng
from liebig.base.config import InputPath
from liebig.base.durable import atomic_write
from liebig.base.errors import DataError
from liebig.base.progress import Progress
from liebig.base.records import Hit
from liebig.formats.items import Options
from liebig.formats.on_disk import DiskSource
from liebig.formats.trec import read_run
from liebig.methods.abs.hardness import Similarity, VectorSimilarity, from_run, hardness
from liebig.methods.abs.schedule import Order, Schedule, Scheduler, schedule, written
from liebig.methods.labelled import Examples
from liebig.methods.samplers import Batching, LabelledRun, Sampler, Towers, steps_of
from liebig.ragged import Ragged
from liebig.train.distributed import World
from liebig.train.loop import LoopConfig

Longs = NDArray[np.int64]
SAMPLE = 200
"""Random batches that the hardness of a schedule is held against."""


@dataclass(frozen=True)
class Adaptive:
    """How schedules are made: batch, scheduler, order and seed."""

    batch: int
    scheduler: Scheduler
    order: Order
    seed: int

    def sampler(self, n: int, folder: Path, similarity: Callable[[int], Similarity], world: World) -> Sampler:
        """A sampler of epochs whose orders lie in the folder; the first process makes those that are not there."""

        def begin(epoch: int) -> None:
            if world.first and not path_of(folder, epoch).exists():
                similarities = similarity(epoch)
                total = len(similarities) // self.batch
                with Progress(f"scheduling epoch {epoch}", total, "batches") as bar:
                    bar.say(self.store(folder, epoch, similarities, bar.advance))
            world.barrier()

        @lru_cache(maxsize=2)
        def order(epoch: int) -> Longs:
            examples: Longs = np.load(path_of(folder, epoch))
            return examples

        return Sampler(order, n, self.batch, steps_of(n, self.batch, world.size), begin)

    def store(
        self,
        folder: Path,
        epoch: int,
        similarity: Similarity,
        advance: Callable[[int], None] = lambda n: None,
    ) -> str:
        """Make the schedule of an epoch and write it whole; returns a sentence about it."""
        seed = int(rng.key(self.seed, epoch) >> 1)
        made = self.scheduler(similarity, self.batch, seed=seed, advance=advance)
        usual = random_hardness(similarity, self.batch, seed)
        folder.mkdir(parents=True, exist_ok=True)
        facts = {
            "batches": len(made.batches),
            "hardness": mean(made),
            "random": usual,
            "rest": len(made.rest),
        }
        atomic_write(path_of(folder, epoch).with_suffix(".json"), json.dumps(facts, indent=2).encode())
        out = BytesIO()
        np.save(out, made.order(self.order, seed))
        atomic_write(path_of(folder, epoch), out.getvalue())
        return f"hardness of a batch {mean(made):.4g}, of a random one {usual:.4g}"


def mean(schedule: Schedule) -> float:
    """Hardness of a batch, on average."""
    return schedule.total / max(1, len(schedule.batches))


def random_hardness(similarity: Similarity, batch: int, seed: int, sample: int = SAMPLE) -> float:
    """The same for random batches, a sample of them."""
    n = len(similarity)
    order = np.argsort(rng.uniform(rng.key(seed, 19), np.arange(n)), kind="stable")
    picked = [order[i * batch : (i + 1) * batch] for i in range(min(sample, n // batch))]
    values = [hardness(similarity, torch.from_numpy(b).to(similarity.device)) for b in picked]
    return float(np.mean(values)) if values else 0.0


def model_similarity(
    objective: Towers, examples: Examples, queries: Ragged, passages: Ragged, unit: bool
) -> Similarity:
    """From the towers as they are: each example's query and first positive."""
    firsts = examples.positives.values[examples.positives.offsets[:-1]]
    device = objective.tower("query").device
    q = objective.tower("query").encode_rows(queries, unit=unit)
    once, back = np.unique(firsts, return_inverse=True)
    p = objective.tower("passage").encode_rows(passages.take(once), unit=unit)[back]
    twin = torch.from_numpy(twins(examples))
    return VectorSimilarity.of(torch.from_numpy(q).to(device), torch.from_numpy(p).to(device), twin)


def run_similarity(run: Path, examples: Examples) -> Similarity:
    """From a TREC run of the training queries: what it scores of other examples' positives."""
    holders: dict[str, list[int]] = {}
    for example in range(len(examples)):
        holders.setdefault(examples.passages[examples.positives[example][0]], []).append(example)
    numbers = {name: i for i, name in enumerate(examples.queries)}
    similarity = from_run(_hits(run), numbers, holders, twins(examples))
    if not len(similarity.values):
        raise DataError(
            "the run finds no positive of another training query",
            file=run,
            fix="give a run of the training queries over the passages of the collection",
        )
    return similarity


def _hits(path: Path) -> Iterator[tuple[str, str, float]]:
    """Query, passage and score of every line of a TREC run."""
    for item in read_run(DiskSource(path), Options()):
        assert isinstance(item.record, Hit), "a run holds hits"
        yield item.record.query, item.record.passage, item.record.score


def twins(examples: Examples) -> Longs:
    """A number for each example, equal where first positives have the same text."""
    firsts = examples.positives.values[examples.positives.offsets[:-1]]
    return examples.content[firsts]


def path_of(folder: Path, epoch: int) -> Path:
    return folder / f"epoch-{epoch:03d}.npy"


class AdaptiveBatching(Batching):
    """Adaptive batch scheduling: examples whose passages are hard for each other's queries meet."""

    kind: Literal["adaptive"] = Field(default="adaptive", description="Adaptive batch scheduling")
    compares: ClassVar[bool] = True
    preset: Literal["liebig", "paper"] = Field(
        default="liebig",
        description="Liebig's algorithm, or the paper's as published: one random start, then single swaps",
    )
    search: Literal["greedy", "beam"] = Field(
        default="greedy", description="Search that improves a batch; beam in the paper's algorithm only"
    )
    beam: int = Field(
        default=3,
        ge=1,
        description="The paper's beam search: number of members that are tried for removal at each swap",
    )
    candidates: int | Literal["auto", "all"] = Field(
        default="auto",
        description="Number of pairs nearest to a batch that can join it, in both directions; all; or auto, by the "
        "batch size",
    )
    lists: int = Field(
        default=100,
        ge=1,
        description="The paper's beam search: number of nearest passages and queries of each member that can join",
    )
    order: Literal["shuffled", "hard-first", "made"] | None = Field(
        default=None,
        description="Order of the batches within an epoch [default: shuffled; in order for the paper's algorithm]",
    )
    run: InputPath | None = Field(
        default=None,
        description="TREC run of the training queries (BM25) that gives the similarities of the first epoch",
    )
    run_always: bool = Field(default=False, description="Take the similarities of every epoch from the run")

    @model_validator(mode="after")
    def _has_a_run(self) -> AdaptiveBatching:
        if self.run_always and self.run is None:
            raise ValueError("run_always needs a run")
        if isinstance(self.candidates, int) and self.candidates < 1:
            raise ValueError("candidates must be at least 1")
        if self.preset == "paper" and self.candidates != "auto":
            raise ValueError("the paper's batches have lists: leave candidates out")
        if self.search == "beam" and self.preset == "liebig":
            raise ValueError('beam search is part of the paper\'s algorithm: set preset = "paper"')
        return self

    def sampler(self, n: int, loop: LoopConfig, world: World, labelled: LabelledRun | None) -> Sampler:
        assert labelled is not None, "a recipe whose examples have no passages is refused"
        retriever, examples, folder = labelled.retriever, labelled.examples, labelled.folder
        unit = retriever.tower("query").similarity == "cosine"

        def similarity(epoch: int) -> Similarity:
            if self.run is not None and (epoch == 0 or self.run_always):
                return run_similarity(self.run, examples)
            return model_similarity(retriever, examples, labelled.queries, labelled.passages, unit)

        how = Adaptive(loop.batch, self.scheduler, self.batch_order, loop.seed)
        return how.sampler(n, folder, similarity, world)

    @property
    def scheduler(self) -> Scheduler:
        """What makes the schedule of an epoch."""
        if self.preset == "liebig":
            return partial(schedule, candidates=self.candidates)
        return written if self.search == "greedy" else partial(written, k=self.beam, lists=self.lists)

    @property
    def batch_order(self) -> Order:
        """The order of an epoch's batches; the paper trains on them as they are made."""
        return self.order or ("made" if self.preset == "paper" else "shuffled")
