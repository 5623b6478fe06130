"""How hard two training pairs are for each other, from vectors or from a run, never as an N × N matrix.

T[a, j] = s(q_a, p_j) + s(q_j, p_a); the hardness of a batch (ABS paper, Eq. 1) is the sum of T over its pairs.
Pairs that share a positive, and a pair with itself, have 0: they are no negatives for each other. With vectors,
T[a, j] is the product of (q | p) of a with (p | q) of j, so what a pair would add to a batch is one dot product with
the sum of the batch's rows: one matrix–vector product for all pairs. A run gives a sparse T; adding up is then a
scatter of a few rows. Cost: 8 D bytes a pair with vectors (10 D on a CPU), 12 bytes a hit with a run.

N pairs, D width of a vector, M pairs looked at together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from liebig.losses import TILE
from liebig.methods.abs.swaps import coarse, glance, without_twins

Longs = NDArray[np.int64]


class Similarity(Protocol):
    """T, a piece at a time."""

    def __len__(self) -> int: ...

    @property
    def device(self) -> torch.device: ...

    def toward(self, members: Tensor) -> Tensor:
        """What every pair would add to a batch of these members: Σ_j T[a, j], N."""
        ...

    def glance(self, members: Tensor, there: Tensor) -> Tensor:
        """The same, near enough to choose candidates by; −inf for pairs that are not there."""
        ...

    def block(self, rows: Tensor) -> Tensor:
        """T among some pairs, M × M."""
        ...

    def take(self, rows: Tensor) -> Similarity:
        """The same for some pairs only, numbered anew."""
        ...

    def nearest(self, k: int) -> Tensor:
        """For each pair those of the k passages nearest to its query and the k queries nearest to its passage.

        N × 2k; a pair that has fewer names itself or others instead.
        """
        ...


@dataclass(frozen=True)
class VectorSimilarity:
    """T from vectors of queries and positives; `twin` is equal for pairs that share a positive."""

    own: Tensor  # N × 2D: (q | p); with its halves changed it is what others meet
    twin: Tensor  # N

    @classmethod
    def of(cls, queries: Tensor, passages: Tensor, twin: Tensor) -> VectorSimilarity:
        return cls(torch.cat((queries, passages), dim=1), twin.to(queries.device))

    def __len__(self) -> int:
        return len(self.own)

    @property
    def device(self) -> torch.device:
        return self.own.device

    def toward(self, members: Tensor) -> Tensor:
        sums = self.own @ _changed(self.own[members].sum(dim=0))
        one, two = self._twins(members)  # pairs that share a positive are taken away again
        return sums.index_add_(0, one, (self.own[one] * _changed(self.own[two])).sum(dim=1), alpha=-1)

    def glance(self, members: Tensor, there: Tensor) -> Tensor:
        if self.device.type != "cpu":
            return self.toward(members).masked_fill_(~there, -torch.inf)
        out, rows = torch.empty(len(self)), members.numpy()
        glance(*self.coarse, self.own.numpy(), rows, there.numpy(), out.numpy())
        without_twins(self.own.numpy(), rows, *(part.numpy() for part in self._sorted), out.numpy())
        return out

    def block(self, rows: Tensor) -> Tensor:
        table = self.own[rows] @ _changed(self.own[rows]).T
        twin = self.twin[rows]
        return table.masked_fill_(twin[:, None] == twin[None, :], 0.0)

    def take(self, rows: Tensor) -> VectorSimilarity:
        return VectorSimilarity(self.own[rows], self.twin[rows])

    def nearest(self, k: int) -> Tensor:
        q, p = self.own.chunk(2, dim=1)
        k, nearest = min(k, len(self)), []
        for rows in torch.arange(len(self), device=self.device).split(max(1, TILE // len(self))):
            twins = self.twin[rows, None] == self.twin
            lists = (
                (one[rows] @ other.T).masked_fill_(twins, -torch.inf).topk(k).indices
                for one, other in ((q, p), (p, q))
            )
            nearest.append(torch.cat(list(lists), dim=1))
        return torch.cat(nearest)

    @cached_property
    def coarse(self) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
        """The rows in one byte a number, for looking at all of them."""
        return coarse(self.own.numpy())

    @cached_property
    def _sorted(self) -> tuple[Tensor, Tensor, Tensor]:
        """Pairs sorted by their positive, and where each pair's twins begin and how many there are."""
        kinds, order = self.twin.sort(stable=True)
        first = torch.searchsorted(kinds, self.twin)
        return order, first, torch.searchsorted(kinds, self.twin, right=True) - first

    def _twins(self, members: Tensor) -> tuple[Tensor, Tensor]:
        """Every (pair, member) that share a positive, the member with itself included."""
        order, first, count = self._sorted
        many = count[members]
        place = torch.repeat_interleave(torch.arange(len(members), device=members.device), many)
        within = torch.arange(len(place), device=members.device) - (many.cumsum(0) - many)[place]
        return order[first[members][place] + within], members[place]


