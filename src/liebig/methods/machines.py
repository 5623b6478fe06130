"""What work takes on a machine: its rates, the size of an encoder and of a corpus, and an estimate of one stage.

Work is counted in floating-point operations and divided by what the machine sustains. The rates, measured unless they
say otherwise:

| number | h200 | cpu2 |
| --- | --- | --- |
| matrix rate | 700 T, bf16 | 70 G, fp32: two cores of a small server |
| share in training | 0.42: packed, compiled, dropout 0.1 | 0.5 |
| share in encoding | 0.64: 32,238 passages/s, BERT-base, 82 tokens | 0.6: the lean forward |

`calibrate` measures the matrix rate of this machine and keeps the shares. Prices are assumptions. `methods/cost.py` has
the cost of a step of pre-training, `liebig plan` the words.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from json import loads as read_json
from pathlib import Path

import torch

from liebig.base.config import nearest
from liebig.base.errors import RecipeError
from liebig.base.machine import cores, memory
from liebig.base.progress import counted
from liebig.methods.cost import BYTES_A_STATE, CHUNK_TOKENS, matrix_rate

GIB = 2**30
SHARES = {"cuda": (0.42, 0.64), "cpu": (0.5, 0.6)}  # of the matrix rate: training, encoding


@dataclass(frozen=True)
class Machine:
    """Rates per second; `tokenise` and `lexical` are those of one core."""

    name: str
    kind: str
    matrix: float  # FLOP
    cores: int
    memory: float  # bytes the model may use
    price: float  # dollars per hour
    tokenise: float = 380_000.0  # tokens, wiki and novels by 16 processes
    lexical: float = 7_300.0  # passages of 100 words into BM25
    read: float = 20e6  # bytes of JSON lines into a collection

    @property
    def train(self) -> float:
        """FLOP per second in training."""
        return self.matrix * SHARES[self.kind][0]

    @property
    def encode(self) -> float:
        """FLOP per second in encoding."""
        return self.matrix * SHARES[self.kind][1]

    def at(self, price: float | None, devices: int) -> Machine:
        """Several of them, at another price per hour for each if given."""
        each = self.price if price is None else price
        return replace(self, matrix=self.matrix * devices, cores=self.cores * devices, price=each * devices)


MACHINES = {
    "h200": Machine("one H200", "cuda", 700e12, 16, 139 * GIB, 4.0),
    "cpu2": Machine("two cores of a small server", "cpu", 70e9, 2, 4 * GIB, 0.08),
}


def find_machine(name: str) -> Machine:
    """A machine by its name; `calibrate` is this one."""
    if name == "calibrate":
        return calibrate()
    if name not in MACHINES:
        raise RecipeError(f"there is no machine {name!r}", fix=nearest(name, (*MACHINES, "calibrate")))
    return MACHINES[name]


def calibrate() -> Machine:
    """This machine: its own memory, its matrix rate measured for a third of a second."""
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    available = torch.cuda.mem_get_info()[1] if kind == "cuda" else memory()
    name = torch.cuda.get_device_name() if kind == "cuda" else f"this machine's {cores()} cores"
    return Machine(name, kind, matrix_rate(kind), cores(), available, 0.0)


BYTES = {"fp32": 4.0, "fp16": 2.0, "int8": 1.0, "binary": 0.125}
LEXICAL_BYTES = 850  # of a passage of 100 words in a BM25 index, its text included
LEXICAL_MEMORY = 500e6
TOKENISER_MEMORY = 150e6
STORE_BYTES = 4.5  # of a token in a store
BERT_BASE = (12, 768, 3072, 30_522)


@dataclass(frozen=True)
class Corpus:
    """Size of data; assumed where the data does not exist yet."""

    passages: int
    tokens: float  # of a passage

    @property
    def basis(self) -> str:
        return f"{counted(self.passages, 'passages')} of {self.tokens:g} tokens, as assumed"


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
        """From a model's folder; BERT-base where it does not exist."""
        path = folder / "config.json" if folder is not None else None
        if path is None or not path.is_file():
            return cls(*BERT_BASE)
        found = read_json(path.read_text(encoding="utf-8"))
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
        """FLOP of this many tokens in sequences of a length."""
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


def training_memory(shape: Shape, tokens: float) -> float:
    """Weights, gradients and moments, and the activations of a chunk of a batch with this many tokens."""
    chunk = min(tokens, CHUNK_TOKENS["cuda"])
    return 16 * shape.parameters + chunk * BYTES_A_STATE * shape.width * shape.layers
