"""BERT-like encoders in numpy: what an installation without torch encodes with, from any model folder.

`NumpyEncoder` reads the safetensors of a folder, `NumpyModel` is the forward that the engine runs. It computes what
`Backbone` does: in float32, products of all tokens of a packed row together, attention sequence by sequence, so nothing
is padded; that is made for questions, which are few and short. In int8 (`kernels/int8.py`) it encodes a corpus, too: a
build with the bundled encoder never imports torch. Folders with an ONNX graph are run by `onnx_graph.py`.
Other families (ModernBERT, MPNet) and pickled weights need torch or a graph.

T packed tokens, B sequences, D width, H heads, L tokens of a sequence, E width of a head, P pieces.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from liebig.base.errors import MissingDependency, ModelError
from liebig.model.body import Body, EncoderLayer, LayerNorm, Linear, gelu
from liebig.model.layer_names import LAYER_NAMES, ROBERTA, LayerNames
from liebig.model.settings import (
    Floats,
    FolderReader,
    Longs,
    ModelSettings,
    PackedRow,
    TokenSpans,
    TransformerFile,
    first_line,
    nothing,
    read_model_file,
    read_tail_file,
)
from liebig.ragged import Ragged, offsets_of
from liebig.vectors.quantise import unit_length

if TYPE_CHECKING:
    from liebig.model.kernels.int8 import Int8Forward

WEIGHTS = "model.safetensors"
PROJECT = "embeddings_project"
PREFIX = re.compile(r"^(bert|roberta|electra|distilbert)\.(?=embeddings|encoder|transformer)")
ADD_GRAPH = "or add a graph where torch is: liebig export RETRIEVER --to onnx"


def sigmoid(x: Floats) -> Floats:
    return 0.5 * (1 + np.tanh(0.5 * x))


Activation = Callable[[Floats], Floats]
ACTIVATIONS: dict[str, Activation] = {
    "torch.nn.modules.linear.Identity": lambda x: x,
    "torch.nn.modules.activation.Tanh": np.tanh,
    "torch.nn.modules.activation.ReLU": lambda x: np.maximum(x, 0),
    "torch.nn.modules.activation.GELU": gelu,
    "torch.nn.modules.activation.SiLU": lambda x: x * sigmoid(x),
    "torch.nn.modules.activation.Sigmoid": sigmoid,
}


def weighted_mean(x_LD: Floats, skip: int) -> Floats:
    """The mean with weights 1, 2, 3, … along the sequence."""
    weights_L = np.arange(1, len(x_LD) + 1, dtype=np.float32)[skip:]
    return weights_L @ x_LD[skip:] / np.maximum(weights_L.sum(), np.float32(1e-9))


# Of the states of a sequence and how many of its first tokens are left out; as `POOLINGS` in `encoder.py`.
POOLINGS: dict[str, Callable[[Floats, int], Floats]] = {
    "cls": lambda x_LD, skip: x_LD[skip if len(x_LD) > skip else 0],
    "mean": lambda x_LD, skip: x_LD[skip:].sum(0) / max(len(x_LD) - skip, 1e-9),
    "max": lambda x_LD, skip: x_LD[skip:].max(0, initial=-np.inf),
    "mean_sqrt_len_tokens": lambda x_LD, skip: x_LD[skip:].sum(0) / max(len(x_LD) - skip, 1e-9) ** 0.5,
    "weightedmean": weighted_mean,
    "lasttoken": lambda x_LD, skip: x_LD[-1],
}


class WeightFile:
    """The tensors of a safetensors file by name, without the prefix of the model's class."""

    def __init__(self, path: Path) -> None:
        self.path, self._tensors = path, dict[str, NDArray[Any]]()
        with readable(path), safe_open(path, framework="numpy") as file:
            for name in file.keys():  # noqa: SIM118, not a mapping
                # Files of the first years have gamma and beta.
                plain = name.replace("LayerNorm.gamma", "LayerNorm.weight").replace(
                    "LayerNorm.beta", "LayerNorm.bias"
                )
                self._tensors[PREFIX.sub("", plain)] = file.get_tensor(name)

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def get(self, name: str) -> NDArray[Any]:
        """A tensor in the precision that it is stored in."""
        if name not in self._tensors:
            raise ModelError(f"the weight {name!r} is missing", file=self.path, fix="save the model again")
        return self._tensors[name]

    def floats(self, name: str) -> Floats:
        return self.get(name).astype(np.float32)

    def linear(self, *names: str) -> Linear:
        """One product, or several of the same input side by side; a view, because BLAS reads a matrix either way."""
        weights, biases = ([self.get(f"{name}.{part}") for name in names] for part in ("weight", "bias"))
        return Linear(np.concatenate(weights, dtype=np.float32).T, np.concatenate(biases, dtype=np.float32))

    def norm(self, name: str, eps: float) -> LayerNorm:
        return LayerNorm(self.floats(f"{name}.weight"), self.floats(f"{name}.bias"), np.float32(eps))

    def layer(self, names: LayerNames, number: int, eps: float) -> EncoderLayer:
        at = LayerNames(*(f"{names.layers}.{number}.{name}" for name in names))
        return EncoderLayer(
            self.linear(at.query, at.key, at.value), self.linear(at.out), self.norm(at.first_norm, eps),
            self.linear(at.up), self.linear(at.down), self.norm(at.second_norm, eps),
        )  # fmt: skip


