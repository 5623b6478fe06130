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


@torch.library.custom_op("liebig::short_attention", mutates_args=())
def short_attention(qkv: Tensor, offsets: Tensor, longest: int, scale: float) -> Tensor:
    """Softmax(q kᵀ · scale) v of each sequence: T x 3 x H x E -> T x H x E."""
    total, _, heads, width = qkv.shape
    out = torch.empty((total, heads, width), dtype=qkv.dtype, device=qkv.device)
    grid = (heads, offsets.shape[0] - 1)
    _forward[grid](
        qkv, out, offsets, scale, heads * width, WIDTH=width, BLOCK=block(longest), num_warps=warps(longest)
    )
    return out


@torch.library.custom_op("liebig::short_attention_backward", mutates_args=())
def short_attention_backward(
    grad: Tensor, qkv: Tensor, offsets: Tensor, longest: int, scale: float
) -> Tensor:
    """The gradient of `short_attention` with respect to qkv, T x 3 x H x E."""
    _, _, heads, width = qkv.shape
    out = torch.empty_like(qkv)
    grid = (heads, offsets.shape[0] - 1)
    _backward[grid](
        qkv,
        grad,
        out,
        offsets,
        scale,
        heads * width,
        WIDTH=width,
        BLOCK=block(longest),
        num_warps=warps(longest),
    )
    return out


@short_attention.register_fake
def _(qkv: Tensor, offsets: Tensor, longest: int, scale: float) -> Tensor:
    return qkv.new_empty((qkv.shape[0], qkv.shape[2], qkv.shape[3]))


@short_attention_backward.register_fake
def _(grad: Tensor, qkv: Tensor, offsets: Tensor, longest: int, scale: float) -> Tensor:
    return torch.empty_like(qkv)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    qkv, offsets, ctx.longest, ctx.scale = inputs
    ctx.save_for_backward(qkv, offsets)


def _differentiate(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
    qkv, offsets = ctx.saved_tensors
    return short_attention_backward(grad.contiguous(), qkv, offsets, ctx.longest, ctx.scale), None, None, None


short_attention.register_autograd(_differentiate, setup_context=_remember)


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
    head, sequence = tl.program_id(0), tl.program_id(1)
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
    head, sequence = tl.program_id(0), tl.program_id(1)
    start = tl.load(offsets + sequence).to(tl.int64)
    n = (tl.load(offsets + sequence + 1) - start).to(tl.int32)
    qkv += start * 3 * step + head * WIDTH
    grad += start * step + head * WIDTH
    out += start * 3 * step + head * WIDTH
    if n <= BLOCK // 2:
        _backward_tile(qkv, grad, out, n, scale, step, WIDTH, BLOCK // 2)
    else:
        _backward_tile(qkv, grad, out, n, scale, step, WIDTH, BLOCK)
