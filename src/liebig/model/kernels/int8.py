"""The lean forward in int8, for processors that multiply bytes: four products a layer in int8, the rest in float32.

Weights are rounded to int8 with one scale per output, as the bundled encoder stores them, so rounding loses nothing of
those. Inputs of a product are rounded to int8 with one scale per token, as they come: a vector does not depend on the
texts that share a row with it. A few columns of the states are several times as large as the others and would leave
these few codes: they go into the product several times (`Copies`), which is exact, unlike moving their size into the
weights. A product is `torch._int_mm` (oneDNN), exact in int32; the pass behind it multiplies by both scales, does what
the layer does there, and rounds for the next product. Attention stays in float32.

GELU is never below LOWEST, so its outputs use all 256 codes above that; it is a polynomial here, off by at most 6e-4,
less than a code. Cost against float32 and the quality that was measured: LABNOTES, "int8 encoding with VNNI".

`choose` is the one place that decides between int8 and float32.

T packed tokens, D width, C further copies of columns, K = D + C, H heads, E head width, L tokens of a sequence,
M width of the feed-forward, N outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from math import log
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from liebig.base.errors import RecipeError
from liebig.base.machine import PRECISION, default_precision, instructions
from liebig.model.backbone import Backbone
from liebig.model.packed import Packed
from liebig.model.settings import Floats, Precision
from liebig.model.torch_model import (
    F,
    I,
    Kept,
    LeanForward,
    Norm,
    exponentials,
    inline,
    kernel,
    read_layers,
    supports,
)

Codes = NDArray[np.int8]
Sums = NDArray[np.int32]

MADE_FOR = "avx512_vnni"  # others were not measured; without such instructions sums of two products overflow


@cache
def byte_products() -> str:
    """The instructions that products in int8 use here; empty where there are none, or products are not exact."""
    return MADE_FOR if MADE_FOR in instructions() and _is_exact() else ""


def _is_exact() -> bool:
    """Whether torch's product of the largest codes is that of integers, in every place."""
    signs = np.random.default_rng(0).choice(np.array([-128, 127], np.int8), (2, 64, 416))
    a, b = (torch.from_numpy(codes) for codes in signs)
    try:
        product = torch._int_mm(a, b.T)
    except RuntimeError:  # a build of torch without it
        return False
    return bool((product == a.int() @ b.int().T).all())


def choose(precision: Precision, backbone: Backbone) -> Literal["fp32", "int8"]:
    """How to compute: as named; `auto` is as LIEBIG_PRECISION says, else int8 where it is fast and known to be good.

    It is fast where the processor multiplies bytes. What it loses was measured for the bundled encoder, whose weights
    are rounded to int8 already; of other models nothing is known.
    """
    if precision == "auto":
        named = default_precision()
        if named not in get_args(Precision):
            raise RecipeError(f"{PRECISION} is {named!r}", fix="set it to fp32, int8 or auto")
        if named == "auto":
            rounded = supports(backbone) and bool(byte_products()) and is_rounded(backbone)
            return "int8" if rounded else "fp32"
        precision = "int8" if named == "int8" else "fp32"
    if precision == "int8" and not byte_products():
        raise RecipeError(f"int8 needs a processor with {MADE_FOR}", fix="use precision = fp32")
    if precision == "int8" and not supports(backbone):
        raise RecipeError(
            "int8 is for encoders like BERT on a CPU", fix="use precision = fp32, or device = cpu"
        )
    return precision


def is_rounded(backbone: Backbone) -> bool:
    """Whether the weights are int8 with one scale per output already, up to their storage in half precision."""
    for layer in read_layers(backbone):
        for weight_KN in (layer.qkv[:-1], layer.out, layer.up[:-1], layer.down):
            codes_KN = weight_KN / _scales(weight_KN)
            if float((codes_KN - codes_KN.round()).abs().max()) > STORED:
                return False
    return True


def _scales(weight_KN: Tensor) -> Tensor:
    return (weight_KN.abs().amax(0) / float(MOST)).clamp_min(float(TINY))