class NumpyEncoder(FolderReader):
    """A model's folder read without torch: tokenizer, prompts, lengths and weights; `NumpyModel` is its forward."""

    def __init__(self, folder: Path) -> None:
        settings = ModelSettings.read(folder)
        path = settings.transformer / "config.json"
        config = read_model_file(path, TransformerFile).model_dump(exclude_none=True)
        refuse(folder, config, settings)
        family, weights = config["model_type"], WeightFile(settings.transformer / WEIGHTS)
        start = int(config.get("pad_token_id", 1)) + 1 if family in ROBERTA else 0
        eps = float(config.get("layer_norm_eps", 1e-12))
        self.heads = int(config.get("num_attention_heads", config.get("n_heads", 12)))
        self.words = weights.get(
            "embeddings.word_embeddings.weight"
        )  # few rows are used: those become float32
        self.places = weights.floats("embeddings.position_embeddings.weight")[start:]
        if family != "distilbert":  # one text has one type of tokens
            self.places += weights.floats("embeddings.token_type_embeddings.weight")[0]
        self.norm = weights.norm("embeddings.LayerNorm", eps)
        # ELECTRA's embeddings may be narrower than its layers.
        self.project = weights.linear(PROJECT) if f"{PROJECT}.weight" in weights else None
        count = int(config.get("num_hidden_layers", config.get("n_layers", 12)))
        self.layers = [weights.layer(LAYER_NAMES[family], number, eps) for number in range(count)]
        self.pooling = settings.pooling
        self.tail = [read_tail(name, path) for name, path in settings.tail]
        super().__init__(settings, len(self.places))
        self.width = self.pooled(self.layers[-1].second_norm.shift[None], np.array([0, 1]), 0).shape[1]

    @property
    def body(self) -> Body:
        """Its layers and tables."""
        words = self.words if self.project is None else None
        return Body(self.layers, self.heads, len(self.words), words, self.places, self.norm, self._embed)

    @cached_property
    def int8(self) -> Int8Forward:
        """The forward in int8, which takes a second to make: one for all models of this encoder."""
        from liebig.model.kernels.int8 import Int8Forward  # compiled code

        return Int8Forward(self.body, self.tokenizer.wrap)

    def _embed(self, tokens: Ragged) -> Floats:
        """Layer norm of what stands in the tables for each token and its position."""
        places_T = np.arange(tokens.offsets[-1]) - np.repeat(tokens.offsets[:-1], tokens.lengths)
        x_TD = self.norm(self.words[tokens.values].astype(np.float32) + self.places[places_T])
        return x_TD if self.project is None else self.project(x_TD)

    def vectors(self, tokens: Ragged, skip: int = 0) -> Floats:
        """The vectors of a packed row, B x D; pooling leaves out the first `skip` tokens of every sequence."""
        return self.pooled(self.body.states(tokens), tokens.offsets, skip)

    def pooled(self, x_TD: Floats, bounds: Longs, skip: int) -> Floats:
        """The vector of each sequence, from its states."""
        if self.pooling == "mean" and skip == 0:  # all sequences together
            lengths_B1 = np.diff(bounds)[:, None].astype(np.float32)
            x_BD: Floats = (np.add.reduceat(x_TD, bounds[:-1]) / lengths_B1).astype(np.float32, copy=False)
        else:
            pool = POOLINGS[self.pooling]
            x_BD = np.stack([pool(x_TD[start:end], skip) for start, end in pairwise(bounds.tolist())])
        for part in self.tail:
            x_BD = part(x_BD)
        return x_BD.astype(np.float32, copy=False)


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """What safetensors says of a damaged file, in a sentence."""
    try:
        yield
    except (OSError, ValueError, TypeError, SafetensorError) as error:
        raise ModelError(f"the weights cannot be read: {first_line(error)}", file=path) from None


