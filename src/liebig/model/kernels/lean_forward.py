"""A lean forward for a CPU in float32: the same weights and the same function, with less between the products.

Queries, keys and values come from one product; attention is two batched products per sequence straight from its
rows, so nothing is padded, gathered or masked; what lies between products is one pass each, in memory that is kept,
because a CPU spends more on fresh pages than on the arithmetic in them. States carry a 1 in a column of their own,
so that a bias is one more row of the weights; a bias of keys moves all scores of a query alike and is left out, one
of values goes through the shares, which sum to 1, into the next bias. For BERT-like families; others run as they
are. Four fifths of its time are the products.

The kernels between the products are one pass over memory each. Loops are written so that they become vector
instructions: exp is a polynomial (relative error 2e-7), and the largest score is found among integers that are
ordered as the scores are. Softmax leaves its division to the copy of what was mixed.

T packed tokens, D width, H heads, E head width, L tokens of a sequence, M width of the feed-forward.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import log
from threading import local
from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor

from liebig.model.backbone import Backbone
from liebig.model.body import Body, EncoderLayer, LayerNorm, Linear, Norm
from liebig.model.kernels.lean import LEAN, LeanLayer, LeanWeights
from liebig.model.packed import Packed
from liebig.model.settings import Floats
from liebig.ragged import Ragged

F, I = np.float32, np.int32  # noqa: E741
FAST = {"reassoc", "contract", "nsz", "arcp"}  # sums in any order; NaN and infinity stay what they are
inline: Any = numba.njit(inline="always", fastmath=FAST, error_model="numpy")
kernel: Any = numba.njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")


@inline
def _power_of_2(x: np.float32) -> np.float32:
    """2 ** x for x <= 0: whole powers by their bits, the rest by a series."""
    x = max(x, F(-126))  # the smallest exponent of a normal float; what lies below is 0 in a softmax anyway
    whole = np.floor(x + F(0.5))
    rest = x - whole  # within half of 0, where six terms of the series of 2 ** rest are enough
    p = F(1.5403530e-4)
    p = p * rest + F(1.3333558e-3)
    p = p * rest + F(9.6181291e-3)
    p = p * rest + F(5.5504109e-2)
    p = p * rest + F(2.4022651e-1)
    p = p * rest + F(6.9314718e-1)
    p = p * rest + F(1)
    # A float's bits from the 23rd on are its exponent plus 127, so 2 ** whole needs no arithmetic.
    return p * I((I(whole) + I(127)) << I(23)).view(F)


@inline
def _ordered(bits: np.int32) -> np.int32:
    """The bits of a float as an integer with the same order, and back."""
    # Floats are sign and magnitude: flipping all bits but the sign of a negative one gives two's complement.
    return I(bits ^ ((bits >> I(31)) & I(0x7FFFFFFF)))


@kernel
def exponentials(scores_HLL: Floats, factor: np.float32, sums_HL: Floats) -> None:
    """2 ** (factor * score) over the row's largest, in place, and the sum of each row."""
    heads, length = sums_HL.shape
    bits_HLL = scores_HLL.view(np.int32)
    for h in range(heads):
        for i in range(length):
            # A maximum of floats is no vector loop, because of NaN; one of integers is.
            most = _ordered(bits_HLL[h, i, 0])
            for j in range(length):
                most = max(most, _ordered(bits_HLL[h, i, j]))
            highest = _ordered(most).view(F)
            # Over the largest score, so no power is above 1 and their sum is at least 1.
            total = F(0)
            for j in range(length):
                power = _power_of_2((scores_HLL[h, i, j] - highest) * factor)
                scores_HLL[h, i, j] = power
                total += power
            sums_HL[h, i] = total


@kernel
def divide_into(mixed_HLE: Floats, sums_HL: Floats, out_LD: Floats) -> None:
    """Each head's mixed values over their sums, beside each other in the rows of the sequence."""
    heads, length, width = mixed_HLE.shape
    for h in range(heads):
        for i in range(length):
            share = F(1) / sums_HL[h, i]  # one division per head and token, instead of one per score
            for e in range(width):
                out_LD[i, h * width + e] = mixed_HLE[h, i, e] * share


