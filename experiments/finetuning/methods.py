"""One fine-tuning of one encoder: a set, a method, settings and a seed in, values of every test question out.

Everything that runs share (tokens, BM25's negatives, dev passages) is made once a set and stays in memory. A run trains
for some epochs, is evaluated on dev now and then, and its best checkpoint is tested by exact search of all passages.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sets import Set, Split

from liebig import rng
from liebig.finetune.adaptive import Adaptive, model_similarity, searching, twins
from liebig.finetune.average import average
from liebig.finetune.batches import Choice, Maker
from liebig.finetune.contrastive import InfoNCE, Loss, Retriever
from liebig.finetune.distill import SoftLabels
from liebig.finetune.evaluation import Search, vectors
from liebig.finetune.hardness import Similarity, from_run
from liebig.measures import parse
from liebig.measures.blocks import from_matrix
from liebig.measures.engine import evaluate
from liebig.measures.judgements import Judgements, from_mapping
from liebig.model.backbone import Backbone
from liebig.model.encoder import Encoder
from liebig.model.topk import topk
from liebig.rerank.cross import CrossEncoder
from liebig.rerank.train import Maker as PairMaker, Reranker
from liebig.train.config import AdamWConfig, ASAMConfig, LoopConfig, ScheduleConfig
from liebig.train.distributed import World
from liebig.train.labelled.examples import Examples, Ragged
from liebig.train.labelled.samplers import Sampler, random_batches
from liebig.train.labelled.texts import Shape, Texts
from liebig.train.loop import Epochs, train
from liebig.train.state import load_checkpoint

Longs = NDArray[np.int64]
MEASURES = ("nDCG@10", "RR@10", "R@100")
QUERY, PASSAGE, PAIR = 32, 144, 192
NEGATIVES, POOL, DEV_PASSAGES = 3, 16, 5_000
"""Negatives of a query in a step, negatives kept for a query, and passages beside the judged ones on dev."""
LEAST_STEPS, MOST_EPOCHS, EVALUATIONS = 150, 20, 5
"""Few labels are seen more often, so that there are some steps; about so many evaluations a run."""


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
    """The same for all runs: the start, epochs, batch and device."""

    encoder: Path
    epochs: int
    batch: int
    device: torch.device
    work: Path


@dataclass
class Bench:
    """A set ready to train on."""

    data: Set
    plan: Plan
    name: str
    teacher: dict[str, NDArray[np.float32]] = field(default_factory=dict)

    @cached_property
    def tokenizer(self):  # type: ignore[no-untyped-def]
        return Encoder.load(self.plan.encoder).tokenizer

    @cached_property
    def passages(self) -> Texts:
        shape = Shape(self.tokenizer, PASSAGE)
        return Texts.of((shape.text(p) for p in self.data.passages), shape)

    def questions(self, split: Split, bare: bool = False) -> Texts:
        shape = Shape(self.tokenizer, QUERY, bare=bare)
        return Texts.of((q.text for q in split.queries), shape)

    @cached_property
    def train_questions(self) -> Texts:
        return self.questions(self.data.train)

    @cached_property
    def content(self) -> Longs:
        """Numbers that are equal for passages of equal text."""
        return np.unique([p.text for p in self.data.passages], return_inverse=True)[1].astype(np.int64)

    def examples(
        self, negatives: Sequence[Sequence[int]], teacher: NDArray[np.float32] | None = None
    ) -> Examples:
        """The training questions, the first relevant passage of each, and these negatives."""
        relevant = self.data.train.relevant
        return Examples(
            tuple(q.id for q in self.data.train.queries),
            tuple(p.id for p in self.data.passages),
            Ragged.of([row[:1] for row in relevant]),
            Ragged.of(negatives),
            Ragged.of([sorted({int(self.content[p]) for p in row}) for row in relevant]),
            self.content,
            teacher,
        )

    @cached_property
    def bm25_negatives(self) -> list[list[int]]:
        """Sixteen of BM25's best that are not relevant."""
        return self.negatives(self.data.train.found)

    def negatives(self, found: Longs) -> list[list[int]]:
        drawn = []
        for i, (row, known) in enumerate(zip(found, self.data.train.relevant)):
            same = {int(self.content[p]) for p in known}
            wrong = [int(p) for p in row if p >= 0 and int(self.content[p]) not in same]
            order = np.argsort(rng.uniform(rng.key(3, i), np.arange(len(wrong))), kind="stable")
            drawn.append([wrong[j] for j in order[:POOL]] or [(known[0] + 1) % len(self.data.passages)])
        return drawn

    @cached_property
    def dev(self) -> Search:
        """The dev questions over what is judged and some other passages."""
        split, n = self.data.dev, len(self.data.passages)
        judged = {p for row in split.relevant for p in row}
        others = np.argsort(rng.uniform(rng.key(5), np.arange(n)), kind="stable")[:DEV_PASSAGES]
        kept = sorted(judged | set(others.tolist()))
        rows = [self.passages.sequences([i])[0] for i in kept]
        offsets = np.concatenate(([0], np.cumsum([len(row) for row in rows])))
        some = Texts(np.concatenate([np.array(r, np.int32) for r in rows]), offsets)
        return Search(
            [q.id for q in split.queries],
            [self.data.passages[i].id for i in kept],
            self.questions(split),
            some,
            judgements(split, self.data),
            [parse(MEASURES[0])],
            "cosine",
        )


