"""The lean forward in int8, for processors with int8 dot products: products in int8, the rest in float32.

Weights are rounded to int8 with one scale per output, as the bundled encoder stores them, so rounding loses nothing of
those. Inputs of a product are rounded to int8 with one scale per token, as they come: a vector does not depend on the
texts that share a row with it. A few columns of the states are several times as large as the others and would leave
these few codes: they go into the product several times (`Copies`), which is exact, unlike moving their size into the
weights. A product is made of tiles (`kernels/registers.py`), exact in int32; the pass behind it multiplies by both
scales, does what the layer does there, and rounds for the next product. Queries and keys are rounded likewise before
their product, with one scale per head and sequence; softmax is in float32. With AVX-512 its shares and the values are
rounded to 16 bits, of which products are twice as fast as of float32; on aarch64, where they are half as fast, they are
not.

Codes of rows have no sign where the instruction wants them so (x86-64): ZERO is added to them, and what this adds to a
product, which depends on the output alone, is what its sums begin with. GELU is never below LOWEST, so its outputs use
all 256 codes above that; it is a polynomial here, off by at most 6e-4, less than a code. A block of BLOCK tokens goes
through all layers before the next, so that its sums stay in the cache. Cost against float32 and the quality that was
measured: LABNOTES, "int8 encoding on a CPU".

`choose` is the one place that decides between int8 and float32.

T packed tokens, D width, C further copies of columns, K = D + C, H heads, E head width, L tokens of a sequence,
M width of the feed-forward, N outputs, R rows of a tile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log
from threading import local
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from liebig.base.compiled import byte_products
from liebig.base.errors import RecipeError
from liebig.base.machine import AVX_VNNI, DOT, VNNI, default_precision
from liebig.model.body import Body, EncoderLayer, Norm
from liebig.model.kernels.registers import (
    LANES,
    PANEL,
    ROWS,
    SHIFTED,
    STEPS,
    WAY,
    ZERO,
    absolute,
    add,
    broadcast,
    bytes_tile,
    exp2,
    fma,
    inline,
    is_compiled,
    kernel,
    load,
    load_ints,
    max_by_bits,
    maximum,
    minimum,
    mul,
    pack_pairs,
    reduce_add,
    reduce_max,
    reduce_max_int,
    round_nearest,
    store,
    store_bytes,
    sub,
    tile,
)
from liebig.model.settings import Floats, Longs, Precision
from liebig.ragged import Ragged, offsets_of

F, I = np.float32, np.int32  # noqa: E741
Codes = NDArray[np.uint8]
Sums = NDArray[np.int32]


def fits(body: Body) -> bool:
    """Whether this is an encoder that the forward in int8 computes: widths have to be those of whole vectors."""
    layer = body.layers[0]
    width, wide = layer.up.weight.shape
    return not any(size % LANES for size in (width, wide, width // body.heads))


def choose(precision: Precision, body: Body | None) -> Literal["fp32", "int8"]:
    """How to compute: as named; `auto` is as LIEBIG_PRECISION says, else int8 where it is fast and known to be good.

    It is fast where the processor has int8 dot products. What it loses was measured for the bundled encoder, whose
    weights are rounded to int8 already; one that was trained from it lost more than it may (LABNOTES), and of
    other models nothing is known. Without a body the model is none that layers like BERT's make.
    """
    if precision == "auto":
        named = default_precision()
        if named == "auto":
            good = body is not None and bool(byte_products()) and fits(body) and is_rounded(body)
            return "int8" if good else "fp32"
        precision = "int8" if named == "int8" else "fp32"
    if precision == "int8" and not byte_products():
        raise RecipeError(
            f"int8 needs a processor with {VNNI}, {AVX_VNNI} or {DOT}", fix="use precision = fp32"
        )
    if precision == "int8" and (body is None or not fits(body)):
        raise RecipeError(
            f"int8 is for encoders like BERT on a CPU, with heads and layers of {LANES} numbers or a multiple",
            fix="use precision = fp32, or device = cpu",
        )
    return precision


def is_rounded(body: Body) -> bool:
    """Whether the weights are int8 with one scale per output already, up to their storage in half precision."""
    return all(
        _distances(weight_KN / _scales(weight_KN)).max() <= ROUNDED
        for layer in body.layers
        for weight_KN in (layer.qkv.weight, layer.out.weight, layer.up.weight, layer.down.weight)
    )


def _distances(codes: Floats) -> Floats:
    return np.abs(codes - np.rint(codes))


def _scales(weight_KN: Floats) -> Floats:
    return np.maximum(np.abs(weight_KN).max(0) / MOST, TINY)


def aligned(shape: int | tuple[int, ...], kind: Any = F) -> NDArray[Any]:
    """Zeros that begin with a cache line, as kernels want it: numpy aligns memory to 16 bytes only."""
    size = int(np.prod(shape)) * np.dtype(kind).itemsize
    memory = np.zeros(size + LINE, np.uint8)
    start = -memory.ctypes.data % LINE
    return memory[start : start + size].view(kind).reshape(shape)


def pays_from() -> int:
    """The number of tokens from which int8 takes less time than float32, with what its kernels cost first."""
    return LOADED if is_compiled(run_layers) else COMPILED


# Compiling takes as long as int8 saves on 60,000 tokens of one core, and two cores save twice as much in that time;
# loading what was compiled before, with calibrating, as long as it saves on 2,000 (bundled encoder, aarch64).
COMPILED, LOADED = 100_000, 4_000
ROUNDED = 0.25  # of a code: half precision moves the largest by an eighth, other weights are up to a half off
NEAR = 0.1  # of a code, the mean distance to whole ones: that of weights that were never rounded is a quarter
STORED = 2.0**-10  # of a code: what half precision moves it by, with what it moves the scale by
LINE = 64  # bytes of a cache line
BLOCK = 256  # tokens that go through all layers together: their sums stay in the second cache
BOTTOM = ZERO - 128  # the lowest code of a row
STRIP = 12  # rows that take a step together; whole tiles
PAIR = 32  # columns of a tile of values in 16 bits
FOUR = 4  # rows and tokens of a tile of values in float32; a part of STRIP
WHOLE = F(32767)  # the largest code of 16 bits: what the shares of a query add up to
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


scores_tile = tile("i8", SHIFTED, ROWS, PANEL // LANES, STEPS)
pairs_tile = tile("i16", "i16", STRIP, PAIR // LANES, 2)
floats_tile = tile("f32", "f32", FOUR, 1, FOUR)


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
    def of(cls, states_TD: Floats, extra: int) -> Copies:
        """That many further copies, one by one to the column that makes the scales of these states largest."""
        sizes_TD = np.abs(states_TD)
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
    def of(cls, weight_DN: Floats, copies: Copies | None = None, zero: int = ZERO) -> Weight:
        """Inputs in rows; `zero` is the code of 0."""
        codes_KN = round_weight(weight_DN)
        if copies is not None:
            codes_KN = np.concatenate([codes_KN, codes_KN[copies.columns]])
        depth, width = codes_KN.shape
        padded = np.zeros((depth, -(-width // PANEL) * PANEL), np.int8)
        padded[:, :width] = codes_KN
        words = np.ascontiguousarray(padded.reshape(depth // 4, 4, -1, PANEL).transpose(2, 0, 3, 1))
        start_N = (-zero * padded.sum(0, dtype=I)).astype(I)
        return cls(words.view(I).reshape(-1, PANEL), start_N, _scales(weight_DN))


def round_weight(weight_KN: Floats) -> NDArray[np.int8]:
    """The codes of a weight, by the scale of each output.

    A short training moves weights that were rounded by less than half a code: the nearest codes would undo it. These
    go up or down by chance, the likelier the nearer, so that moves are kept in the mean.
    """
    codes_KN = weight_KN / _scales(weight_KN)
    distances_KN = _distances(codes_KN)
    moved = bool((distances_KN > STORED * np.abs(codes_KN) + 1e-3).any())
    if moved and distances_KN.mean() < NEAR:
        chance_KN = np.random.default_rng(0).random(codes_KN.shape, F)
        codes_KN = np.floor(codes_KN + chance_KN).clip(-MOST, MOST)
    return np.rint(codes_KN).astype(np.int8)


class Int8Layer(NamedTuple):
    """A layer's weights in int8, and in float32 what is added to their products."""

    copies: Copies
    qkv: Weight  # the outputs of some heads beside each other, see `_by_heads`
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
    group: int  # heads whose queries, keys and values are computed together

    @classmethod
    def of(cls, layer: EncoderLayer, heads: int, copies: Copies, up_copies: Copies) -> Int8Layer:
        """From a layer in float32.

        A bias of keys moves all scores of a query alike and is left out; one of values goes through the shares, which
        sum to 1, into the bias of the next product.
        """
        width = len(layer.qkv.weight)
        group = max(1, PANEL * heads // width)
        factors_1N, bias_1N = np.ones((1, 3 * width), F), np.zeros((1, 3 * width), F)
        factors_1N[:, :width] = (width // heads) ** -0.5 / log(2)
        bias_1N[:, :width] = layer.qkv.bias[:width] * factors_1N[:, :width]
        qkv = Weight.of(_by_heads(layer.qkv.weight, heads, group), copies)
        qkv.scales[:] *= _by_heads(factors_1N, heads, group)[0]
        down, first, second = Weight.of(layer.down.weight, zero=BOTTOM), layer.first_norm, layer.second_norm
        out_bias = layer.out.bias + layer.qkv.bias[2 * width :] @ layer.out.weight
        codes_D = round_weight(layer.down.weight).sum(0, dtype=I)
        lowest_D = LOWEST * down.scales * codes_D.astype(F)  # of codes that begin there
        return cls(
            copies, qkv, _by_heads(bias_1N, heads, group)[0], Weight.of(layer.out.weight), Norm(out_bias, *first),
            up_copies, Weight.of(layer.up.weight, up_copies), layer.up.bias.copy(), down,
            Norm(layer.down.bias + lowest_D, *second), Copies.none(width), heads, group,
        )  # fmt: skip


def _by_heads(qkv_KN: Floats, heads: int, group: int) -> Floats:
    """The columns of a group of heads beside each other: queries, keys, values, and 0 up to a whole panel."""
    depth, width = len(qkv_KN), qkv_KN.shape[1] // 3 // heads
    parts = np.pad(qkv_KN.reshape(depth, 3, heads, width), ((0, 0), (0, 0), (0, -heads % group), (0, 0)))
    groups = parts.reshape(depth, 3, -1, group * width).swapaxes(1, 2).reshape(depth, -1, 3 * group * width)
    return np.pad(groups, ((0, 0), (0, 0), (0, -groups.shape[2] % PANEL))).reshape(depth, -1)


class EmbeddingTables(NamedTuple):
    """The tables that states begin with."""

    words: Floats  # V x D
    places: Floats
    norm: Norm

    @classmethod
    def of(cls, body: Body) -> EmbeddingTables | None:
        """None where a model does more than adding them up."""
        if body.words is None:
            return None
        return cls(body.words.astype(F), body.places, Norm(np.zeros_like(body.norm.shift), *body.norm))


class Scratch(NamedTuple):
    """Memory that a thread keeps; what is named twice is the same memory as numbers of another type."""

    codes: Codes
    words: Sums
    scales: Floats  # T
    sums: Sums
    seen: Floats  # T x D
    queries: Codes  # L x E, of one head
    query_words: Sums  # L x E/4
    key: Codes  # E: a key of one head
    key_words: Sums
    keys: Sums  # (L/PANEL * E/4) x PANEL, of one head
    values: Sums  # L x E, of one head, or two tokens a word
    numbers: Floats
    real: Floats  # L: 1, and 0 behind the last token
    scores: Sums  # STRIP x L
    powers: Floats
    shares: Sums  # STRIP x L/2, two keys a word
    mixed: Sums  # STRIP x E
    mixed_numbers: Floats
    none: Sums  # PANEL: 0
    nothing: Floats
    of_rows: Floats  # STRIP: a number of each row
    rows: Floats  # STRIP x M: what is rounded next

    @classmethod
    def of(cls, tokens: int, layer: Int8Layer) -> Scratch:
        """For a block of that many tokens."""
        width, wide = len(layer.out.scales), len(layer.up.scales)
        head, panels = width // layer.heads, -(-tokens // PANEL)
        rows = -(-tokens // ROWS) * ROWS

        def floats(*shape: int) -> Floats:
            return aligned(shape)

        def ints(*shape: int) -> Sums:
            return aligned(shape, I)

        words = ints(rows * max(layer.copies.width, layer.up_copies.width, wide) // 4)
        room, even = panels * PANEL, -(-head // PAIR) * PAIR
        queries, key, scores = ints(tokens + STRIP, head // 4), ints(head // 4), ints(STRIP, room + LANES)
        values, mixed, none = ints(tokens + FOUR, even), ints(STRIP, even), ints(PANEL)
        parts = (
            words.view(np.uint8), words, floats(tokens), ints(rows * max(len(layer.qkv.start), len(layer.up.start))),
            floats(tokens, width), queries.view(np.uint8), queries, key.view(np.uint8), key,
            ints(panels * head // 4, PANEL), values, values.view(F), floats(room), scores,
            scores.view(F), ints(STRIP, room), mixed, mixed.view(F), none,
            none.view(F), floats(STRIP), floats(STRIP, max(width, wide)),
        )  # fmt: skip
        return cls(*parts)


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
    factor, zero, high = broadcast(F(1) / scale), broadcast(F(ZERO)), broadcast(MOST)
    low, top = broadcast(F(ZERO) - MOST), broadcast(F(ZERO) + MOST)
    for d in range(0, width, LANES):
        code = fma(load(rows_TD, (t, d)), factor, zero)
        store_bytes(codes_TK, (t, d), minimum(maximum(code, low), top))
    for c in range(len(copies.columns)):
        large_C[c] = rows_TD[t, np.uint64(copies.columns[c])]
    for c in range(0, len(copies.columns), LANES):
        # A column with copies has one code of up to several times MOST. `least` is what the copies before this one have
        # taken of it; this one takes the part between that and MOST more.
        code, least = round_nearest(mul(load(large_C, c), factor)), load(copies.taken, c)
        more = add(least, high)
        taken = minimum(maximum(code, sub(broadcast(F(0)), least)), least)
        rest = sub(minimum(maximum(code, sub(broadcast(F(0)), more)), more), taken)
        store_bytes(codes_TK, (t, width + c), add(rest, zero))


@kernel
def quantise(x_TD: Floats, codes_TK: Codes, scales_T: Floats, copies: Copies) -> None:
    """Each row as bytes and a scale; NaN and infinity stay what they are."""
    large_C = np.empty(len(copies.columns), F)
    for t in range(len(x_TD)):
        most = broadcast(F(0))
        for d in range(0, x_TD.shape[1], LANES):
            most = max_by_bits(most, absolute(mul(load(x_TD, (t, d)), load(copies.shares, d))))
        _round(x_TD, t, reduce_max(most), codes_TK, scales_T, copies, large_C)


@kernel
def multiply(words_TK: Sums, weight: Weight, first: int, sums_TN: Sums) -> None:
    """The products of all rows, four codes a word, with outputs of a weight, from the first on, in whole panels.

    There are whole tiles of rows.
    """
    depth = words_TK.shape[1]
    for n in range(0, sums_TN.shape[1], PANEL):
        panel = (first + n) // PANEL * depth
        for t in range(0, len(words_TK), ROWS):
            bytes_tile(words_TK, t, 0, weight.panels, panel, 0, weight.start, first + n, sums_TN, t, n, depth)


class HeadGroup(NamedTuple):
    """The product for queries, keys and values of a group of heads."""

    sums: Sums  # T x N
    scales: Floats  # T
    weight: Floats  # N: the scales of the outputs
    bias: Floats


@inline
def _numbers(group: HeadGroup, t: int, n: int, scale: np.float32) -> Any:
    """Sixteen outputs of a token times a scale."""
    factor = mul(broadcast(group.scales[t] * scale), load(group.weight, n))
    return fma(load_ints(group.sums, (t, n)), factor, mul(load(group.bias, n), broadcast(scale)))


@inline
def _largest(group: HeadGroup, first: int, end: int, n: int, width: int) -> np.float32:
    """The size of the largest output of some tokens, in the columns from n on."""
    most = broadcast(F(0))
    for t in range(first, end):
        for m in range(n, n + width, LANES):
            most = max_by_bits(most, absolute(_numbers(group, t, m, F(1))))
    return max(reduce_max(most), TINY)


@inline
def _round_queries(group: HeadGroup, first: int, end: int, n: int, kept: Scratch) -> np.float32:
    """Queries of a head, whose columns begin at n, as bytes with a sign, and their scale."""
    width = len(kept.key)
    most = _largest(group, first, end, n, width)
    for t in range(first, end):
        for e in range(0, width, LANES):
            store_bytes(kept.queries, (t - first, e), _numbers(group, t, n + e, MOST / most))
    return most / MOST


@inline
def _round_keys(group: HeadGroup, first: int, end: int, n: int, kept: Scratch) -> np.float32:
    """Keys as bytes in panels, and their scale.

    The last one fills up a vector: it is among the scores already, so the largest of them stays what it is.
    """
    width = len(kept.key)
    most = _largest(group, first, end, n, width)
    for j in range((end - first + LANES - 1) // LANES * LANES):
        for e in range(0, width, LANES):
            code = _numbers(group, min(first + j, end - 1), n + e, MOST / most)
            store_bytes(kept.key, e, add(code, broadcast(F(ZERO))))
        for w in range(len(kept.key_words)):
            kept.keys[j // PANEL * len(kept.key_words) + w, j % PANEL] = kept.key_words[w]
    return most / MOST


@inline
def _share_out(kept: Scratch, rows: int, scale: np.float32, length: int) -> None:
    """Powers of 2 of the scores of some queries, and what makes shares of them (`kept.of_rows`), which add up to 1.

    One step for all rows before the next, so that no row waits for the sum of its own numbers.
    """
    for r in range(rows):
        highest = load(kept.scores, (r, 0))
        for j in range(LANES, length, LANES):
            highest = max_by_bits(highest, load(kept.scores, (r, j)))
        kept.of_rows[r] = -F(reduce_max_int(highest)) * scale
    for r in range(rows):
        factor, most, sums = broadcast(scale), broadcast(kept.of_rows[r]), broadcast(F(0))
        for j in range(0, length, LANES):
            shares = exp2(fma(load_ints(kept.scores, (r, j)), factor, most))
            store(kept.powers, (r, j), shares)
            sums = fma(shares, load(kept.real, j), sums)
        kept.of_rows[r] = F(1) / reduce_add(sums)


@inline
def _half(length: int) -> int:
    """How many words hold the values of a sequence: each has a token of its first half and one of its second half.

    It is even, as the tile wants it.
    """
    return (length + 3) // 4 * 2


@inline
def _keep_pairs(group: HeadGroup, first: int, end: int, n: int, kept: Scratch) -> np.float32:
    """Values in 16 bits, and their scale; 0 behind the last token."""
    width = len(kept.key)
    most = _largest(group, first, end, n, width)
    half = _half(end - first)
    for t in range(first, first + half):
        low = WHOLE / most if t < end else F(0)
        high = WHOLE / most if t + half < end else F(0)
        for e in range(0, width, LANES):
            one = _numbers(group, min(t, end - 1), n + e, low)
            other = _numbers(group, min(t + half, end - 1), n + e, high)
            store(kept.values, (t - first, e), pack_pairs(one, other))
    return most / WHOLE


@inline
def _mix_pairs(kept: Scratch, rows: int, length: int, scale: np.float32, t: int, d: int) -> None:
    """The values of a head by their shares, for some queries from token t on; they are seen from column d on."""
    half = _half(length)
    for r in range(rows):
        factor = broadcast(WHOLE * kept.of_rows[r])
        for w in range(0, half, LANES):
            low, high = load(kept.powers, (r, w)), load(kept.powers, (r, half + w))
            store(kept.shares, (r, w), pack_pairs(mul(low, factor), mul(high, factor)))
    for e in range(0, len(kept.key), PAIR):
        pairs_tile(kept.shares, 0, 0, kept.values, 0, e, kept.none, 0, kept.mixed, 0, e, half)
    factor = broadcast(scale / WHOLE)
    for r in range(rows):
        for e in range(0, len(kept.key), LANES):
            store(kept.seen, (t + r, d + e), mul(load_ints(kept.mixed, (r, e)), factor))


@inline
def _fours(length: int) -> int:
    """A number of tokens as the tile wants it."""
    return (length + FOUR - 1) // FOUR * FOUR


@inline
def _keep_numbers(group: HeadGroup, first: int, end: int, n: int, kept: Scratch) -> np.float32:
    """Values in float32, whose scale is 1; 0 behind the last token, up to as many as the tile wants."""
    for t in range(first, first + _fours(end - first)):
        for e in range(0, len(kept.key), LANES):
            scale = F(1) if t < end else F(0)
            store(kept.numbers, (t - first, e), _numbers(group, min(t, end - 1), n + e, scale))
    return F(1)


@inline
def _mix_numbers(kept: Scratch, rows: int, length: int, scale: np.float32, t: int, d: int) -> None:
    """As `_mix_pairs`, in float32."""
    for r in range(0, rows, FOUR):
        for e in range(0, len(kept.key), LANES):
            floats_tile(
                kept.powers,
                r,
                0,
                kept.numbers,
                0,
                e,
                kept.nothing,
                0,
                kept.mixed_numbers,
                r,
                e,
                _fours(length),
            )
    for r in range(rows):
        factor = broadcast(scale * kept.of_rows[r])
        for e in range(0, len(kept.key), LANES):
            store(kept.seen, (t + r, d + e), mul(load(kept.mixed_numbers, (r, e)), factor))


# Of 16 bits the instructions of AVX-512 multiply twice as many as of float32, those of aarch64 half as many. With
# AVX-VNNI the sums of a tile of PAIR columns would not stay in its registers.
keep_values, mix = (_keep_pairs, _mix_pairs) if WAY == VNNI else (_keep_numbers, _mix_numbers)


@kernel
def attend(layer: Int8Layer, words_TK: Sums, bounds_B: Longs, kept: Scratch) -> None:
    """What each token sees of its sequence (`kept.seen`), from the codes of the states.

    A group of heads after the other, so that their queries, keys and values stay in the second cache. For STRIP queries
    of a head: the scores of all keys, in int8, their shares, and the values mixed by them, in the first cache.
    """
    head, count = len(kept.key), (layer.heads + layer.group - 1) // layer.group
    words, all_heads, n = head // 4, layer.group * head, len(layer.qkv.start) // count
    sums_TN = kept.sums[: len(words_TK) * n].reshape(len(words_TK), n)
    for h in range(layer.heads):
        column, begin = h % layer.group * head, h // layer.group * n
        if column == 0:
            multiply(words_TK, layer.qkv, begin, sums_TN)
        weight_N, bias_N = layer.qkv.scales[begin : begin + n], layer.qkv_bias[begin : begin + n]
        group = HeadGroup(sums_TN, kept.scales, weight_N, bias_N)
        for b in range(len(bounds_B) - 1):
            first, end = bounds_B[b], bounds_B[b + 1]
            length = end - first
            kept.real[:length], kept.real[length : length + LANES] = F(1), F(0)
            scale = _round_queries(group, first, end, column, kept)
            scale *= _round_keys(group, first, end, column + all_heads, kept)
            unit = keep_values(group, first, end, column + 2 * all_heads, kept)
            for i in range(0, length, STRIP):
                rows = min(STRIP, length - i)
                for j in range(0, length, PANEL):
                    for r in range(0, rows, ROWS):
                        scores_tile(
                            kept.query_words, i + r, 0, kept.keys, j // PANEL * words, 0, kept.none, 0,
                            kept.scores, r, j, words,
                        )  # fmt: skip
                _share_out(kept, rows, scale, length)
                mix(kept, rows, length, unit, first + i, h * head)


@inline
def _normalise(
    x_TD: Floats, t: int, added: np.float32, squares: np.float32, norm: Norm, shares_D: Floats
) -> np.float32:
    """Layer norm of a row, from the sums of its numbers and their squares; returns the largest share."""
    width = x_TD.shape[1]
    mean = added / F(width)
    scale = F(1) / np.sqrt(max(squares / F(width) - mean * mean, F(0)) + norm.eps)
    factor, shift, most = broadcast(scale), broadcast(-mean * scale), broadcast(F(0))
    for d in range(0, width, LANES):
        normal = fma(load(x_TD, (t, d)), factor, shift)
        state = fma(normal, load(norm.scale, d), load(norm.shift, d))
        store(x_TD, (t, d), state)
        most = max_by_bits(most, absolute(mul(state, load(shares_D, d))))
    return reduce_max(most)


@kernel
def add_and_normalise(
    x_TD: Floats, sums_TN: Sums, weight_D: Floats, norm: Norm, codes_TK: Codes, scales_T: Floats, copies: Copies
) -> None:  # fmt: skip
    """Layer norm of x and a product, in place of x, and rounded; the product's scales give way to those of x.

    One step for STRIP rows before the next, as in `_share_out`.
    """
    tokens, width = x_TD.shape
    large_C, sums_2R = np.empty(len(copies.columns), F), np.empty((2, STRIP), F)
    for first in range(0, tokens, STRIP):
        rows = min(STRIP, tokens - first)
        for r in range(rows):
            t = first + r
            factor, added, squares = broadcast(scales_T[t]), broadcast(F(0)), broadcast(F(0))
            for d in range(0, width, LANES):
                scale = mul(factor, load(weight_D, d))
                new = fma(load_ints(sums_TN, (t, d)), scale, load(norm.bias, d))
                together = add(load(x_TD, (t, d)), new)
                store(x_TD, (t, d), together)
                added, squares = add(added, together), fma(together, together, squares)
            sums_2R[0, r], sums_2R[1, r] = reduce_add(added), reduce_add(squares)
        for r in range(rows):
            most = _normalise(x_TD, first + r, sums_2R[0, r], sums_2R[1, r], norm, copies.shares)
            scales_T[first + r] = most
        for t in range(first, first + rows):
            _round(x_TD, t, scales_T[t], codes_TK, scales_T, copies, large_C)


@kernel
def embed(tokens_T: Longs, bounds_B: Longs, table: EmbeddingTables, x_TD: Floats) -> None:
    """Layer norm of what stands in the tables for each token and its position."""
    for b in range(len(bounds_B) - 1):
        for t in range(bounds_B[b], bounds_B[b + 1]):
            token, place, added, squares = tokens_T[t], t - bounds_B[b], broadcast(F(0)), broadcast(F(0))
            for d in range(0, x_TD.shape[1], LANES):
                both = add(load(table.words, (token, d)), load(table.places, (place, d)))
                together = add(both, load(table.norm.bias, d))
                store(x_TD, (t, d), together)
                added, squares = add(added, together), fma(together, together, squares)
            _normalise(x_TD, t, reduce_add(added), reduce_add(squares), table.norm, table.norm.scale)


@kernel
def gelu(
    sums_TN: Sums, weight_M: Floats, bias_M: Floats, codes_TM: Codes, scales_T: Floats, rows_RM: Floats
) -> None:
    """GELU of a product, rounded with LOWEST as the lowest code; scales and steps as in `add_and_normalise`."""
    for first in range(0, len(scales_T), STRIP):
        rows = min(STRIP, len(scales_T) - first)
        for r in range(rows):
            scale, most = broadcast(scales_T[first + r]), broadcast(F(0))
            for m in range(0, len(weight_M), LANES):
                factor = mul(scale, load(weight_M, m))
                v = fma(load_ints(sums_TN, (first + r, m)), factor, load(bias_M, m))
                near = minimum(maximum(v, broadcast(-REACH)), broadcast(REACH))
                square = mul(near, near)
                p = fma(broadcast(P[6]), square, broadcast(P[5]))
                p = fma(p, square, broadcast(P[4]))
                p = fma(p, square, broadcast(P[3]))
                p = fma(p, square, broadcast(P[2]))
                p = fma(p, square, broadcast(P[1]))
                p = fma(p, square, broadcast(P[0]))
                active = mul(v, fma(near, p, broadcast(F(0.5))))
                store(rows_RM, (r, m), active)
                most = max_by_bits(most, active)
            scales_T[first + r] = (reduce_max(most) - LOWEST) / F(255)
        for r in range(rows):
            factor = F(1) / scales_T[first + r]
            for m in range(0, len(weight_M), LANES):
                code = fma(load(rows_RM, (r, m)), broadcast(factor), broadcast(F(BOTTOM) - LOWEST * factor))
                store_bytes(codes_TM, (first + r, m), maximum(code, broadcast(F(BOTTOM))))


@kernel
def _run_layer(layer: Int8Layer, following: Copies, x_TD: Floats, bounds_B: Longs, kept: Scratch) -> None:
    """Puts the states after a layer in place of those before it, and their codes and scales, for what follows."""
    tokens, width = x_TD.shape
    wide, rows = len(layer.up.scales), (tokens + ROWS - 1) // ROWS * ROWS
    scales_T, once = kept.scales[:tokens], layer.out_copies
    codes, words, sums = kept.codes, kept.words, kept.sums

    k = (width + len(layer.copies.columns)) // 4
    attend(layer, words[: rows * k].reshape(rows, k), bounds_B, kept)
    quantise(kept.seen[:tokens], codes[: rows * width].reshape(rows, width), scales_T, once)

    n, k = len(layer.out.start), width + len(layer.up_copies.columns)
    sums_TN, codes_TK = sums[: rows * n].reshape(rows, n), codes[: rows * k].reshape(rows, k)
    multiply(words[: rows * width // 4].reshape(rows, width // 4), layer.out, 0, sums_TN)
    add_and_normalise(x_TD, sums_TN, layer.out.scales, layer.first_norm, codes_TK, scales_T, layer.up_copies)

    n, k = len(layer.up.start), k // 4
    sums_TN, codes_TM = sums[: rows * n].reshape(rows, n), codes[: rows * wide].reshape(rows, wide)
    multiply(words[: rows * k].reshape(rows, k), layer.up, 0, sums_TN)
    gelu(sums_TN, layer.up.scales, layer.up_bias, codes_TM, scales_T, kept.rows)

    n, k = len(layer.down.start), width + len(following.columns)
    sums_TN, codes_TK = sums[: rows * n].reshape(rows, n), codes[: rows * k].reshape(rows, k)
    multiply(words[: rows * wide // 4].reshape(rows, wide // 4), layer.down, 0, sums_TN)
    add_and_normalise(x_TD, sums_TN, layer.down.scales, layer.second_norm, codes_TK, scales_T, following)


def stack(parts: Sequence[Any]) -> Any:
    """The numbers of all layers above each other, so that kernels are the same for any number of layers."""
    first = parts[0]
    if isinstance(first, tuple):
        return type(first)(*map(stack, zip(*parts)))
    if isinstance(first, int):
        return first  # heads are the same in all
    whole = np.stack(parts)
    memory = aligned(whole.shape, whole.dtype)
    memory[...] = whole
    return memory


@inline
def _copies(all_layers: Copies, n: int) -> Copies:
    return Copies(all_layers.shares[n], all_layers.columns[n], all_layers.taken[n])


@inline
def _weight(all_layers: Weight, n: int) -> Weight:
    return Weight(all_layers.panels[n], all_layers.start[n], all_layers.scales[n])


@inline
def _norm(all_layers: Any, n: int) -> Norm:
    return Norm(all_layers.bias[n], all_layers.scale[n], all_layers.shift[n], all_layers.eps[n])


@inline
def _layer(all_layers: Int8Layer, n: int) -> Int8Layer:
    """One of them."""
    return Int8Layer(
        _copies(all_layers.copies, n), _weight(all_layers.qkv, n), all_layers.qkv_bias[n], _weight(all_layers.out, n),
        _norm(all_layers.first_norm, n), _copies(all_layers.up_copies, n), _weight(all_layers.up, n),
        all_layers.up_bias[n], _weight(all_layers.down, n), _norm(all_layers.second_norm, n),
        _copies(all_layers.out_copies, n), all_layers.heads, all_layers.group,
    )  # fmt: skip


@kernel
def run_layers(layers: Int8Layer, x_TD: Floats, bounds_B: Longs, kept: Scratch) -> None:
    """Puts the states after all layers (see `stack`) in place of those before them, block by block.

    A block is sequences that have together no more than BLOCK tokens, or one.
    """
    start, count = 0, len(layers.qkv_bias)
    for end in range(1, len(bounds_B)):
        if end + 1 < len(bounds_B) and bounds_B[end + 1] - bounds_B[start] <= BLOCK:
            continue
        first, tokens = bounds_B[start], bounds_B[end] - bounds_B[start]
        x, copies = x_TD[first : first + tokens], _copies(layers.copies, 0)
        k = copies.shares.size + copies.columns.size
        quantise(x, kept.codes[: tokens * k].reshape(tokens, k), kept.scales, copies)
        for n in range(count):
            following = _copies(layers.copies, n + 1) if n + 1 < count else _copies(layers.out_copies, n)
            _run_layer(_layer(layers, n), following, x, bounds_B[start : end + 1] - first, kept)
        start = end


Wrap = Callable[[Sequence[int]], list[int]]  # what puts special tokens around a text's


def calibrate(body: Body, wrap: Wrap) -> list[Copies]:
    """Two for each layer, from the states of short sequences of tokens drawn at random: no text is needed.

    They are short because special tokens matter most: every token sees the first one, so that its error does not
    average out.
    """
    drawn = np.random.default_rng(0).integers(0, body.vocab, (SEQUENCES, DRAWN))
    rows, copies = [wrap(row) for row in drawn.tolist()], list[Copies]()
    tokens = Ragged(np.concatenate([np.array(row, I) for row in rows]), offsets_of(list(map(len, rows))))
    body.states(tokens, lambda states_TD: copies.append(Copies.of(states_TD, EXTRA)))
    return copies


class Int8Forward:
    """Last states of a packed row, in memory that the thread's next row overwrites."""

    def __init__(self, body: Body, wrap: Wrap = list) -> None:
        """`wrap` is the tokenizer's."""
        self._body, self._scratch = body, _Scratches()
        copies = iter(calibrate(body, wrap))
        layers = [Int8Layer.of(layer, body.heads, next(copies), next(copies)) for layer in body.layers]
        self._layer, self._layers = layers[0], stack(layers)
        self._embedding = EmbeddingTables.of(body)
        first = np.array(
            wrap([0]), np.int64
        )  # compiles the kernels, so that the first row is as fast as the others
        self(first, np.array([0, len(first)], np.int64))

    def __call__(self, tokens_T: Longs, bounds: Longs) -> Floats:
        longest, table = int(np.diff(bounds).max()), self._embedding
        if table is None:
            x_TD = np.ascontiguousarray(self._body.embed(Ragged(tokens_T, bounds)))
        else:
            x_TD = self._scratch.states(len(tokens_T), self._layer)
            assert 0 <= tokens_T.min() <= tokens_T.max() < len(table.words), (
                "a token that the model does not have"
            )
            assert longest <= len(table.places), "a sequence that is too long for the model"
            embed(tokens_T, bounds, table, x_TD)
        run_layers(self._layers, x_TD, bounds, self._scratch.get(max(BLOCK, longest), self._layer))
        return x_TD


class _Scratches(local):
    """The scratch memory of each thread."""

    def __init__(self) -> None:
        self._tokens = 0
        self._held: Scratch | None = None
        self._states = aligned(0)

    def states(self, tokens: int, layer: Int8Layer) -> Floats:
        """T x D numbers."""
        width = len(layer.out.scales)
        if len(self._states) < tokens * width:
            self._states = aligned(tokens * width)
        return self._states[: tokens * width].reshape(tokens, width)

    def get(self, tokens: int, layer: Int8Layer) -> Scratch:
        """For a block of that many tokens."""
        if self._held is None or tokens > self._tokens:
            self._tokens, self._held = tokens, Scratch.of(tokens, layer)
        return self._held
