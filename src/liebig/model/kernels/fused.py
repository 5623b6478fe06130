"""What happens between a layer's products on CUDA, one kernel each way: bias, dropout, residual, norm; bias and GELU.

`plain.py` says what each computes. A kernel reads its tensors once and writes its results once, and sums the gradients
of biases and norms on the way: the least traffic there can be. Sums are made in a fixed order, so results do not vary
from run to run. Imported only where Triton is, that is on CUDA.

T packed tokens, D width, F feed-forward width.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

ELEMENTS, WARPS = 2048, 4
"""Numbers of a tile, and the warps that work on it; both were measured to be best, where nothing else is said."""
PROGRAMS = 1024
"""Blocks of threads of a backward pass at the most; each keeps sums of its own until the end."""
REGISTERS = {} if torch.version.hip else {"maxnreg": 64}
"""Of a thread of GELU's backward pass: with a few more only seven of its blocks fit where eight are launched."""
WIDE = 512
"""Columns of a tile of the feed-forward part: they divide its width, so that no thread has nothing to do."""


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
) -> tuple[Tensor, Tensor | None]:
    """`plain.add_norm` in one kernel."""
    total, width = new.shape
    out, kept = torch.empty_like(new), torch.empty_like(new) if keep else None
    columns, rows = tile(width)
    _add_norm[(triton.cdiv(total, rows),)](
        new, bias, x, weight, shift, noise, out, kept, total, least(p), 1 / (1 - p), eps,
        WIDTH=width, ROWS=rows, COLUMNS=columns, DROP=noise is not None, KEEP=keep, num_warps=WARPS,
    )  # fmt: skip
    return out, kept


