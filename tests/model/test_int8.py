"""The forward in int8: its kernels against torch, the whole against plain rounding in float64, and when it is used."""

import functools
import importlib.util
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise, product
from math import log
from pathlib import Path

import numba
import numpy as np
import pytest
import torch
from torch.nn import functional as F

from liebig import encoders
from liebig.base.errors import RecipeError
from liebig.base.machine import AVX_VNNI, PRECISION, VNNI
from liebig.model.backbone import Backbone
from liebig.model.body import Body
from liebig.model.kernels import int8, registers
from liebig.model.kernels.int8 import Copies, Int8Forward, Weight, calibrate, choose, is_rounded
from liebig.model.kernels.lean_forward import LeanForward, body_of, read_layers
from liebig.model.kernels.registers import (
    POWER,
    WAY,
    Number,
    exp2,
    is_compiled,
    load,
    pack_pairs,
    store,
    tile,
)
from liebig.model.numpy_model import NumpyEncoder
from liebig.model.packed import Packed


def numbers(*shape: int, seed: int = 0, scale: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def small(layers: int = 4, **more: object) -> Backbone:
    """With as many layers as the bundled encoder."""
    return Backbone.create(
        layers=layers, width=32, heads=2, vocab_size=90, max_positions=40, initializer_range=0.2, **more
    ).eval()


def arrays(backbone: Backbone) -> Body:
    """The backbone, as the forward in int8 takes it."""
    body = body_of(backbone)
    assert body is not None
    return body


def in_int8(backbone: Backbone) -> Callable[[Packed], torch.Tensor]:
    """The states after its last layer."""
    forward = Int8Forward(arrays(backbone))
    return lambda packed: torch.from_numpy(forward(packed.tokens.numpy(), packed.bounds))


def with_biases(backbone: Backbone) -> Backbone:
    torch.manual_seed(0)
    for name, parameter in backbone.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.3)  # they are zero at first, and would not be missed
    return backbone


def round_nearest(backbone: Backbone) -> Backbone:
    """With the weights of all linear layers as int8 rows, in half precision, as the bundled encoder has them."""
    for module in backbone.modules():
        if isinstance(module, torch.nn.Linear):
            weight = module.weight.detach().T.numpy()
            rounded = int8.round_weight(weight) * Weight.of(weight).scales
            module.weight.data = torch.from_numpy(rounded.T.copy()).half().float()
    return backbone


def row(*lengths: int) -> Packed:
    random = np.random.default_rng(0)
    return Packed.from_lists([random.integers(5, 90, n).tolist() for n in lengths])


@pytest.fixture(autouse=True)
def as_users_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PRECISION, raising=False)


def signed(codes: np.ndarray) -> np.ndarray:
    """The codes of a row, without what was added to them for the instruction."""
    return (codes - np.uint8(int8.ZERO)).view(np.int8).astype(np.int32)


def test_rows_are_rounded_to_the_nearest_code() -> None:
    x, codes, scales = numbers(7, 48, scale=3.0), np.empty((7, 48), np.uint8), np.empty(7, np.float32)
    x[3] = 0
    int8.quantise(x, codes, scales, Copies.none(48))
    np.testing.assert_array_equal(np.abs(signed(codes)).max(1), [127, 127, 127, 0, 127, 127, 127])
    assert np.all(np.abs(signed(codes) * scales[:, None] - x) <= 0.5001 * scales[:, None])


def test_copies_of_a_large_column_share_its_code_and_leave_the_others_more() -> None:
    x = numbers(9, 48)
    x[:, 5] *= 12
    x[:, 11] = -30
    copies = Copies.of(x, 32)
    made, scales = np.empty((9, copies.width), np.uint8), np.empty(9, np.float32)
    int8.quantise(x, made, scales, copies)
    codes = signed(made)
    sums = codes[:, :48].copy()
    for copy, column in enumerate(copies.columns):
        sums[:, column] += codes[:, 48 + copy]
    assert {5, 11} <= set(copies.columns.tolist())
    assert np.abs(codes).max() <= 127
    # the sum is one rounding of the number; float32 has fewer digits for a code of thousands
    assert np.all(np.abs(sums * scales[:, None] - x) <= 0.51 * scales[:, None])
    assert np.all(scales < 0.2 * np.abs(x).max(1) / 127)


