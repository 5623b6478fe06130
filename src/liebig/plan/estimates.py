"""What a stage takes: seconds, bytes of memory and bytes of disk, from its recipe and a machine's rates.

Counts come from data that is there, else from what the user says of it; either way the line says which. Work is counted
in floating-point operations and divided by what the machine sustains. Stages that take seconds are left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from liebig.data.collection import Collection, is_collection
from liebig.encode.config import EncodeConfig
from liebig.finetune.config import FinetuneConfig
from liebig.lexical.config import BM25Config
from liebig.model.config import FolderBackbone, NewBackbone
from liebig.plan.machines import Machine
from liebig.pretrain.config import PretrainConfig

BYTES = {"fp32": 4.0, "fp16": 2.0, "int8": 1.0, "binary": 0.125}
LEXICAL_BYTES = 850  # of a passage of 100 words in a BM25 index, its text included
LEXICAL_MEMORY = 500e6
TOKENISER_MEMORY = 150e6
STORE_BYTES = 4.5  # of a token in a store
BERT_BASE = (12, 768, 3072, 30_522)


@dataclass(frozen=True)
class Corpus:
    """What is said of data that is not there yet."""

    passages: int
    tokens: float  # of a passage

    @property
    def said(self) -> str:
        return f"{self.passages:,} passages of {self.tokens:g} tokens, as assumed"


@dataclass(frozen=True)
class Estimate:
    """What one stage takes."""

    stage: str
    seconds: float | None
    memory: float
    disk: float
    basis: str


@dataclass(frozen=True)
class Shape:
    """An encoder's size."""

    layers: int
    width: int
    intermediate: int
    vocab: int

    @classmethod
    def of(cls, folder: Path | None) -> Shape:
        """From a model's folder; BERT-base where it is not there."""
        path = folder / "config.json" if folder is not None else None
        if path is None or not path.is_file():
            return cls(*BERT_BASE)
        found = json.loads(path.read_text(encoding="utf-8"))
        layers = found.get("num_hidden_layers", found.get("n_layers", BERT_BASE[0]))
        width = found.get("hidden_size", found.get("dim", BERT_BASE[1]))
        inner = found.get("intermediate_size", found.get("hidden_dim", 4 * width))
        return cls(layers, width, inner, found.get("vocab_size", BERT_BASE[3]))

    @property
    def parameters(self) -> float:
        """Of layers and embeddings."""
        return self.layers * self.a_layer + (self.vocab + 512) * self.width

    @property
    def a_layer(self) -> float:
        """Parameters of a layer."""
        return 4.0 * self.width**2 + 2.0 * self.width * self.intermediate

    def forward(self, tokens: float, length: float) -> float:
        """FLOP of so many tokens in sequences of a length."""
        return tokens * self.layers * (2 * self.a_layer + 4 * self.width * length)


def encoding(name: str, shape: Shape, corpus: Corpus, kind: str, machine: Machine, basis: str) -> Estimate:
    """Vectors of passages: the slower of model and tokenizer, which run beside each other."""
    tokens = corpus.passages * corpus.tokens
    model = shape.forward(tokens, corpus.tokens) / machine.encode
    words = tokens / (machine.tokenise * machine.cores)
    slower = max(model, words) if machine.kind == "cuda" else model + words
    disk = corpus.passages * (shape.width * BYTES[kind] + 24)
    memory = 4 * shape.parameters + 8192 * shape.width * 8 + machine.cores * TOKENISER_MEMORY
    limit = ", the tokenizer decides" if machine.kind == "cuda" and words > model else ""
    return Estimate(name, slower, memory, disk, basis + limit)


def lexical(name: str, corpus: Corpus, machine: Machine, basis: str) -> Estimate:
    """A BM25 index, by one core."""
    return Estimate(
        name, corpus.passages / machine.lexical, LEXICAL_MEMORY, corpus.passages * LEXICAL_BYTES, basis
    )