STORED = 0.25  # of a code: half precision moves the largest by an eighth, other weights are up to a half off
EXTRA = 32  # copies of columns; a product has that many inputs more
SEQUENCES, DRAWN = 50, 8  # and the tokens of each, to find the large columns with
FAR = F(16384.5)  # above every code of a column with copies, and a half
MOST = F(127)  # the largest code of numbers around 0
TINY = F(1e-30)  # the scale of a token whose numbers are all 0
LOWEST = F(-0.1700412)  # of GELU, at -0.7518
MAGNITUDE = I(
    0x7FFFFFFF
)  # the bits of a float without its sign, which as integers are ordered as the floats are
# Phi(v) is about .5 + v P(v²) up to |v| = REACH, and 0 or 1 beyond; P is the fit with the smallest error of v Phi(v).
REACH = F(3.6)
P = (
    F(4.013229129e-01),
    F(-6.965841205e-02),
    F(1.128504669e-02),
    F(-1.385707327e-03),
    F(1.137652165e-04),
    F(-5.326570512e-06),
    F(1.053744886e-07),
)


@inline
def _scale(row_D: Floats, shares_D: Floats, parts_D: Floats, bits_D: Sums) -> np.float32:
    """The scale at which the largest share of a row becomes MOST; NaN and infinity stay what they are."""
    for d in range(len(row_D)):
        parts_D[d] = row_D[d] * shares_D[d]
    most = I(0)
    for d in range(len(bits_D)):
        most = max(most, I(bits_D[d] & MAGNITUDE))
    return max(I(most + I(0)).view(F) / MOST, TINY)


@inline
def _round(
    row_D: Floats, scale: np.float32, codes_K: Codes, columns_C: Sums, taken_C: Sums, large_C: Floats
) -> None:  # fmt: skip
    """The row over its scale, rounded; a copy of a column holds what is left of its code by those before it."""
    factor, width = F(1) / scale, len(row_D)
    for d in range(width):  # a positive number is rounded by cutting off what follows the point
        codes_K[d] = np.int8(I(min(max(row_D[d] * factor, -MOST), MOST) + F(128.5)) - I(128))
    for c in range(len(columns_C)):  # by itself, so that the next loop becomes vector instructions
        large_C[c] = row_D[columns_C[c]]
    copies_C = codes_K[width:]
    for c in range(len(columns_C)):
        code = I(large_C[c] * factor + FAR) - I(FAR)
        least, most = taken_C[c], taken_C[c] + I(127)
        copies_C[c] = np.int8(min(max(code, -most), most) - min(max(code, -least), least))


@kernel
def quantise(
    x_TD: Floats, codes_TK: Codes, scales_T: Floats, shares_D: Floats, columns_C: Sums, taken_C: Sums
) -> None:
    """Each row as int8 and a scale."""
    row_D, parts_D = np.empty(x_TD.shape[1], F), np.empty(x_TD.shape[1], F)
    bits_D, large_C = parts_D.view(np.int32), np.empty(len(columns_C), F)
    for t in range(len(x_TD)):
        for d in range(len(row_D)):
            row_D[d] = x_TD[t, d]
        scale = _scale(row_D, shares_D, parts_D, bits_D)
        scales_T[t] = scale
        _round(row_D, scale, codes_TK[t], columns_C, taken_C, large_C)


@kernel
def split_heads(
    sums_T3D: Sums, scales_T: Floats, weight_3D: Floats, bias_D: Floats, factor: np.float32, out_3HTE: Floats
) -> None:
    """Queries times `factor`, keys and values, from the sums of their product; each head's lie together."""
    heads, tokens, width = out_3HTE.shape[1:]
    for t in range(tokens):
        scale = scales_T[t]
        for part in range(3):
            more = factor if part == 0 else F(1)
            for h in range(heads):
                first = (part * heads + h) * width
                for e in range(width):
                    value = F(sums_T3D[t, first + e]) * (scale * weight_3D[first + e])
                    out_3HTE[part, h, t, e] = value * more
        for h in range(heads):  # keys need no bias, and that of values is in the next product's
            for e in range(width):
                out_3HTE[0, h, t, e] += bias_D[h * width + e] * factor