@kernel
def add_and_normalise(
    x_TD: Floats, new_TD: Floats, bias: Floats, scale: Floats, shift: Floats, eps: np.float32
) -> None:
    """Layer norm of x + new + bias, in place of x, which may have further columns."""
    tokens, width = new_TD.shape
    for t in range(tokens):
        # Three passes over a row that stays in the first cache: the sum, the mean square, the result.
        total = F(0)
        for d in range(width):
            x_TD[t, d] += new_TD[t, d] + bias[d]
            total += x_TD[t, d]
        mean, square = total / F(width), F(0)
        for d in range(width):
            square += (x_TD[t, d] - mean) ** 2
        factor = F(1) / np.sqrt(square / F(width) + eps)
        for d in range(width):
            x_TD[t, d] = (x_TD[t, d] - mean) * factor * scale[d] + shift[d]


@dataclass(frozen=True)
class LayerWeights:
    """The weights of a layer, as the products want them: inputs in rows, the bias of `qkv` and `up` as the last."""

    qkv: Tensor
    out: Tensor
    first_norm: Norm
    up: Tensor
    down: Tensor
    second_norm: Norm
    heads: int
    scale: float


def supports(backbone: Backbone) -> bool:
    """Whether the lean forward computes what the backbone does: family, activation, precision and device."""
    if backbone.family not in LEAN or not backbone.packed:
        return False
    config: Any = backbone.config
    activation = getattr(config, "hidden_act", getattr(config, "activation", ""))
    plain = not getattr(config, "chunk_size_feed_forward", 0)
    on_cpu = next(backbone.parameters()).device.type == "cpu"
    return activation == "gelu" and plain and on_cpu and backbone.dtype == torch.float32


def read_layers(backbone: Backbone) -> list[LayerWeights]:
    """The layers' weights; those of queries, keys and values are copied into one."""
    layers: Any = backbone.kind.layers(backbone.body)
    return [_joined(LEAN[backbone.family](layer)) for layer in layers]


def body_of(backbone: Backbone) -> Body | None:
    """The backbone as arrays, for `kernels/int8.py`; None where the lean forward does not know it."""
    if not supports(backbone):
        return None
    body: Any = backbone.body
    table, layers = body.embeddings, [LEAN[backbone.family](layer) for layer in backbone.kind.layers(body)]
    places = table.position_embeddings.weight.detach()[backbone.kind.start(backbone.config) :]
    if hasattr(table, "token_type_embeddings"):
        places = places + table.token_type_embeddings.weight.detach()[0]
    words = None if hasattr(body, "embeddings_project") else table.word_embeddings.weight.detach().numpy()
    norm = table.LayerNorm

    def embed(tokens: Ragged) -> Floats:
        with torch.no_grad():
            return backbone.embed(Packed.from_ragged(tokens)).numpy()

    return Body(
        [_as_arrays(layer) for layer in layers], layers[0].heads, backbone.vocab_size, words, places.numpy(),
        LayerNorm(norm.weight.detach().numpy(), norm.bias.detach().numpy(), np.float32(norm.eps)), embed,
    )  # fmt: skip


def _as_arrays(layer: LeanLayer) -> EncoderLayer:
    w = LeanWeights(*(tensor.detach() for tensor in layer.weights))
    first, second = (np.float32(eps) for eps in layer.eps)

    def linear(weight: Tensor, bias: Tensor) -> Linear:
        return Linear(weight.T.numpy(), bias.numpy())

    return EncoderLayer(
        linear(torch.cat([w.query, w.key, w.value]), torch.cat([w.query_bias, w.key_bias, w.value_bias])),
        linear(w.close, w.close_bias), LayerNorm(w.close_norm.numpy(), w.close_shift.numpy(), first),
        linear(w.up, w.up_bias), linear(w.down, w.down_bias),
        LayerNorm(w.down_norm.numpy(), w.down_shift.numpy(), second),
    )  # fmt: skip