def judgements(split: Split, data: Set) -> Judgements:
    return from_mapping(
        {q.id: {data.passages[p].id: 1 for p in row} for q, row in zip(split.queries, split.relevant)}
    )


def encoder(plan: Plan, folder: Path | None = None) -> Encoder:
    """The start, or a model trained from it; vectors are means of states and compared by cosine."""
    made = Encoder.load(folder or plan.encoder, pooling="mean")
    made.max_length, made.similarity = PASSAGE, "cosine"
    made.backbone.set_dropout(0.1)
    return made.to(plan.device)


@dataclass(frozen=True)
class Result:
    """Dev's value of the best checkpoint, and the test questions' values."""

    dev: float
    tests: Mapping[str, NDArray[np.float64]]  # name of the test -> questions x measures
    curve: Sequence[float]


def fine_tune(bench: Bench, method: str, settings: Settings, seed: int, keep: Path) -> Result:
    """Train, test, and leave the model in `keep`."""
    plan = bench.plan
    retriever = Retriever(encoder(plan), loss=losses(method, settings))
    data = training_data(bench, method, settings, seed)
    folder = plan.work / "training"
    shutil.rmtree(folder, ignore_errors=True)
    sampler = batching(bench, method, data, retriever, folder, seed)
    world = World(device=plan.device)
    maker = Maker(data, bench.train_questions, bench.passages, sampler, Choice(NEGATIVES, seed=seed), world)
    curve: list[float] = []

    def on_dev(objective: Retriever) -> Mapping[str, float]:
        found = bench.dev(objective)
        curve.append(found[MEASURES[0]])
        return found

    epochs = max(plan.epochs, min(MOST_EPOCHS, -(-LEAST_STEPS // sampler.steps)))
    loop = LoopConfig(
        epochs=epochs,
        batch=plan.batch,
        seed=seed,
        eval_every=sampler.steps * max(1, epochs // EVALUATIONS),
        log_every=50,
        keep=1,
        checkpoint_every=1_000_000,
        chunk_tokens="whole",
    )
    optim = AdamWConfig(lr=settings.lr)
    if method == "asam":
        optim = ASAMConfig(lr=settings.lr, rho=settings.rho)
    train(
        retriever, maker, folder, loop=loop, optim=optim, schedule=ScheduleConfig(), world=world,
        epochs=Epochs(sampler.steps, sampler.begin), evaluate=on_dev, label=f"{bench.name} {method} {seed}",
    )  # fmt: skip
    load_checkpoint(retriever, folder)
    retriever.eval()
    retriever.tower("query").save(keep)
    return Result(max(curve), test(bench, retriever), curve)


def losses(method: str, settings: Settings) -> list[tuple[float, Loss]]:
    hard = InfoNCE(0.05, "cosine")
    if method != "soft":
        return [(1.0, hard)]
    soft = SoftLabels("batch", 0.05, 1.0, "cosine")
    return [(1.0, soft)] + ([(settings.hard, hard)] if settings.hard else [])


def training_data(bench: Bench, method: str, settings: Settings, seed: int) -> Examples:
    """BM25's negatives; with those of the first retriever, or with a teacher's scores, where the method says so."""
    wrong = bench.bm25_negatives
    if method == "mined":
        kept = bench.plan.work / "models" / f"{bench.name}-random-{seed}"
        if not kept.is_dir():  # its result is there, but not its weights
            fine_tune(bench, "random", settings, seed, kept)
        first = encoder(bench.plan, kept)
        mined = bench.negatives(found_by(bench, Retriever(first).eval(), bench.data.train, 50)[1])
        return bench.examples([one + two for one, two in zip(wrong, mined)])
    if method == "soft":
        return bench.examples(wrong, bench.teacher["scores"])
    return bench.examples(wrong)


def batching(
    bench: Bench, method: str, data: Examples, retriever: Retriever, folder: Path, seed: int
) -> Sampler:
    """Random, or scheduled by BM25 in the first epoch and the model after it; `abs-bm25` by BM25 always."""
    n, batch = len(data), bench.plan.batch
    if not method.startswith("abs-"):
        return random_batches(n, batch, seed)
    how = Adaptive(
        batch, "auto", searching("beam" if method == "abs-beam" else "greedy", 3), "shuffled", seed
    )

    def similarity(epoch: int) -> Similarity:
        if epoch == 0 or method == "abs-bm25":
            return lexical(bench, data)
        return model_similarity(retriever, data, bench.train_questions, bench.passages, unit=True)

    home = folder / "schedule"
    return how.sampler(n, home, how.now(home, similarity), World(device=bench.plan.device))


def lexical(bench: Bench, data: Examples) -> Similarity:
    """What BM25 scores of other questions' positives."""
    holders: dict[str, list[int]] = {}
    for i in range(len(data)):
        holders.setdefault(data.passages[data.positives[i][0]], []).append(i)
    split = bench.data.train
    hits = (
        (data.queries[i], data.passages[p], float(s))
        for i, (row, scores) in enumerate(zip(split.found, split.scores))
        for p, s in zip(row, scores)
        if p >= 0
    )
    return from_run(hits, {q: i for i, q in enumerate(data.queries)}, holders, twins(data))


def found_by(bench: Bench, retriever: Retriever, split: Split, k: int) -> tuple[NDArray[np.float32], Longs]:
    """The k best passages of every question by exact search."""
    asked = vectors(retriever.tower("query"), bench.questions(split), "cosine")
    known = vectors(retriever.tower("passage"), bench.passages, "cosine")
    return topk(asked, known, k, device=bench.plan.device)


def test(bench: Bench, retriever: Retriever) -> dict[str, NDArray[np.float64]]:
    """The measures of every question of every test split."""
    known = vectors(retriever.tower("passage"), bench.passages, "cosine")
    ids, found = [p.id for p in bench.data.passages], {}
    for name, split in bench.data.tests.items():
        asked = vectors(retriever.tower("query"), bench.questions(split), "cosine")
        scores, numbers = topk(asked, known, 100, device=bench.plan.device)
        block = from_matrix([q.id for q in split.queries], ids, numbers, scores)
        found[name] = evaluate([block], judgements(split, bench.data), [parse(m) for m in MEASURES]).values
    return found


def averaged(bench: Bench, folders: Sequence[Path], keep: Path) -> Result:
    """The mean of several seeds' weights, tested; dev is looked at once."""
    shutil.rmtree(keep, ignore_errors=True)
    average(folders, keep)
    retriever = Retriever(encoder(bench.plan, keep)).eval()
    value = bench.dev(retriever)[MEASURES[0]]
    return Result(value, test(bench, retriever), [value])


def teach(bench: Bench, lr: float, epochs: int) -> None:
    """A cross-encoder from the same start on the same negatives; its scores of every group are the soft labels."""
    kept = bench.plan.work / f"teacher-{bench.name}.npy"
    if not kept.exists():
        plan, world = bench.plan, World(device=bench.plan.device)
        cross = CrossEncoder(Backbone.load(plan.encoder), bench.tokenizer, query_length=QUERY, length=PAIR)
        data, bare = bench.examples(bench.bm25_negatives), Shape(bench.tokenizer, PASSAGE, bare=True)
        asked = bench.questions(bench.data.train, bare=True)
        known = Texts.of((bare.text(p) for p in bench.data.passages), bare)
        sampler = random_batches(len(data), 32, 0)
        maker = PairMaker(cross, data, asked, known, sampler, 2 * NEGATIVES, 0, world)
        folder = plan.work / "training"
        shutil.rmtree(folder, ignore_errors=True)
        loop = LoopConfig(
            epochs=epochs, batch=32, log_every=50, checkpoint_every=1_000_000, chunk_tokens="whole"
        )
        train(
            Reranker(cross), maker, folder, loop=loop, optim=AdamWConfig(lr=lr), world=world,
            epochs=Epochs(sampler.steps), label=f"{bench.name} teacher",
        )  # fmt: skip
        np.save(kept, _scores(cross.eval(), data, asked, known))
    bench.teacher["scores"] = np.load(kept)


def _scores(cross: CrossEncoder, data: Examples, asked: Texts, known: Texts) -> NDArray[np.float32]:
    rows, owners = [], []
    for i in range(len(data)):
        group = [*data.positives[i].tolist(), *data.negatives[i].tolist()]
        rows += group
        owners += [i] * len(group)
    return cross.scores(asked.sequences(owners), known.sequences(rows))


Method = Callable[[Bench, Settings, int, Path], Result]


def candidates(method: str, base: Settings) -> list[Settings]:
    """What dev chooses from, with the first seed; learning rates are chosen for random batches and kept."""
    if method == "random":
        return [replace(base, lr=lr) for lr in (3e-4, 1e-3)]
    if method == "asam":
        return [replace(base, rho=rho) for rho in (0.2, 0.5, 1.0)]
    if method == "soft":
        return [replace(base, hard=hard) for hard in (0.0, 1.0)]
    return [base]
