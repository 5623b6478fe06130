"""Rows of unequal length as one flat array: row i is `values[offsets[i]:offsets[i + 1]]`.

Tokens of texts, partners of queries, ids as UTF-8: whatever has rows of unequal length is a `Ragged`. Rows are copied
by one compiled kernel (`gather`), whether they are picked, cut and wrapped in special tokens, or put together from
several ranges. Cost: about 1 ns per value and 50 ns per row; no Python object per row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from liebig.base.compiled import njit
from liebig.base.errors import AGAIN, CorruptError

Longs = NDArray[np.int64]


def offsets_of(lengths: ArrayLike) -> Longs:
    """The offsets of rows of these lengths: one more number than there are rows, the first is 0."""
    lengths = np.asarray(lengths, np.int64)
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def ranges(starts: Longs, lengths: Longs) -> Longs:
    """The numbers start, start + 1, …, `length` of them, for each start in turn."""
    before = np.cumsum(lengths) - lengths
    return np.arange(lengths.sum()) + np.repeat(starts - before, lengths)


def split_by_budget(lengths: Longs, budget: int) -> list[Longs]:
    """Numbers of rows, longest first, in groups of at most `budget` values (or one row)."""
    order = np.argsort(-lengths, kind="stable")
    ends = np.cumsum(lengths[order])
    groups, start = [], 0
    while start < len(order):
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + budget, side="right")))
        groups.append(order[start:stop])
        start = stop
    return groups


@dataclass(frozen=True, slots=True, eq=False)
class Ragged:
    """Rows of numbers. A row is a view, not a copy; the arrays may be mapped files."""

    values: NDArray[Any]
    offsets: Longs  # N+1

    @classmethod
    def from_lists(cls, rows: Iterable[Sequence[int]], dtype: DTypeLike = np.int64) -> Ragged:
        """Copy Python lists, or anything else with numbers and a length."""
        rows = list(rows)
        offsets = offsets_of([len(row) for row in rows])
        return cls(np.fromiter(chain.from_iterable(rows), dtype, int(offsets[-1])), offsets)

    @classmethod
    def concatenate(cls, parts: Iterable[Ragged], dtype: DTypeLike = np.int64) -> Ragged:
        """The rows of all parts, in order; `dtype` is that of the values."""
        parts = list(parts)
        values = [np.zeros(0, dtype), *(part.values.astype(dtype, copy=False) for part in parts)]
        return cls(
            np.concatenate(values), offsets_of(np.concatenate([_NOTHING, *(p.lengths for p in parts)]))
        )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> NDArray[Any]:
        i = range(len(self))[i]
        return self.values[self.offsets[i] : self.offsets[i + 1]]

    def __iter__(self) -> Iterator[NDArray[Any]]:
        return (self.values[start:end] for start, end in pairwise(self.offsets.tolist()))

    def __repr__(self) -> str:
        return f"Ragged({len(self):,} rows, {int(self.offsets[-1]):,} values of {self.values.dtype})"

    @property
    def lengths(self) -> Longs:
        """How many values each row has."""
        return np.diff(self.offsets)

    def to_lists(self) -> list[list[Any]]:
        """The rows as Python lists."""
        return [row.tolist() for row in self]

    def take(self, rows: Longs) -> Ragged:
        """Some of the rows, in the order given."""
        return gather(
            self.values, _spans(self.offsets[rows], self.offsets[rows + 1]), dtype=self.values.dtype
        )

    def wrap(self, before: Sequence[int], after: Sequence[int], length: int) -> Ragged:
        """Every row between the same values, cut so that it has at most `length` with them."""
        room = length - len(before) - len(after)
        assert room >= 0, "there must be room for what is put around a row"
        ends = np.minimum(self.offsets[1:], self.offsets[:-1] + room)
        return gather(self.values, _spans(self.offsets[:-1], ends), before, after, self.values.dtype)


@dataclass(frozen=True, slots=True)
class Strings:
    """Strings as rows of UTF-8, often mapped from a file, so that millions of ids take no memory."""

    utf8: Ragged
    file: Path | None = None

    @classmethod
    def pack(cls, strings: Iterable[str]) -> Strings:
        """Copy strings. The bytes are read-only, as those of a file are, so kernels are compiled once for both."""
        pieces = [string.encode("utf-8", "surrogatepass") for string in strings]
        return cls(Ragged(np.frombuffer(b"".join(pieces), np.uint8), offsets_of([len(p) for p in pieces])))

    def __len__(self) -> int:
        return len(self.utf8)

    def __getitem__(self, i: int) -> str:
        return self._text(self.utf8[i].tobytes())

    def __iter__(self) -> Iterator[str]:
        return (self[i] for i in range(len(self)))

    def to_list(self) -> list[str]:
        """Every string, in memory; quicker than one by one."""
        row = self.utf8.values.tobytes()
        return [self._text(row[a:b]) for a, b in pairwise(self.utf8.offsets.tolist())]

    def _text(self, utf8: bytes) -> str:
        try:
            return utf8.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            raise CorruptError("is not UTF-8", file=self.file, fix=AGAIN) from None


_NOTHING = np.zeros(0, np.int64)


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """The array as one of a file is seen, so that a kernel is compiled once for those in memory and those on disk."""
    seen = array.view()
    seen.flags.writeable = False
    return seen


def _spans(starts: Longs, ends: Longs) -> Longs:
    return np.stack((starts, ends), axis=1)[:, None]


def gather(
    values: NDArray[Any],
    spans: Longs,
    before: Sequence[int] | NDArray[Any] = (),
    after: Sequence[int] | NDArray[Any] = (),
    dtype: DTypeLike = np.int64,
) -> Ragged:
    """Rows made of ranges: row b is `before`, then values[start:end] for each (start, end) of spans[b], then `after`.

    `spans` is [row, part, (start, end)]; a part may be empty.
    """
    lengths = (spans[:, :, 1] - spans[:, :, 0]).sum(axis=1) + len(before) + len(after)
    made = Ragged(np.empty(int(lengths.sum()), dtype), offsets_of(lengths))
    _copy(
        read_only(values),
        spans,
        np.asarray(before, np.int64),
        np.asarray(after, np.int64),
        made.offsets,
        made.values,
    )
    return made


def _copy_numpy(values: Any, spans: Any, before: Any, after: Any, offsets: Any, out: Any) -> None:
    lengths = spans[:, :, 1] - spans[:, :, 0]
    starts = offsets[:-1, None] + len(before) + np.cumsum(lengths, axis=1) - lengths
    out[ranges(starts.reshape(-1), lengths.reshape(-1))] = values[
        ranges(spans[:, :, 0].reshape(-1), lengths.reshape(-1))
    ]
    out[offsets[:-1, None] + np.arange(len(before))] = before
    out[offsets[1:, None] - len(after) + np.arange(len(after))] = after


@njit(nogil=True, cache=True, numpy=_copy_numpy)
def _copy(values: Any, spans: Any, before: Any, after: Any, offsets: Any, out: Any) -> None:
    for b in range(len(spans)):
        at = offsets[b]
        for i in range(len(before)):
            out[at + i] = before[i]
        at += len(before)
        for p in range(spans.shape[1]):
            start = spans[b, p, 0]
            n = spans[b, p, 1] - start
            for i in range(n):
                out[at + i] = values[start + i]
            at += n
        for i in range(len(after)):
            out[at + i] = after[i]
