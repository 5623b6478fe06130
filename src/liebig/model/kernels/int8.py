"""The lean forward in int8, for processors that multiply bytes: products in int8, the rest in float32.

Weights are rounded to int8 with one scale per output, as the bundled encoder stores them, so rounding loses nothing of
those. Inputs of a product are rounded to int8 with one scale per token, as they come: a vector does not depend on the
texts that share a row with it. A few columns of the states are several times as large as the others and would leave
these few codes: they go into the product several times (`Copies`), which is exact, unlike moving their size into the
weights. A product is made of tiles (`kernels/registers.py`), exact in int32; the pass behind it multiplies by both
scales, does what the layer does there, and rounds for the next product. Queries and keys are rounded likewise before
their product, with one scale per token for all heads; softmax and the mixing of values stay in float32.

Codes of rows have no sign, as the instruction wants them: ZERO is added to them, and what this adds to a product, which
depends on the output alone, is what its sums begin with. GELU is never below LOWEST, so its outputs use all 256 codes
above that; it is a polynomial here, off by at most 6e-4, less than a code. A block of BLOCK tokens goes through all
layers before the next, so that its sums stay in the cache. Cost against float32 and the quality that was measured:
LABNOTES, "int8 encoding with VNNI" and "int8 encoding in kernels of our own".

`choose` is the one place that decides between int8 and float32.

T packed tokens, D width, C further copies of columns, K = D + C, H heads, E head width, L tokens of a sequence,
M width of the feed-forward, N outputs, R rows of a tile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import log
from threading import local
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from liebig.base.errors import RecipeError
from liebig.base.machine import PRECISION, VNNI, default_precision, instructions
from liebig.model.backbone import Backbone
from liebig.model.kernels.registers import (
    LANES,
    inline,
    kernel,
    larger,
    larger_size,
    largest,
    largest_size,
    load,
    load_ints,
    minus,
    plus,
    power,
    rounded,
    size,
    smaller,
    spread,
    store,
    store_bytes,
    tile,
    times,
    times_plus,
    total,
)
from liebig.model.packed import Packed
from liebig.model.settings import Floats, Longs, Precision
from liebig.model.torch_model import (
    F,
    I,
    Kept,
    LeanForward,
    Norm,
    read_layers,
    supports,
)

Codes = NDArray[np.uint8]
Sums = NDArray[np.int32]


def byte_products() -> str:
    """The instructions that products in int8 use here; empty where they would be slow, as they are without any."""
    return VNNI if VNNI in instructions() else ""


def fits(backbone: Backbone) -> bool:
    """Whether the backbone is one that the forward in int8 computes: widths have to be those of whole vectors."""
    if not supports(backbone):
        return False
    layer = read_layers(backbone)[0]
    width, wide = layer.down.shape[1], layer.down.shape[0]
    return not any(size % LANES for size in (width, wide, width // layer.heads))


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
            good = bool(byte_products()) and fits(backbone) and is_rounded(backbone)
            return "int8" if good else "fp32"
        precision = "int8" if named == "int8" else "fp32"
    if precision == "int8" and not byte_products():
        raise RecipeError(f"int8 needs a processor with {VNNI}", fix="use precision = fp32")
    if precision == "int8" and not fits(backbone):
        raise RecipeError(
            f"int8 is for encoders like BERT on a CPU, with heads and layers of {LANES} numbers or a multiple",
            fix="use precision = fp32, or device = cpu",
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
BLOCK = 256  # tokens that go through all layers together: their sums stay in the second cache
ZERO = I(128)  # what is added to codes, which have no sign in a product
ROWS, PANEL = 6, 64  # of a tile of a product in int8, whose sums take 24 registers
STRIP, PAIR = 12, 32  # of a tile of mixed values
EXTRA = 32  # copies of columns; a product has that many inputs more
SEQUENCES, DRAWN = 50, 8  # and the tokens of each, to find the large columns with
MOST = F(127)  # the largest code of numbers around 0
TINY = F(1e-30)  # the scale of a token whose numbers are all 0
LOWEST = F(-0.1700412)  # of GELU, at -0.7518
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


bytes_tile = tile("bytes", ROWS, PANEL // LANES)
floats_tile = tile("floats", STRIP, PAIR // LANES)


class Copies(NamedTuple):
    """Columns of an input that are several times as large as the others, and go into a product more than once.

    A column with n copies has codes up to n * MOST, which its copies share out: each takes what those before it could
    not. So the scale of a token is not that of its largest columns, and the weights stay as they are.
    """

    shares: Floats  # D: one over the number of copies
    columns: Sums  # C: the column that each further copy is of
    taken: Floats  # C: how much of its code the copies before it take

    @classmethod
    def none(cls, width: int) -> Copies:
        """Every column once."""
        return cls(np.ones(width, F), np.empty(0, I), np.empty(0, F))

    @classmethod
    def of(cls, states_TD: Tensor, extra: int) -> Copies:
        """So many further copies, one by one to the column that makes the scales of these states largest."""
        sizes_TD = states_TD.abs().numpy()
        tokens, width = sizes_TD.shape
        parts_TD, numbers_D = sizes_TD.copy(), np.ones(width, I)
        columns, taken = np.empty(extra, I), np.empty(extra, F)
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


class Weight(NamedTuple):
    """A weight in int8: its codes in panels, what its sums begin with, and the scale of each output."""

    panels: Sums  # (N/PANEL * K/4) x PANEL: one panel of outputs above the other, four inputs a word
    start: Sums  # N, up to a whole panel: what is left of adding ZERO to every input
    scales: Floats  # N

    @classmethod
    def of(cls, weight_DN: Tensor, copies: Copies | None = None, zero: int = int(ZERO)) -> Weight:
        """Inputs in rows; `zero` is the code of 0."""
        codes_KN = round_weight(weight_DN)
        if copies is not None:
            codes_KN = torch.cat([codes_KN, codes_KN[copies.columns]])
        depth, width = codes_KN.shape
        padded = torch.zeros(depth, -(-width // PANEL) * PANEL, dtype=torch.int8)
        padded[:, :width] = codes_KN
        words = padded.view(depth // 4, 4, -1, PANEL).permute(2, 0, 3, 1).contiguous().view(torch.int32)
        start_N = -zero * padded.sum(0, dtype=torch.int32)
        return cls(words.view(-1, PANEL).numpy(), start_N.numpy(), _scales(weight_DN).numpy())


def round_weight(weight_KN: Tensor) -> Tensor:
    """The codes of a weight, by the scale of each output."""
    return (weight_KN / _scales(weight_KN)).round().to(torch.int8)


class Layer(NamedTuple):
    """A layer's weights in int8, and in float32 what is added to their products."""

    copies: Copies
    qkv: Weight
    qkv_bias: Floats  # of queries; keys need none, and that of values is in the next product's
    out: Weight
    first_norm: Norm
    up_copies: Copies
    up: Weight
    up_bias: Floats
    down: Weight
    second_norm: Norm
    out_copies: Copies  # none: every column of what was seen goes in once
    heads: int

    @classmethod
    def of(cls, layer: Any, copies: Copies, up_copies: Copies) -> Layer:
        """From a layer in float32."""
        qkv, down, norm = Weight.of(layer.qkv[:-1], copies), Weight.of(layer.down, zero=0), layer.second_norm
        width, factor = len(layer.qkv) - 1, float(F(layer.scale / log(2)))
        qkv.scales[:width] *= factor
        lowest_D = LOWEST * down.scales * round_weight(layer.down).sum(0).numpy()  # of codes that begin there
        return cls(
            copies, qkv, (layer.qkv[-1] * factor).numpy(), Weight.of(layer.out), layer.first_norm, up_copies,
            Weight.of(layer.up[:-1], up_copies), layer.up[-1].clone().numpy(), down,
            norm._replace(bias=(norm.bias + lowest_D).astype(F)), Copies.none(width), layer.heads,
        )  # fmt: skip