def _joined(layer: LeanLayer) -> LayerWeights:
    w = LeanWeights(*(tensor.detach() for tensor in layer.weights))
    nothing = torch.zeros_like(w.query_bias)
    qkv = _with_bias(torch.cat([w.query, w.key, w.value]), torch.cat([w.query_bias, nothing, nothing]))
    # All scores of a query move by q · bias of keys alike, which softmax does not see: zeros in its place.
    shares = w.close @ w.value_bias  # what the bias of values becomes behind the shares
    first, second = (np.float32(eps) for eps in layer.eps)
    return LayerWeights(
        qkv, w.close.T, _norm(w.close_bias + shares, w.close_norm, w.close_shift, first),
        _with_bias(w.up, w.up_bias), w.down.T, _norm(w.down_bias, w.down_norm, w.down_shift, second),
        layer.heads, layer.scale,
    )  # fmt: skip


def _with_bias(weight: Tensor, bias: Tensor) -> Tensor:
    return torch.cat([weight, bias[:, None]], 1).T


def _norm(bias: Tensor, scale: Tensor, shift: Tensor, eps: np.float32) -> Norm:
    return Norm(bias.numpy(), scale.numpy(), shift.numpy(), eps)


class Kept(local):
    """Memory that each thread keeps from row to row."""

    def __init__(self) -> None:
        self._held: dict[str, Tensor] = {}

    def get(self, name: str, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """A tensor of this shape, with anything in it; a name always has the same type."""
        size = int(torch.Size(shape).numel())
        if name not in self._held or len(self._held[name]) < size:
            self._held[name] = torch.empty(size, dtype=dtype)
        return self._held[name][:size].view(shape)


class LeanForward:
    """Last states of a packed row, in memory that the thread's next row overwrites."""

    def __init__(self, backbone: Backbone) -> None:
        assert supports(backbone), "a backbone that the lean forward does not know"
        self._backbone, self._layers, self._kept = backbone, read_layers(backbone), Kept()

    def __call__(self, packed: Packed) -> Tensor:
        embedded_TD = self._backbone.embed(packed)
        tokens, width = embedded_TD.shape
        x_TD1 = self._kept.get("x", tokens, width + 1)
        x_TD1[:, :width] = embedded_TD
        x_TD1[:, width] = 1
        bounds = packed.bounds.tolist()
        for layer in self._layers:
            self._layer(layer, x_TD1, bounds)
        return x_TD1[:, :width]

    def _layer(self, layer: LayerWeights, x_TD1: Tensor, bounds: list[int]) -> None:
        """Puts the states after the layer in place of those before it."""
        qkv = self._product("wide", x_TD1, layer.qkv)
        seen_TD = self._attend(layer, qkv, bounds)
        self._add(x_TD1, self._product("new", seen_TD, layer.out), layer.first_norm)
        wide_TM = torch.ops.aten.gelu_(self._product("wide", x_TD1, layer.up))
        self._add(x_TD1, self._product("new", wide_TM, layer.down), layer.second_norm)

    def _product(self, name: str, x: Tensor, weight: Tensor) -> Tensor:
        return torch.mm(x, weight, out=self._kept.get(name, len(x), weight.shape[1]))

    @staticmethod
    def _add(x_TD1: Tensor, new_TD: Tensor, norm: Norm) -> None:
        add_and_normalise(x_TD1.numpy(), new_TD.numpy(), norm.bias, norm.scale, norm.shift, norm.eps)

    def _attend(self, layer: LayerWeights, qkv: Tensor, bounds: list[int]) -> Tensor:
        tokens, heads, width = len(qkv), layer.heads, qkv.shape[1] // 3
        factor = np.float32(layer.scale / log(2))
        # A view: queries, keys and values of a head are strided, which the batched products take as they are.
        qkv_3HTE = qkv.view(tokens, 3, heads, -1).permute(1, 2, 0, 3)
        seen_TD = self._kept.get("seen", tokens, width)
        out_TD = seen_TD.numpy()
        for start, end in pairwise(bounds):
            length = end - start
            q, k, v = qkv_3HTE[:, :, start:end]
            scores = torch.bmm(q, k.transpose(1, 2), out=self._kept.get("scores", heads, length, length))
            sums = self._kept.get("sums", heads, length).numpy()
            exponentials(scores.numpy(), factor, sums)
            mixed_HLE = torch.bmm(scores, v, out=self._kept.get("mixed", heads, length, width // heads))
            divide_into(mixed_HLE.numpy(), sums, out_TD[start:end])
        return seen_TD
