"""The best rough score of every group of vectors, in one kernel: scores never leave the chip.

A block of threads makes a tile of scores in registers, queries by vectors, takes the maximum of every `group`
neighbours and writes only those. Blocks that share vectors run together, so each vector is read from memory once.
Imported only where Triton is, that is on CUDA.

Q queries, N vectors, G groups, D width.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


def group_maxima(queries_QD: Tensor, vectors_ND: Tensor, alive_N: Tensor | None, group: int) -> Tensor:
    """Maxima of queries @ vectors.T over `group` neighbours (a power of two), Q x G in fp16; the last may be short."""
    queries, width = queries_QD.shape
    count = len(vectors_ND)
    out = torch.empty(queries, -(-count // group), dtype=torch.float16, device=queries_QD.device)
    rows, columns, warps, stages = shape(queries)
    across = triton.cdiv(queries, rows)
    grid = (across * triton.cdiv(count, columns),)  # one axis: the others end at 65,535 blocks
    _maxima[grid](
        queries_QD,
        vectors_ND,
        vectors_ND if alive_N is None else alive_N,
        out,
        queries,
        count,
        out.shape[1],
        across,
        WIDTH=width,
        ROWS=rows,
        COLUMNS=columns,
        STEP=64,
        GROUP=group,
        SOME_GONE=alive_N is not None,
        num_warps=warps,
        num_stages=stages,
    )
    return out


def shape(queries: int) -> tuple[int, int, int, int]:
    """Queries and vectors of a tile, warps, stages of loading, within 100 KB of shared memory (Ampere has it)."""
    if queries <= 32:
        return 16 if queries <= 16 else 32, 128, 4, 4
    if queries <= 64:
        return 64, 256, 8, 3
    return 128, 256, 8, 3


@triton.jit  # type: ignore[misc]
def _maxima(  # type: ignore[no-untyped-def]
    queries,
    vectors,
    alive,
    out,
    n_queries,
    n_vectors,
    n_groups,
    across,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    STEP: tl.constexpr,
    GROUP: tl.constexpr,
    SOME_GONE: tl.constexpr,
):
    # Programs with the same vectors (`down`) are neighbours: the vectors they share are in the second cache.
    down = tl.program_id(0) // across
    row = (tl.program_id(0) % across) * ROWS + tl.arange(0, ROWS)
    column = down * COLUMNS + tl.arange(0, COLUMNS)
    # rows past the end are read from the last one and thrown away, which needs no mask inside the loop
    a_place = queries + tl.minimum(row, n_queries - 1)[:, None] * WIDTH
    b_place = vectors + tl.minimum(column, n_vectors - 1).to(tl.int64)[:, None] * WIDTH
    # A plain tiled product over the width, STEP columns at a time, with float32 sums in registers.
    scores = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for start in range(0, WIDTH, STEP):
        k = start + tl.arange(0, STEP)
        if WIDTH % STEP == 0:
            a = tl.load(a_place + k[None, :])
            b = tl.load(b_place + k[None, :])
        else:
            a = tl.load(a_place + k[None, :], mask=k[None, :] < WIDTH, other=0.0)
            b = tl.load(b_place + k[None, :], mask=k[None, :] < WIDTH, other=0.0)
        scores = tl.dot(a, tl.trans(b), scores)
    there = column < n_vectors
    if SOME_GONE:
        there = there & (tl.load(alive + tl.minimum(column, n_vectors - 1)) != 0)
    scores = tl.where(there[None, :], scores, float("-inf"))
    # A vector that is deleted or past the end cannot be a maximum. GROUP neighbouring lanes are reduced to one.
    best = tl.max(tl.reshape(scores, (ROWS, COLUMNS // GROUP, GROUP)), axis=2)
    group = down * (COLUMNS // GROUP) + tl.arange(0, COLUMNS // GROUP)
    place = out + row.to(tl.int64)[:, None] * n_groups + group[None, :]
    inside = (row[:, None] < n_queries) & (group[None, :] < n_groups)
    tl.store(place, best.to(tl.float16), mask=inside)
