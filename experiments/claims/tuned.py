"""One run of the ladder: a pre-trained model, a set, a number of labels, a method, settings and a seed in, values out.

A job is a line, `MODEL SET LABELS METHOD POOLING LR SEED`. Training, choosing on dev and exact search are those of
`experiments/finetuning`; this file adds what its methods do not have: no labels at all, negatives of the batch
alone, negatives that another model mined, corrupted positives, how far the attention of CLS moves, nb-recall,
STS-b and section triplets, and for `far` the questions of other sets. Methods:

    random               BM25's negatives, random batches
    inbatch[-WAY]        negatives of the batch alone; WAY is sequential, abs or abs-bm25; until dev falls
    mined                BM25's and those of the model that `random` made
    mined-by:MODEL:POOLING:LR    those of another model instead
    noisy                `random` with NOISE of the positives replaced by BM25's first wrong passage
    soft                 `random` with the scores of a cross-encoder that began as the start
    entropy              how far `random` moves the entropy of CLS attention, in nats, text by text
    neighbours           nb-recall of `mined`'s 50 best in `random`'s 100 best, question by question
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pretrained import Places

sys.path.append(str(Path(__file__).parents[1] / "finetuning"))

from methods import NEGATIVES, Bench, Plan, Settings, Start, Weights, keep, trained
from prepared import PASSAGE, digest, drawn, load, wrapped
from safetensors.torch import load_file
from sets import FAR, ZERO_SHOT
from stopwatch import Stopwatch
from teacher import teach

from liebig.measures.similarity import cosine, spearman, triplet_accuracy
from liebig.methods.samplers import random_batches
from liebig.methods.text_similarity import (
    PAIR,
    TRIPLET,
    CosineRegression,
    TextTuples,
    TripletMargin,
    TupleBatches,
)
from liebig.model.encoder import Encoder
from liebig.model.packed import Packed
from liebig.ragged import Ragged, offsets_of
from liebig.stages.analyse_attention import cls_entropy
from liebig.stages.analyse_neighbours import nb_recall
from liebig.train.distributed import World
from liebig.train.loop import Epochs, LoopConfig, train
from liebig.train.optim import AdamWConfig, ScheduleConfig
from liebig.vectors.topk import topk

Values = NDArray[np.float64]
TEXTS = ("stsb", "sections")
MEASURES = {"entropy": ("movement",), "neighbours": ("nb-recall",)}
OF_TEXTS = {"stsb": ("Spearman",), "sections": ("Accuracy",)}
RETRIEVAL = ("nDCG@10", "RR@10", "R@100")
NOISE, ATTENTION_TEXTS, NEIGHBOURS, DEPTH = 0.4, 256, 50, 100
LONG = 12  # epochs of runs that go on until dev falls; the best evaluation is what is tested
RISE = "rise"  # a test of those: what dev gains from the first evaluation to the last, (1 + gain) / 2
TEXT_EPOCHS, TEXT_BATCH = 4, 16


@dataclass(frozen=True)
class Job:
    """One piece of work."""

    model: str
    set: str
    labels: int
    method: str
    pooling: str
    lr: float
    seed: int

    def __str__(self) -> str:
        return f"{self.model} {self.set} {self.labels} {self.method} {self.pooling} {self.lr:g} {self.seed}"

    @classmethod
    def of(cls, line: str) -> Job:
        """The job that a line names."""
        model, name, labels, method, pooling, lr, seed = line.split(" ")
        return cls(model, name, int(labels), method, pooling, float(lr), int(seed))

    @property
    def file(self) -> str:
        """The name of its result."""
        return str(self).replace(" ", "_").replace(":", "+") + ".json"


def measures(name: str, method: str) -> tuple[str, ...]:
    """What the columns of a run's values are."""
    return OF_TEXTS.get(name) or MEASURES.get(method) or RETRIEVAL


@dataclass(frozen=True)
class Done:
    """Values by the name of the test (questions x measures), dev's value, and what else there is to say."""

    tests: Mapping[str, Values]
    dev: float
    about: Mapping[str, Any]