def _changed(rows: Tensor) -> Tensor:
    """The halves the other way round: (p | q) of (q | p)."""
    return rows.roll(rows.shape[-1] // 2, dims=-1)


@dataclass(frozen=True)
class Sparse:
    """T from the hits of a run that are positives of other pairs: rows of columns and values."""

    bounds: Tensor  # N + 1
    columns: Tensor
    values: Tensor

    @classmethod
    def of(cls, rows: Longs, columns: Longs, scores: NDArray[np.floating], twin: Longs) -> Sparse:
        """From s(q_row, p_column); entries come once."""
        keep = twin[rows] != twin[columns]
        one = np.concatenate((rows[keep], columns[keep]))
        two = np.concatenate((columns[keep], rows[keep]))
        order = np.argsort(one, kind="stable")
        bounds = np.searchsorted(one[order], np.arange(len(twin) + 1))
        both = np.concatenate((scores[keep], scores[keep])).astype(np.float32)
        return cls(torch.from_numpy(bounds), torch.from_numpy(two[order]), torch.from_numpy(both[order]))

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @property
    def device(self) -> torch.device:
        return self.values.device

    def toward(self, members: Tensor) -> Tensor:
        _, places = self._entries(members)
        return torch.zeros(len(self)).index_add_(0, self.columns[places], self.values[places])

    def glance(self, members: Tensor, there: Tensor) -> Tensor:
        return self.toward(members).masked_fill_(~there, -torch.inf)

    def block(self, rows: Tensor) -> Tensor:
        owner, columns, values = self._among(rows)
        table = torch.zeros(len(rows), len(rows))
        return table.index_put_((owner, columns), values, accumulate=True)

    def take(self, rows: Tensor) -> Sparse:
        owner, columns, values = self._among(rows)
        return Sparse(torch.searchsorted(owner, torch.arange(len(rows) + 1)), columns, values)

    def _among(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The entries among some pairs: the places of both in `rows`, and the values."""
        place = torch.full((len(self),), -1)
        place[rows] = torch.arange(len(rows))
        owner, places = self._entries(rows)
        columns = place[self.columns[places]]
        inside = columns >= 0
        return owner[inside], columns[inside], self.values[places][inside]

    def nearest(self, k: int) -> Tensor:
        """A run's scores are kept for both sides together: the 2k highest of a pair."""
        owner = torch.repeat_interleave(torch.arange(len(self)), self.bounds.diff())
        order = torch.from_numpy(np.lexsort((-self.values.numpy(), owner.numpy())))
        within = torch.arange(len(order)) - self.bounds[owner]
        kept = within < 2 * k
        nearest = torch.arange(len(self))[:, None].repeat(1, 2 * k)
        nearest[owner[kept], within[kept]] = self.columns[order][kept]
        return nearest

    def _entries(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """For every entry of these rows: which of them it belongs to, and where it lies."""
        first = self.bounds[rows]
        count = self.bounds[rows + 1] - first
        owner = torch.repeat_interleave(torch.arange(len(rows)), count)
        within = torch.arange(len(owner)) - torch.repeat_interleave(count.cumsum(0) - count, count)
        return owner, first[owner] + within


def from_run(
    hits: Iterable[tuple[str, str, float]],
    queries: Mapping[str, int],
    holders: Mapping[str, list[int]],
    twin: Longs,
) -> Sparse:
    """From (query, passage, score): `holders` are the pairs whose positive a passage is."""
    rows, columns, scores = [], [], []
    for query, passage, score in hits:
        if query in queries:
            for pair in holders.get(passage, ()):
                rows.append(queries[query])
                columns.append(pair)
                scores.append(score)
    return Sparse.of(
        np.array(rows, np.int64), np.array(columns, np.int64), np.array(scores, np.float32), twin
    )


def hardness(similarity: Similarity, members: Tensor) -> float:
    """Eq. 1 of a batch, in double precision."""
    return float(similarity.block(members).double().sum()) / 2
