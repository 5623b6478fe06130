"""One fine-tuning of one encoder: a set, a method, settings and a seed in, values of every test question out.

Everything that runs share (tokens, BM25's negatives, packed rows of passages, the first weights) stays in memory.
A run trains for some epochs, is evaluated on dev now and then, keeps its best weights on the device, and tests those by
exact search of all passages.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from prepared import PASSAGE, QUERY, Prepared, wrapped
from safetensors.torch import load_file, save_file
from searching import Rows, values
from stopwatch import Stopwatch
from torch import Tensor

from liebig.base import rng
from liebig.methods.abs.hardness import Similarity, VectorSimilarity, from_run
from liebig.methods.abs.sampler import Adaptive, AdaptiveBatching, twins
from liebig.methods.contrastive import InfoNCE
from liebig.methods.distill import SoftLabels
from liebig.methods.labelled import Examples
from liebig.methods.retrieval import Loss, RetrievalBatches, RetrievalObjective
from liebig.methods.samplers import GroupChoice, Sampler, random_batches, sequential_batches
from liebig.model.encoder import Encoder
from liebig.ragged import Ragged
from liebig.stages.average import mean
from liebig.train.distributed import World
from liebig.train.loop import Epochs, LoopConfig, train
from liebig.train.optim import AdamWConfig, ASAMConfig, ScheduleConfig
from liebig.vectors.topk import topk

Longs = NDArray[np.int64]
Weights = dict[str, Tensor]
NEGATIVES, POOL = 3, 16
"""Negatives of a query in a step, and negatives kept for a query."""
LEAST_STEPS, MOST_EPOCHS, EVALUATIONS = 150, 20, 5
"""Few labels are seen more often, so that there are some steps; about this many evaluations per run."""


@dataclass(frozen=True)
class Settings:
    """What dev decides."""

    lr: float = 5e-4
    rho: float = 0.5
    hard: float = 0.0

    def __str__(self) -> str:
        return f"lr {self.lr:g}, rho {self.rho:g}, hard {self.hard:g}"


@dataclass(frozen=True)
class Plan:
    """The same for all runs: the start, epochs, batch, device, and a folder for models and teachers."""

    encoder: Path
    epochs: int
    batch: int
    device: torch.device
    work: Path

    def weights(self, name: str, settings: Settings, seed: int) -> Path:
        """Where the weights of random batches lie, which other methods go on from."""
        return self.work / "models" / f"{name}_{settings.lr:g}_{seed}.safetensors"

    def teacher(self, name: str) -> Path:
        return self.work / f"teacher-{name}.npy"


class Start:
    """The encoder, loaded once; `fresh` puts its first weights, or others, back."""

    def __init__(self, folder: Path, device: torch.device, pooling: str = "mean") -> None:
        made = Encoder.load(folder, pooling=pooling)
        made.max_length, made.similarity = PASSAGE, "cosine"
        made.backbone.set_dropout(0.1)
        self.encoder = made.to(device)
        self.first = weights_of(self.encoder)

    def fresh(self, weights: Mapping[str, Tensor] | None = None) -> Encoder:
        put_weights(self.encoder, weights or self.first)
        return self.encoder


def weights_of(encoder: Encoder) -> Weights:
    """Copies of the weights, where they are."""
    return {name: p.detach().clone() for name, p in encoder.named_parameters()}


@torch.no_grad()
def put_weights(encoder: Encoder, weights: Mapping[str, Tensor]) -> None:
    own = dict(encoder.named_parameters())
    assert own.keys() == weights.keys(), "weights of another model"
    for name, p in own.items():
        p.copy_(weights[name])
        p.grad = None


@dataclass
class Bench:
    """A set ready to train on."""

    name: str
    data: Prepared
    plan: Plan
    start: Start

    def limited(self, name: str, n: int) -> Bench:
        """The same with fewer training questions; what has to do with passages, dev and test is shared."""
        made = Bench(name, self.data.limited(n), self.plan, self.start)
        shared = ("passages", "all_rows", "dev_rows", "test_rows")
        made.__dict__.update({part: getattr(self, part) for part in shared})
        return made

    @property
    def tokenizer(self):  # type: ignore[no-untyped-def]
        return self.start.encoder.tokenizer

    @cached_property
    def passages(self) -> Ragged:
        return wrapped(self.data.bare, self.tokenizer, PASSAGE)

    @cached_property
    def questions(self) -> Ragged:
        return wrapped(self.data.train.bare, self.tokenizer, QUERY)

    @cached_property
    def all_rows(self) -> Rows:
        return Rows.of(self.passages, self.plan.device)

    @cached_property
    def train_rows(self) -> Rows:
        return Rows.of(self.questions, self.plan.device)

    @cached_property
    def positive_rows(self) -> tuple[Rows, Longs]:
        """The first positives, each once, and which is whose."""
        once, back = np.unique(self.firsts, return_inverse=True)
        return Rows.of(self.passages, self.plan.device, once), back

    @cached_property
    def dev_rows(self) -> tuple[Rows, Rows]:
        asked = wrapped(self.data.dev.bare, self.tokenizer, QUERY)
        known = Rows.of(self.passages, self.plan.device, self.data.dev_passages)
        return Rows.of(asked, self.plan.device), known

    @cached_property
    def test_rows(self) -> dict[str, Rows]:
        return {
            name: Rows.of(wrapped(split.bare, self.tokenizer, QUERY), self.plan.device)
            for name, split in self.data.tests.items()
        }

    @cached_property
    def firsts(self) -> Longs:
        relevant = self.data.train.relevant
        return relevant.values[relevant.offsets[:-1]]

    def examples(
        self, negatives: Sequence[Sequence[int]], teacher: NDArray[np.float32] | None = None
    ) -> Examples:
        """The training questions, the first relevant passage of each, and these negatives."""
        relevant, content = self.data.train.relevant, self.data.content
        return Examples(
            tuple(map(str, range(len(relevant)))),
            tuple(map(str, range(len(content)))),
            Ragged(self.firsts, np.arange(len(relevant) + 1)),
            Ragged.from_lists(negatives),
            Ragged.from_lists([np.unique(content[relevant[i]]).tolist() for i in range(len(relevant))]),
            content,
            teacher,
        )

    @cached_property
    def bm25_negatives(self) -> list[list[int]]:
        """Sixteen of BM25's best that are not relevant."""
        return self.negatives(self.data.train.found)

    def negatives(self, found: Longs) -> list[list[int]]:
        drawn, content = [], self.data.content
        for i, row in enumerate(found):
            known = self.data.train.relevant[i]
            there = row[row >= 0]
            wrong = there[~np.isin(content[there], content[known])]
            order = np.argsort(rng.uniform(rng.key(3, i), np.arange(len(wrong))), kind="stable")
            drawn.append(wrong[order[:POOL]].tolist() or [(int(known[0]) + 1) % len(content)])
        return drawn

    @cached_property
    def bm25(self) -> Examples:
        return self.examples(self.bm25_negatives)

    def dev(self, encoder: Encoder) -> float:
        """The mean nDCG@10 of the dev questions."""
        return float(self.dev_values(encoder).mean())

    def dev_values(self, encoder: Encoder) -> NDArray[np.float64]:
        """nDCG@10 of each dev question over what is judged and some other passages."""
        asked, known = (rows.vectors(encoder) for rows in self.dev_rows)
        numbers = topk(asked, known, 100, device=self.plan.device)[1]
        places = self.data.dev_passages[numbers]
        return values(places, self.data.dev.relevant, len(self.data.content))[:, 0]

    def test(self, encoder: Encoder) -> dict[str, NDArray[np.float64]]:
        """The measures of every question of every test."""
        known = self.all_rows.vectors(encoder)
        found = {}
        for name, rows in self.test_rows.items():
            numbers = topk(rows.vectors(encoder), known, 100, device=self.plan.device)[1]
            found[name] = values(numbers, self.data.tests[name].relevant, len(self.data.content))
        return found


