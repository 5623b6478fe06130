"""Exact top-k by matrix products in tiles: the k best passages of every query, on a CPU or a GPU.

Every score is computed; a tile of scores is reduced to its k best, which are merged with the best so far. Equal
scores go to the lower passage number, always. Memory: one tile of scores (queries x passages x 4 bytes), one
tile of passages, and k scores and numbers per query; passages may be a memory-mapped array, read once in order.

Q queries, N passages, D width, K kept.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

QUERIES, PASSAGES = 1024, 32768  # a tile of scores is 134 MB


def topk(
    queries: NDArray[Any] | Tensor,
    passages: NDArray[Any] | Tensor,
    k: int,
    *,
    device: torch.device | str = "cpu",
    tile_queries: int = QUERIES,
    tile_passages: int = PASSAGES,
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Scores and passage numbers, Q x min(k, N) each, best first; scores are float32 dot products."""
    assert k > 0, "k must be at least 1"
    if not len(queries):
        shape = 0, min(k, len(passages))
        return np.empty(shape, np.float32), np.empty(shape, np.int64)
    queries_QD = _tile(queries, 0, len(queries), device)
    nothing = [part[:, :0] for part in queries_QD.split(tile_queries)]
    best = [(part, part.long()) for part in nothing]
    for start in range(0, len(passages), tile_passages):
        passages_ND = _tile(passages, start, start + tile_passages, device)
        for i, part_QD in enumerate(queries_QD.split(tile_queries)):
            tile = tile_topk(part_QD @ passages_ND.T, k)
            best[i] = _merge(best[i], (tile[0], tile[1] + start), k)
    return (
        torch.cat([scores for scores, _ in best]).cpu().numpy(),
        torch.cat([numbers for _, numbers in best]).cpu().numpy(),
    )


def tile_topk(scores_QN: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k best columns of every row, best first; of equal scores the lower column, at the border too."""
    k = min(k, scores_QN.shape[1])
    one_more = min(k + 1, scores_QN.shape[1])
    values, columns = scores_QN.topk(one_more, dim=1)
    columns_QK = columns[:, :k].clone()
    # torch may keep any of the scores that tie at the border: where it had a choice, choose again.
    had_choice_Q = values[:, k - 1] == values[:, k] if one_more > k else values.new_zeros(len(values))
    for row in had_choice_Q.nonzero().flatten().tolist():
        columns_QK[row] = _lowest(scores_QN[row], values[row, k - 1], k)
    columns_QK = columns_QK.sort(dim=1).values
    values_QK = scores_QN.gather(1, columns_QK)
    order = values_QK.sort(dim=1, descending=True, stable=True).indices
    return values_QK.gather(1, order), columns_QK.gather(1, order)


def _lowest(scores_N: Tensor, border: Tensor, k: int) -> Tensor:
    """All columns above the border score and the lowest ones on it, k together."""
    above = (scores_N > border).nonzero().flatten()
    on = (scores_N == border).nonzero().flatten()
    return torch.cat([above, on[: k - len(above)]])


def _merge(old: tuple[Tensor, Tensor], new: tuple[Tensor, Tensor], k: int) -> tuple[Tensor, Tensor]:
    """The k best of both; passages of `old` have lower numbers, so a stable sort keeps ties right."""
    scores, numbers = torch.cat([old[0], new[0]], 1), torch.cat([old[1], new[1]], 1)
    order = scores.sort(dim=1, descending=True, stable=True).indices[:, :k]
    return scores.gather(1, order), numbers.gather(1, order)


def _tile(vectors: NDArray[Any] | Tensor, start: int, end: int, device: torch.device | str) -> Tensor:
    part = vectors[start:end]
    if not isinstance(part, Tensor):
        # torch wants writable memory, which a read-only file is not: that tile is copied.
        part = torch.from_numpy(np.ascontiguousarray(part) if part.flags.writeable else np.array(part))
    return part.to(device=device, dtype=torch.float32)
