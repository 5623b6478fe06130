"""What lies between a layer's products on CUDA, in one kernel each way: bias, dropout, residual and norm; bias and GELU.

Each reads its tensors once and writes its results once, and the gradients of biases and norms are summed on the way:
the least traffic there can be. Dropout is `stack.drop`'s hash, so the mask is made again backward and never kept.
Sums are made in a fixed order, so results do not vary from run to run. Imported only where Triton is, that is on CUDA.

T packed tokens, D width, F feed-forward width.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

ELEMENTS, WARPS = 2048, 4
"""Numbers of a tile, and the warps that work on it."""
PROGRAMS = 1024
"""Blocks of threads of a backward pass at the most; each keeps sums of its own until the end."""


@torch.library.custom_op("liebig::add_norm", mutates_args=())
def add_norm(
    new: Tensor,
    bias: Tensor,
    x: Tensor,
    weight: Tensor,
    shift: Tensor,
    noise: Tensor | None,
    p: float,
    eps: float,
    keep: bool,
) -> tuple[Tensor, Tensor]:
    """LayerNorm of x + dropout(new + bias), and that sum where it is kept for the backward pass."""
    total, width = new.shape
    out = torch.empty_like(new)
    kept = torch.empty_like(new) if keep else new.new_empty(0)
    columns, rows = tile(width)
    dropping = noise is not None and p > 0
    _add_norm[(triton.cdiv(total, rows),)](
        new, bias, x, weight, shift, noise if dropping else bias, out, kept, total, least(p), 1 / (1 - p), eps,
        WIDTH=width, ROWS=rows, COLUMNS=columns, DROP=dropping, KEEP=keep, num_warps=WARPS,
    )  # fmt: skip
    return out, kept


@torch.library.custom_op("liebig::add_norm_backward", mutates_args=())
def add_norm_backward(
    grad: Tensor, kept: Tensor, weight: Tensor, noise: Tensor | None, p: float, eps: float, wide: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of x (float32 where `wide`), of new (empty where it is that of x), and of weight, shift and bias."""
    total, width = kept.shape
    dropping = noise is not None and p > 0
    apart = dropping or (wide and kept.dtype != torch.float32)
    dx = torch.empty_like(kept, dtype=torch.float32 if wide else kept.dtype)
    dnew = torch.empty_like(kept) if apart else kept.new_empty(0)
    columns, rows = tile(width)
    programs = max(1, min(PROGRAMS, triton.cdiv(total, rows)))
    sums = torch.empty((programs, 3, width), dtype=torch.float32, device=kept.device)
    _add_norm_backward[(programs,)](
        grad, kept, weight, noise if dropping else weight, dx, dnew, sums, total, least(p), 1 / (1 - p), eps,
        WIDTH=width, ROWS=rows, COLUMNS=columns, DROP=dropping, APART=apart, num_warps=WARPS,
    )  # fmt: skip
    return dx, dnew, sums.sum(0)


@torch.library.custom_op("liebig::bias_gelu", mutates_args=())
def bias_gelu(x: Tensor, bias: Tensor) -> Tensor:
    """GELU(x + bias), by the error function."""
    total, width = x.shape
    out = torch.empty_like(x)
    columns, rows = tile(min(width, 1024))
    grid = (triton.cdiv(total, rows), triton.cdiv(width, columns))
    _bias_gelu[grid](x, bias, out, total, WIDTH=width, ROWS=rows, COLUMNS=columns, num_warps=WARPS)
    return out


