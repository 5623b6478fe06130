"""C queries of each passage, written token by token: all rows of a batch together, rows that have ended dropped.

A row's choices depend on its own scores and its own uniform numbers alone, so the batch it is in does not matter. Every
few steps the ended rows are counted; when a quarter of the rows has ended, tokens, cache and slots are compacted, and
when a quarter of the passages has no row left, their keys and values go too. Cost: one decoder step for each position,
over the rows that are left.

A token is the likeliest one, or drawn from the top k and, of those, the nucleus (top p): by the inverse of their
cumulated probabilities at a uniform number that the caller brings. A decoder keeps keys and values of each passage once
for all of its queries, and of each query's own tokens: a passage token takes 2 x layers x width numbers, whatever C is.

P passages, C queries of a passage, N rows alive, H heads, E head width, L passage tokens, T positions,
V vocabulary, K tokens kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

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
    """The tokens that may be drawn, as in query-as-context: the k likeliest, and of those the fewest that reach p."""
    values_NK, tokens_NK = top(logits_NV, top_k or logits_NV.shape[1])
    shares = (values_NK.double() / temperature).softmax(dim=1)
    before = shares.cumsum(dim=1) - shares
    kept = torch.where(before < top_p, shares, torch.zeros_like(shares))
    return Nucleus(tokens_NK, kept / kept.sum(dim=1, keepdim=True))


def draw(nucleus: Nucleus, uniform_N: Tensor) -> Tensor:
    """The token in whose stretch of the cumulated probabilities the uniform number falls."""
    ends = nucleus.probabilities.cumsum(dim=1)
    place = (ends <= uniform_N.double()[:, None] * ends[:, -1:]).sum(dim=1, keepdim=True)
    last = (nucleus.probabilities > 0).sum(dim=1, keepdim=True) - 1
    return nucleus.tokens.gather(1, torch.minimum(place, last))[:, 0]


def top(logits_NV: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of each row, falling; of equals the lower number first.

    Of a large vocabulary they are found exactly in two steps: the k blocks with the largest maxima hold them.
    """
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


FIRST = 16  # own tokens that a new cache has room for
PRODUCTS = 65_535  # small products in one call: some kernels number them by 16 bits
OFF = -1e9  # added to the score of a padding token; finite, so that no row is empty


@dataclass(eq=False)
class Memory:
    """Keys and values of the passages for cross-attention, one pair per layer, and what to add to their scores."""

    keys: list[Tensor]  # P x H x L x E
    values: list[Tensor]
    mask: Tensor  # P x 1 x 1 x L

    def __len__(self) -> int:
        return len(self.mask)

    def select(self, passages: Tensor) -> None:
        self.mask = self.mask[passages]
        for layer in range(len(self.keys)):
            self.keys[layer] = self.keys[layer][passages]
            self.values[layer] = self.values[layer][passages]


@dataclass(eq=False)
class Rows:
    """Which slot of the passages in memory each row is: P passages of C slots.

    Rows are queries being written; slot c of passage p is row p * C + c until rows that have ended are dropped.
    """

    passages: int
    width: int
    slots: Tensor | None = None  # N, ascending; None: all slots

    def grid(self, x_NHE: Tensor) -> Tensor:
        """Rows in their places, P x H x C x E; empty slots hold zeros."""
        if self.slots is not None:
            full = x_NHE.new_zeros(self.passages * self.width, *x_NHE.shape[1:])
            x_NHE = full.index_copy(0, self.slots, x_NHE)
        return x_NHE.view(self.passages, self.width, *x_NHE.shape[1:]).transpose(1, 2)

    def flat(self, x_PHCE: Tensor) -> Tensor:
        """The rows again, N x H x E."""
        x = x_PHCE.transpose(1, 2).reshape(-1, x_PHCE.shape[1], x_PHCE.shape[3])
        return x if self.slots is None else x[self.slots]


class Cache:
    """Keys and values of the rows' own tokens, one pair per layer; grows by doubling."""

    def __init__(self, layers: int, rows: int, heads: int, width: int, like: Tensor) -> None:
        shape = (rows, heads, FIRST, width)
        self.keys = [like.new_empty(shape) for _ in range(layers)]
        self.values = [like.new_empty(shape) for _ in range(layers)]

    def put(self, layer: int, position: int, key_NHE: Tensor, value_NHE: Tensor) -> tuple[Tensor, Tensor]:
        """Store the keys and values of one position; all up to it, N x H x T x E."""
        if position == self.keys[layer].shape[2]:
            self.keys[layer] = self._grown(self.keys[layer])
            self.values[layer] = self._grown(self.values[layer])
        self.keys[layer][:, :, position] = key_NHE
        self.values[layer][:, :, position] = value_NHE
        return self.keys[layer][:, :, : position + 1], self.values[layer][:, :, : position + 1]

    def select(self, rows: Tensor) -> None:
        for layer in range(len(self.keys)):
            self.keys[layer] = self.keys[layer][rows]
            self.values[layer] = self.values[layer][rows]

    @staticmethod
    def _grown(x: Tensor) -> Tensor:
        return torch.cat((x, torch.empty_like(x)), dim=2)


def attend_own(q_NHE: Tensor, k_NHTE: Tensor, v_NHTE: Tensor, bias_HT: Tensor) -> Tensor:
    """Attention of one new token of each row to the row's own tokens, N x H x E; T5 does not scale scores."""
    most = PRODUCTS // q_NHE.shape[1]
    if len(q_NHE) > most:
        parts = zip(*(x.split(most) for x in (q_NHE, k_NHTE, v_NHTE)))
        return torch.cat([attend_own(q, k, v, bias_HT) for q, k, v in parts])
    scores = (k_NHTE @ q_NHE[..., None])[..., 0].float() + bias_HT
    shares = scores.softmax(dim=-1).to(v_NHTE.dtype)
    return (shares[:, :, None] @ v_NHTE)[:, :, 0]


def attend_passage(q_NHE: Tensor, memory: Memory, layer: int, rows: Rows) -> Tensor:
    """Attention of the rows to their passages: the C queries of a passage read its keys and values once."""
    q_PHCE = rows.grid(q_NHE)
    k, v = memory.keys[layer], memory.values[layer]
    return rows.flat(F.scaled_dot_product_attention(q_PHCE, k, v, attn_mask=memory.mask, scale=1.0))


def passage_mask(lengths_P: Tensor, longest: int, dtype: torch.dtype) -> Tensor:
    """0 at a passage's tokens and a large negative number behind them, P x 1 x 1 x L."""
    padding = torch.arange(longest, device=lengths_P.device) >= lengths_P[:, None]
    return torch.zeros(padding.shape, dtype=dtype, device=lengths_P.device).masked_fill_(padding, OFF)[
        :, None, None
    ]


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
