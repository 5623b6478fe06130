"""Cross entropy of a decoder matrix on CUDA: what `losses.mlm` computes, with the least traffic of logits there can be.

The product writes the logits in half precision. One kernel reads them once: log-sum-exp, the label's logit, and whether
the label is predicted. In the backward pass one kernel reads them, writes their gradient in their place and sums its
columns on the way. The bias is added in float32 and padded with -inf, so that padded columns have no share and no
gradient. Sums are made in a fixed order, so results do not vary from run to run. Cost: one M x V tensor, in half
precision. Imported only where Triton is, that is on CUDA.

M masked positions, D width, V vocabulary, P vocabulary padded to whole tiles of the matrix units.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from liebig.model.kernels.lean import product

TILE = 64
"""The vocabulary is padded to a multiple of this."""
ROWS, COLUMNS, WARPS = 1, 1024, 2
"""Rows of a forward program, the columns it reads at a time (a power of two), and its warps."""
BACKWARD_ROWS, BACKWARD_COLUMNS, BACKWARD_WARPS = 2, 2048, 8
"""The same of a backward program, which keeps its columns and goes through rows."""
PROGRAMS = 1024
"""Backward programs at the most; each keeps sums of its columns until the end."""


class LinearCrossEntropy(Function):
    """Summed cross entropy of states Wᵀ + b, and how many labels have the first highest logit.

    Products have the states' dtype. A label outside the vocabulary makes the loss NaN or infinite.
    """

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor
    ) -> tuple[Tensor, Tensor]:
        half, wide = padded(weight, bias, states.dtype)
        logits = states @ half.t()
        lse, losses, correct = reduced(logits, wide, labels)
        ctx.save_for_backward(states, half, wide, labels, lse)
        ctx.logits, ctx.size, ctx.dtype = logits, len(weight), weight.dtype
        ctx.set_materialize_grads(False)
        hits = correct.sum()
        ctx.mark_non_differentiable(hits)
        return losses.sum(), hits

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Tensor | None, _: Any) -> tuple[Tensor | None, ...]:
        if grad is None:
            return None, None, None, None
        assert ctx.logits is not None, "differentiated a second time: the gradient took the logits' place"
        states, half, wide, labels, lse = ctx.saved_tensors
        delta, ctx.logits = ctx.logits, None
        sums = differentiate(delta, wide, labels, lse, grad)
        to_states, to_weight, to_bias, _ = ctx.needs_input_grad
        dstates = delta @ half if to_states else None
        dweight = product(delta.t(), states, torch.float32)[: ctx.size].to(ctx.dtype) if to_weight else None
        return dstates, dweight, sums[: ctx.size].to(ctx.dtype) if to_bias else None, None


def padded(weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The weight in `dtype` with rows of zeros, P x D, and the bias in float32 with -inf behind it, P."""
    size, width = weight.shape
    extra = -size % TILE
    half = torch.empty((size + extra, width), dtype=dtype, device=weight.device)
    half[:size] = weight
    half[size:] = 0
    wide = weight.new_zeros(size, dtype=torch.float32) if bias is None else bias.float()
    return half, F.pad(wide, (0, extra), value=float("-inf"))