@torch.library.custom_op("liebig::bias_gelu_backward", mutates_args=())
def bias_gelu_backward(grad: Tensor, x: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of x and of bias."""
    total, width = x.shape
    dx = torch.empty_like(x)
    columns, rows = tile(min(width, 1024))
    programs = max(1, min(PROGRAMS // triton.cdiv(width, columns), triton.cdiv(total, rows)))
    sums = torch.empty((programs, width), dtype=torch.float32, device=x.device)
    grid = (programs, triton.cdiv(width, columns))
    _bias_gelu_backward[grid](
        grad, x, bias, dx, sums, total, WIDTH=width, ROWS=rows, COLUMNS=columns, num_warps=WARPS
    )
    return dx, sums.sum(0)


def tile(width: int) -> tuple[int, int]:
    """Columns and rows of a tile."""
    columns: int = triton.next_power_of_2(width)
    return columns, max(1, ELEMENTS // columns)


def least(p: float) -> int:
    """The least hash that is kept."""
    return int(p * 2**31)


@add_norm.register_fake
def _(
    new: Tensor,
    bias: Tensor,
    x: Tensor,
    weight: Tensor,
    shift: Tensor,
    noise: Tensor | None,
    p: float,
    eps: float,
    keep: bool,
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(new), torch.empty_like(new) if keep else new.new_empty(0)


@add_norm_backward.register_fake
def _(
    grad: Tensor, kept: Tensor, weight: Tensor, noise: Tensor | None, p: float, eps: float, wide: bool
) -> tuple[Tensor, Tensor, Tensor]:
    apart = (noise is not None and p > 0) or (wide and kept.dtype != torch.float32)
    dx = torch.empty_like(kept, dtype=torch.float32 if wide else kept.dtype)
    dnew = torch.empty_like(kept) if apart else kept.new_empty(0)
    return dx, dnew, kept.new_empty((3, kept.shape[1]), dtype=torch.float32)


@bias_gelu.register_fake
def _(x: Tensor, bias: Tensor) -> Tensor:
    return torch.empty_like(x)


@bias_gelu_backward.register_fake
def _(grad: Tensor, x: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), x.new_empty(x.shape[1], dtype=torch.float32)


def _remember_norm(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    _, bias, x, weight, _, noise, ctx.p, ctx.eps, keep = inputs
    assert keep, "a pass with gradient keeps the sum"
    ctx.wide, ctx.bias_dtype = x.dtype == torch.float32, bias.dtype
    ctx.save_for_backward(output[1], weight, noise)


def _differentiate_norm(ctx: Any, grad: Tensor, _: Tensor | None) -> tuple[Any, ...]:
    kept, weight, noise = ctx.saved_tensors
    dx, dnew, sums = add_norm_backward(grad.contiguous(), kept, weight, noise, ctx.p, ctx.eps, ctx.wide)
    dnew = dnew if dnew.numel() or not dx.numel() else dx
    dweight, dshift = sums[0].to(weight.dtype), sums[1].to(weight.dtype)
    return dnew, sums[2].to(ctx.bias_dtype), dx, dweight, dshift, None, None, None, None


def _remember_gelu(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _differentiate_gelu(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
    x, bias = ctx.saved_tensors
    dx, dbias = bias_gelu_backward(grad.contiguous(), x, bias)
    return dx, dbias.to(bias.dtype)


add_norm.register_autograd(_differentiate_norm, setup_context=_remember_norm)
bias_gelu.register_autograd(_differentiate_gelu, setup_context=_remember_gelu)


@triton.jit  # type: ignore[misc]
def _stays(places, noise, least):  # type: ignore[no-untyped-def]
    """`stack.drop`'s hash of places: true where a number is kept."""
    one, two = tl.load(noise), tl.load(noise + 1)
    h = (places ^ one) * -1640531535
    h = (h ^ ((h >> 16) & 0xFFFF)) * -2048144789
    h = (h ^ ((h >> 13) & 0x7FFFF) ^ two) * -1028477387
    h = (h ^ ((h >> 16) & 0xFFFF)) & 0x7FFFFFFF
    return h >= least


@triton.jit  # type: ignore[misc]
def _normalised(x, inside, eps, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """Rows less their mean over their deviation, and one over the deviation."""
    mean = tl.sum(x, 1) / WIDTH
    centred = tl.where(inside, x - mean[:, None], 0.0)
    rate = tl.rsqrt(tl.sum(centred * centred, 1) / WIDTH + eps)
    return centred * rate[:, None], rate


@triton.jit(do_not_specialize=["total", "least"])  # type: ignore[misc]
def _add_norm(  # type: ignore[no-untyped-def]
    new, bias, x, weight, shift, noise, out, kept, total, least, scale, eps,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DROP: tl.constexpr, KEEP: tl.constexpr,
):  # fmt: skip
    rows, columns = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    within = columns < WIDTH
    inside = (rows < total)[:, None] & within[None, :]
    places = rows.to(tl.int64)[:, None] * WIDTH + columns[None, :]
    added = tl.load(new + places, mask=inside, other=0.0).to(tl.float32)
    added += tl.load(bias + columns, mask=within, other=0.0).to(tl.float32)[None, :]
    if DROP:
        added = tl.where(_stays(rows[:, None] * WIDTH + columns[None, :], noise, least), added * scale, 0.0)
    added += tl.load(x + places, mask=inside, other=0.0).to(tl.float32)
    rounded = tl.where(inside, added, 0.0).to(out.dtype.element_ty)
    if KEEP:
        tl.store(kept + places, rounded, mask=inside)
    normal, _ = _normalised(rounded.to(tl.float32), inside, eps, WIDTH)
    w = tl.load(weight + columns, mask=within, other=0.0).to(tl.float32)[None, :]
    b = tl.load(shift + columns, mask=within, other=0.0).to(tl.float32)[None, :]
    tl.store(out + places, (normal * w + b).to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["total", "least"])  # type: ignore[misc]
def _add_norm_backward(  # type: ignore[no-untyped-def]
    grad, kept, weight, noise, dx, dnew, sums, total, least, scale, eps,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DROP: tl.constexpr, APART: tl.constexpr,
):  # fmt: skip
    columns = tl.arange(0, COLUMNS)
    within = columns < WIDTH
    w = tl.load(weight + columns, mask=within, other=0.0).to(tl.float32)[None, :]
    dweight = tl.zeros((ROWS, COLUMNS), tl.float32)
    dshift = tl.zeros((ROWS, COLUMNS), tl.float32)
    dbias = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(tl.program_id(0) * ROWS, total, tl.num_programs(0) * ROWS):
        rows = start + tl.arange(0, ROWS)
        inside = (rows < total)[:, None] & within[None, :]
        places = rows.to(tl.int64)[:, None] * WIDTH + columns[None, :]
        g = tl.load(grad + places, mask=inside, other=0.0).to(tl.float32)
        normal, rate = _normalised(
            tl.load(kept + places, mask=inside, other=0.0).to(tl.float32), inside, eps, WIDTH
        )
        dweight += g * normal
        dshift += g
        g *= w
        along = tl.sum(g * normal, 1) / WIDTH
        mean = tl.sum(g, 1) / WIDTH
        d = (g - mean[:, None] - normal * along[:, None]) * rate[:, None]
        tl.store(dx + places, d.to(dx.dtype.element_ty), mask=inside)
        if DROP:
            d = tl.where(_stays(rows[:, None] * WIDTH + columns[None, :], noise, least), d * scale, 0.0)
        if APART:
            tl.store(dnew + places, d.to(dnew.dtype.element_ty), mask=inside)
        dbias += d
    place = sums + tl.program_id(0) * 3 * WIDTH + columns
    tl.store(place, tl.sum(dweight, 0), mask=within)
    tl.store(place + WIDTH, tl.sum(dshift, 0), mask=within)
    tl.store(place + 2 * WIDTH, tl.sum(dbias, 0), mask=within)


@triton.jit(do_not_specialize=["total"])  # type: ignore[misc]
def _bias_gelu(  # type: ignore[no-untyped-def]
    x, bias, out, total, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    within = columns < WIDTH
    inside = (rows < total)[:, None] & within[None, :]
    places = rows.to(tl.int64)[:, None] * WIDTH + columns[None, :]
    v = tl.load(x + places, mask=inside, other=0.0).to(tl.float32)
    v += tl.load(bias + columns, mask=within, other=0.0).to(tl.float32)[None, :]
    v = 0.5 * v * (1.0 + tl.erf(v * 0.7071067811865476))
    tl.store(out + places, v.to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["total"])  # type: ignore[misc]
def _bias_gelu_backward(  # type: ignore[no-untyped-def]
    grad, x, bias, dx, sums, total, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    within = columns < WIDTH
    b = tl.load(bias + columns, mask=within, other=0.0).to(tl.float32)[None, :]
    dbias = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(tl.program_id(0) * ROWS, total, tl.num_programs(0) * ROWS):
        rows = start + tl.arange(0, ROWS)
        inside = (rows < total)[:, None] & within[None, :]
        places = rows.to(tl.int64)[:, None] * WIDTH + columns[None, :]
        v = tl.load(x + places, mask=inside, other=0.0).to(tl.float32) + b
        g = tl.load(grad + places, mask=inside, other=0.0).to(tl.float32)
        below = 0.5 * (1.0 + tl.erf(v * 0.7071067811865476))
        d = g * (below + v * tl.exp(-0.5 * v * v) * 0.3989422804014327)
        tl.store(dx + places, d.to(dx.dtype.element_ty), mask=inside)
        dbias += d
    tl.store(sums + tl.program_id(0) * WIDTH + columns, tl.sum(dbias, 0), mask=within)
