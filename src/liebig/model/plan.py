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
    real: Tensor | None  # b x L, True where a slot holds a token; None without padding

    @property
    def slots(self) -> int:
        return len(self.sequences) * self.length


@dataclass(frozen=True, eq=False)
class Plan:
    """All buckets of a row, the way into their slots and the way back."""

    buckets: tuple[Bucket, ...]
    rows: (
        Tensor  # row index of every slot, bucket by bucket; a padding slot repeats its sequence's first token
    )
    back: Tensor  # T, index of each token among the slots

    def gather(self, x_T: Tensor) -> list[Tensor]:
        """The row as one b x L x ... part per bucket; one gather, so that its gradient is one scatter."""
        slots = x_T.index_select(0, self.rows).split([bucket.slots for bucket in self.buckets])
        return [
            part.view(-1, bucket.length, *x_T.shape[1:])
            for part, bucket in zip(slots, self.buckets, strict=True)
        ]

    def scatter(self, parts: list[Tensor]) -> Tensor:
        """The row again from such parts."""
        slots = torch.cat([part.reshape(-1, *part.shape[2:]) for part in parts])
        return slots.index_select(0, self.back)


def make_plan(bounds: NDArray[np.int64], device: torch.device) -> Plan:
    """Buckets for the row whose sequences begin and end at `bounds` (B+1), as indices on `device`."""
    lengths = np.diff(bounds)
    back = np.empty(int(bounds[-1]), dtype=np.int64)
    buckets: list[Bucket] = []
    rows: list[NDArray[np.int64]] = []
    start = 0
    for sequences in _groups(lengths):
        longest = int(lengths[sequences].max())
        place = np.arange(longest)
        real = place[None, :] < lengths[sequences, None]
        rows.append(bounds[sequences, None] + np.where(real, place[None, :], 0))
        slots = start + np.arange(real.size).reshape(real.shape)
        back[rows[-1][real]] = slots[real]
        start += real.size
        buckets.append(Bucket(sequences, longest, None if real.all() else torch.from_numpy(real).to(device)))
    flat = np.concatenate([part.reshape(-1) for part in rows]) if rows else np.empty(0, np.int64)
    return Plan(tuple(buckets), torch.from_numpy(flat).to(device), torch.from_numpy(back).to(device))


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
