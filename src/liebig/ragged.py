"""Many lists of tokens as one row, and where each begins: cut, wrapped and picked without a loop over them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Longs = NDArray[np.int64]
Rows = tuple[NDArray[np.int32], Longs]
"""A row and its offsets: list i is row[offsets[i]:offsets[i + 1]]."""
SHORT = 100  # tokens a list


def counted(starts: Longs, sizes: Longs) -> Longs:
    """The numbers from each start, so many of each, one after the other."""
    before = np.cumsum(sizes) - sizes
    return np.arange(sizes.sum()) + np.repeat(starts - before, sizes)


def bounds(sizes: Longs) -> Longs:
    """The offsets of lists of these sizes."""
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))


def picked(rows: Rows, numbers: Longs) -> Rows:
    """Some of the lists, in the order given: numbers for short ones, slices for long ones, which copy sooner."""
    row, offsets = rows
    starts, ends = offsets[numbers], offsets[numbers + 1]
    made = bounds(ends - starts)
    if made[-1] <= SHORT * len(numbers):
        return row[counted(starts, ends - starts)], made
    return np.concatenate([row[a:b] for a, b in zip(starts.tolist(), ends.tolist())]), made


def lists(rows: Rows) -> list[list[int]]:
    """The lists themselves."""
    row, offsets = rows
    return [row[start:end].tolist() for start, end in pairwise(offsets.tolist())]


def wrapped(rows: Rows, length: int, before: Sequence[int], after: Sequence[int]) -> Rows:
    """Every list between the same tokens, cut so that it has at most `length` with them."""
    row, offsets = rows
    kept = np.minimum(np.diff(offsets), length - len(before) - len(after))
    made = bounds(kept + len(before) + len(after))
    out = np.empty(made[-1], np.int32)
    for place, token in enumerate(before):
        out[made[:-1] + place] = token
    for place, token in enumerate(reversed(after), 1):
        out[made[1:] - place] = token
    out[counted(made[:-1] + len(before), kept)] = row[counted(offsets[:-1], kept)]
    return out, made


Ids = NDArray[Any]  # uint16 or uint32, by the size of the vocabulary
Offsets = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Ragged:
    """Rows of tokens of any length: row i is a view, not a copy."""

    values: Ids
    offsets: Offsets

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> Ids:
        i = range(len(self))[i]
        return self.values[self.offsets[i] : self.offsets[i + 1]]


@dataclass(frozen=True, slots=True)
class Strings:
    """Strings as one mapped array of UTF-8, so that millions of ids take no memory."""

    values: NDArray[np.uint8]
    offsets: Offsets

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> str:
        i = range(len(self))[i]
        return self.values[self.offsets[i] : self.offsets[i + 1]].tobytes().decode("utf-8", "surrogatepass")

    def __iter__(self) -> Iterator[str]:
        return (self[i] for i in range(len(self)))
