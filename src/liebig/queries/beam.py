"""Beam search: the B likeliest beginnings of a query are carried on, and the likeliest ended ones kept.

A step looks at the 2B likeliest continuations of a passage; those that end and are among the first B join the ended
ones, by the mean log probability of their tokens (to the power of `penalty`), the others go on. A passage is done when
no beginning could still beat the worst of B ended queries. The beams of a passage share its keys and values.

P passages, B beams, T positions, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from liebig.queries.cache import Rows
from liebig.queries.sample import Decoder, Marks

NEVER = -1e9


@torch.inference_mode()
def beam_search(
    decoder: Decoder,
    memory: Any,
    passages: int,
    beams: int,
    marks: Marks,
    penalty: float,
    device: torch.device,
) -> Tensor:
    """The B best queries of each passage from the best on, P x B x T; behind its end a row holds the end token."""
    search = _Search(passages, beams, marks, penalty, device)
    cache, rows = decoder.begin(passages * beams, marks.length), Rows(passages, beams)
    tokens = torch.full((passages * beams,), marks.start, dtype=torch.long, device=device)
    for position in range(marks.length):
        logits = decoder.step(tokens, position, memory, cache, rows)
        tokens, parents = search.advance(logits.float().log_softmax(dim=1), position)
        if search.done(position):
            break
        cache.select(parents)
    return search.best()


class _Search:
    """Beginnings and ended queries of every passage."""

    def __init__(self, passages: int, beams: int, marks: Marks, penalty: float, device: torch.device) -> None:
        self.beams, self.marks, self.penalty = beams, marks, penalty
        shape = (passages, beams)
        self.scores = torch.full(shape, NEVER, device=device)
        self.scores[:, 0] = 0.0  # all beams of a passage begin alike: one of them counts
        self.written = torch.full((*shape, marks.length), marks.end, dtype=torch.long, device=device)
        self.ended = torch.full(shape, NEVER, device=device)
        self.ended_tokens = self.written.clone()

    def advance(self, logp_NV: Tensor, position: int) -> tuple[Tensor, Tensor]:
        """Take the likeliest continuations; the new tokens, and the row that each goes on from."""
        vocabulary = logp_NV.shape[1]
        every = (self.scores.view(-1, 1) + logp_NV).view(len(self.scores), -1)
        scores, flat = every.topk(min(2 * self.beams, every.shape[1]), dim=1)
        parent, token = flat // vocabulary, flat % vocabulary
        histories = self.written.gather(1, parent[:, :, None].expand(-1, -1, self.marks.length)).clone()
        histories[:, :, position] = token
        ends = token == self.marks.end
        self._keep(scores, ends, histories, position)
        going = scores.masked_fill(ends, NEVER * 2)
        if position + 1 == self.marks.length:
            self._keep(going, ~ends, histories, position)
        self.scores, order = going.topk(self.beams, dim=1)
        self.written = histories.gather(1, order[:, :, None].expand(-1, -1, self.marks.length))
        tokens, parent = token.gather(1, order), parent.gather(1, order)
        first = torch.arange(len(parent), device=parent.device)[:, None] * self.beams
        return tokens.flatten(), (parent + first).flatten()

    def _keep(self, scores: Tensor, ends: Tensor, histories: Tensor, position: int) -> None:
        """The best B of the ended queries and those that have just ended among the first B continuations."""
        ends = ends.clone()
        ends[:, self.beams :] &= position + 1 == self.marks.length
        found = (scores / (position + 1) ** self.penalty).masked_fill(~ends, NEVER)
        every = torch.cat((self.ended, found), dim=1)
        self.ended, order = every.topk(self.beams, dim=1)
        tokens = torch.cat((self.ended_tokens, histories), dim=1)
        self.ended_tokens = tokens.gather(1, order[:, :, None].expand(-1, -1, self.marks.length))

    def done(self, position: int) -> bool:
        """Whether no beginning of any passage can get better than what has ended."""
        possible = self.scores[:, 0] / (position + 1) ** self.penalty
        return bool((self.ended[:, -1] >= possible).all())

    def best(self) -> Tensor:
        return self.ended_tokens
