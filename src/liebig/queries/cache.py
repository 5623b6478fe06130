"""What a decoder keeps: keys and values of each passage, once for all of its queries, and of each query's own tokens.

Rows are queries being written; slot c of passage p is row p * C + c as long as all are there. Rows that have ended
are dropped; those left find their passage through `Rows`. The cache of own tokens grows by doubling. Cost in memory: a
passage token takes 2 x layers x width numbers, whatever C is.

P passages, C queries of a passage, N rows alive, H heads, E head width, L passage tokens, T own tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

FIRST = 16  # own tokens that a new cache has room for
PRODUCTS = 65_535  # small products in one call: some kernels number them by 16 bits
OFF = -1e9  # added to the score of a padding token; finite, so that no row is empty


@dataclass(eq=False)
class Memory:
    """Keys and values of the passages for cross-attention, a pair a layer, and what to add to their scores."""

    keys: list[Tensor]  # P x H x L x E
    values: list[Tensor]
    mask: Tensor  # P x 1 x 1 x L

    def __len__(self) -> int:
        return len(self.mask)

    def select(self, passages: Tensor) -> None:
        """Keep these passages only."""
        self.mask = self.mask[passages]
        for layer in range(len(self.keys)):
            self.keys[layer] = self.keys[layer][passages]
            self.values[layer] = self.values[layer][passages]


@dataclass(eq=False)
class Rows:
    """Which slot of the passages in memory each row is: P passages of C slots."""

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
    """Keys and values of the rows' own tokens, a pair a layer."""

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
        """Keep these rows, in this order."""
        for layer in range(len(self.keys)):
            self.keys[layer] = self.keys[layer][rows]
            self.values[layer] = self.values[layer][rows]

    @staticmethod
    def _grown(x: Tensor) -> Tensor:
        return torch.cat((x, torch.empty_like(x)), dim=2)


def attend_own(q_NHE: Tensor, k_NHTE: Tensor, v_NHTE: Tensor, bias_HT: Tensor | None, scale: float) -> Tensor:
    """Attention of one new token of each row to the row's own tokens, N x H x E."""
    most = PRODUCTS // q_NHE.shape[1]
    if len(q_NHE) > most:
        parts = zip(*(x.split(most) for x in (q_NHE, k_NHTE, v_NHTE)))
        return torch.cat([attend_own(q, k, v, bias_HT, scale) for q, k, v in parts])
    scores = (k_NHTE @ q_NHE[..., None])[..., 0].float() * scale
    if bias_HT is not None:
        scores = scores + bias_HT
    shares = scores.softmax(dim=-1).to(v_NHTE.dtype)
    return (shares[:, :, None] @ v_NHTE)[:, :, 0]


def attend_passage(q_NHE: Tensor, memory: Memory, layer: int, rows: Rows, scale: float) -> Tensor:
    """Attention of the rows to their passages: the C queries of a passage read its keys and values once."""
    q_PHCE = rows.grid(q_NHE)
    k, v = memory.keys[layer], memory.values[layer]
    return rows.flat(F.scaled_dot_product_attention(q_PHCE, k, v, attn_mask=memory.mask, scale=scale))


def passage_mask(lengths_P: Tensor, longest: int, dtype: torch.dtype) -> Tensor:
    """0 at a passage's tokens and a large negative number behind them, P x 1 x 1 x L."""
    padding = torch.arange(longest, device=lengths_P.device) >= lengths_P[:, None]
    return torch.zeros(padding.shape, dtype=dtype, device=lengths_P.device).masked_fill_(padding, OFF)[
        :, None, None
    ]