def in_half(folder: Path) -> bool:
    """Whether weights are stored in half precision, as those are that were rounded to int8."""
    path = folder / WEIGHTS
    if not path.is_file():
        return False
    with readable(path), safe_open(path, framework="numpy") as file:
        return any(file.get_slice(name).get_dtype() == "F16" for name in file.keys())  # noqa: SIM118


def refuse(folder: Path, config: Mapping[str, Any], settings: ModelSettings) -> None:
    """A model that this file does not compute needs torch, or a graph."""
    family = config.get("model_type")
    needs = (
        f"a model of the family {family!r}" if family not in LAYER_NAMES
        else "a model with another activation than GELU"
        if config.get("hidden_act", config.get("activation", "gelu")) != "gelu"
        else "a model with relative positions" if config.get("position_embedding_type", "absolute") != "absolute"
        else f"a model without {WEIGHTS}" if not (settings.transformer / WEIGHTS).is_file()
        else ""
    )  # fmt: skip
    if needs:
        raise MissingDependency("torch", "train", f"{folder}: {needs}", ADD_GRAPH)


def read_tail(name: str, folder: Path) -> Activation:
    """A module behind the pooling."""
    config = read_tail_file(name, folder)
    if name == "Normalize":
        return unit_length
    weights, activation = WeightFile(folder / WEIGHTS), config.activation_function
    if name == "LayerNorm":
        norm = weights.norm("norm", 1e-5)
        return lambda x_BD: norm(x_BD)
    if activation not in ACTIVATIONS:
        raise ModelError(f"this form of {name} is not supported", file=folder / "config.json")
    weight_DN = weights.floats("linear.weight").T
    bias = weights.floats("linear.bias") if config.bias else np.float32(0)
    return lambda x_BD: ACTIVATIONS[activation](x_BD @ weight_DN + bias)


class NumpyModel:
    """An encoder in numpy with the interface that the engine needs.

    In float32 products use the threads of numpy's BLAS; in int8 every thread computes rows of its own.
    """

    pools_spans = True

    def __init__(
        self,
        encoder: NumpyEncoder,
        *,
        unit: bool = False,
        skip: int = 0,
        precision: str = "fp32",
        threads: int = 1,
    ) -> None:
        self._encoder, self._unit, self._skip, self.width = encoder, unit, skip, encoder.width
        self._states: Callable[[Ragged], Floats] = encoder.body.states
        self._threads = 1
        if precision == "int8":
            forward = encoder.int8
            self._states = lambda tokens: forward(tokens.values.astype(np.int64), tokens.offsets)
            self._threads = threads

    def start(
        self,
        packed: Iterable[PackedRow],
        count: int,
        done: Callable[[int], None] = nothing,
        spans: TokenSpans | None = None,
    ) -> Callable[[], Floats]:
        """Vectors of `count` pieces and of the spans behind them; they are there when this returns."""
        out_PD = np.empty((count + (0 if spans is None else len(spans)), self.width), np.float32)

        def run(row: PackedRow) -> int:
            tokens, numbers = row
            x_TD = self._states(tokens)
            out_PD[numbers] = self._vectors(x_TD, tokens.offsets, self._skip)
            if spans is not None:
                inner, sizes, places = spans.within(tokens, numbers)
                if len(inner):
                    out_PD[count + inner] = self._vectors(x_TD[places], offsets_of(sizes), 0)
            return len(tokens.values)

        if self._threads == 1:
            for row in packed:
                done(run(row))
        else:
            with ThreadPoolExecutor(self._threads) as pool:
                for size in pool.map(run, packed):
                    done(size)
        return lambda: out_PD

    def _vectors(self, x_TD: Floats, bounds: Longs, skip: int) -> Floats:
        vectors_BD = self._encoder.pooled(x_TD, bounds, skip)
        return unit_length(vectors_BD) if self._unit else vectors_BD
