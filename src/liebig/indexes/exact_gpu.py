"""Exact search on a GPU: vectors stay there in fp16 where they fit, and pass through it where they do not.

Rough scores are reduced at once to the best of every group of 16 neighbours (one kernel, `group_maxima`). Only the
best groups of a query are looked into, and what is left is scored in float64. What was not looked into is bounded by
the worst group taken plus the rounding of fp16; a query whose k-th score is not above that is repeated with more
groups, so results are exact. Memory: 2 bytes per number, and 2 / 16 bytes per vector and query of a batch.

Q queries, N vectors of a block, D width, M candidates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from liebig.indexes import exact_cpu
from liebig.vectors import Longs, Shard, starts
from liebig.vectors.quantise import Floats, VectorCodes
from liebig.vectors.ranked import Ranked, best, merge, stack
from liebig.vectors.topk import tile_topk

GROUP = 16  # neighbours whose best rough score is kept; a power of two
QUERIES = 1024
SCORES = 16 << 20  # scores of a tile: 32 MB of fp16, which stays in the cache
LARGEST = 3e4  # the most a rough score may be; fp16 ends at 65,504
GATHER = 1 << 30  # bytes of vectors gathered at once
SHARE = 0.6  # of the free memory that vectors may take


@dataclass(frozen=True)
class DeviceBlock:
    """Vectors on the device: fp16, their numbers from `first`, and which are deleted."""

    first: int
    vectors_ND: Tensor
    deleted: Tensor

    def __len__(self) -> int:
        return int(self.vectors_ND.shape[0])


class Resident:
    """Shards to be searched on a device."""

    def __init__(self, shards: Sequence[Shard], width: int, device: str) -> None:
        self._shards, self._width, self._device = list(shards), width, torch.device(device)
        self._rows = max(GROUP, _room(self._device) // (2 * width))
        self._largest = max((shard.largest for shard in shards), default=0.0)
        fits = sum(map(len, shards)) <= self._rows
        self._kept = list(self._load()) if fits else None

    def search(self, queries: Floats, k: int) -> Ranked:
        """The k best of every query; scores are those of `exact_cpu.search`."""
        queries = np.ascontiguousarray(queries, np.float32)
        parts = [queries[i : i + QUERIES] for i in range(0, len(queries), QUERIES)]
        rankings: list[list[Ranked]] = [[Ranked.nothing(len(part), k)] for part in parts]
        for block in self._kept if self._kept is not None else self._load():
            for place, part in enumerate(parts):
                scorer = Scorer(block, part, self._largest, self._shards)
                rankings[place] = [merge([*rankings[place], scorer.search(k)], k)]
        return stack([best for (best,) in rankings]) if rankings else Ranked.nothing(0, k)

    def _load(self) -> Iterator[DeviceBlock]:
        """The vectors in blocks as large as the memory allows; each block replaces the one before."""
        total = sum(map(len, self._shards))
        for first in range(0, total, self._rows):
            end = min(first + self._rows, total)
            block = torch.empty(end - first, self._width, dtype=torch.float16, device=self._device)
            for start, shard in zip(starts(self._shards), self._shards):
                a, b = max(first, start), min(end, start + len(shard))
                for row in range(a, b, 1 << 16):
                    stop = min(row + (1 << 16), b)
                    values = _as_half(shard.vectors[row - start : stop - start])
                    block[row - first : stop - first] = torch.from_numpy(values).to(self._device)
            yield DeviceBlock(first, block, self._deleted(first, end))

    def _deleted(self, first: int, end: int) -> Tensor:
        numbers = np.concatenate(
            [
                np.zeros(0, np.int64),
                *(s.deleted + start for start, s in zip(starts(self._shards), self._shards)),
            ]
        )
        return torch.from_numpy(numbers[(numbers >= first) & (numbers < end)] - first).to(self._device)


def _as_half(coded: VectorCodes) -> NDArray[np.float16]:
    """A copy in memory: mapped files are read-only, and what torch is given must not be."""
    return np.array(coded.codes if coded.type == "fp16" else coded.decode(), dtype=np.float16)


def _room(device: torch.device) -> int:
    """Bytes that vectors may take."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0] * SHARE)
    return 1 << 34


