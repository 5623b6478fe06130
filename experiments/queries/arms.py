"""The arms of the comparison, and what is done to each: pre-trained, tested, tuned on labels, tested again.

A bench holds what all runs of a process share: the articles' tokens, passages with their queries, the tasks, and one
backbone that is compiled once and gets the starting weights back before every run.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import tasks
import torch
from numpy.typing import NDArray

from liebig.base import config as recipes
from liebig.base.rng import key
from liebig.methods import methods, pretraining as presets
from liebig.methods.base import MethodStart
from liebig.methods.contrastive import InfoNCE
from liebig.methods.cotmae import EncoderDecoderOrder
from liebig.methods.pretraining import PretrainConfig
from liebig.methods.retrieval import RetrievalBatches, RetrievalObjective
from liebig.methods.samplers import GroupChoice, random_batches
from liebig.methods.shapes import Maker
from liebig.methods.sources import mixture as sources
from liebig.methods.sources.mixture import Weighted
from liebig.methods.sources.pairs import PairSource
from liebig.methods.sources.token_rows import SpecialTokens
from liebig.model.backbone import Backbone
from liebig.model.encoder import Encoder
from liebig.ragged import Ragged, offsets_of
from liebig.store import TokenStore
from liebig.text.layout import RoleLayout
from liebig.text.tokenizer import Tokenizer
from liebig.train.distributed import World
from liebig.train.loop import Epochs, LoopConfig, train
from liebig.train.optim import AdamWConfig, ScheduleConfig

Tree = dict[str, Any]
LENGTH = 128
STORE, PAIRS = "store", "pairs.npz"
ARMS = {
    "cocondenser-spans": ("cocondenser", "spans"),
    "cocondenser-queries": ("cocondenser", "queries"),
    "cocondenser-one-query": ("cocondenser", "one-query"),
    "cocondenser-mixed": ("cocondenser", "mixed"),
    "cotmae-spans": ("cotmae", "spans"),
    "cotmae-queries": ("cotmae", "queries"),
}
"""Objective and kind of pairs; the first arm of an objective is what its others are held against."""
START = "start"  # no pre-training: what all arms start from


@dataclass(frozen=True)
class Settings:
    """The same for all runs."""

    tokens: float = 25e6
    batch: int = 256
    lr: float = 3e-4
    tune_steps: int = 400
    tune_batch: int = 64
    tune_lr: float = 3e-4
    negatives: int = 1
    compile: bool = True


@dataclass
class Bench:
    """What all runs of a process share."""

    start: Path
    prepared: Path
    work: Path
    settings: Settings
    device: torch.device

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return Tokenizer.from_folder(self.start)

    @cached_property
    def store(self) -> TokenStore:
        return TokenStore.open(self.prepared / STORE, hashes=False)

    @cached_property
    def asked(self) -> PairSource:
        """Passages with all their queries."""
        return load_pairs(self.prepared / PAIRS, SpecialTokens.of(self.tokenizer))

    @cached_property
    def generator_labels(self) -> list[str]:
        """Labels that the writer of the queries has seen."""
        found: list[str] = np.load(self.prepared / PAIRS)["labels"].tolist()
        return found

    @cached_property
    def tasks(self) -> dict[str, tasks.Task]:
        return {name: tasks.load(self.prepared / f"{name}.npz") for name in ("labelled", "scifact")}

    @cached_property
    def _start(self) -> tuple[Backbone, Mapping[str, torch.Tensor]]:
        backbone = Backbone.load(self.start).to(self.device)
        if self.settings.compile and self.device.type == "cuda":
            backbone.compile()
        return backbone, {name: x.detach().clone() for name, x in backbone.state_dict().items()}

    def backbone(self) -> Backbone:
        """The one backbone, with the weights it started from."""
        backbone, weights = self._start
        backbone.load_state_dict(weights)
        return backbone


def recipe(bench: Bench, arm: str, seed: int) -> PretrainConfig:
    """The arm as a recipe of `liebig pretrain`: what stands in it, and what its presets decide."""
    objective, kind = ARMS[arm]
    spans: Tree = {"kind": "spans", "choice": "mixed" if objective == "cotmae" else "random"}
    asked: Tree = {"kind": "queries", "collection": str(bench.prepared)}
    mixed = {"kind": "mixture", "parts": [{"weight": 0.5, "source": asked}, {"weight": 0.5, "source": spans}]}
    tree: Tree = {
        "model": {"kind": "folder", "path": str(bench.start)},
        "objective": {"kind": objective},
        "source": {"spans": spans, "mixed": mixed}.get(kind, asked),
        "max_length": LENGTH,
        "loop": {"batch": bench.settings.batch, "seed": seed},
    }
    if kind in ("spans", "mixed"):
        tree["stores"] = [{"path": str(bench.prepared / STORE)}]
    return presets.resolve(recipes.parse(PretrainConfig, tree))


def examples(bench: Bench, arm: str) -> list[Weighted]:
    """What the arm draws its pairs from."""
    objective, kind = ARMS[arm]
    found = []
    if kind != "spans":
        pairs = first_only(bench.asked) if kind == "one-query" else bench.asked
        source = EncoderDecoderOrder(pairs, symmetric=False) if objective == "cotmae" else pairs
        found.append(Weighted(source, 1.0, kind))
    if kind in ("spans", "mixed"):
        config = recipe(bench, f"{objective}-spans", 0)
        found += sources.build(config, [bench.store], bench.tokenizer)
    return [replace(one, share=1 / len(found)) for one in found]


def first_only(pairs: PairSource) -> PairSource:
    """The first query of each passage alone."""
    return replace(
        pairs,
        partners=Ragged(pairs.partners.values[pairs.partners.offsets[:-1]], np.arange(len(pairs) + 1)),
    )


@dataclass(frozen=True)
class Trained:
    """A pre-trained model and how it went."""

    encoder: Encoder
    about: Tree


def pretrain(bench: Bench, arm: str, seed: int, steps: int | None = None) -> Trained:
    """As many steps as see the tokens asked for, or so many."""
    config, told = recipe(bench, arm, seed), bench.settings
    found = examples(bench, arm)
    each = sources.tokens_per_example(found)
    steps = steps or max(1, round(told.tokens / (each * told.batch)))
    backbone = bench.backbone()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(key(seed, 1) >> 1))
        method = methods()[config.objective.kind].build(config, backbone, MethodStart(bench.tokenizer))
    world = World(device=bench.device)
    rows = sources.batches(found, told.batch, seed, config.mix or "batch")
    folder = _empty(bench.work / "pretraining")
    loop = _loop(steps=steps, batch=told.batch, seed=seed, log_every=max(1, steps // 20))
    began, processor = time.monotonic(), time.process_time()
    done = train(
        method, Maker(rows, config.objective.shape(bench.tokenizer), world), folder,
        loop=loop, optim=AdamWConfig(lr=told.lr), schedule=ScheduleConfig(), world=world, label=f"{arm} {seed}",
    )  # fmt: skip
    about = {
        "steps": steps, "tokens_an_example": round(each, 1), "tokens": done.tokens,
        "seconds": round(time.monotonic() - began, 2),
        "processor_seconds": round(time.process_time() - processor, 3), "log": _lines(folder / "log.jsonl"),
        "timing": _lines(folder / "timing.jsonl"),
    }  # fmt: skip
    return Trained(_encoder(bench, backbone), about)


def tune(bench: Bench, model: Trained, seed: int) -> Tree:
    """The model on the labels, in place; compared by cosine from here on."""
    told, task = bench.settings, bench.tasks["labelled"]
    retriever = RetrievalObjective(model.encoder, loss=[(1.0, InfoNCE(0.05, "cosine"))])
    data, world = task.examples(), World(device=bench.device)
    sampler = random_batches(len(data), told.tune_batch, seed)
    choice = GroupChoice(told.negatives, seed=seed)
    maker = RetrievalBatches(data, task.train.texts, task.passages, sampler, choice, world)
    folder = _empty(bench.work / "tuning")
    began = time.monotonic()
    done = train(
        retriever, maker, folder, schedule=ScheduleConfig(), optim=AdamWConfig(lr=told.tune_lr), world=world,
        loop=_loop(steps=told.tune_steps, batch=told.tune_batch, seed=seed, log_every=max(1, told.tune_steps // 20)),
        epochs=Epochs(sampler.steps, sampler.begin), label=f"tuning {seed}",
    )  # fmt: skip
    seconds = round(time.monotonic() - began, 2)
    return {
        "steps": told.tune_steps,
        "tokens": done.tokens,
        "seconds": seconds,
        "log": _lines(folder / "log.jsonl"),
    }


def one_run(bench: Bench, arm: str, seed: int) -> tuple[Tree, dict[str, NDArray[np.float64]]]:
    """What there is to know about a run, and the values of all test questions: `zero-shot|squad`, …"""
    model = Trained(_encoder(bench, bench.backbone()), {}) if arm == START else pretrain(bench, arm, seed)
    began = time.monotonic()
    values = tested(bench, model.encoder, "zero-shot")
    tuned = tune(bench, model, seed)
    values |= tested(bench, model.encoder, "tuned")
    testing = time.monotonic() - began - tuned["seconds"]
    tests = {name: asked for task in bench.tasks.values() for name, asked in task.tests.items()}
    about = {
        "arm": arm,
        "seed": seed,
        "pretraining": model.about,
        "tuning": tuned,
        "testing": round(testing, 2),
        "documents": {name: asked.documents.tolist() for name, asked in tests.items()},
        "labels": labels(bench, arm),
    }
    return about, values


def labels(bench: Bench, arm: str) -> dict[str, list[str]]:
    """Which labels a row has seen: through the generator of its queries, and by tuning, which is the same for all."""
    spans = arm == START or ARMS[arm][1] == "spans"
    before = [] if spans else [f"{label} (through the generator)" for label in bench.generator_labels]
    task = bench.tasks["labelled"]
    return {
        "zero-shot": before,
        "tuned": [*before, f"{' + '.join(task.tests)}, train: {len(task.train)} questions"],
    }


def tested(bench: Bench, encoder: Encoder, state: str) -> dict[str, NDArray[np.float64]]:
    """The values of all test questions, compared by cosine; as it comes, by dot products too."""
    found = {}
    for task in bench.tasks.values():
        vectors = task.vectors(encoder)
        for how in ("zero-shot", "zero-shot-dot") if state == "zero-shot" else (state,):
            made = task.values(vectors, bench.device, cosine=not how.endswith("dot"))
            found |= {f"{how}|{name}": one for name, one in made.items()}
    return found


def save_pairs(pairs: PairSource, path: Path, made_of: str, labels: Sequence[str]) -> None:
    """Arrays of passages with queries, the hash of what they were made of, and labels; whole or not at all."""
    partial = path.with_suffix(".partial.npz")
    np.savez(
        partial, tokens=pairs.texts.values.astype(np.uint16), offsets=pairs.texts.offsets,
        bounds=pairs.partners.offsets, partners=pairs.partners.values,
        n_queries=pairs.n_queries, documents=pairs.passage_documents, anchors=pairs.anchors,
        made_of=made_of, labels=np.array(labels),
    )  # fmt: skip
    partial.replace(path)


def made_of(path: Path) -> str:
    """What `save_pairs` was told."""
    return str(np.load(path)["made_of"])


def load_pairs(path: Path, frame: SpecialTokens) -> PairSource:
    """What `save_pairs` wrote."""
    kept = np.load(path)
    return PairSource(
        Ragged(kept["tokens"].astype(np.int32), kept["offsets"]), int(kept["n_queries"]), kept["documents"],
        "passage", Ragged(kept["partners"], kept["bounds"]), kept["anchors"], frame,
    )  # fmt: skip


def read_pairs(passages: Path, generated: Path, tokenizer: Tokenizer) -> PairSource:
    """Passages that have queries, from passages.jsonl and generated.jsonl; the same pairs as the collection's."""
    asked: dict[str, list[str]] = {}
    with generated.open(encoding="utf-8") as file:
        for row in map(json.loads, file):
            if row["queries"]:
                asked[row["passage"]] = row["queries"]
    texts, documents = {}, {}
    with passages.open(encoding="utf-8") as file:
        for row in map(json.loads, file):
            if row["id"] in asked:
                texts[row["id"]] = f"{row.get('title', '')} {row['text']}".strip()
                documents[row["id"]] = row.get("doc") or row["id"]
    numbers = {name: i for i, name in enumerate(dict.fromkeys(documents.values()))}
    queries = [query for name in texts for query in asked[name]]
    frame = SpecialTokens.of(tokenizer)
    room = LENGTH - len(frame.before) - len(frame.after)
    return PairSource(
        RoleLayout(tokenizer, room, bare=True).all_ids([*queries, *texts.values()]),
        len(queries),
        np.array([numbers[documents[name]] for name in texts], np.int64),
        "passage",
        Ragged(np.arange(len(queries)), offsets_of([len(asked[name]) for name in texts])),
        np.arange(len(texts)),
        frame,
    )


def _encoder(bench: Bench, backbone: Backbone) -> Encoder:
    return Encoder(backbone, bench.tokenizer, pooling="cls", max_length=LENGTH, similarity="cosine")


def _loop(**told: Any) -> LoopConfig:
    return LoopConfig(checkpoint_every=10_000_000, keep=1, chunk_tokens="whole", **told)


def _empty(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    return folder


def _lines(path: Path) -> list[Tree]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