def _pretrain(name: str, config: PretrainConfig, machine: Machine, corpus: Corpus) -> Estimate:
    from liebig.pretrain.plan import assumed, plan
    from liebig.pretrain.presets import resolve

    found = plan(config)
    steps, basis = found.steps, f"{found.steps:,} steps" if found.steps is not None else ""
    if steps is None:
        load = assumed(resolve(config))
        epochs = config.loop.epochs or 1.0
        steps = max(1, round(epochs * corpus.passages * corpus.tokens / (load.encoded + load.decoded)))
        basis = f"{steps:,} steps: {epochs:g} passes over {corpus.said}"
    seconds = steps * found.flop_a_step / machine.train
    if config.loop.minutes is not None:
        seconds, basis = 60 * config.loop.minutes, "as long as the recipe says"
    weights = 16.0 * _shape(config.model).parameters
    return Estimate(name, seconds, found.memory, weights * (1 + config.loop.keep) / 2, basis)


def _finetune(name: str, config: FinetuneConfig, machine: Machine, corpus: Corpus) -> Estimate:
    shape = _shape(config.model)
    passages = config.positives + config.negatives
    tokens = config.loop.batch * (
        0.5 * config.query_length + passages * min(corpus.tokens, config.passage_length)
    )
    steps, basis = _steps(config)
    flop = 4 * shape.forward(tokens, corpus.tokens)  # forward, backward, and the pass that fills the cache
    seconds = None if steps is None else steps * flop / machine.train
    memory = training_memory(shape, tokens)
    return Estimate(name, seconds, memory, 8 * shape.parameters * (1 + config.loop.keep), basis)


def training_memory(shape: Shape, tokens: float) -> float:
    """Weights, gradients and moments, and the activations of a chunk of a batch with so many tokens."""
    return 16 * shape.parameters + min(tokens, 32_768) * 34 * shape.width * shape.layers


def _steps(config: FinetuneConfig) -> tuple[int | None, str]:
    if config.loop.steps is not None:
        return config.loop.steps, f"{config.loop.steps:,} steps"
    if not is_collection(config.collection):
        return None, "the number of labels is not known yet"
    queries = config.limit or sum(1 for _ in Collection(config.collection).query_ids(config.split))
    steps = max(1, round((config.loop.epochs or 1.0) * queries / config.loop.batch))
    return steps, f"{steps:,} steps over {queries:,} queries"


def _encode(name: str, config: EncodeConfig, machine: Machine, corpus: Corpus) -> Estimate:
    found, basis = _corpus(config.source, corpus)
    return encoding(name, Shape.of(config.model), found, config.type, machine, basis)


def _bm25(name: str, config: BM25Config, machine: Machine, corpus: Corpus) -> Estimate:
    found, basis = _corpus(config.collection, corpus)
    return lexical(name, found, machine, basis)


def _prepare(name: str, config: Any, machine: Machine, corpus: Corpus) -> Estimate:
    found, basis = _corpus(config.collection, corpus)
    tokens = found.passages * found.tokens
    seconds = tokens / (machine.tokenise * machine.cores)
    return Estimate(name, seconds, machine.cores * TOKENISER_MEMORY, tokens * STORE_BYTES, basis)


def _corpus(path: Path | None, corpus: Corpus) -> tuple[Corpus, str]:
    """The passages of a collection that is there, else what was said."""
    if path is None or not is_collection(path):
        return corpus, corpus.said
    collection = Collection(path)
    count = collection.count("passages") or collection.count("documents")
    size = sum((path / f"{kind}.jsonl").stat().st_size for kind in ("passages",) if collection.has(kind))
    tokens = size / count / 4.5 if size else corpus.tokens
    return Corpus(count, tokens), f"{count:,} passages of about {tokens:.0f} tokens in {path.name}"


def _shape(model: Any) -> Shape:
    if isinstance(model, NewBackbone):
        return Shape(model.layers, model.width, model.intermediate or 4 * model.width, BERT_BASE[3])
    return Shape.of(model.path if isinstance(model, FolderBackbone) else None)


Estimator = Callable[[str, Any, Machine, Corpus], Estimate]
ESTIMATORS: Mapping[str, Estimator] = {
    "pretrain": _pretrain,
    "finetune": _finetune,
    "encode": _encode,
    "bm25": _bm25,
    "prepare": _prepare,
}