@dataclass(frozen=True)
class Result:
    """Dev's value of the best checkpoint, the test questions' values, where the time went, and dev's first and last."""

    dev: float
    tests: Mapping[str, NDArray[np.float64]]  # name of the test -> questions x measures
    curve: Sequence[float]
    seconds: Mapping[str, float] = field(default_factory=dict)
    ends: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None


def fine_tune(bench: Bench, method: str, settings: Settings, seed: int, folder: Path) -> Result:
    """Train in `folder`, which is removed, keep what is best on dev, and test that."""
    watch = Stopwatch()
    with watch("data"):
        data = training_data(bench, method, settings, seed, folder)
    result, weights = trained(bench, method, data, settings, seed, folder, watch)
    if method == "random":
        keep(bench.plan.weights(bench.name, settings, seed), weights)
    return result


def trained(
    bench: Bench,
    method: str,
    data: Examples,
    settings: Settings,
    seed: int,
    folder: Path,
    watch: Stopwatch,
    negatives: int = NEGATIVES,
) -> tuple[Result, Weights]:
    """The same on examples that are given; also the weights that were best on dev."""
    plan = bench.plan
    with watch("data"):
        shutil.rmtree(folder, ignore_errors=True)  # of a run that was broken off
        retriever = RetrievalObjective(bench.start.fresh(), loss=losses(method, settings))
        sampler = batching(bench, method, data, retriever, folder, seed, watch)
    best = Best(bench, watch)
    epochs = max(plan.epochs, min(MOST_EPOCHS, -(-LEAST_STEPS // sampler.steps)))
    every = max(1, epochs // EVALUATIONS)

    def begin(epoch: int) -> None:
        if epoch and epoch % every == 0:
            best.look(retriever)
        if sampler.begin is not None:
            sampler.begin(epoch)

    optim = ASAMConfig(lr=settings.lr, rho=settings.rho) if method == "asam" else AdamWConfig(lr=settings.lr)
    world = World(device=plan.device)
    maker = RetrievalBatches(
        data, bench.questions, bench.passages, sampler, GroupChoice(negatives, seed=seed), world
    )
    with watch("steps"):
        train(
            retriever, maker, folder, loop=loop(epochs, plan.batch, seed), optim=optim,
            schedule=ScheduleConfig(), world=world, epochs=Epochs(sampler.steps, begin),
            label=f"{bench.name} {method} {seed}",
        )  # fmt: skip
    shutil.rmtree(folder)
    best.look(retriever)
    put_weights(bench.start.encoder, best.weights)
    with watch("test"):
        tests = bench.test(bench.start.encoder)
    return Result(max(best.curve), tests, best.curve, watch.seconds, (best.first, best.last)), best.weights


class Best:
    """The weights that were best on dev so far."""

    def __init__(self, bench: Bench, watch: Stopwatch) -> None:
        self.bench, self.watch = bench, watch
        self.curve: list[float] = []
        self.weights: Weights = {}
        self.first = self.last = np.zeros(0)  # values of every dev question

    def look(self, retriever: RetrievalObjective) -> None:
        encoder = retriever.tower("query")
        with self.watch("dev"):
            self.last = self.bench.dev_values(encoder)
            self.first = self.last if not self.curve else self.first
            self.curve.append(float(self.last.mean()))
            if self.curve[-1] > max(self.curve[:-1], default=-1.0):
                self.weights = weights_of(encoder)


def loop(epochs: int, batch: int, seed: int) -> LoopConfig:
    """No checkpoints but the last, whole batches."""
    return LoopConfig(
        epochs=epochs, batch=batch, seed=seed, log_every=1_000, keep=1, checkpoint_every=1_000_000,
        chunk_tokens="whole",
    )  # fmt: skip


def keep(path: Path, weights: Weights) -> None:
    """Write weights, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".new")
    save_file({name: x.cpu().contiguous() for name, x in weights.items()}, beside, metadata={"format": "pt"})
    beside.replace(path)


def losses(method: str, settings: Settings) -> list[tuple[float, Loss]]:
    hard = InfoNCE(0.05, "cosine")
    if method != "soft":
        return [(1.0, hard)]
    soft = SoftLabels("batch", 0.05, 1.0, "cosine")
    return [(1.0, soft)] + ([(settings.hard, hard)] if settings.hard else [])


def training_data(bench: Bench, method: str, settings: Settings, seed: int, folder: Path) -> Examples:
    """BM25's negatives; with those of the first retriever, or with a teacher's scores, where the method says so."""
    if method == "mined":
        first = bench.start.fresh(load_file(made(bench, settings, seed, folder)))
        asked, known = bench.train_rows.vectors(first), bench.all_rows.vectors(first)
        mined = bench.negatives(topk(asked, known, 50, device=bench.plan.device)[1])
        return bench.examples([one + two for one, two in zip(bench.bm25_negatives, mined)])
    if method == "soft":
        return replace(bench.bm25, scores=np.load(bench.plan.teacher(bench.name)))
    return bench.bm25


def made(bench: Bench, settings: Settings, seed: int, folder: Path) -> Path:
    """The weights of random batches; made again where the result is there and they are not."""
    path = bench.plan.weights(bench.name, settings, seed)
    if not path.exists():
        fine_tune(bench, "random", settings, seed, folder)
    return path


def batching(
    bench: Bench,
    method: str,
    data: Examples,
    retriever: RetrievalObjective,
    folder: Path,
    seed: int,
    watch: Stopwatch,
) -> Sampler:
    """Random, or scheduled by BM25 in the first epoch and the model after it; `abs-bm25` by BM25 always."""
    n, batch = len(data), bench.plan.batch
    if method == "sequential":
        return sequential_batches(n, batch)
    if not method.startswith("abs-"):
        return random_batches(n, batch, seed)
    assert method != "abs-beam", "its results are kept, but its search is no longer in the package"
    search = AdaptiveBatching().scheduler
    how, home = Adaptive(batch, search, "shuffled", seed), folder / "schedule"

    def similarity(epoch: int) -> Similarity:
        by_bm25 = epoch == 0 or method == "abs-bm25"
        return lexical(bench, data) if by_bm25 else of_model(bench, data, retriever)

    scheduled = how.sampler(n, home, similarity, World(device=bench.plan.device))

    def begin(epoch: int) -> None:
        assert scheduled.begin is not None, "an epoch is scheduled before it begins"
        with watch("schedule"):
            scheduled.begin(epoch)

    return replace(scheduled, begin=begin)


def of_model(bench: Bench, data: Examples, retriever: RetrievalObjective) -> Similarity:
    """From the encoder as it is; on the CPU, where swaps one by one wait for nothing."""
    encoder, (known, back) = retriever.tower("query"), bench.positive_rows
    asked = bench.train_rows.vectors(encoder).cpu()
    return VectorSimilarity.of(
        asked, known.vectors(encoder).cpu()[torch.from_numpy(back)], torch.from_numpy(twins(data))
    )


def lexical(bench: Bench, data: Examples) -> Similarity:
    """What BM25 scores of other questions' positives."""
    holders: dict[str, list[int]] = {}
    for i, first in enumerate(bench.firsts.tolist()):
        holders.setdefault(str(first), []).append(i)
    split = bench.data.train
    there = np.isin(split.found, bench.firsts) & (split.found >= 0)
    hits = (
        (str(i), str(p), s)
        for i, p, s in zip(
            there.nonzero()[0].tolist(), split.found[there].tolist(), split.scores[there].tolist()
        )
    )
    return from_run(hits, {q: i for i, q in enumerate(data.queries)}, holders, twins(data))


def averaged(bench: Bench, settings: Settings, seeds: int, folder: Path) -> Result:
    """The mean of several seeds' weights, tested; dev is looked at once."""
    watch = Stopwatch()
    with watch("data"):
        encoder = bench.start.fresh(
            mean([made(bench, settings, seed, folder) for seed in range(1, seeds + 1)])
        )
    with watch("test"):
        value = bench.dev(encoder)
        return Result(value, bench.test(encoder), [value], watch.seconds)


def candidates(method: str, base: Settings) -> list[Settings]:
    """What dev chooses from, with the first seed; learning rates are chosen for random batches and kept."""
    if method == "random":
        return [replace(base, lr=lr) for lr in (3e-4, 1e-3)]
    if method == "asam":
        return [replace(base, rho=rho) for rho in (0.2, 0.5, 1.0)]
    if method == "soft":
        return [replace(base, hard=hard) for hard in (0.0, 1.0)]
    return [base]
