"""C queries of each passage, written token by token: all rows of a batch together, rows that have ended dropped.

A row's choices depend on its own scores and its own uniform numbers alone, so the batch it is in does not matter. Every
few steps the ended rows are counted; when a quarter of the rows has ended, tokens, cache and slots are compacted, and
when a quarter of the passages has no row left, their keys and values go too. Cost: one decoder step for each position,
over the rows that are left.

P passages, C queries of a passage, N rows alive, T positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from liebig.queries.cache import Rows
from liebig.queries.choose import Choose

LEFT = 0.75  # rows are compacted when at most this share is left


class Decoder(Protocol):
    """One step of a decoder, and what it keeps between steps."""

    def remember(self, states_PLD: Tensor, lengths_P: Tensor) -> Any:
        """What the passages give to every step."""

    def begin(self, rows: int, length: int) -> Any:
        """An empty cache."""

    def step(self, tokens_N: Tensor, position: int, memory: Any, cache: Any, rows: Rows) -> Tensor:
        """Scores of the next tokens, N x V."""


@dataclass(frozen=True)
class Marks:
    """The tokens that begin and end a query, and how many tokens it may have."""

    start: int
    end: int
    length: int


@torch.inference_mode()
def sample(
    decoder: Decoder, memory: Any, uniform_PCT: Tensor, choose: Choose, marks: Marks, every: int = 1
) -> Tensor:
    """Tokens of each query, P x C x T; behind its end a row holds the end token.

    Ended rows are counted every so many steps: each count waits for the device.
    """
    passages, width, length = uniform_PCT.shape
    uniform = uniform_PCT.reshape(-1, length)
    out = torch.full((len(uniform), length), marks.end, dtype=torch.long, device=uniform.device)
    rows = Rows(passages, width)
    cache = decoder.begin(len(uniform), length)
    where = torch.arange(len(uniform), device=uniform.device)  # the line of `out` of each row
    tokens = torch.full_like(where, marks.start)
    alive = torch.ones_like(where, dtype=torch.bool)
    home = torch.arange(passages, device=uniform.device)  # where each passage in memory was at first
    for position in range(length):
        logits = decoder.step(tokens, position, memory, cache, rows)
        chosen = choose(logits, uniform[where, position])
        tokens = torch.where(alive, chosen, marks.end)
        out[where, position] = tokens
        alive = alive & (tokens != marks.end)
        if (position + 1) % every and position + 1 < length:
            continue
        left = int(alive.sum())
        if left == 0:
            break
        if left <= LEFT * len(where):
            kept = alive.nonzero()[:, 0]
            cache.select(kept)
            where, tokens, alive = where[kept], tokens[kept], alive[kept]
            home, rows = _fewer_passages(memory, home, where, width)
    return out.view(passages, width, length)


def _fewer_passages(memory: Any, home: Tensor, where: Tensor, width: int) -> tuple[Tensor, Rows]:
    """Drop passages without rows if there are enough of them; the rows' slots among those in memory."""
    passage = where // width
    needed = torch.unique(passage)
    if len(needed) <= LEFT * len(home):
        memory.select(torch.searchsorted(home, needed))
        home = needed
    slots = torch.searchsorted(home, passage) * width + where % width
    return home, Rows(len(home), width, slots)
