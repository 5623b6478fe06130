"""Attention for short sequences on CUDA: one block of threads holds a whole sequence of one head.

Up to 128 tokens the scores of a sequence fit into registers, so neither pass loops over keys, saves anything
for the other, or adds up in memory: forward reads q, k, v and writes the output; backward reads q, k, v and the
output's gradient, makes the probabilities again and writes the three gradients. That is the least traffic
there can be, where a kernel for any length pays for its loop. `attention.attend_qkv` sends longer rows elsewhere.
Imported only where Triton is, that is on CUDA.

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
    """Both passes; only queries, keys and values are kept between them."""

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, offsets: Tensor, longest: int, scale: float) -> Tensor:
        total, _, heads, width = qkv.shape
        out = torch.empty((total, heads, width), dtype=qkv.dtype, device=qkv.device)
        _forward[blocks(heads, offsets)](
            qkv, out, offsets, scale, heads * width, WIDTH=width, BLOCK=block(longest), num_warps=warps(longest)
        )  # fmt: skip
        ctx.save_for_backward(qkv, offsets)
        ctx.longest, ctx.scale = longest, scale
        return out

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        qkv, offsets = ctx.saved_tensors
        _, _, heads, width = qkv.shape
        out = torch.empty_like(qkv)
        _backward[blocks(heads, offsets)](
            qkv, grad.contiguous(), out, offsets, ctx.scale, heads * width,
            WIDTH=width, BLOCK=block(ctx.longest), num_warps=warps(ctx.longest),
        )  # fmt: skip
        return out, None, None, None


def blocks(heads: int, offsets: Tensor) -> tuple[int]:
    """One block a head of a sequence, heads first; on one axis, because the others end at 65,535 blocks."""
    return (heads * (offsets.shape[0] - 1),)


def block(longest: int) -> int:
    """Slots of a block: a power of two, at least 32."""
    return max(32, 1 << (longest - 1).bit_length())


def warps(longest: int) -> int:
    """Warps of a block, for both kernels: 8 were measured to be slower backward."""
    return 4 if longest > 32 else 2


@triton.jit  # type: ignore[misc]
def _load(base, rows, columns, stride, n):  # type: ignore[no-untyped-def]
    """A tile of rows, zeros past the sequence."""
    return tl.load(base + rows[:, None] * stride + columns[None, :], mask=rows[:, None] < n, other=0.0)


@triton.jit  # type: ignore[misc]
def _probabilities(q, k, columns, n, scale):  # type: ignore[no-untyped-def]
    """Softmax over the keys of the sequence, in float32."""
    scores = tl.dot(q, tl.trans(k)) * (scale * 1.4426950408889634)
    scores = tl.where(columns[None, :] < n, scores, float("-inf"))
    power = tl.exp2(scores - tl.max(scores, 1)[:, None])
    return power / tl.sum(power, 1)[:, None]


@triton.jit  # type: ignore[misc]
def _forward_tile(qkv, out, n, scale, step, WIDTH: tl.constexpr, SLOTS: tl.constexpr):  # type: ignore[no-untyped-def]
    rows, columns = tl.arange(0, SLOTS), tl.arange(0, WIDTH)
    q = _load(qkv, rows, columns, 3 * step, n)
    k = _load(qkv + step, rows, columns, 3 * step, n)
    v = _load(qkv + 2 * step, rows, columns, 3 * step, n)
    share = _probabilities(q, k, rows, n, scale)
    o = tl.dot(share.to(v.dtype), v)
    tl.store(out + rows[:, None] * step + columns[None, :], o.to(v.dtype), mask=rows[:, None] < n)


@triton.jit  # type: ignore[misc]
def _forward(qkv, out, offsets, scale, step, WIDTH: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    heads = step // WIDTH
    head, sequence = tl.program_id(0) % heads, tl.program_id(0) // heads
    start = tl.load(offsets + sequence).to(tl.int64)
    n = (tl.load(offsets + sequence + 1) - start).to(tl.int32)
    qkv += start * 3 * step + head * WIDTH
    out += start * step + head * WIDTH
    if n <= BLOCK // 2:
        _forward_tile(qkv, out, n, scale, step, WIDTH, BLOCK // 2)
    else:
        _forward_tile(qkv, out, n, scale, step, WIDTH, BLOCK)


@triton.jit  # type: ignore[misc]
def _backward_tile(qkv, grad, out, n, scale, step, WIDTH: tl.constexpr, SLOTS: tl.constexpr):  # type: ignore[no-untyped-def]
    rows, columns = tl.arange(0, SLOTS), tl.arange(0, WIDTH)
    inside = rows[:, None] < n
    q = _load(qkv, rows, columns, 3 * step, n)
    k = _load(qkv + step, rows, columns, 3 * step, n)
    v = _load(qkv + 2 * step, rows, columns, 3 * step, n)
    g = _load(grad, rows, columns, step, n)
    share = _probabilities(q, k, rows, n, scale)
    place = out + rows[:, None] * (3 * step) + columns[None, :]
    dv = tl.dot(tl.trans(share.to(g.dtype)), g)
    tl.store(place + 2 * step, dv.to(v.dtype), mask=inside)
    dshare = tl.dot(g, tl.trans(v))
    dscore = (share * (dshare - tl.sum(share * dshare, 1)[:, None]) * scale).to(q.dtype)
    tl.store(place, tl.dot(dscore, k).to(q.dtype), mask=inside)
    tl.store(place + step, tl.dot(tl.trans(dscore), q).to(q.dtype), mask=inside)


@triton.jit  # type: ignore[misc]
def _backward(qkv, grad, out, offsets, scale, step, WIDTH: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    heads = step // WIDTH
    head, sequence = tl.program_id(0) % heads, tl.program_id(0) // heads
    start = tl.load(offsets + sequence).to(tl.int64)
    n = (tl.load(offsets + sequence + 1) - start).to(tl.int32)
    qkv += start * 3 * step + head * WIDTH
    grad += start * step + head * WIDTH
    out += start * 3 * step + head * WIDTH
    if n <= BLOCK // 2:
        _backward_tile(qkv, grad, out, n, scale, step, WIDTH, BLOCK // 2)
    else:
        _backward_tile(qkv, grad, out, n, scale, step, WIDTH, BLOCK)