@kernel
def join_heads(
    mixed_HLE: Floats, sums_HL: Floats, codes_LD: Codes, scales_L: Floats, shares_D: Floats, columns_C: Sums,
    taken_C: Sums,
) -> None:  # fmt: skip
    """Each head's mixed values over their sums, beside each other in a row, which is rounded."""
    heads, length, width = mixed_HLE.shape
    row_D, parts_D = np.empty(heads * width, F), np.empty(heads * width, F)
    bits_D, large_C = parts_D.view(np.int32), np.empty(len(columns_C), F)
    for i in range(length):
        for h in range(heads):
            share = F(1) / sums_HL[h, i]
            for e in range(width):
                row_D[h * width + e] = mixed_HLE[h, i, e] * share
        scale = _scale(row_D, shares_D, parts_D, bits_D)
        scales_L[i] = scale
        _round(row_D, scale, codes_LD[i], columns_C, taken_C, large_C)


@kernel
def add_and_normalise(
    x_TD: Floats, sums_TD: Sums, offset_D: Sums, weight_D: Floats, bias: Floats, scale: Floats, shift: Floats,
    eps: np.float32, codes_TK: Codes, scales_T: Floats, shares_D: Floats, columns_C: Sums, taken_C: Sums,
) -> None:  # fmt: skip
    """Layer norm of x and a product, in place of x, and rounded; the product's scales give way to those of x."""
    tokens, width = sums_TD.shape
    row_D, parts_D = np.empty(width, F), np.empty(width, F)
    bits_D, large_C = parts_D.view(np.int32), np.empty(len(columns_C), F)
    for t in range(tokens):
        total, factor = F(0), scales_T[t]
        for d in range(width):
            row_D[d] = x_TD[t, d] + F(sums_TD[t, d] + offset_D[d]) * (factor * weight_D[d]) + bias[d]
            total += row_D[d]
        mean, square = total / F(width), F(0)
        for d in range(width):
            square += (row_D[d] - mean) ** 2
        factor = F(1) / np.sqrt(square / F(width) + eps)
        for d in range(width):
            row_D[d] = (row_D[d] - mean) * factor * scale[d] + shift[d]
            x_TD[t, d] = row_D[d]
        factor = _scale(row_D, shares_D, parts_D, bits_D)
        scales_T[t] = factor
        _round(row_D, factor, codes_TK[t], columns_C, taken_C, large_C)


@kernel
def gelu(sums_TM: Sums, weight_M: Floats, bias_M: Floats, codes_TM: Codes, scales_T: Floats) -> None:
    """GELU of a product, rounded with LOWEST as the code -128; scales as in `add_and_normalise`."""
    tokens, width = sums_TM.shape
    row_M = np.empty(width, F)
    bits_M = row_M.view(np.int32)
    for t in range(tokens):
        scale = scales_T[t]
        for m in range(width):
            v = F(sums_TM[t, m]) * (scale * weight_M[m]) + bias_M[m]
            near = min(max(v, -REACH), REACH)
            square = near * near
            p = P[6]
            p = p * square + P[5]
            p = p * square + P[4]
            p = p * square + P[3]
            p = p * square + P[2]
            p = p * square + P[1]
            p = p * square + P[0]
            row_M[m] = v * (near * p + F(0.5))
        most = I(0)  # bits of a negative float are a negative integer: this is the largest positive number
        for m in range(width):
            most = max(most, bits_M[m])
        scale = (I(most + I(0)).view(F) - LOWEST) / F(255)
        scales_T[t] = scale
        factor = F(1) / scale
        shift = F(0.5) - LOWEST * factor
        for m in range(width):
            codes_TM[t, m] = np.int8(I(max(row_M[m] * factor + shift, F(0))) - I(128))


@dataclass(frozen=True)
class Copies:
    """Columns of an input that are several times as large as the others, and go into a product more than once.

    A column with n copies has codes up to n * MOST, which its copies share out: each takes what those before it could
    not. So the scale of a token is not that of its largest columns, and the weights stay as they are.
    """

    shares: Floats  # D: one over the number of copies
    columns: Sums  # C: the column that each further copy is of
    taken: Sums  # C: how much of its code the copies before it take

    @classmethod
    def none(cls, width: int) -> Copies:
        """Every column once."""
        return cls(np.ones(width, F), np.empty(0, I), np.empty(0, I))

    @classmethod
    def of(cls, states_TD: Tensor, extra: int) -> Copies:
        """So many further copies, one by one to the column that makes the scales of these states largest."""
        sizes_TD = states_TD.abs().numpy()
        tokens, width = sizes_TD.shape
        parts_TD, numbers_D = sizes_TD.copy(), np.ones(width, I)
        columns, taken = np.empty(extra, I), np.empty(extra, I)
        for c in range(extra):
            largest_T = parts_TD.argmax(1)
            errors_T = parts_TD[np.arange(tokens), largest_T] ** 2  # of rounding, up to a factor
            d = int(np.bincount(largest_T, errors_T, width).argmax())
            columns[c], taken[c] = d, 127 * numbers_D[d]
            numbers_D[d] += 1
            parts_TD[:, d] = sizes_TD[:, d] / numbers_D[d]
        return cls((1 / numbers_D).astype(F), columns, taken)

    @property
    def width(self) -> int:
        """K: all columns, copies included."""
        return len(self.shares) + len(self.columns)

    @property
    def arrays(self) -> tuple[Floats, Sums, Sums]:
        """As the kernels take them."""
        return self.shares, self.columns, self.taken