class Worker:
    """What a process keeps: the sets as rows on the device, and the models it used last."""

    def __init__(self, places: Places, prepared: Path, device: torch.device, epochs: int, batch: int) -> None:
        torch.set_num_threads(1)
        self.places, self.prepared, self.device = places, prepared, device
        self.work = places.out / "work"
        self.plan = Plan(places.start, epochs, batch, device, self.work)
        self.folder = self.work / "training" / str(os.getpid())
        self.benches: dict[tuple[str, int], Bench] = {}
        self.others: dict[str, Bench] = {}
        self.starts: OrderedDict[tuple[str, str], Start] = OrderedDict()

    def do(self, job: Job) -> Done:
        """The run that a job names."""
        began = time.monotonic()
        done = self._texts(job) if job.set in TEXTS else self._retrieval(job)
        return replace(done, about={**done.about, "seconds": round(time.monotonic() - began, 1)})

    def _retrieval(self, job: Job) -> Done:
        if job.labels == 0:
            return self._untuned(job)
        if job.method == "entropy":
            return self._entropy(job)
        if job.method == "neighbours":
            return self._neighbours(job)
        return self._tuned(job)[0]

    def start(self, model: str, pooling: str) -> Start:
        """A model before tuning; the few that were used last stay on the device."""
        key = (model, pooling)
        if key not in self.starts:
            self.starts[key] = Start(self.places.model(model), self.device, pooling)
            while len(self.starts) > 3:
                self.starts.popitem(last=False)
        self.starts.move_to_end(key)
        return self.starts[key]

    def bench(self, job: Job, pooling: str | None = None) -> Bench:
        """The set with that many labels, under the model of the job."""
        start = self.start(job.model, pooling or job.pooling)
        key = (job.set, job.labels)
        if key not in self.benches:
            whole = self.benches.get((job.set, -1))
            if whole is None:
                data = load(self.prepared / job.set)
                if data.tokenizer != digest(start.encoder.tokenizer):
                    raise ValueError(f"{self.prepared / job.set} was made with another tokenizer")
                whole = self.benches[job.set, -1] = Bench(job.set, data, self.plan, start)
            name = f"{job.set}-{job.labels}"
            self.benches[key] = whole.limited(name, job.labels or 1)
        return seated(self.benches[key], start)

    def _untuned(self, job: Job) -> Done:
        """Without labels; dev chooses the pooling."""
        dev = {pooling: self.bench(job, pooling) for pooling in ("cls", "mean")}
        values = {pooling: bench.dev(bench.start.fresh()) for pooling, bench in dev.items()}
        best = max(values, key=values.__getitem__)
        start = dev[best].start
        tests = dev[best].test(start.fresh()) | self._zero_shot(job, start)
        return Done(tests, values[best], {"dev": values, "pooling": best})

    def _zero_shot(self, job: Job, start: Start) -> dict[str, Values]:
        """Other sets under the encoder as it is now, for runs on `far`."""
        found: dict[str, Values] = {}
        for name in ZERO_SHOT if job.set == FAR else ():
            if name not in self.others:
                self.others[name] = Bench(name, load(self.prepared / name), self.plan, start)
            found |= self.others[name].test(start.encoder)
        return found

    def _tuned(self, job: Job) -> tuple[Done, Weights]:
        bench, watch, negatives, way = self.bench(job), Stopwatch(), NEGATIVES, "random"
        data = bench.bm25
        if job.method.startswith("inbatch"):
            negatives = 0
            way = {"": "random", "-abs": "abs-greedy"}.get(job.method[7:], job.method[8:])
            bench.plan = replace(bench.plan, epochs=LONG)
        elif job.method.startswith("mined"):
            data = bench.examples([a + b for a, b in zip(bench.bm25_negatives, self._mined(job, bench))])
        elif job.method == "noisy":
            data = replace(data, positives=Ragged(corrupted(bench), data.positives.offsets))
        elif job.method == "soft":
            data, way = replace(data, scores=self._teacher(bench)), "soft"
        elif job.method != "random":
            raise ValueError(f"there is no method {job.method!r}")
        result, weights = trained(
            bench, way, data, Settings(lr=job.lr, hard=1.0), job.seed, self.folder, watch, negatives
        )
        if job.method in ("random", "mined") and job.labels >= 1000:
            keep(self._kept(job), weights)
        rounded = {name: round(value, 2) for name, value in result.seconds.items()}
        tests = dict(result.tests) | self._zero_shot(
            job, bench.start
        )  # trained() left the best weights there
        if job.method.startswith("inbatch") and result.ends is not None:
            first, last = result.ends
            tests[RISE] = np.repeat((1 + last - first)[:, None] / 2, len(RETRIEVAL), axis=1)
        return Done(tests, result.dev, {"curve": list(result.curve), "spent": rounded}), weights

    def _kept(self, job: Job) -> Path:
        return (self.work / "weights" / job.file).with_suffix(".safetensors")

    def weights(self, job: Job) -> Weights:
        """The weights of a run; trained again where they are not there."""
        path = self._kept(job)
        return load_file(path, device=str(self.device)) if path.exists() else self._tuned(job)[1]

    def _mined(self, job: Job, bench: Bench) -> list[list[int]]:
        """What the first retriever, or another one, takes for relevant."""
        first = replace(job, method="random")
        if job.method != "mined":
            _, model, pooling, lr = job.method.split(":")
            first = replace(first, model=model, pooling=pooling, lr=float(lr))
        weights = self.weights(first)
        seat = self.bench(first)
        encoder = seat.start.fresh(weights)
        asked, known = bench.train_rows.vectors(encoder), bench.all_rows.vectors(encoder)
        return bench.negatives(topk(asked, known, 50, device=self.device)[1])

    def _teacher(self, bench: Bench) -> NDArray[np.float32]:
        path = bench.plan.teacher(bench.name)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            teach(bench, self.folder)
        return np.load(path)

    def _entropy(self, job: Job) -> Done:
        bench = self.bench(job)
        weights = self.weights(replace(job, method="random"))
        which = drawn(len(bench.passages), ATTENTION_TEXTS, 3)
        texts = bench.passages.take(which)
        earlier = entropies(bench.start.fresh(), texts)
        later = entropies(bench.start.fresh(weights), texts)
        moved = np.abs(later - earlier).mean(axis=1, keepdims=True)
        layers = {
            "before": earlier.mean(axis=0).round(4).tolist(),
            "after": later.mean(axis=0).round(4).tolist(),
        }
        return Done({job.set: moved}, float(moved.mean()), {"entropy": layers})

    def _neighbours(self, job: Job) -> Done:
        bench = self.bench(job)
        lists = [
            self._lists(bench, self.weights(replace(job, method=method))) for method in ("random", "mined")
        ]
        tests = {
            name: np.array(
                [nb_recall(a, b, NEIGHBOURS, (DEPTH,)) for a, b in zip(lists[0][name], lists[1][name])]
            )
            for name in lists[0]
        }
        return Done(tests, float(np.mean([v.mean() for v in tests.values()])), {})

    def _lists(self, bench: Bench, weights: Weights) -> dict[str, list[list[str]]]:
        encoder = bench.start.fresh(weights)
        known = bench.all_rows.vectors(encoder)
        return {
            name: [
                list(map(str, row))
                for row in topk(rows.vectors(encoder), known, DEPTH, device=self.device)[1]
            ]
            for name, rows in bench.test_rows.items()
        }

    def _texts(self, job: Job) -> Done:
        """STS-b or sections, with Condenser's settings but for the rate, which dev chooses."""
        start = self.start(job.model, job.pooling)
        splits = read_texts(self.prepared / f"{job.set}.npz", start.encoder)
        encoder = start.fresh()
        data = limited(splits["train"], job.labels)
        made = (
            CosineRegression(encoder, 1.0) if job.set == "stsb" else TripletMargin(encoder, 5.0, "euclidean")
        )
        sampler, world = random_batches(len(data), TEXT_BATCH, job.seed), World(device=self.device)
        epochs = TEXT_EPOCHS if job.set == "stsb" or len(data) < 10_000 else 1
        train(
            made, TupleBatches(data, sampler, world), self.folder, world=world, epochs=Epochs(sampler.steps),
            loop=LoopConfig(
                epochs=epochs, batch=TEXT_BATCH, seed=job.seed, log_every=1000, keep=1, checkpoint_every=10**6,
                chunk_tokens="whole",
            ),
            optim=AdamWConfig(lr=job.lr), schedule=ScheduleConfig(), label=str(job),
        )  # fmt: skip
        shutil.rmtree(self.folder)
        encoder.eval()
        found = {name: judged(encoder, job.set, splits[name]) for name in ("dev", "test")}
        scores = splits["dev"].scores
        dev = found["dev"].mean() if scores is None else np.nan_to_num(spearman(found["dev"][:, 0], scores))
        return Done({job.set: found["test"]}, float(dev), {})