class Scratch(NamedTuple):
    """Memory that a thread keeps; what is named twice is the same memory as numbers of another type."""

    codes: Codes
    words: Sums
    scales: Floats  # T
    sums: Sums
    seen: Floats  # T x D
    queries: Codes  # L x D
    query_words: Sums  # L x D/4
    key: Codes  # D: the keys of one token
    key_words: Sums
    keys: Sums  # (H * L/PANEL * E/4) x PANEL
    start: Sums  # H * L: what the sums of each key begin with
    own: Floats  # 2 x L: the scales of queries and keys
    values: Floats  # L x E, of one head
    hidden: Floats  # L: 0, and behind the last token what hides a score
    scores: Sums  # STRIP x L
    shares: Floats
    mixed: Floats  # STRIP x E
    row: Floats  # the longest row, before it is rounded

    @classmethod
    def of(cls, tokens: int, layer: Layer) -> Scratch:
        """For a block of so many tokens."""
        width, wide = len(layer.out.scales), len(layer.up.scales)
        head, panels = width // layer.heads, -(-tokens // PANEL)
        rows = -(-tokens // ROWS) * ROWS

        def floats(*shape: int) -> Tensor:
            return torch.zeros(shape)

        def ints(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.int32)

        words = ints(rows * max(layer.copies.width, layer.up_copies.width, wide) // 4)
        room, even = panels * PANEL, -(-head // PAIR) * PAIR
        queries, keys, scores = ints(tokens + STRIP, width // 4), ints(width // 4), ints(STRIP, room)
        parts = (
            words.view(torch.uint8), words, floats(tokens), ints(rows * max(len(layer.qkv.start), len(layer.up.start))),
            floats(tokens, width), queries.view(torch.uint8), queries, keys.view(torch.uint8), keys,
            ints(panels * width // 4, PANEL), ints(layer.heads * room), floats(2, room + STRIP), floats(tokens, even),
            floats(room), scores, scores.view(torch.float32), floats(STRIP, even), floats(max(width, wide)),
        )  # fmt: skip
        return cls(*(part.numpy() for part in parts))


@inline
def _round(
    rows_TD: Floats, t: int, most: np.float32, codes_TK: Codes, scales_T: Floats, copies: Copies, large_C: Floats
) -> None:  # fmt: skip
    """A row over its scale, rounded, plus ZERO; a copy of a column holds what is left of its code by those before.

    The scale is the one at which `most`, the largest share, becomes MOST.
    """
    scale = max(most / MOST, TINY)
    scales_T[t] = scale
    width = rows_TD.shape[1]
    factor, low, high, half = spread(F(1) / scale), spread(-MOST), spread(MOST), spread(F(ZERO) + F(0.5))
    for d in range(0, width, LANES):  # a positive number is rounded by cutting off what follows the point
        store_bytes(
            codes_TK, (t, d), plus(smaller(larger(times(load(rows_TD, (t, d)), factor), low), high), half)
        )
    for c in range(len(copies.columns)):
        large_C[c] = rows_TD[t, np.uint64(copies.columns[c])]
    for c in range(0, len(copies.columns), LANES):
        code, least = rounded(times(load(large_C, c), factor)), load(copies.taken, c)
        more = plus(least, high)
        taken = smaller(larger(code, minus(spread(F(0)), least)), least)
        rest = minus(smaller(larger(code, minus(spread(F(0)), more)), more), taken)
        store_bytes(codes_TK, (t, width + c), plus(rest, spread(F(ZERO))))


@kernel
def quantise(x_TD: Floats, codes_TK: Codes, scales_T: Floats, copies: Copies) -> None:
    """Each row as bytes and a scale; NaN and infinity stay what they are."""
    large_C = np.empty(len(copies.columns), F)
    for t in range(len(x_TD)):
        most = spread(F(0))
        for d in range(0, x_TD.shape[1], LANES):
            most = larger_size(most, size(times(load(x_TD, (t, d)), load(copies.shares, d))))
        _round(x_TD, t, largest_size(most), codes_TK, scales_T, copies, large_C)


@kernel
def multiply(words_TK: Sums, weight: Weight, sums_TN: Sums) -> None:
    """The products of all rows, four codes a word, with a weight; there are whole tiles of rows."""
    depth = words_TK.shape[1]
    for p in range(len(weight.panels) // depth):
        for t in range(0, len(words_TK), ROWS):
            bytes_tile(
                words_TK, t, 0, weight.panels, p * depth, 0, weight.start, p * PANEL, sums_TN, t, p * PANEL, depth
            )  # fmt: skip


@kernel
def _round_pairs(layer: Layer, sums_TN: Sums, first: int, length: int, room: int, kept: Scratch) -> None:
    """Queries and keys of a sequence as bytes, with one scale per token; a head's keys in panels, `room` in all."""
    depth, head = kept.seen.shape[1], kept.seen.shape[1] // layer.heads
    zero, width = spread(F(ZERO)), head // 4
    for t in range(length):
        scale = spread(kept.scales[first + t])
        for part in range(2):
            most = spread(F(0))
            for d in range(0, depth, LANES):
                n = part * depth + d
                factor = times(scale, load(layer.qkv.scales, n))
                numbers = times_plus(load_ints(sums_TN, (first + t, n)), factor, load(layer.qkv_bias, n))
                most = larger_size(most, size(numbers))
                store(kept.row, d, numbers)
            own = max(largest_size(most) / MOST, TINY)
            kept.own[part, t] = own
            factor = spread(F(1) / own)
            if part == 0:
                for d in range(0, depth, LANES):
                    store_bytes(kept.queries, (t, d), plus(rounded(times(load(kept.row, d), factor)), zero))
                continue
            for h in range(layer.heads):
                codes = spread(F(0))
                for d in range(h * head, (h + 1) * head, LANES):
                    code = rounded(times(load(kept.row, d), factor))
                    store_bytes(kept.key, d, code)
                    codes = plus(codes, code)
                kept.start[h * room + t] = -ZERO * I(total(codes))
            # a word of every head and four columns to its panel
            panel, j = t // PANEL * width, t % PANEL
            for h in range(layer.heads):
                for w in range(width):
                    kept.keys[h * (room // PANEL) * width + panel + w, j] = kept.key_words[h * width + w]


@kernel
def _share_out(kept: Scratch, i: int, length: int, totals_R: Floats) -> None:
    """2 ** score over the row's largest, from the sums of the product of queries and keys, and the sum of each row."""
    for r in range(STRIP):
        highest = spread(F(-3e38))
        for j in range(0, length, LANES):
            scores = times_plus(load_ints(kept.scores, (r, j)), load(kept.own, (1, j)), load(kept.hidden, j))
            store(kept.shares, (r, j), scores)
            highest = larger(highest, scores)
        scale = kept.own[0, i + r]
        factor, most, sums = spread(scale), spread(-largest(highest) * scale), spread(F(0))
        for j in range(0, length, LANES):
            share = power(times_plus(load(kept.shares, (r, j)), factor, most))
            store(kept.shares, (r, j), share)
            sums = plus(sums, share)
        totals_R[r] = total(sums)


@kernel
def attend(layer: Layer, sums_TN: Sums, bounds_B: Longs, kept: Scratch) -> None:
    """What each token sees of its sequence (`kept.seen`), from the sums of the product for queries, keys and values.

    For STRIP queries of a head: the scores of all keys, in int8, their powers of 2, and the values mixed by them, in
    the processor's first cache.
    """
    depth = kept.seen.shape[1]
    head = depth // layer.heads
    width = head // 4
    totals_R, zeros_E = np.empty(STRIP, F), np.zeros(kept.values.shape[1], F)
    for b in range(len(bounds_B) - 1):
        first, length = bounds_B[b], bounds_B[b + 1] - bounds_B[b]
        whole, room = (length + LANES - 1) // LANES * LANES, (length + PANEL - 1) // PANEL * PANEL
        _round_pairs(layer, sums_TN, first, length, room, kept)
        for j in range(whole):
            kept.hidden[j] = F(0) if j < length else F(-3e38)
        for j in range(length, whole):
            kept.own[1, j] = F(0)
        for h in range(layer.heads):
            for t in range(length):
                for e in range(0, head, LANES):
                    n = 2 * depth + h * head + e
                    factor = times(spread(kept.scales[first + t]), load(layer.qkv.scales, n))
                    store(kept.values, (t, e), times(load_ints(sums_TN, (first + t, n)), factor))
            keys = h * (room // PANEL) * width
            for i in range(0, length, STRIP):
                for j in range(0, length, PANEL):
                    for r in range(0, STRIP, ROWS):
                        bytes_tile(
                            kept.query_words, i + r, h * width, kept.keys, keys + j // PANEL * width, 0, kept.start,
                            h * room + j, kept.scores, r, j, width,
                        )  # fmt: skip
                _share_out(kept, i, whole, totals_R)
                for e in range(0, len(zeros_E), PAIR):
                    floats_tile(kept.shares, 0, 0, kept.values, 0, e, zeros_E, e, kept.mixed, 0, e, length)
                for r in range(min(STRIP, length - i)):
                    share = spread(F(1) / totals_R[r])
                    for e in range(0, head, LANES):
                        seen = times(load(kept.mixed, (r, e)), share)
                        store(kept.seen, (first + i + r, h * head + e), seen)


@kernel
def add_and_normalise(
    x_TD: Floats, sums_TN: Sums, weight_D: Floats, norm: Norm, codes_TK: Codes, scales_T: Floats, copies: Copies
) -> None:  # fmt: skip
    """Layer norm of x and a product, in place of x, and rounded; the product's scales give way to those of x."""
    tokens, width = x_TD.shape
    large_C = np.empty(len(copies.columns), F)
    for t in range(tokens):
        factor, added = spread(scales_T[t]), spread(F(0))
        for d in range(0, width, LANES):
            new = times_plus(load_ints(sums_TN, (t, d)), times(factor, load(weight_D, d)), load(norm.bias, d))
            together = plus(load(x_TD, (t, d)), new)
            store(x_TD, (t, d), together)
            added = plus(added, together)
        mean, squares = spread(total(added) / F(width)), spread(F(0))
        for d in range(0, width, LANES):
            centred = minus(load(x_TD, (t, d)), mean)
            squares = times_plus(centred, centred, squares)
        factor, most = spread(F(1) / np.sqrt(total(squares) / F(width) + norm.eps)), spread(F(0))
        for d in range(0, width, LANES):
            normal = times(minus(load(x_TD, (t, d)), mean), factor)
            state = times_plus(normal, load(norm.scale, d), load(norm.shift, d))
            store(x_TD, (t, d), state)
            most = larger_size(most, size(times(state, load(copies.shares, d))))
        _round(x_TD, t, largest_size(most), codes_TK, scales_T, copies, large_C)


@kernel
def gelu(
    sums_TN: Sums, weight_M: Floats, bias_M: Floats, codes_TM: Codes, scales_T: Floats, row_M: Floats
) -> None:
    """GELU of a product, rounded with LOWEST as the code 0; scales as in `add_and_normalise`."""
    for t in range(len(scales_T)):
        scale, most = spread(scales_T[t]), spread(F(0))
        for m in range(0, len(weight_M), LANES):
            v = times_plus(load_ints(sums_TN, (t, m)), times(scale, load(weight_M, m)), load(bias_M, m))
            near = smaller(larger(v, spread(-REACH)), spread(REACH))
            square = times(near, near)
            p = times_plus(spread(P[6]), square, spread(P[5]))
            p = times_plus(p, square, spread(P[4]))
            p = times_plus(p, square, spread(P[3]))
            p = times_plus(p, square, spread(P[2]))
            p = times_plus(p, square, spread(P[1]))
            p = times_plus(p, square, spread(P[0]))
            active = times(v, times_plus(near, p, spread(F(0.5))))
            store(row_M, m, active)
            most = larger_size(most, active)
        own = (largest_size(most) - LOWEST) / F(255)
        scales_T[t] = own
        factor, shift = spread(F(1) / own), spread(F(0.5) - LOWEST * (F(1) / own))
        for m in range(0, len(weight_M), LANES):
            store_bytes(codes_TM, (t, m), larger(times_plus(load(row_M, m), factor, shift), spread(F(0))))


@kernel
def run_layer(layer: Layer, following: Copies, x_TD: Floats, bounds_B: Longs, kept: Scratch) -> None:
    """Puts the states after a layer in place of those before it, and their codes and scales, for what follows."""
    tokens, width = x_TD.shape
    wide, rows = len(layer.up.scales), (tokens + ROWS - 1) // ROWS * ROWS
    scales_T, once = kept.scales[:tokens], layer.out_copies
    codes, words, sums = kept.codes, kept.words, kept.sums

    n, k = len(layer.qkv.start), (width + len(layer.copies.columns)) // 4
    sums_TN = sums[: rows * n].reshape(rows, n)
    multiply(words[: rows * k].reshape(rows, k), layer.qkv, sums_TN)
    attend(layer, sums_TN, bounds_B, kept)
    quantise(kept.seen[:tokens], codes[: rows * width].reshape(rows, width), scales_T, once)

    n, k = len(layer.out.start), width + len(layer.up_copies.columns)
    sums_TN, codes_TK = sums[: rows * n].reshape(rows, n), codes[: rows * k].reshape(rows, k)
    multiply(words[: rows * width // 4].reshape(rows, width // 4), layer.out, sums_TN)
    add_and_normalise(x_TD, sums_TN, layer.out.scales, layer.first_norm, codes_TK, scales_T, layer.up_copies)

    n, k = len(layer.up.start), k // 4
    sums_TN, codes_TM = sums[: rows * n].reshape(rows, n), codes[: rows * wide].reshape(rows, wide)
    multiply(words[: rows * k].reshape(rows, k), layer.up, sums_TN)
    gelu(sums_TN, layer.up.scales, layer.up_bias, codes_TM, scales_T, kept.row)

    n, k = len(layer.down.start), width + len(following.columns)
    sums_TN, codes_TK = sums[: rows * n].reshape(rows, n), codes[: rows * k].reshape(rows, k)
    multiply(words[: rows * wide // 4].reshape(rows, wide // 4), layer.down, sums_TN)
    add_and_normalise(x_TD, sums_TN, layer.down.scales, layer.second_norm, codes_TK, scales_T, following)


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
        self._backbone, self._kept, self._scratch = backbone, Kept(), _Scratches()
        copies = iter(calibrate(backbone, wrap))
        self._layers = [Layer.of(layer, next(copies), next(copies)) for layer in read_layers(backbone)]
        with torch.no_grad():  # compiles the kernels, so that the first row is as fast as the others
            self(Packed.from_lists([wrap([0])]))

    def __call__(self, packed: Packed) -> Tensor:
        embedded_TD = self._backbone.embed(packed)
        x_TD = self._kept.get("x", *embedded_TD.shape)
        x_TD.copy_(embedded_TD)
        numbers, bounds = x_TD.numpy(), packed.bounds
        for part in blocks(bounds):
            bounds_B = bounds[part]
            self._block(numbers[bounds_B[0] : bounds_B[-1]], bounds_B - bounds_B[0])
        return x_TD

    def _block(self, x_TD: Floats, bounds_B: Longs) -> None:
        kept = self._scratch.get(len(x_TD), self._layers[0])
        first = self._layers[0].copies
        codes_TK = kept.codes[: len(x_TD) * first.width].reshape(-1, first.width)
        quantise(x_TD, codes_TK, kept.scales, first)
        following = [layer.copies for layer in self._layers[1:]] + [self._layers[-1].out_copies]
        for layer, copies in zip(self._layers, following):
            run_layer(layer, copies, x_TD, bounds_B, kept)


class _Scratches(local):
    """The scratch memory of each thread."""

    def __init__(self) -> None:
        self._tokens = 0
        self._held: Scratch | None = None

    def get(self, tokens: int, layer: Layer) -> Scratch:
        """For a block of so many tokens."""
        if self._held is None or tokens > self._tokens:
            self._tokens = max(tokens, BLOCK)
            self._held = Scratch.of(self._tokens, layer)
        return self._held


def blocks(bounds: Longs, most: int = BLOCK) -> Iterator[slice]:
    """Slices of the bounds: sequences that have together no more than `most` tokens, or one."""
    first = 0
    for last in range(1, len(bounds)):
        if last + 1 == len(bounds) or bounds[last + 1] - bounds[first] > most:
            yield slice(first, last + 1)
            first = last