@dataclass(frozen=True)
class Weight:
    """A weight in int8: inputs in rows, the scale of each output, and the sum of each output's codes."""

    codes: Tensor  # K x N
    scales: Floats  # N
    sums: Sums  # N

    @classmethod
    def of(cls, weight_DN: Tensor, copies: Copies | None = None) -> Weight:
        scales_N = _scales(weight_DN)
        codes_DN = (weight_DN / scales_N).round().to(torch.int8)
        sums_N = codes_DN.sum(0, dtype=torch.int32).numpy()
        codes_KN = codes_DN if copies is None else torch.cat([codes_DN, codes_DN[copies.columns]])
        return cls(codes_KN.T.contiguous().T, scales_N.numpy(), sums_N)


@dataclass(frozen=True)
class Layer:
    """A layer's weights in int8, and in float32 what is added to their products."""

    copies: Copies
    qkv: Weight
    query_bias: Floats
    out: Weight
    first_norm: Norm
    up_copies: Copies
    up: Weight
    up_bias: Floats
    down: Weight
    down_offset: Sums  # what turns codes above LOWEST into codes around 0: 128 for every input
    second_norm: Norm
    heads: int
    factor: np.float32


class _Watched(LeanForward):
    """Keeps the states that are rounded in int8: before queries, keys and values, and before the feed-forward."""

    def __init__(self, backbone: Backbone) -> None:
        super().__init__(backbone)
        self.states: list[Tensor] = []

    def _product(self, name: str, x: Tensor, weight: Tensor) -> Tensor:
        if name == "wide":
            self.states.append(x[:, :-1].clone())
        return super()._product(name, x, weight)


Wrap = Callable[[Sequence[int]], list[int]]  # what puts special tokens around a text's


@torch.inference_mode()
def calibrate(backbone: Backbone, wrap: Wrap) -> list[Copies]:
    """Two for each layer, from the states of short sequences of tokens drawn at random: no text is needed.

    They are short because special tokens matter most: every token sees the first one, so that its error does not
    average out.
    """
    tokens = np.random.default_rng(0).integers(0, backbone.vocab_size, (SEQUENCES, DRAWN))
    watched = _Watched(backbone)
    watched(Packed.from_lists([wrap(row) for row in tokens.tolist()]))
    return [Copies.of(states_TD, EXTRA) for states_TD in watched.states]


