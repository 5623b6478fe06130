"""The next token: the most likely one, or one drawn from the top k and, of those, the nucleus (top p).

As in query-as-context: the k likeliest tokens are kept and their probabilities normalised; of those the fewest that
together reach p (never none); the draw is the inverse of their cumulated probabilities at a uniform number that the
caller brings, so it depends on nothing else. The top k of a large vocabulary are found exactly in two steps: the k
blocks with the largest maxima hold them. Cost: one pass over the scores and a sort of k numbers a row.

N rows, V vocabulary, K tokens kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

BLOCK = 128
Choose = Callable[[Tensor, Tensor], Tensor]
"""Scores N x V and uniform numbers N to tokens N."""


@dataclass(frozen=True, eq=False)
class Nucleus:
    """Tokens of each row from the likeliest on, and their probabilities; 0 for one that is left out."""

    tokens: Tensor  # N x K, int64
    probabilities: Tensor  # N x K, float64; kept ones sum to 1


def sampling(top_k: int | None, top_p: float, temperature: float) -> Choose:
    """Draws by top k, top p and temperature."""

    def choose(logits_NV: Tensor, uniform_N: Tensor) -> Tensor:
        return draw(nucleus(logits_NV, top_k, top_p, temperature), uniform_N)

    return choose


def greedy(logits_NV: Tensor, uniform_N: Tensor) -> Tensor:
    """The likeliest token; of equals the one with the lower number."""
    return logits_NV.argmax(dim=1)


def nucleus(logits_NV: Tensor, top_k: int | None, top_p: float, temperature: float = 1.0) -> Nucleus:
    """What may be drawn."""
    values_NK, tokens_NK = top(logits_NV, top_k or logits_NV.shape[1])
    shares = (values_NK.double() / temperature).softmax(dim=1)
    before = shares.cumsum(dim=1) - shares
    kept = torch.where(before < top_p, shares, torch.zeros_like(shares))
    return Nucleus(tokens_NK, kept / kept.sum(dim=1, keepdim=True))


def draw(found: Nucleus, uniform_N: Tensor) -> Tensor:
    """The token in whose stretch of the cumulated probabilities the uniform number falls."""
    ends = found.probabilities.cumsum(dim=1)
    place = (ends <= uniform_N.double()[:, None] * ends[:, -1:]).sum(dim=1, keepdim=True)
    last = (found.probabilities > 0).sum(dim=1, keepdim=True) - 1
    return found.tokens.gather(1, torch.minimum(place, last))[:, 0]


def top(logits_NV: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of each row, falling; of equals the lower number first."""
    n, width = logits_NV.shape
    if k * BLOCK * 2 > width:
        values, tokens = logits_NV.topk(min(k, width), dim=1)
        return _in_order(values, tokens)
    if width % BLOCK:
        logits_NV = F.pad(logits_NV, (0, -width % BLOCK), value=float("-inf"))
    blocks = logits_NV.view(n, -1, BLOCK)
    best = blocks.amax(dim=2).topk(k, dim=1, sorted=False).indices
    inside = blocks.gather(1, best[:, :, None].expand(-1, -1, BLOCK)).view(n, -1)
    values, place = inside.topk(k, dim=1)
    block, within = place // BLOCK, place % BLOCK
    return _in_order(values, best.gather(1, block) * BLOCK + within)


def _in_order(values: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    tokens, order = tokens.sort(dim=1)
    values, again = values.gather(1, order).sort(dim=1, descending=True, stable=True)
    return values, tokens.gather(1, again)