def test_a_product_with_copies_is_the_product_of_the_sums() -> None:
    x, weight = numbers(12, 32), numbers(32, 8, seed=1)
    x[:, 3] *= 20
    copies = Copies.of(x, 16)
    codes, scales = np.empty((12, copies.width), np.uint8), np.empty(12, np.float32)
    int8.quantise(x, codes, scales, copies)
    made, sums = Weight.of(weight, copies), np.empty((12, int8.PANEL), np.int32)
    int8.multiply(codes.view(np.int32), made, 0, sums)
    back = sums[:, :8] * scales[:, None] * made.scales
    nearest = np.rint(x / scales[:, None]) @ int8.round_weight(weight).astype(np.float64)
    np.testing.assert_allclose(back, nearest * scales[:, None] * made.scales, rtol=1e-5, atol=1e-4)


def test_products_of_the_largest_codes_are_those_of_integers() -> None:
    signs = np.random.default_rng(0)
    codes = (signs.choice(np.array([-128, 127], np.int8), (12, 416)).view(np.uint8) + int8.ZERO).astype(
        np.uint8
    )
    weight = signs.choice(np.array([-127.0, 127.0], np.float32), (416, 100))
    sums = np.empty((12, -(-100 // int8.PANEL) * int8.PANEL), np.int32)
    int8.multiply(codes.view(np.int32), Weight.of(weight), 0, sums)
    np.testing.assert_array_equal(sums[:, :100], signed(codes) @ weight.astype(np.int32))


KINDS: dict[Number, type] = {"u8": np.uint8, "i8": np.int8, "i16": np.int16, "f32": np.float32}


@pytest.mark.parametrize(("way", "steps"), [("", 1), *product(sorted({WAY, AVX_VNNI} - {""}), (1, 4))])
@pytest.mark.parametrize(
    ("left", "right"), [("u8", "i8"), ("i8", "u8"), ("i8", "i8"), ("i16", "i16"), ("f32", "f32")]
)
def test_a_tile_is_a_part_of_a_product(
    monkeypatch: pytest.MonkeyPatch, left: Number, right: Number, way: str, steps: int
) -> None:
    if way != WAY:
        monkeypatch.setattr(registers, "OF_X86", {})  # vectors as long as there, multiplied by what is here
    one = tile(left, right, 6, 4, steps, way)

    @numba.njit
    def run(a: np.ndarray, b: np.ndarray, start: np.ndarray, out: np.ndarray) -> None:
        one(a, 0, 1, b, 2, 16, start, 0, out, 1, 16, 8)

    random = np.random.default_rng(0)

    def words(*shape: int) -> np.ndarray:
        if left == "f32":
            return random.standard_normal(shape).astype(np.float32)
        return random.integers(-(2**31), 2**31, shape, dtype=np.int32)

    a, b, start = words(6, 9), words(10, 80), words(64) // 2
    out = np.zeros((7, 80), start.dtype)
    run(a, b, start, out)
    parts_a = a[:, 1:].copy().view(KINDS[left]).reshape(6, 8, -1).astype(np.float64)
    parts_b = b[2:, 16:].copy().view(KINDS[right]).reshape(8, 64, -1).astype(np.float64)
    whole = np.einsum("rkp,kcp->rc", parts_a, parts_b) + start
    if left != "f32":
        whole = (whole.astype(np.int64) & 0xFFFFFFFF).astype(np.uint32).view(np.int32)  # sums of 32 bits
    # float32: eight products in any order
    np.testing.assert_allclose(
        out[1:, 16:], whole, rtol=1e-5 if left == "f32" else 0, atol=1e-5 if left == "f32" else 0
    )
    assert not out[0].any()
    assert not out[:, :16].any()


COMPILED_ELSEWHERE = """
import numba
from liebig.model.kernels.registers import tile

made = tile("u8", "i8", 6, 1, 2, "{way}")

@numba.njit
def run(a, b, start, out):
    made(a, 0, 0, b, 0, 0, start, 0, out, 0, 0, b.shape[0])

run.compile("void(int32[:, ::1], int32[:, ::1], int32[::1], int32[:, ::1])")
[text] = run.inspect_asm().values()
print(text)
"""


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="LLVM has x86-64 only there")
@pytest.mark.parametrize(
    ("way", "processor", "register"), [(AVX_VNNI, "alderlake", "ymm"), (VNNI, "icelake-server", "zmm")]
)
def test_products_of_bytes_are_one_instruction_of_the_processor(
    tmp_path: Path, way: str, processor: str, register: str
) -> None:
    script = COMPILED_ELSEWHERE.format(way=way)
    told = {"NUMBA_CPU_NAME": processor, "NUMBA_CPU_FEATURES": "", "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, **told}, capture_output=True, text=True, check=True
    )
    products = [line for line in done.stdout.splitlines() if "vpdpbusd" in line]
    # two steps of six rows, whose sums are one vector of 16 numbers or two of eight
    assert len(products) == 2 * 6 * (1 if register == "zmm" else 2)
    assert all(line.rpartition("%")[2].startswith(register) for line in products)


def test_powers_of_2() -> None:
    @numba.njit
    def run(x: np.ndarray, out: np.ndarray) -> None:
        for place in range(0, len(x), 16):
            store(out, place, exp2(load(x, place)))

    x = np.append(np.linspace(-99, 0, 4095, dtype=np.float32), np.float32(-1e30))
    out = np.empty_like(x)
    run(x, out)
    np.testing.assert_allclose(out[:-1], np.exp2(x[:-1].astype(np.float64)), rtol=8e-5)
    assert 0 < out[-1] < 1e-30


def test_pairs_are_two_whole_numbers_in_one_word() -> None:
    @numba.njit
    def run(low: np.ndarray, high: np.ndarray, out: np.ndarray) -> None:
        store(out, 0, pack_pairs(load(low, 0), load(high, 0)))

    low, high, out = numbers(16, scale=9000.0), numbers(16, seed=1, scale=9000.0), np.empty(16, np.int32)
    run(low, high, out)
    expected = np.stack([np.rint(low), np.rint(high)], 1).astype(np.int16)
    np.testing.assert_array_equal(out.view(np.int16).reshape(16, 2), expected)


def test_numbers_that_are_not_finite_are_not_hidden() -> None:
    x, codes, scales = numbers(3, 16), np.empty((3, 16), np.uint8), np.empty(3, np.float32)
    x[0, 1], x[1, 2] = np.nan, np.inf
    int8.quantise(x, codes, scales, Copies.none(16))
    assert np.isfinite(scales).tolist() == [False, False, True]


def test_gelu_is_torchs_up_to_half_a_code_and_the_polynomial() -> None:
    sums = np.random.default_rng(0).integers(-9000, 9000, (6, 80), dtype=np.int32)
    weight, bias = np.abs(numbers(80)) / 1000, numbers(80, seed=1)
    codes, scales = np.empty((6, 80), np.uint8), np.full(6, 0.7, np.float32)
    expected = F.gelu(torch.from_numpy(sums * (0.7 * weight) + bias)).numpy()
    int8.gelu(sums, weight, bias, codes, scales, np.empty((int8.STRIP, 80), np.float32))
    back = (signed(codes) - signed(np.array([int8.BOTTOM % 256], np.uint8))) * scales[:, None] + int8.LOWEST
    assert np.all(
        np.abs(back - expected) <= 0.5001 * scales[:, None] + 6e-4 * np.maximum(1, np.abs(expected))
    )


def test_a_product_is_added_and_normalised_as_torch_does() -> None:
    x, sums = numbers(5, 32), np.random.default_rng(1).integers(-9000, 9000, (5, 32), dtype=np.int32)
    weight, bias, scale, shift = (numbers(32, seed=seed) for seed in (2, 3, 4, 5))
    codes, scales = np.empty((5, 32), np.uint8), np.full(5, 1e-3, np.float32)
    together = torch.from_numpy(x + sums * (1e-3 * weight) + bias).float()
    expected = F.layer_norm(together, (32,), torch.from_numpy(scale), torch.from_numpy(shift), 1e-5).numpy()
    norm = int8.Norm(bias, scale, shift, np.float32(1e-5))
    int8.add_and_normalise(x, sums, weight, norm, codes, scales, Copies.none(32))
    np.testing.assert_allclose(x, expected, atol=1e-5, rtol=1e-5)
    assert np.all(np.abs(signed(codes) * scales[:, None] - x) <= 0.5001 * scales[:, None])


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert"])
def test_embeddings_are_those_of_the_backbone(family: str) -> None:
    backbone, packed = with_biases(small(family=family)), row(9, 1, 30)
    table, x = int8.EmbeddingTables.of(arrays(backbone)), np.empty((packed.total, 32), np.float32)
    assert table is not None
    int8.embed(packed.tokens.numpy(), packed.bounds, table, x)
    with torch.inference_mode():  # float32 sums in another order
        np.testing.assert_allclose(x, backbone.embed(packed).numpy(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("length", [1, 2, 5, 13, 64, 70])
def test_attention_is_that_of_rounded_queries_and_keys(length: int) -> None:
    backbone = with_biases(small())
    source, nothing = arrays(backbone).layers[0], Copies.none(32)
    layer = int8.Int8Layer.of(source, 2, nothing, nothing)
    rows = -(-length // int8.ROWS) * int8.ROWS
    codes = np.random.default_rng(0).integers(0, 256, (rows, 32), dtype=np.uint8)
    kept = int8.Scratch.of(rows, layer)
    kept.scales[:] = 0.01
    int8.attend(layer, codes.view(np.int32), np.array([0, length]), kept)

    weight = int8.round_weight(source.qkv.weight) * Weight.of(source.qkv.weight).scales
    bias = source.qkv.bias * (np.arange(96) < 32)  # of queries; that of values is in the next product's
    qkv = 0.01 * signed(codes[:length]) @ weight.astype(np.float64) + bias
    for head in range(2):
        q, k, v = (qkv[:, part * 32 + head * 16 :][:, :16] for part in range(3))
        q, k = (np.rint(x / np.abs(x).max() * 127) / 127 * np.abs(x).max() for x in (q, k))
        powers = np.exp(q @ k.T * 16**-0.5)
        expected = powers / powers.sum(1, keepdims=True) @ v
        seen = kept.seen[:length, head * 16 :][:, :16]
        # powers of 2 are off by 8e-5, and float32 may move a query or key to the next code
        np.testing.assert_allclose(seen, expected, atol=0.01 * np.abs(v).max(), rtol=0)
        assert np.median(np.abs(seen - expected)) < 1e-4 * np.abs(v).max()


@functools.cache
def mixing(keep, mix):
    """Compiled once for all lengths."""

    @numba.njit
    def run(group: int8.HeadGroup, kept: int8.Scratch, scale: np.float32, length: int, rows: int) -> None:
        unit = keep(group, 2, 2 + length, 16, kept)
        int8._share_out(kept, rows, scale, length)
        mix(kept, rows, length, unit, 3, 16)

    return run


@pytest.mark.parametrize("length", [1, 5, 16, 29])
@pytest.mark.parametrize(
    ("keep", "mix", "bound"),
    [(int8._keep_pairs, int8._mix_pairs, 1e-4), (int8._keep_numbers, int8._mix_numbers, 1e-5)],
    ids=["16 bits", "float32"],
)
def test_values_are_mixed_by_shares_in_either_way(keep, mix, bound, length: int) -> None:
    run = mixing(keep, mix)
    nothing = Copies.none(32)
    layer = int8.Int8Layer.of(arrays(with_biases(small())).layers[0], 2, nothing, nothing)
    kept, random, rows = int8.Scratch.of(40, layer), np.random.default_rng(0), 7
    sums = random.integers(-9000, 9000, (2 + length, 48), dtype=np.int32)
    group = int8.HeadGroup(sums, np.abs(numbers(2 + length)) / 1000, np.abs(numbers(48)), numbers(48, seed=1))
    kept.scores[:rows, :length] = random.integers(-900, 900, (rows, length))
    kept.scores[:rows, length:] = kept.scores[:rows, length - 1 : length]  # as the last key fills up a vector
    kept.real[:length], kept.real[length:] = 1, 0
    scores = kept.scores[:rows, :length] * 0.01
    run(group, kept, np.float32(0.01), length, rows)

    values = (sums * group.scales[:, None] * group.weight + group.bias)[2:, 16:32].astype(np.float64)
    powers = np.exp2(scores - scores.max(1, keepdims=True))
    expected = powers / powers.sum(1, keepdims=True) @ values
    # powers of 2 are off by 8e-5, which shares mostly have in common; 16 bits by a few of 32767 parts
    np.testing.assert_allclose(
        kept.seen[3 : 3 + rows, 16:32], expected, atol=(8e-5 + bound) * np.abs(values).max(), rtol=0
    )
    assert not kept.seen[:3, 16:32].any()


def gelu(x: torch.Tensor) -> torch.Tensor:
    """With the polynomial, whose errors would move far more numbers to the next code than float32 does."""
    near = x.clamp(-float(int8.REACH), float(int8.REACH))
    powers = sum(float(p) * near ** (2 * k + 1) for k, p in enumerate(int8.P))
    return x * (0.5 + powers)


def emulated(backbone: Backbone, packed: Packed) -> torch.Tensor:
    """The same roundings in plain torch and float64."""

    def product(
        x: torch.Tensor, weight: torch.Tensor, low: float | None = None, copies: Copies | None = None
    ) -> torch.Tensor:
        scales_N = (weight.abs().amax(0) / 127).double()
        shares = 1 if copies is None else torch.from_numpy(copies.shares)
        sizes = (x * shares).abs()
        scales = sizes.amax(1, keepdim=True) / 127 if low is None else (x.amax(1, keepdim=True) - low) / 255
        start = 0.0 if low is None else low
        rounded = ((x - start) / scales).round() * scales + start
        return rounded @ ((weight / scales_N).round() * scales_N)

    def norm(x: torch.Tensor, new: torch.Tensor, n: int8.Norm) -> torch.Tensor:
        scale, shift, bias = (torch.from_numpy(part).double() for part in (n.scale, n.shift, n.bias))
        return F.layer_norm(x + new + bias, scale.shape, scale, shift, float(n.eps))

    def nearest(x: torch.Tensor, *axes: int, most: int = 127) -> torch.Tensor:
        """With one scale for all numbers along the axes."""
        scales = x.abs().amax(axes, keepdim=True) / most
        return (x / scales).round() * scales

    def softmax(scores: torch.Tensor) -> torch.Tensor:
        """With the polynomial for powers of 2, rounded to 16 bits where the kernel does it."""
        x = (scores - scores.amax(-1, keepdim=True)) / log(2)
        rest = x - x.round()
        powers = sum(number * rest**k for k, number in enumerate(POWER)) * 2 ** x.round()
        shares = powers / powers.sum(-1, keepdim=True)
        return (shares * 32767).round() / 32767 if pairs else shares

    pairs = int8.mix is int8._mix_pairs
    x = backbone.embed(packed).double()
    bounds, copies = packed.bounds.tolist(), iter(calibrate(arrays(backbone), list))
    for layer in read_layers(backbone):
        qkv = product(x, layer.qkv[:-1], copies=next(copies)) + layer.qkv[-1].double()
        seen = []
        for start, end in pairwise(bounds):
            q, k, v = qkv[start:end].view(end - start, 3, layer.heads, -1).permute(1, 2, 0, 3)
            q, k = nearest(q, 1, 2), nearest(k, 1, 2)
            shares, v = (
                softmax(q @ k.transpose(1, 2) * layer.scale),
                nearest(v, 1, 2, most=32767) if pairs else v,
            )
            seen.append((shares @ v).transpose(0, 1).flatten(1))
        x = norm(x, product(torch.cat(seen), layer.out), layer.first_norm)
        wide = gelu(product(x, layer.up[:-1], copies=next(copies)) + layer.up[-1].double())
        x = norm(x, product(wide, layer.down, float(int8.LOWEST)), layer.second_norm)
    return x


@pytest.mark.parametrize("family", ["bert", "distilbert"])
def test_the_forward_is_plain_rounding(family: str) -> None:
    """Most states are the same; float32 moves a number over the edge to the next code here and there."""
    backbone, packed = with_biases(small(family=family)), row(9, 1, 17, 9, 30)
    with torch.inference_mode():
        expected, exact = emulated(backbone, packed), LeanForward(backbone)(packed).clone()
        states = in_int8(backbone)(packed)
    off, lost = (states - expected).abs(), (expected - exact).abs().mean()
    assert off.median() < 0.1 * lost
    assert off.mean() < 0.3 * lost
    assert lost < 0.05  # states have a deviation of about 1


def test_a_sequence_does_not_depend_on_the_others_of_its_row() -> None:
    forward = in_int8(with_biases(small()))
    with torch.inference_mode():
        together, alone = forward(row(9, 12, 30)).clone(), forward(row(9))
    # equal to the bit here; elsewhere a last digit of attention may move a number to the next code
    torch.testing.assert_close(together[:9], alone, atol=0.02, rtol=0)


def test_kernels_are_compiled_once_for_any_number_of_layers() -> None:
    packed = row(9, 12)
    for layers in (1, 2):
        backbone = with_biases(small(layers))
        with torch.inference_mode():
            states, exact = in_int8(backbone)(packed), LeanForward(backbone)(packed)
        assert (states - exact).abs().mean() < 0.05  # states have a deviation of about 1
    assert len(int8.run_layers.signatures) == 1


def moved(backbone: Backbone, codes: float) -> Backbone:
    """With weights of all linear layers as far from where they were as a training takes them."""
    random = torch.Generator().manual_seed(1)
    for module in backbone.modules():
        if isinstance(module, torch.nn.Linear):
            step = codes * module.weight.detach().abs().amax(1, keepdim=True) / 127
            module.weight.data += step * torch.randn(module.weight.shape, generator=random)
    return backbone


def test_only_weights_that_are_int8_already_count_as_rounded() -> None:
    assert not is_rounded(arrays(small()))
    assert is_rounded(arrays(round_nearest(small())))
    assert not is_rounded(arrays(moved(round_nearest(small()), 0.2)))


def test_weights_that_are_int8_already_are_not_left_to_chance() -> None:
    weight = numbers(64, 48)
    codes = int8.round_weight(weight)
    scales = np.abs(weight).max(0) / 127
    assert np.abs(codes - weight / scales).max() < 0.51  # half a code: the nearest
    stored = (codes * scales).astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(int8.round_weight(stored), codes)


def test_small_moves_of_weights_are_kept_in_the_mean() -> None:
    before = np.random.default_rng(1).integers(-127, 128, (4000, 16)).astype(np.float32)
    before[0] = 127
    codes = int8.round_weight(before + np.float32(0.04)) - before
    codes[0] = 0
    assert set(np.unique(codes).tolist()) == {0, 1}
    again = int8.round_weight(before + np.float32(0.04)) - before
    again[0] = 0
    np.testing.assert_array_equal(again, codes)
    # 16 means of 4,000 draws of a chance of .04, whose deviation is .003
    np.testing.assert_allclose(codes.mean(0), np.full(16, 0.04), atol=0.015, rtol=0)


def test_auto_is_int8_where_nothing_is_lost_and_the_processor_is_made_for_it(monkeypatch) -> None:
    plain, bundled = arrays(small()), arrays(round_nearest(small()))
    monkeypatch.setattr(int8, "byte_products", lambda: "avx512_vnni")
    assert choose("auto", bundled) == "int8"
    assert choose("auto", arrays(moved(round_nearest(small()), 0.2))) == "fp32"
    assert choose("auto", plain) == "fp32"
    assert choose("int8", plain) == "int8"
    monkeypatch.setenv(PRECISION, "fp32")
    assert choose("auto", bundled) == "fp32"
    assert choose("int8", bundled) == "int8"
    monkeypatch.delenv(PRECISION)
    monkeypatch.setattr(int8, "byte_products", lambda: "")
    assert choose("auto", bundled) == "fp32"


def test_int8_is_refused_where_it_would_be_wrong(monkeypatch) -> None:
    monkeypatch.setattr(int8, "byte_products", lambda: "")
    with pytest.raises(RecipeError, match="needs a processor"):
        choose("int8", arrays(small()))
    monkeypatch.setattr(int8, "byte_products", lambda: "avx512_vnni")
    with pytest.raises(RecipeError, match="like BERT"):
        choose("int8", body_of(small(family="modernbert")))
    monkeypatch.setenv(PRECISION, "int4")
    with pytest.raises(RecipeError, match="int4"):
        choose("auto", arrays(small()))


def test_a_kernel_that_was_compiled_before_is_known_without_compiling_it(tmp_path):
    source = tmp_path / "kernels_of_a_test.py"

    def load():
        spec = importlib.util.spec_from_file_location("kernels_of_a_test", source)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.double

    text = "from liebig.model.kernels.registers import kernel\n\n@kernel\ndef double(x):\n    return 2 * x\n"
    source.write_text(text)
    first = load()
    assert not is_compiled(first)
    assert first(3) == 6
    assert is_compiled(first)
    assert is_compiled(load())
    source.write_text(text + "\n\n# changed\n")
    assert not is_compiled(load())


def test_int8_pays_sooner_where_its_kernels_are_compiled(monkeypatch):
    limits = []
    for compiled in (False, True):
        monkeypatch.setattr(int8, "is_compiled", lambda kernel, compiled=compiled: compiled)
        limits.append(int8.pays_from())
    assert limits[0] > limits[1] > 0


def test_states_are_the_same_whether_torch_or_numpy_has_read_the_weights() -> None:
    theirs, ours = arrays(Backbone.load(encoders.folder())), NumpyEncoder(encoders.folder()).body
    packed = row(9, 12, 30)
    tokens, bounds = packed.tokens.numpy(), packed.bounds
    expected = Int8Forward(theirs)(tokens, bounds)
    np.testing.assert_array_equal(Int8Forward(ours)(tokens, bounds), expected)
