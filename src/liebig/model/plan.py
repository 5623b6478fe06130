"""Which sequences of a packed row are padded together where no variable-length kernel exists.

Sequences are sorted by length and cut into buckets whose padding stays under a fifth of their tokens, so a row
of very different lengths wastes little. A plan is index arithmetic on the host, made once per row and device.

T packed tokens, b sequences of a bucket, L its longest length.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

MOST_PADDING = 0.2  # share of a bucket's slots that may be padding


@dataclass(frozen=True, eq=False)
class Bucket:
    """b sequences as one rectangle of b x L slots."""

    sequences: NDArray[np.int64]  # b, numbers of the sequences
    length: int  # L
    rows: Tensor  # b*L, row index of each slot; a padding slot repeats its sequence's first token
    real: Tensor | None  # b x L, True where a slot holds a token; None without padding

    def gather(self, x_T: Tensor) -> Tensor:
        """The bucket's part of a row as b x L x ..."""
        return x_T.index_select(0, self.rows).view(len(self.sequences), self.length, *x_T.shape[1:])


@dataclass(frozen=True, eq=False)
class Plan:
    """All buckets of a row, and the way back from their slots to the row."""

    buckets: tuple[Bucket, ...]
    back: Tensor  # T, index of each token among the slots of all buckets, in order

    def scatter(self, parts: list[Tensor]) -> Tensor:
        """The row again from one b x L x ... part per bucket."""
        slots = torch.cat([part.reshape(-1, *part.shape[2:]) for part in parts])
        return slots.index_select(0, self.back)


def make_plan(bounds: NDArray[np.int64], device: torch.device) -> Plan:
    """Buckets for the row whose sequences begin and end at `bounds` (B+1), as indices on `device`."""
    lengths = np.diff(bounds)
    back = np.empty(int(bounds[-1]), dtype=np.int64)
    buckets = []
    start = 0
    for sequences in _groups(lengths):
        longest = int(lengths[sequences].max())
        place = np.arange(longest)
        real = place[None, :] < lengths[sequences, None]
        rows = bounds[sequences, None] + np.where(real, place[None, :], 0)
        slots = start + np.arange(real.size).reshape(real.shape)
        back[rows[real]] = slots[real]
        start += real.size
        buckets.append(_bucket(sequences, longest, rows, real, device))
    return Plan(tuple(buckets), torch.from_numpy(back).to(device))


def _groups(lengths: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Sequence numbers by bucket, longest first; equal lengths keep their order."""
    order = np.argsort(-lengths, kind="stable")
    groups: list[NDArray[np.int64]] = []
    first, tokens = 0, 0
    for i, sequence in enumerate(order):
        tokens += int(lengths[sequence])
        slots = int(lengths[order[first]]) * (i + 1 - first)
        if slots - tokens > MOST_PADDING * slots:
            groups.append(order[first:i])
            first, tokens = i, int(lengths[sequence])
    if len(order):
        groups.append(order[first:])
    return groups


def _bucket(
    sequences: NDArray[np.int64],
    length: int,
    rows: NDArray[np.int64],
    real: NDArray[np.bool_],
    device: torch.device,
) -> Bucket:
    mask = None if bool(real.all()) else torch.from_numpy(real).to(device)
    return Bucket(sequences, length, torch.from_numpy(rows.reshape(-1)).to(device), mask)
