"""Attention for short sequences on CUDA: one block of threads for up to 64 queries of a head, with all of their keys.

Up to 128 tokens the scores of a sequence fit into registers. Forward reads q, k, v and writes the output and the
logarithm of each row's sum; backward reads these, makes the probabilities again, 64 keys at a time, and writes the
three gradients. Nothing is added up in memory, and nothing but the keys of longer sequences is read twice, where a
kernel for any length pays for its loop. `lean.attend` sends longer rows elsewhere. Imported only where Triton
is, that is on CUDA.

T packed tokens, B sequences, H heads, E head width, L slots of a block.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable


def short_attention(qkv: Tensor, offsets: Tensor, longest: int, scale: float) -> Tensor:
    """Softmax(q kᵀ · scale) v of each sequence: T x 3 x H x E -> T x H x E."""
    out: Tensor = ShortAttention.apply(qkv, offsets, longest, scale)
    return out


class ShortAttention(Function):
    """Both passes, for autograd."""

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, offsets: Tensor, longest: int, scale: float) -> Tensor:
        out, sums = forward(qkv, offsets, longest, scale)
        ctx.save_for_backward(qkv, out, sums, offsets)
        ctx.longest, ctx.scale = longest, scale
        return out

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        qkv, out, sums, offsets = ctx.saved_tensors
        dqkv = backward(grad.contiguous(), qkv, out, sums, offsets, ctx.longest, ctx.scale)
        return dqkv, None, None, None


def forward(qkv: Tensor, offsets: Tensor, longest: int, scale: float) -> tuple[Tensor, Tensor]:
    """The output, and of each row of scores the binary logarithm of the sum of its powers, T x H."""
    total, _, heads, width = qkv.shape
    out = torch.empty((total, heads, width), dtype=qkv.dtype, device=qkv.device)
    sums = torch.empty((total, heads), dtype=torch.float32, device=qkv.device)
    slots = block(longest)
    rows = min(slots, PART)
    _forward[blocks(heads * (slots // rows), offsets)](
        qkv, out, sums, offsets, scale, heads * width,
        WIDTH=width, BLOCK=slots, ROWS=rows, num_warps=warps(longest),
    )  # fmt: skip
    return out, sums


def backward(
    grad: Tensor, qkv: Tensor, out: Tensor, sums: Tensor, offsets: Tensor, longest: int, scale: float
) -> Tensor:
    """The gradient of queries, keys and values, from what the forward pass gave."""
    _, _, heads, width = qkv.shape
    dqkv = torch.empty_like(qkv)
    slots = block(longest)
    _backward[blocks(heads, offsets)](
        qkv, out, sums, grad, dqkv, offsets, scale, heads * width,
        WIDTH=width, BLOCK=slots, KEYS=min(slots, PART), num_warps=warps(longest),
    )  # fmt: skip
    return dqkv


PART = 64
"""Queries of a block in the forward pass, and keys that the backward pass takes at a time."""


def blocks(each: int, offsets: Tensor) -> tuple[int]:
    """That many blocks for each sequence; on one axis, because the others end at 65,535 blocks."""
    return (each * (offsets.shape[0] - 1),)


def block(longest: int) -> int:
    """Slots of a sequence: a power of two, at least 32."""
    return max(32, 1 << (longest - 1).bit_length())


def warps(longest: int) -> int:
    """Warps of a block, for both kernels: 2 and 8 were measured to be slower."""
    return 4 if longest > 32 else 2


@triton.jit  # type: ignore[misc]
def _load(base, rows, columns, stride, n):  # type: ignore[no-untyped-def]
    """A tile of rows, zeros past the sequence."""
    return tl.load(base + rows[:, None] * stride + columns[None, :], mask=rows[:, None] < n, other=0.0)


@triton.jit  # type: ignore[misc]
def _forward_tile(  # type: ignore[no-untyped-def]
    qkv, out, sums, first, n, scale, step, heads, WIDTH: tl.constexpr, ROWS: tl.constexpr, SLOTS: tl.constexpr
):
    # A block has ROWS queries against all SLOTS keys of the sequence: scores are a ROWS x SLOTS tile in registers, so
    # softmax needs no running maximum. A token's q, k and v lie step = H * E numbers apart, tokens 3 * step.
    rows, keys, columns = first + tl.arange(0, ROWS), tl.arange(0, SLOTS), tl.arange(0, WIDTH)
    q = _load(qkv, rows, columns, 3 * step, n)
    k = _load(qkv + step, keys, columns, 3 * step, n)
    v = _load(qkv + 2 * step, keys, columns, 3 * step, n)
    # Slots past the sequence hold zero keys, whose score 0 may be the largest: they are masked by -inf first.
    scores = tl.where(keys[None, :] < n, tl.dot(q, tl.trans(k)), float("-inf"))
    binary = scale * 1.4426950408889634  # a power of two is what the hardware has
    top = tl.max(scores, 1) * binary
    power = tl.exp2(scores * binary - top[:, None])
    total = tl.sum(power, 1)
    # Powers are at most 1, so they fit half precision; dividing the E outputs is cheaper than dividing the L powers.
    o = tl.dot(power.to(v.dtype), v) / total[:, None]
    tl.store(out + rows[:, None] * step + columns[None, :], o.to(v.dtype), mask=rows[:, None] < n)
    # log2 of the softmax's denominator: the backward pass gets probabilities from scores by one exp2.
    tl.store(sums + rows * heads, top + tl.log2(total), mask=rows < n)


@triton.jit  # type: ignore[misc]
def _forward(  # type: ignore[no-untyped-def]
    qkv, out, sums, offsets, scale, step, WIDTH: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr
):
    # Neighbouring programs are parts of one head, then heads of one sequence: they share keys and lines of the cache.
    heads = step // WIDTH
    part, head = tl.program_id(0) % (BLOCK // ROWS), tl.program_id(0) // (BLOCK // ROWS) % heads
    sequence = tl.program_id(0) // (BLOCK // ROWS) // heads
    start = tl.load(offsets + sequence).to(tl.int64)
    n = (tl.load(offsets + sequence + 1) - start).to(tl.int32)
    if part * ROWS < n:
        qkv += start * 3 * step + head * WIDTH
        out += start * step + head * WIDTH
        sums += start * heads + head
        # BLOCK fits the longest sequence of the row. One that fits half of it takes tiles of half the size, with a
        # quarter of the scores.
        if n <= BLOCK // 2:
            _forward_tile(
                qkv, out, sums, part * ROWS, n, scale, step, heads, WIDTH, min(ROWS, BLOCK // 2), BLOCK // 2
            )
        else:
            _forward_tile(qkv, out, sums, part * ROWS, n, scale, step, heads, WIDTH, ROWS, BLOCK)


@triton.jit  # type: ignore[misc]
def _backward_keys(  # type: ignore[no-untyped-def]
    dqkv, q, g, k, v, logarithm, along, dq, first, n, scale, step, WIDTH: tl.constexpr, KEYS: tl.constexpr
):
    """Write the gradients of some keys and their values, and add to that of the queries."""
    # With P = softmax(S), O = P V and dP = G Vᵀ: dV = Pᵀ G, dS = P * (dP - rowsum(G * O)), dQ = dS K, dK = dSᵀ Q.
    # `along` is that row sum, `share` is P for these keys; rows past the sequence have g = 0 and add nothing.
    keys, columns = first + tl.arange(0, KEYS), tl.arange(0, WIDTH)
    place = dqkv + keys[:, None] * (3 * step) + columns[None, :]
    power = tl.exp2(tl.dot(q, tl.trans(k)) * (scale * 1.4426950408889634) - logarithm[:, None])
    share = tl.where(keys[None, :] < n, power, 0.0)
    dv = tl.dot(tl.trans(share.to(g.dtype)), g)
    tl.store(place + 2 * step, dv.to(q.dtype), mask=keys[:, None] < n)
    dscore = (share * (tl.dot(g, tl.trans(v)) - along[:, None])).to(q.dtype)
    dk = tl.dot(tl.trans(dscore), q) * scale
    tl.store(place + step, dk.to(q.dtype), mask=keys[:, None] < n)
    return dq + tl.dot(dscore, k)


@triton.jit  # type: ignore[misc]
def _backward_tile(  # type: ignore[no-untyped-def]
    qkv, out, sums, grad, dqkv, n, scale, step, heads,
    WIDTH: tl.constexpr, SLOTS: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    # A block owns a whole head of a sequence: dK and dV are complete after one step and written at once, dQ is summed
    # over the parts of keys in registers. No atomics, so the order of additions is fixed.
    rows, keys, columns = tl.arange(0, SLOTS), tl.arange(0, KEYS), tl.arange(0, WIDTH)
    q = _load(qkv, rows, columns, 3 * step, n)
    g = _load(grad, rows, columns, step, n)
    o = _load(out, rows, columns, step, n)
    # All is asked for before the first product: one wait for memory instead of three.
    k = _load(qkv + step, keys, columns, 3 * step, n)
    v = _load(qkv + 2 * step, keys, columns, 3 * step, n)
    if SLOTS > KEYS:
        more_k = _load(qkv + step, KEYS + keys, columns, 3 * step, n)
        more_v = _load(qkv + 2 * step, KEYS + keys, columns, 3 * step, n)
    logarithm = tl.load(sums + rows * heads, mask=rows < n, other=0.0)
    along = tl.sum(g.to(tl.float32) * o.to(tl.float32), 1)
    # KEYS at a time: P, dP and dS are SLOTS x KEYS tiles in registers.
    dq = tl.zeros((SLOTS, WIDTH), tl.float32)
    dq = _backward_keys(dqkv, q, g, k, v, logarithm, along, dq, 0, n, scale, step, WIDTH, KEYS)
    if SLOTS > KEYS:
        dq = _backward_keys(
            dqkv, q, g, more_k, more_v, logarithm, along, dq, KEYS, n, scale, step, WIDTH, KEYS
        )
    place = dqkv + rows[:, None] * (3 * step) + columns[None, :]
    tl.store(place, (dq * scale).to(q.dtype), mask=rows[:, None] < n)


@triton.jit  # type: ignore[misc]
def _backward(  # type: ignore[no-untyped-def]
    qkv,
    out,
    sums,
    grad,
    dqkv,
    offsets,
    scale,
    step,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    KEYS: tl.constexpr,
):
    heads = step // WIDTH
    head, sequence = tl.program_id(0) % heads, tl.program_id(0) // heads
    start = tl.load(offsets + sequence).to(tl.int64)
    n = (tl.load(offsets + sequence + 1) - start).to(tl.int32)
    qkv += start * 3 * step + head * WIDTH
    out += start * step + head * WIDTH
    sums += start * heads + head
    grad += start * step + head * WIDTH
    dqkv += start * 3 * step + head * WIDTH
    if n <= BLOCK // 2:
        _backward_tile(
            qkv, out, sums, grad, dqkv, n, scale, step, heads, WIDTH, BLOCK // 2, min(KEYS, BLOCK // 2)
        )
    else:
        _backward_tile(qkv, out, sums, grad, dqkv, n, scale, step, heads, WIDTH, BLOCK, KEYS)