def judged(encoder: Encoder, name: str, split: TextTuples) -> Values:
    """Of sections whether each is right; of STS-b the place of each pair's cosine among all, which is kept exactly."""
    vectors = [encoder.encode_rows(texts) for texts in split.texts]
    if name == "stsb":
        near = cosine(vectors[0], vectors[1])
        return np.unique(near, return_inverse=True)[1][:, None] / len(near)
    near, far = (np.linalg.norm(vectors[0].astype(np.float64) - other, axis=1) for other in vectors[1:])
    return triplet_accuracy(near, far)[:, None].astype(np.float64)


def seated(bench: Bench, start: Start) -> Bench:
    """The same set under another model; rows on the device are shared."""
    made = Bench(bench.name, bench.data, bench.plan, start)
    for part in (
        "passages",
        "questions",
        "all_rows",
        "train_rows",
        "positive_rows",
        "dev_rows",
        "test_rows",
        "bm25_negatives",
        "bm25",
    ):
        if part in bench.__dict__:
            made.__dict__[part] = bench.__dict__[part]
        else:  # made at its first use, by whoever comes first
            made.__dict__[part] = bench.__dict__[part] = getattr(bench, part)
    return made


def corrupted(bench: Bench) -> NDArray[np.int64]:
    """The positives, a share of them replaced by BM25's first passage that is not relevant."""
    wrong = np.zeros(len(bench.firsts), bool)
    wrong[drawn(len(wrong), round(NOISE * len(wrong)), 9)] = True
    others = []
    for i, found in enumerate(bench.data.train.found):
        known = bench.data.content[bench.data.train.relevant[i]]
        there = found[found >= 0]
        there = there[~np.isin(bench.data.content[there], known)]
        others.append(there[0] if len(there) else (bench.firsts[i] + 1) % len(bench.data.content))
    return np.where(wrong, np.array(others, np.int64), bench.firsts)


