"""A batch: packed sequences on one or more sides, with their examples.

A side is a packed row with the example that owns each of its sequences; an example is never cut, so a slice of
a batch holds whole examples. Slicing is index arithmetic in host memory and copies no tokens.

n examples, B sequences, T packed tokens, M masked positions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from liebig.model.packed import Packed


@dataclass(frozen=True, eq=False)
class Side:
    """Sequences of one kind (spans, queries, passages), the example of each, and their masked positions."""

    packed: Packed
    owner: Tensor  # B, int64, non-decreasing: the example of each sequence
    targets: Tensor | None = None  # M, int64: masked positions, as indexes into the packed row
    labels: Tensor | None = None  # M, int64: the tokens that stood there

    def slice(self, a: int, b: int) -> Side:
        """The sequences of examples a … b-1; everything counts from their start."""
        first, last = np.searchsorted(self.owner.numpy(), (a, b)).tolist()
        start, end = int(self.packed.bounds[first]), int(self.packed.bounds[last])
        targets, labels = self.targets, self.labels
        if targets is not None:
            inside = (targets >= start) & (targets < end)
            labels = None if labels is None else labels[inside]
            targets = targets[inside] - start
        return Side(self.packed.slice(first, last), self.owner[first:last] - a, targets, labels)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Side:
        """The same on another device."""
        return Side(
            self.packed.to(device, non_blocking),
            self.owner.to(device, non_blocking=non_blocking),
            *(None if x is None else x.to(device, non_blocking=non_blocking) for x in self._masked()),
        )

    def pin(self) -> Side:
        """The same in page-locked memory."""
        masked = (None if x is None else x.pin_memory() for x in self._masked())
        return Side(self.packed.pin(), self.owner.pin_memory(), *masked)

    def _masked(self) -> tuple[Tensor | None, Tensor | None]:
        return self.targets, self.labels


@dataclass(frozen=True, eq=False)
class Batch:
    """n examples: their sides, and extras whose first axis is the example (teacher scores, ids, roles)."""

    sides: Mapping[str, Side]
    n: int
    extras: Mapping[str, Tensor] = field(default_factory=dict)
    host: Batch | None = None  # the batch in host memory that this is a copy of

    def on_host(self, extra: str) -> Tensor | None:
        """An extra in host memory, without waiting for the device if it was ever there."""
        values = (self.host or self).extras.get(extra)
        return None if values is None else values.cpu()

    def slice(self, a: int, b: int) -> Batch:
        """Examples a … b-1 as a new batch. The batch must be in host memory."""
        sides = {name: side.slice(a, b) for name, side in self.sides.items()}
        return Batch(sides, b - a, {name: x[a:b] for name, x in self.extras.items()})

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Batch:
        """The same on another device."""
        sides = {name: side.to(device, non_blocking) for name, side in self.sides.items()}
        extras = {name: x.to(device, non_blocking=non_blocking) for name, x in self.extras.items()}
        return Batch(sides, self.n, extras, self.host or self)

    def pin(self) -> Batch:
        """The same in page-locked memory, for copies that overlap with work."""
        sides = {name: side.pin() for name, side in self.sides.items()}
        return Batch(sides, self.n, {name: x.pin_memory() for name, x in self.extras.items()})

    @property
    def tokens(self) -> int:
        return sum(side.packed.total for side in self.sides.values())

    @property
    def costs(self) -> NDArray[np.int64]:
        """Tokens of each example, all sides together (n)."""
        costs = np.zeros(self.n, dtype=np.int64)
        for side in self.sides.values():
            np.add.at(costs, side.owner.numpy(), np.diff(side.packed.bounds))
        return costs

    def chunks(self, budget: int | None) -> list[Batch]:
        """The batch in pieces of whole examples and at most `budget` tokens each (None: one piece)."""
        ranges = [] if budget is None else cuts(self.costs, budget)
        return [self.slice(a, b) for a, b in ranges] if len(ranges) > 1 else [self]


def cuts(costs: NDArray[np.int64], budget: int) -> list[tuple[int, int]]:
    """Ranges of neighbouring examples, as few and as equal as their order allows, none above the budget.

    An example that exceeds it alone gets its own range.
    """
    ends = np.cumsum(costs)
    total = int(ends[-1]) if len(ends) else 0
    filled = _filled(ends, budget)
    for pieces in range(max(1, -(-total // budget)), len(filled) - 1):
        edges = _even(ends, pieces)
        sums = np.add.reduceat(costs, edges[:-1])
        if ((sums <= budget) | (np.diff(edges) == 1)).all():
            return _ranges(edges)
    return _ranges(filled)


def _even(ends: NDArray[np.int64], pieces: int) -> NDArray[np.int64]:
    """Edges of exactly this many ranges, none empty, cut where the running total passes equal shares."""
    assert pieces <= len(ends), "more pieces than examples"
    steps = np.arange(pieces + 1)
    edges = np.searchsorted(ends, steps * (ends[-1] / pieces), side="right")
    edges[0], edges[-1] = 0, len(ends)
    edges = np.maximum.accumulate(edges - steps) + steps
    return np.minimum(edges, len(ends) - pieces + steps)


def _filled(ends: NDArray[np.int64], budget: int) -> NDArray[np.int64]:
    """Edges of ranges filled one after the other."""
    edges = [0]
    while edges[-1] < len(ends):
        used = int(ends[edges[-1] - 1]) if edges[-1] else 0
        edges.append(max(edges[-1] + 1, int(np.searchsorted(ends, used + budget, side="right"))))
    return np.array(edges, dtype=np.int64)


def _ranges(edges: NDArray[np.int64]) -> list[tuple[int, int]]:
    return list(zip(edges[:-1].tolist(), edges[1:].tolist()))


def weave(batch: Batch, vectors: Mapping[str, Tensor]) -> Tensor:
    """The rows of several sides in one matrix, example by example (and side by side within an example).

    `represent` returns rows in this order where an objective has more than one side, so that chunks can be
    joined; `unweave` takes them apart again.
    """
    return woven(batch, torch.cat(list(vectors.values())), tuple(vectors))


def woven(batch: Batch, rows: Tensor, names: Sequence[str]) -> Tensor:
    """The same from rows that come side after side, as those of `joined` do."""
    return rows[_order(batch, tuple(names)).to(rows.device)]


def joined(batch: Batch, names: Sequence[str]) -> Packed:
    """The sequences of several sides in one row, side after side: one pass of one encoder instead of several."""
    return Packed.join([batch.sides[name].packed for name in names])


def unweave(batch: Batch, rows: Tensor, names: Sequence[str]) -> dict[str, Tensor]:
    """The rows of each side, in that side's own order: the inverse of `weave`."""
    back = torch.argsort(_order(batch, tuple(names))).to(rows.device)
    parts: Iterator[Tensor] = iter(rows[back].split([len(batch.sides[name].packed) for name in names]))
    return {name: next(parts) for name in names}


def _order(batch: Batch, names: tuple[str, ...]) -> Tensor:
    return torch.argsort(torch.cat([batch.sides[name].owner for name in names]), stable=True)