class Scorer:
    """One batch of queries against one block; exact scores from `shards`, or from the block itself if it has none."""

    def __init__(
        self, block: DeviceBlock, queries: Floats, largest: float, shards: Sequence[Shard] = ()
    ) -> None:
        self._block, self._shards, self._queries = block, shards, queries
        self._device = block.vectors_ND.device
        queries_QD = torch.from_numpy(queries).to(self._device)
        norms_Q = queries_QD.double().norm(dim=1)
        # a power of two, so that scaling changes no digit
        self._scale = 2.0 ** np.floor(np.log2(LARGEST / max(float(norms_Q.max()) * largest, 1e-30)))
        self._rough_QD = (queries_QD * self._scale).half()
        self._exact_QD = queries_QD.double()
        width = queries.shape[1]
        self._slack_Q = norms_Q * largest * (2.0**-10 + width * 2.0**-22)
        self._rows = max(GROUP * 64, SCORES // len(queries) // GROUP * GROUP)

    def search(self, k: int) -> Ranked:
        best_QG = self._group_maxima()
        groups = min(best_QG.shape[1], k + max(28, k // 2))
        rows = torch.arange(len(self._queries), device=self._device)
        scores = np.full((len(rows), k), -np.inf, np.float32)
        numbers = np.full((len(rows), k), -1, np.int64)
        for tries in (1, 4):
            ranked, sure = self._look_into(best_QG, rows, min(best_QG.shape[1], tries * groups), k)
            done, these = rows[sure].cpu().numpy(), sure.cpu().numpy()
            scores[done], numbers[done] = ranked.scores[these], ranked.numbers[these]
            rows = rows[~sure]
            if len(rows) == 0:
                return Ranked(scores, numbers)
        rest = self._everything(rows, k)
        scores[rows.cpu().numpy()], numbers[rows.cpu().numpy()] = rest.scores, rest.numbers
        return Ranked(scores, numbers)

    def _group_maxima(self) -> Tensor:
        """The best rough score of every group of neighbours, Q x G."""
        if self._device.type == "cuda" and len(self._rough_QD) > 1:
            from liebig.model.kernels.group_maxima import group_maxima

            with torch.cuda.device_of(self._block.vectors_ND):  # Triton launches on the current device
                return group_maxima(self._rough_QD, self._block.vectors_ND, self._alive(), GROUP)
        parts = []
        for start in range(0, len(self._block), self._rows):
            tile = self._block.vectors_ND[start : start + self._rows]
            scores = self._without_deleted(self._product(tile), start)
            scores = torch.nn.functional.pad(scores, (0, -len(tile) % GROUP), value=-torch.inf)
            parts.append(scores.view(len(scores), -1, GROUP).amax(2))
        return torch.cat(parts, 1)

    def _alive(self) -> Tensor | None:
        """Which vectors are not deleted, as bytes; None where all are there."""
        if not len(self._block.deleted):
            return None
        alive = torch.ones(len(self._block), dtype=torch.uint8, device=self._device)
        return alive.index_fill_(0, self._block.deleted, 0)

    def _product(self, tile_ND: Tensor) -> Tensor:
        if len(self._rough_QD) == 1:
            return torch.mv(tile_ND, self._rough_QD[0])[None]
        return self._rough_QD @ tile_ND.T

    def _without_deleted(self, scores: Tensor, start: int) -> Tensor:
        gone = self._block.deleted
        here = gone[(gone >= start) & (gone < start + scores.shape[1])] - start if len(gone) else gone
        return scores.index_fill_(1, here, -torch.inf) if len(here) else scores

    def _look_into(self, best_QG: Tensor, rows: Tensor, groups: int, k: int) -> tuple[Ranked, Tensor]:
        """The k best within the best groups, and for which queries nothing better can lie outside of them."""
        highest, places = best_groups(best_QG if len(rows) == len(best_QG) else best_QG[rows], groups)
        complete = groups == best_QG.shape[1]
        outside = torch.full_like(highest[:, 0], -torch.inf) if complete else highest[:, -1]
        numbers_QM, rough_QM = self._members(rows, places)
        keep = min(numbers_QM.shape[1], groups)
        rough, order = rough_QM.topk(keep, dim=1)
        if keep < numbers_QM.shape[1]:
            outside = torch.maximum(outside, rough[:, -1])
        chosen = numbers_QM.gather(1, order)
        ranked = self._exact(rows, chosen.masked_fill(rough == -torch.inf, -1), k)
        worst = torch.from_numpy(ranked.scores[:, -1].astype(np.float64)).to(self._device)
        bound = outside.double() / self._scale + self._slack_Q[rows]
        return ranked, (worst > bound) | (outside == -torch.inf)

    def _members(self, rows: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        """Numbers in the block and rough scores of all vectors of some groups, Q x M."""
        member = torch.arange(GROUP, device=self._device)
        numbers = (places[:, :, None] * GROUP + member).flatten(1)
        numbers = numbers.masked_fill(numbers >= len(self._block), -1)
        return numbers, self._rough(rows, numbers)

    def _rough(self, rows: Tensor, numbers_QM: Tensor) -> Tensor:
        """Rough scores of given vectors, as the matrix product gives them up to its rounding."""
        vectors = self._block.vectors_ND
        size = max(1, GATHER // (2 * vectors.shape[1] * numbers_QM.shape[1]))
        parts = []
        for i in range(0, len(rows), size):
            gathered_QMD = vectors[numbers_QM[i : i + size].clamp(min=0)]
            parts.append(torch.bmm(gathered_QMD, self._rough_QD[rows[i : i + size], :, None])[..., 0])
        gone = numbers_QM < 0
        if len(self._block.deleted):
            gone = gone | torch.isin(numbers_QM, self._block.deleted)
        return torch.cat(parts).masked_fill(gone, -torch.inf)

    def _exact(self, rows: Tensor, numbers_QM: Tensor, k: int) -> Ranked:
        """The k best of given vectors by their exact scores."""
        if self._holds_everything:
            return self._ordered(self._exact_here(rows, numbers_QM), numbers_QM, k)
        numbers: Longs = numbers_QM.cpu().numpy()
        numbers = np.where(numbers >= 0, numbers + self._block.first, -1)
        scores = exact_cpu.score(self._queries[rows.cpu().numpy()], numbers, self._shards)
        scores = np.where(numbers >= 0, scores, np.float32(-np.inf))
        empty = Ranked.nothing(len(numbers), k)
        return best(np.hstack([scores, empty.scores]), np.hstack([numbers, empty.numbers]), k)

    def _ordered(self, scores_QM: Tensor, numbers_QM: Tensor, k: int) -> Ranked:
        """The k best, of equal scores the lower number first, sorted where they are."""
        numbers, order = numbers_QM.sort(dim=1)
        scores = scores_QM.masked_fill(numbers_QM < 0, -torch.inf).gather(1, order)
        scores, order = scores.sort(dim=1, descending=True, stable=True)
        numbers = torch.where(scores == -torch.inf, -1, numbers.gather(1, order) + self._block.first)
        short = max(0, k - scores.shape[1])
        scores = torch.nn.functional.pad(scores[:, :k], (0, short), value=-torch.inf)
        numbers = torch.nn.functional.pad(numbers[:, :k], (0, short), value=-1)
        return Ranked(scores.cpu().numpy(), numbers.cpu().numpy())

    @property
    def _holds_everything(self) -> bool:
        """Whether the device holds the stored numbers themselves, not rounded ones."""
        return {shard.vectors.type for shard in self._shards} <= {"fp16"}

    def _everything(self, rows: Tensor, k: int) -> Ranked:
        """Every vector scored exactly: for queries with more near-ties than were looked into."""
        if not self._holds_everything:
            numbers = (self._block.first, self._block.first + len(self._block))
            return exact_cpu.search_range(self._queries[rows.cpu().numpy()], self._shards, k, numbers)
        ranked = Ranked.nothing(len(rows), k)
        for start in range(0, len(self._block), self._rows):
            tile = self._block.vectors_ND[start : start + self._rows]
            scores = self._without_deleted((self._exact_QD[rows] @ tile.double().T).float(), start)
            values, columns = (x.cpu().numpy() for x in tile_topk(scores, k))
            columns = np.where(np.isfinite(values), columns + start + self._block.first, -1)
            ranked = merge([ranked, Ranked(values, columns)], k)
        return ranked

    def _exact_here(self, rows: Tensor, numbers_QM: Tensor) -> Tensor:
        """Products in float64 of what the device holds."""
        vectors = self._block.vectors_ND
        size = max(1, GATHER // (8 * vectors.shape[1] * numbers_QM.shape[1]))
        parts = []
        for i in range(0, len(rows), size):
            gathered_QMD = vectors[numbers_QM[i : i + size].clamp(min=0)].double()
            parts.append((gathered_QMD * self._exact_QD[rows[i : i + size], None]).sum(-1).float())
        return torch.cat(parts)


def best_groups(best_QG: Tensor, groups: int) -> tuple[Tensor, Tensor]:
    """The highest maxima and their places; the best groups lie in the best groups of groups, so few are sorted."""
    queries, count = best_QG.shape
    if count < 8 * groups * GROUP:
        return best_QG.topk(groups, dim=1)
    whole, step = count - count % GROUP, count // GROUP
    # Groups that lie a step apart make a group of groups: neighbours would be read with gaps, ten times as slowly.
    above = best_QG[:, :whole].view(queries, GROUP, step).amax(1).topk(groups, dim=1).indices
    inside = (above[:, :, None] + step * torch.arange(GROUP, device=best_QG.device)).flatten(1)
    rest = torch.arange(whole, count, device=best_QG.device).expand(queries, -1)
    places = torch.cat([inside, rest], 1)
    highest, order = best_QG.gather(1, places).topk(groups, dim=1)
    return highest, places.gather(1, order)