@torch.no_grad()
def entropies(encoder: Encoder, texts: Ragged) -> Values:
    """Entropy of CLS attention, texts x layers."""
    encoder.eval()
    found = []
    for first in range(0, len(texts), 16):
        some = Packed.from_ragged(texts.take(np.arange(first, min(first + 16, len(texts))))).to(
            encoder.device
        )
        found += [cls_entropy(one.float().cpu().numpy()) for one in encoder.backbone.attentions(some)]
    return np.stack(found)


def limited(data: TextTuples, labels: int) -> TextTuples:
    """Some of the examples, a smaller draw in a larger one."""
    which = drawn(len(data), labels, 0)
    scores = None if data.scores is None else data.scores[which]
    return TextTuples(data.sides, tuple(texts.take(which) for texts in data.texts), scores)


def save_texts(path: Path, splits: Mapping[str, TextTuples], tokenizer: str) -> None:
    """Tokens without special ones in two bytes each, whatever the model's length."""
    arrays: dict[str, NDArray[Any]] = {"tokenizer": np.array(tokenizer)}
    for name, data in splits.items():
        for number, texts in enumerate(data.texts):
            arrays[f"{name}/{number}/tokens"] = texts.values.astype(np.uint16)
            arrays[f"{name}/{number}/lengths"] = texts.lengths.astype(np.uint16)
        if data.scores is not None:
            arrays[f"{name}/scores"] = data.scores
    np.savez_compressed(path, **arrays)


def read_texts(path: Path, encoder: Encoder) -> dict[str, TextTuples]:
    """What `save_texts` wrote, with special tokens."""
    with np.load(path) as file:
        kept = {name: file[name] for name in file.files}
    if str(kept["tokenizer"]) != digest(encoder.tokenizer):
        raise ValueError(f"{path} was made with another tokenizer")

    def texts(name: str) -> Ragged:
        bare = Ragged(kept[f"{name}/tokens"].astype(np.int32), offsets_of(kept[f"{name}/lengths"]))
        return wrapped(bare, encoder.tokenizer, PASSAGE)

    made = {}
    for split in ("train", "dev", "test"):
        sides = PAIR if f"{split}/scores" in kept else TRIPLET
        columns = tuple(texts(f"{split}/{number}") for number in range(len(sides)))
        made[split] = TextTuples(sides, columns, kept.get(f"{split}/scores"))
    return made


def gold(prepared: Path) -> NDArray[np.float32]:
    """The scores of STS-b's test pairs."""
    return np.load(prepared / "stsb.npz")["test/scores"]