def add_norm_backward(
    grad: Tensor, kept: Tensor, weight: Tensor, noise: Tensor | None, p: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """`plain.add_norm_backward` in one kernel, and a small one for the sums."""
    total, width = kept.shape
    dx = torch.empty_like(kept)
    dnew = dx if noise is None else torch.empty_like(kept)
    columns, rows = tile(width)
    programs = max(1, min(PROGRAMS, triton.cdiv(total, rows)))
    # One partial sum per program instead of atomics: they are reduced in a fixed order, so runs agree to the bit.
    sums = torch.empty((programs, 3, width), dtype=torch.float32, device=kept.device)
    _add_norm_backward[(programs,)](
        grad, kept, weight, noise, dx, dnew, sums, total, least(p), 1 / (1 - p), eps,
        WIDTH=width, ROWS=rows, COLUMNS=columns, DROP=noise is not None, num_warps=2,
    )  # fmt: skip
    return dx, dnew, sums.sum(0)


def bias_gelu(x: Tensor, bias: Tensor) -> Tensor:
    """`plain.bias_gelu` in one kernel."""
    total, width = x.shape
    out = torch.empty_like(x)
    columns, rows = tile(min(width, WIDE))
    grid = (triton.cdiv(total, rows), triton.cdiv(width, columns))
    _bias_gelu[grid](x, bias, out, total, WIDTH=width, ROWS=rows, COLUMNS=columns, num_warps=WARPS)
    return out


def bias_gelu_backward(grad: Tensor, x: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """`plain.bias_gelu_backward` in one kernel, and a small one for the sums."""
    total, width = x.shape
    dx = torch.empty_like(x)
    columns, rows = tile(min(width, WIDE))
    across = triton.cdiv(width, columns)
    programs = max(1, min(PROGRAMS // across, triton.cdiv(total, rows)))
    sums = torch.empty((programs, width), dtype=torch.float32, device=x.device)
    _bias_gelu_backward[(programs, across)](
        grad, x, bias, dx, sums, total, WIDTH=width, ROWS=rows, COLUMNS=columns, num_warps=WARPS, **REGISTERS
    )
    return dx, sums.sum(0)


def column_sums(x: Tensor) -> Tensor:
    """The sum of rows, in float32."""
    total, width = x.shape
    columns, rows = tile(min(width, WIDE), 2 * ELEMENTS)
    across = triton.cdiv(width, columns)
    programs = max(1, min(2 * PROGRAMS // across, triton.cdiv(total, rows)))
    sums = torch.empty((programs, width), dtype=torch.float32, device=x.device)
    _column_sums[(programs, across)](x, sums, total, WIDTH=width, ROWS=rows, COLUMNS=columns, num_warps=WARPS)
    return sums.sum(0)


def tile(width: int, elements: int = ELEMENTS) -> tuple[int, int]:
    """Columns and rows of a tile."""
    columns: int = triton.next_power_of_2(width)
    return columns, max(1, elements // columns)


def least(p: float) -> int:
    """The smallest hash that is kept."""
    return int(p * 2**31)


@triton.jit  # type: ignore[misc]
def _stays(places, noise, least):  # type: ignore[no-untyped-def]
    """`plain.stays`: a hash of places: true where a number is kept."""
    # murmur's finaliser on int32. Triton shifts signed integers with their sign, so a mask follows each shift.
    one, two = tl.load(noise), tl.load(noise + 1)
    h = (places ^ one) * -1640531535
    h = (h ^ ((h >> 16) & 0xFFFF)) * -2048144789
    h = (h ^ ((h >> 13) & 0x7FFFF) ^ two) * -1028477387
    h = (h ^ ((h >> 16) & 0xFFFF)) & 0x7FFFFFFF
    return h >= least


@triton.jit  # type: ignore[misc]
def _normalised(x, inside, eps, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """Rows less their mean over their deviation, and one over the deviation."""
    # Two passes over registers (mean, then squares of what is centred), because E[x²] - E[x]² may cancel in float32.
    # Lanes past the width hold 0 in x, but -mean after centring, so they are masked before the second reduction.
    mean = tl.sum(x, 1) / WIDTH
    centred = tl.where(inside, x - mean[:, None], 0.0)
    rate = tl.rsqrt(tl.sum(centred * centred, 1) / WIDTH + eps)
    return centred * rate[:, None], rate


@triton.jit(do_not_specialize=["total", "least"])  # type: ignore[misc]
def _add_norm(  # type: ignore[no-untyped-def]
    new, bias, x, weight, shift, noise, out, kept, total, least, scale, eps,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DROP: tl.constexpr, KEEP: tl.constexpr,
):  # fmt: skip
    # A program owns ROWS whole rows, COLUMNS lanes each (the width up to a power of two), so mean and variance of a
    # row are reductions inside one block. Offsets are int64, because T x D may pass 2 ** 31; the hash wraps in int32.
    rows, columns = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    within = columns < WIDTH
    inside = (rows < total)[:, None] & within[None, :]
    places = rows.to(tl.int64)[:, None] * WIDTH + columns[None, :]
    added = tl.load(new + places, mask=inside, other=0.0).to(tl.float32)
    added += tl.load(bias + columns, mask=within, other=0.0).to(tl.float32)[None, :]
    if DROP:
        added = tl.where(_stays(rows[:, None] * WIDTH + columns[None, :], noise, least), added * scale, 0.0)
    added += tl.load(x + places, mask=inside, other=0.0).to(tl.float32)
    # Rounded to the states' dtype first and normalised from there, so that the backward pass, which reads `kept`, has
    # the same mean and variance. Lanes outside become 0 before the reduction.
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
    WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DROP: tl.constexpr,
):  # fmt: skip
    columns = tl.arange(0, COLUMNS)
    within = columns < WIDTH
    w = tl.load(weight + columns, mask=within, other=0.0).to(tl.float32)[None, :]
    # Partial sums of the three parameter gradients stay in registers, one per row of the tile and column, and are
    # reduced over rows once, at the end. Programs stride over the tokens (a persistent grid), so there are few of them.
    dweight = tl.zeros((ROWS, COLUMNS), tl.float32)
    dshift = tl.zeros((ROWS, COLUMNS), tl.float32)
    dbias = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in tl.range(tl.program_id(0) * ROWS, total, tl.num_programs(0) * ROWS, num_stages=3):
        rows = start + tl.arange(0, ROWS)
        inside = (rows < total)[:, None] & within[None, :]
        places = rows.to(tl.int64)[:, None] * WIDTH + columns[None, :]
        g = tl.load(grad + places, mask=inside, other=0.0).to(tl.float32)
        normal, rate = _normalised(
            tl.load(kept + places, mask=inside, other=0.0).to(tl.float32), inside, eps, WIDTH
        )
        dweight += g * normal
        dshift += g
        # From here on as `plain.add_norm_backward`: take the mean and the direction of the row out of w * g.
        g *= w
        along = tl.sum(g * normal, 1) / WIDTH
        mean = tl.sum(g, 1) / WIDTH
        d = (g - mean[:, None] - normal * along[:, None]) * rate[:, None]
        tl.store(dx + places, d.to(dx.dtype.element_ty), mask=inside)
        # The residual branch gets d itself, the other one d with the mask of the forward pass, hashed again.
        if DROP:
            d = tl.where(_stays(rows[:, None] * WIDTH + columns[None, :], noise, least), d * scale, 0.0)
            tl.store(dnew + places, d.to(dnew.dtype.element_ty), mask=inside)
        dbias += d
    place = sums + tl.program_id(0) * 3 * WIDTH + columns
    tl.store(place, tl.sum(dweight, 0), mask=within)
    tl.store(place + WIDTH, tl.sum(dshift, 0), mask=within)
    tl.store(place + 2 * WIDTH, tl.sum(dbias, 0), mask=within)


@triton.jit  # type: ignore[misc]
def _below(v):  # type: ignore[no-untyped-def]
    """How much of the normal distribution lies below v, to 2e-7.

    The binary logarithm of what lies beyond |v| is nearly a parabola: a polynomial of degree 8, fitted up to 8 and
    falling behind it, leaves one exponential. The library's error function takes longer than the kernels' traffic.
    """
    # Horner's rule: eight fused multiply-adds, then one exp2, the only slow instruction. By symmetry of the normal
    # distribution one side of 0 is enough.
    x = tl.abs(v)
    power = -1.8289217678102432e-06
    power = power * x + 2.7016729291062802e-05
    power = power * x - 0.00012543793127406389
    power = power * x - 0.0002905706060118973
    power = power * x + 0.007277796510607004
    power = power * x - 0.052660275250673294
    power = power * x - 0.4591439664363861
    power = power * x - 1.1511160135269165
    power = power * x - 0.9999995231628418
    beyond = tl.exp2(power)
    return tl.where(v >= 0, 1.0 - beyond, beyond)


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
    tl.store(out + places, (v * _below(v)).to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["total"])  # type: ignore[misc]
def _bias_gelu_backward(  # type: ignore[no-untyped-def]
    grad, x, bias, dx, sums, total, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    within = columns < WIDTH
    b = tl.load(bias + columns, mask=within, other=0.0).to(tl.float32)[None, :]
    # The second axis of the grid fixes the columns of a program, so its bias is loaded once and its bias gradient is
    # summed in registers while it strides over rows. GELU needs no reduction over a row: tiles may cut it.
    dbias = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(tl.program_id(0) * ROWS, total, tl.num_programs(0) * ROWS):
        rows = start + tl.arange(0, ROWS)
        inside = (rows < total)[:, None] & within[None, :]
        places = rows.to(tl.int64)[:, None] * WIDTH + columns[None, :]
        v = tl.load(x + places, mask=inside, other=0.0).to(tl.float32) + b
        g = tl.load(grad + places, mask=inside, other=0.0).to(tl.float32)
        # exp(-v²/2) as a power of two (-log2(e) / 2), and 1 / sqrt(2 pi): Phi(v) + v phi(v)
        bell = tl.exp2(v * v * -0.7213475204444817)
        d = g * (_below(v) + v * bell * 0.3989422804014327)
        tl.store(dx + places, d.to(dx.dtype.element_ty), mask=inside)
        dbias += d
    tl.store(sums + tl.program_id(0) * WIDTH + columns, tl.sum(dbias, 0), mask=within)


@triton.jit(do_not_specialize=["total"])  # type: ignore[misc]
def _column_sums(  # type: ignore[no-untyped-def]
    x, sums, total, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    within = columns < WIDTH
    # Rows of the tile are summed apart and reduced once at the end; num_stages keeps three loads in flight.
    added = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in tl.range(tl.program_id(0) * ROWS, total, tl.num_programs(0) * ROWS, num_stages=3):
        rows = start + tl.arange(0, ROWS)
        inside = (rows < total)[:, None] & within[None, :]
        places = rows.to(tl.int64)[:, None] * WIDTH + columns[None, :]
        added += tl.load(x + places, mask=inside, other=0.0).to(tl.float32)
    tl.store(sums + tl.program_id(0) * WIDTH + columns, tl.sum(added, 0), mask=within)
