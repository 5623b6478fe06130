"""The layers between tokens and states as arrays of numpy, whoever has loaded them (a file, torch), and their forward.

`numpy_model.py` reads them from a folder; the compiled forwards (`kernels/lean_forward.py`, `kernels/int8.py`) take the
same arrays.

T packed tokens, D width, H heads, L tokens of a sequence, E width of a head, V tokens of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from liebig.model.settings import Floats
from liebig.ragged import Ragged


class Linear(NamedTuple):
    """A product with a bias; inputs are the rows of the weight."""

    weight: Floats
    bias: Floats

    def __call__(self, x: Floats) -> Floats:
        return x @ self.weight + self.bias


class LayerNorm(NamedTuple):
    """A layer norm."""

    scale: Floats
    shift: Floats
    eps: np.float32

    def __call__(self, x: Floats) -> Floats:
        centred = x - x.mean(-1, keepdims=True)
        variance = np.square(centred).mean(-1, keepdims=True)
        return (centred / np.sqrt(variance + self.eps)) * self.scale + self.shift


class Norm(NamedTuple):
    """The bias of a product, and the layer norm after it, as kernels take them."""

    bias: Floats
    scale: Floats
    shift: Floats
    eps: np.float32


class EncoderLayer(NamedTuple):
    """The weights of a layer; queries, keys and values are one product."""

    qkv: Linear
    out: Linear
    first_norm: LayerNorm
    up: Linear
    down: Linear
    second_norm: LayerNorm


class Body(NamedTuple):
    """What lies between tokens and states, as arrays, whoever has loaded it."""

    layers: Sequence[EncoderLayer]
    heads: int
    vocab: int
    words: NDArray[Any] | None  # V x D; none where embeddings are more than the norm of a sum
    places: Floats  # what is added to a word at each position
    norm: LayerNorm
    embed: Callable[[Ragged], Floats]  # the states before the first layer

    def states(self, tokens: Ragged, watch: Callable[[Floats], object] = lambda _: None) -> Floats:
        """The states after the last layer, T x D; `watch` is shown what goes into `qkv` and `up` of each layer."""
        x_TD, bounds = self.embed(tokens), tokens.offsets.tolist()
        for layer in self.layers:
            watch(x_TD)
            x_TD = layer.first_norm(x_TD + layer.out(self._attend(layer.qkv(x_TD), bounds)))
            watch(x_TD)
            x_TD = layer.second_norm(x_TD + layer.down(gelu(layer.up(x_TD))))
        return x_TD

    def _attend(self, qkv: Floats, bounds: Sequence[int]) -> Floats:
        """The values of each sequence, mixed by the softmax of its scores."""
        tokens, width = len(qkv), qkv.shape[1] // 3
        q_HTE, k_HTE, v_HTE = qkv.reshape(tokens, 3, self.heads, -1).transpose(1, 2, 0, 3)
        seen_TD = np.empty((tokens, width), np.float32)
        for start, end in pairwise(bounds):
            scores_HLL = q_HTE[:, start:end] @ k_HTE[:, start:end].transpose(0, 2, 1)
            scores_HLL *= np.float32((width // self.heads) ** -0.5)
            shares_HLL = np.exp(scores_HLL - scores_HLL.max(-1, keepdims=True))
            shares_HLL /= shares_HLL.sum(-1, keepdims=True)
            mixed_HLE = shares_HLL @ v_HTE[:, start:end]
            seen_TD[start:end] = mixed_HLE.transpose(1, 0, 2).reshape(end - start, width)
        return seen_TD


# erf in seven digits, less than float32 has: Abramowitz and Stegun, 7.1.26.
ERF = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)


def gelu(x: Floats) -> Floats:
    """x times the normal distribution function of x."""
    size = np.abs(x) / np.float32(np.sqrt(2))
    t = 1 / (1 + np.float32(0.3275911) * size)
    tail = np.polyval([*np.array(ERF, np.float32), np.float32(0)], t) * np.exp(-size * size)
    return 0.5 * x * (1 + np.copysign(1 - tail, x))
