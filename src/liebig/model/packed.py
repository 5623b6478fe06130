"""A batch as one row of tokens: no padding anywhere.

`tokens` holds the sequences one after the other, `offsets` where each begins (and where the last one ends);
positions and the sequence of each token follow from the offsets. A copy of the offsets stays on the host, so
that slicing and planning never wait for the device. Cost: 8 bytes per token and 12 per sequence.

Where no variable-length kernel exists, sequences are padded together: sorted by length and cut into buckets whose
padding stays under a fifth of their tokens, so a row of very different lengths wastes little. Such a plan is index
arithmetic on the host, made once per row and device.

T packed tokens, B sequences, b sequences of a bucket, L its longest length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from liebig.ragged import Ragged

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
class BucketPlan:
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


def make_plan(bounds: NDArray[np.int64], device: torch.device) -> BucketPlan:
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
    return BucketPlan(tuple(buckets), torch.from_numpy(flat).to(device), torch.from_numpy(back).to(device))


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


@dataclass(frozen=True, eq=False)
class Packed:
    """B sequences of at least one token each, as one row of T tokens."""

    tokens: Tensor  # T, int64
    offsets: Tensor  # B+1, int32: sequence b is tokens[offsets[b]:offsets[b+1]]
    max_length: int
    segments: Tensor | None = None  # T, int64: token type of each token; None means 0 everywhere
    host_offsets: NDArray[np.int64] | None = None  # the same offsets in host memory

    @classmethod
    def from_ragged(cls, sequences: Ragged, segments: NDArray[Any] | None = None) -> Packed:
        """Copies the arrays; every sequence must hold at least one token."""
        tokens, bounds = sequences.values, np.array(sequences.offsets, dtype=np.int64)
        lengths = np.diff(bounds)
        assert len(bounds), "offsets are empty"
        assert bounds[0] == 0, "offsets do not begin at 0"
        assert bounds[-1] == len(tokens), "offsets do not end with the row"
        assert (lengths > 0).all(), "a sequence is empty"
        return cls(
            tokens=torch.from_numpy(np.array(tokens, dtype=np.int64)),
            offsets=torch.from_numpy(bounds.astype(np.int32)),
            max_length=int(lengths.max(initial=0)),
            segments=None if segments is None else torch.from_numpy(np.array(segments, dtype=np.int64)),
            host_offsets=bounds,
        )

    @classmethod
    def from_lists(
        cls, sequences: Sequence[Sequence[int]], segments: Sequence[Sequence[int]] | None = None
    ) -> Packed:
        """One row of the given token lists, in their order."""
        kinds = None if segments is None else Ragged.from_lists(segments).values
        return cls.from_ragged(Ragged.from_lists(sequences), kinds)

    @classmethod
    def join(cls, parts: Sequence[Packed]) -> Packed:
        """The sequences of all parts in one row, in order; all parts must be on one device."""
        assert parts, "nothing to join"
        starts = np.cumsum([0] + [part.total for part in parts])
        bounds = np.concatenate([[0], *(part.bounds[1:] + start for part, start in zip(parts, starts))])
        some = any(part.segments is not None for part in parts)
        offsets = [part.offsets[1:] + int(start) for part, start in zip(parts, starts)]
        return cls(
            tokens=torch.cat([part.tokens for part in parts]),
            offsets=torch.cat([parts[0].offsets[:1], *offsets]),
            max_length=max(part.max_length for part in parts),
            segments=torch.cat([part.segment_ids for part in parts]) if some else None,
            host_offsets=bounds.astype(np.int64),
        )

    def __len__(self) -> int:
        return int(self.offsets.shape[0]) - 1

    def __repr__(self) -> str:
        return f"Packed({len(self)} sequences, {self.total} tokens, longest {self.max_length})"

    @property
    def total(self) -> int:
        return int(self.tokens.shape[0])

    @property
    def device(self) -> torch.device:
        return self.tokens.device

    @cached_property
    def bounds(self) -> NDArray[np.int64]:
        """The offsets in host memory (waits for the device only if they were never there)."""
        if self.host_offsets is not None:
            return self.host_offsets
        return np.asarray(self.offsets.cpu().numpy(), dtype=np.int64)

    @cached_property
    def lengths(self) -> Tensor:
        """Tokens of each sequence, B."""
        return (self.offsets[1:] - self.offsets[:-1]).long()

    @cached_property
    def firsts(self) -> Tensor:
        """Row index of the first token (CLS) of each sequence, B."""
        return self.offsets[:-1].long()

    @cached_property
    def sequence(self) -> Tensor:
        row = torch.arange(self.total, device=self.device, dtype=self.offsets.dtype)
        return torch.bucketize(row, self.offsets[1:], right=True)

    @cached_property
    def positions(self) -> Tensor:
        """Position of each token in its sequence, from 0, T."""
        return torch.arange(self.total, device=self.device) - self.firsts[self.sequence]

    @cached_property
    def segment_ids(self) -> Tensor:
        """Token types, zeros where none were given, T."""
        return torch.zeros_like(self.tokens) if self.segments is None else self.segments

    @cached_property
    def plan(self) -> BucketPlan:
        """How sequences are padded together where attention has no variable-length kernel."""
        return make_plan(self.bounds, self.device)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Packed:
        """The same row on another device; the host copy of the offsets comes along."""
        return Packed(
            tokens=self.tokens.to(device, non_blocking=non_blocking),
            offsets=self.offsets.to(device, non_blocking=non_blocking),
            max_length=self.max_length,
            segments=None if self.segments is None else self.segments.to(device, non_blocking=non_blocking),
            host_offsets=self.bounds,
        )

    def pin(self) -> Packed:
        """The same row in page-locked memory, so that `to(..., non_blocking=True)` overlaps with work."""
        return Packed(
            tokens=self.tokens.pin_memory(),
            offsets=self.offsets.pin_memory(),
            max_length=self.max_length,
            segments=None if self.segments is None else self.segments.pin_memory(),
            host_offsets=self.bounds,
        )

    def slice(self, a: int, b: int) -> Packed:
        """Sequences a … b-1 as a row of their own."""
        bounds = self.bounds[a : b + 1]
        start, end = int(bounds[0]), int(bounds[-1])
        return Packed(
            tokens=self.tokens[start:end],
            offsets=self.offsets[a : b + 1] - start,
            max_length=int(np.diff(bounds).max(initial=0)),
            segments=None if self.segments is None else self.segments[start:end],
            host_offsets=bounds - start,
        )