class Int8Forward:
    """Last states of a packed row, in memory that the thread's next row overwrites; as `LeanForward`, in int8."""

    def __init__(self, backbone: Backbone, wrap: Wrap = list) -> None:
        """`wrap` is the tokenizer's."""
        self._backbone, self._kept = backbone, Kept()
        copies = iter(calibrate(backbone, wrap))
        self._layers = [self._layer_of(layer, next(copies), next(copies)) for layer in read_layers(backbone)]
        self._plain = Copies.none(self._layers[0].out.codes.shape[0])
        with torch.no_grad():  # compiles the kernels, so that the first row is as fast as the others
            self(Packed.from_lists([wrap([0])]))

    @staticmethod
    def _layer_of(layer: Any, copies: Copies, up_copies: Copies) -> Layer:
        down, norm = Weight.of(layer.down), layer.second_norm
        bias = norm.bias + LOWEST * down.scales * down.sums.astype(F)  # for codes that begin at LOWEST
        return Layer(
            copies, Weight.of(layer.qkv[:-1], copies), layer.qkv[-1, : len(layer.qkv) - 1].contiguous().numpy(),
            Weight.of(layer.out), layer.first_norm, up_copies, Weight.of(layer.up[:-1], up_copies),
            layer.up[-1].contiguous().numpy(), down, I(128) * down.sums,
            Norm(bias, norm.scale, norm.shift, norm.eps), layer.heads, F(layer.scale / log(2)),
        )  # fmt: skip

    def __call__(self, packed: Packed) -> Tensor:
        embedded_TD = self._backbone.embed(packed)
        tokens, width = embedded_TD.shape
        x_TD = self._kept.get("x", tokens, width)
        x_TD.copy_(embedded_TD)
        first, scales_T = self._layers[0].copies, self._kept.get("scales", tokens).numpy()
        codes_TK = self._codes("codes", tokens, first.width)
        quantise(x_TD.numpy(), codes_TK.numpy(), scales_T, *first.arrays)
        bounds = packed.bounds.tolist()
        following = [layer.copies for layer in self._layers[1:]] + [self._plain]
        for layer, copies in zip(self._layers, following):
            codes_TK = self._layer(layer, x_TD.numpy(), codes_TK, scales_T, bounds, copies)
        return x_TD

    def _layer(
        self, layer: Layer, x_TD: Floats, codes_TK: Tensor, scales_T: Floats, bounds: list[int], following: Copies
    ) -> Tensor:  # fmt: skip
        """Puts the states after the layer in place of those before it, and their scales; returns their codes."""
        seen_TD = self._attend(layer, self._product(codes_TK, layer.qkv), scales_T, bounds)
        nothing, sums_TD = np.zeros(x_TD.shape[1], np.int32), self._product(seen_TD, layer.out)
        codes_TK = self._add(x_TD, sums_TD, nothing, layer.out, layer.first_norm, scales_T, layer.up_copies)
        sums_TM = self._product(codes_TK, layer.up)
        wide_TM = self._codes("wide", *sums_TM.shape)
        gelu(sums_TM, layer.up.scales, layer.up_bias, wide_TM.numpy(), scales_T)
        sums_TD = self._product(wide_TM, layer.down)
        return self._add(x_TD, sums_TD, layer.down_offset, layer.down, layer.second_norm, scales_T, following)

    def _codes(self, name: str, *shape: int) -> Tensor:
        return self._kept.get(name, *shape, dtype=torch.int8)

    def _product(self, codes: Tensor, weight: Weight) -> Sums:
        sums = self._kept.get("sums", len(codes), weight.codes.shape[1], dtype=torch.int32)
        product: Sums = torch._int_mm(codes, weight.codes, out=sums).numpy()
        return product

    def _add(
        self, x_TD: Floats, sums_TD: Sums, offset_D: Sums, weight: Weight, norm: Norm, scales_T: Floats, copies: Copies
    ) -> Tensor:  # fmt: skip
        codes_TK = self._codes("codes", len(x_TD), copies.width)
        add_and_normalise(
            x_TD, sums_TD, offset_D, weight.scales, norm.bias, norm.scale, norm.shift, norm.eps,
            codes_TK.numpy(), scales_T, *copies.arrays,
        )  # fmt: skip
        return codes_TK

    def _attend(self, layer: Layer, sums_T3D: Sums, scales_T: Floats, bounds: list[int]) -> Tensor:
        """What each token sees, as codes; its scales take the place of those that came."""
        tokens, heads, width = len(sums_T3D), layer.heads, sums_T3D.shape[1] // 3
        qkv_3HTE = self._kept.get("qkv", 3, heads, tokens, width // heads)
        split_heads(sums_T3D, scales_T, layer.qkv.scales, layer.query_bias, layer.factor, qkv_3HTE.numpy())
        seen_TD = self._codes("seen", tokens, width)
        codes_TD = seen_TD.numpy()
        for start, end in pairwise(bounds):
            length = end - start
            q, k, v = qkv_3HTE[:, :, start:end]
            scores = torch.bmm(q, k.transpose(1, 2), out=self._kept.get("scores", heads, length, length))
            totals = self._kept.get("totals", heads, length).numpy()
            exponentials(scores.numpy(), F(1), totals)
            mixed_HLE = torch.bmm(scores, v, out=self._kept.get("mixed", heads, length, width // heads))
            join_heads(
                mixed_HLE.numpy(), totals, codes_TD[start:end], scales_T[start:end], *self._plain.arrays
            )
        return seen_TD