def reduced(logits: Tensor, bias: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of each row: log-sum-exp, cross entropy, and 1 where the label is its first highest column."""
    total, width = logits.shape
    lse, losses = (torch.empty(total, dtype=torch.float32, device=logits.device) for _ in range(2))
    correct = torch.empty(total, dtype=torch.int32, device=logits.device)
    _forward[(triton.cdiv(total, ROWS),)](
        logits, bias, labels.contiguous(), lse, losses, correct, total,
        WIDTH=width, ROWS=ROWS, COLUMNS=COLUMNS, num_warps=WARPS,
    )  # fmt: skip
    return lse, losses, correct


def differentiate(logits: Tensor, bias: Tensor, labels: Tensor, lse: Tensor, grad: Tensor) -> Tensor:
    """Overwrite logits by their gradient, and return its column sums in float32, P."""
    total, width = logits.shape
    across = triton.cdiv(width, BACKWARD_COLUMNS)
    programs = max(1, min(PROGRAMS // across, triton.cdiv(total, BACKWARD_ROWS)))
    sums = torch.empty((programs, width), dtype=torch.float32, device=logits.device)
    _backward[(programs, across)](
        logits, bias, labels.contiguous(), lse, grad, sums, total,
        WIDTH=width, ROWS=BACKWARD_ROWS, COLUMNS=BACKWARD_COLUMNS, num_warps=BACKWARD_WARPS,
    )  # fmt: skip
    return sums.sum(0)


@triton.jit  # type: ignore[misc]
def _load(logits, bias, starts, columns, inside, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """Logits with their bias, -inf outside."""
    x = tl.load(logits + starts[:, None] + columns, mask=inside, other=float("-inf")).to(tl.float32)
    return x + tl.load(bias + columns, mask=columns < WIDTH, other=float("-inf"))


@triton.jit(do_not_specialize=["total"])  # type: ignore[misc]
def _forward(  # type: ignore[no-untyped-def]
    logits, bias, labels, lse, losses, correct, total,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    # A program goes through the vocabulary of its rows, COLUMNS at a time: an online softmax, but with a sum per lane,
    # which is reduced once at the end instead of in every turn.
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    real = rows < total
    starts = rows.to(tl.int64) * WIDTH
    label = tl.load(labels + rows, mask=real, other=0)
    known = real & (label >= 0) & (label < WIDTH)
    label = tl.where(known, label, 0)
    own = tl.load(logits + starts + label, mask=known, other=0.0).to(tl.float32)
    own = tl.where(known, own + tl.load(bias + label, mask=known, other=0.0), float("nan"))
    # Finite, because a difference of two infinities is none: a tile of a bias may be -inf throughout.
    highest = tl.full((ROWS,), -3.0e38, tl.float32)
    before = highest
    sums = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, WIDTH, COLUMNS):
        columns = start + tl.arange(0, COLUMNS)[None, :]
        x = _load(logits, bias, starts, columns, real[:, None] & (columns < WIDTH), WIDTH)
        new = tl.maximum(highest, tl.max(x, 1))
        # Sums so far were relative to the old maximum: rescale them to the new one.
        sums = sums * tl.exp(highest - new)[:, None] + tl.exp(x - new[:, None])
        highest = new
        before = tl.where(label >= start + COLUMNS, highest, before)
    # Ties go to the first column. Whole tiles before the label's are in `before`; its own tile is read once more,
    # which is cheaper than a comparison of every logit.
    columns = (label // COLUMNS * COLUMNS)[:, None] + tl.arange(0, COLUMNS)[None, :]
    earlier = known[:, None] & (columns < label[:, None])
    rival = tl.max(_load(logits, bias, starts, columns, earlier, WIDTH), 1)
    first = (own == highest) & (before < own) & (rival < own)
    power = tl.log(tl.sum(sums, 1))
    tl.store(lse + rows, highest + power, mask=real)
    tl.store(losses + rows, (highest - own) + power, mask=real)
    tl.store(correct + rows, first.to(tl.int32), mask=real)


@triton.jit(do_not_specialize=["total"])  # type: ignore[misc]
def _backward(  # type: ignore[no-untyped-def]
    logits, bias, labels, lse, grad, sums, total,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    # A program keeps COLUMNS of the vocabulary and strides over rows, so that the bias gradient of these columns is
    # summed in registers.
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    within = columns < WIDTH
    b = tl.load(bias + columns, mask=within, other=float("-inf"))[None, :]
    scale = tl.load(grad).to(tl.float32)
    dbias = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(tl.program_id(0) * ROWS, total, tl.num_programs(0) * ROWS):
        rows = start + tl.arange(0, ROWS)
        real = rows < total
        inside = real[:, None] & within[None, :]
        places = logits + rows.to(tl.int64)[:, None] * WIDTH + columns[None, :]
        x = tl.load(places, mask=inside, other=float("-inf")).to(tl.float32) + b
        # softmax(x) - onehot(label), written over the logits it was made of
        share = tl.exp(x - tl.load(lse + rows, mask=real, other=0.0)[:, None])
        label = tl.load(labels + rows, mask=real, other=-1).to(tl.int32)
        delta = tl.where(columns[None, :] == label[:, None], share - 1.0, share) * scale
        tl.store(places, delta.to(logits.dtype.element_ty), mask=inside)
        dbias += delta
    tl.store(sums + tl.program_id(0) * WIDTH + columns, tl.sum(dbias, 0), mask=within)
