"""What pre-training puts on a backbone: the Condenser head and the CoT-MAE decoders, all on packed rows.

Head and decoder layers are fresh layers of the backbone's own class (`Backbone.new_layers`); embeddings and the
masked-LM head are the backbone's, shared. The causal decoder is a GPT-2 block whose every token sees the first
token and a short window, which is a handful of gathers instead of a mask.

T packed tokens, B sequences, D width, H heads, E head width, W+1 keys a token sees.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from liebig.model.backbone import Backbone
from liebig.model.packed import Packed


class CondenserHead(nn.Module):
    """Condenser, Eq. 8: head layers over [late CLS; early states of the other tokens]."""

    def __init__(self, backbone: Backbone, layers: int = 2) -> None:
        super().__init__()
        self.layers = backbone.new_layers(layers)

    def describe(self) -> dict[str, Any]:
        return {"kind": "condenser", "layers": len(self.layers)}

    def forward(self, backbone: Backbone, late_TD: Tensor, early_TD: Tensor, packed: Packed) -> Tensor:
        """States for the shared masked-LM head, T x D."""
        late_BD = late_TD.index_select(0, packed.firsts)
        x_TD = replace_first(early_TD, late_BD, packed)
        return backbone.finish(backbone.run_layers(list(self.layers), x_TD, packed))


class CotmaeDecoder(nn.Module):
    """CoT-MAE, Eq. 8-10 of query-as-context: a shallow bidirectional decoder of one side from the other's CLS."""

    def __init__(self, backbone: Backbone, layers: int = 2) -> None:
        super().__init__()
        self.layers = backbone.new_layers(layers)

    def describe(self) -> dict[str, Any]:
        return {"kind": "cotmae", "layers": len(self.layers)}

    def forward(self, backbone: Backbone, cls_BD: Tensor, packed: Packed) -> Tensor:
        """States of the masked row whose first tokens are replaced by the other side's vectors, T x D."""
        x_TD = replace_first(backbone.embed(packed), cls_BD, packed)
        return backbone.finish(backbone.run_layers(list(self.layers), x_TD, packed))


class CausalDecoder(nn.Module):
    """The decoder of the released query-as-context code: GPT-2 blocks that see position 0 and a window.

    Predicts the next token of the unmasked row; a token sees position 0 and the last `window` positions,
    itself among them. Embedding dropout before, LayerNorm after, GPT-2's initialisation.
    """

    def __init__(self, backbone: Backbone, layers: int = 1, window: int = 3, dropout: float = 0.1) -> None:
        super().__init__()
        width = backbone.width
        self.window = window
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(
            [CausalBlock(width, backbone.heads, window, dropout) for _ in range(layers)]
        )
        self.norm = nn.LayerNorm(width, eps=1e-5)
        self.apply(self._initialise)
        self.to(device=backbone.body.device, dtype=backbone.dtype)

    def describe(self) -> dict[str, Any]:
        return {"kind": "causal", "layers": len(self.layers), "window": self.window}

    def forward(self, backbone: Backbone, cls_BD: Tensor, packed: Packed) -> Tensor:
        """States that predict the next token, T x D; see `next_tokens` for what they are scored on."""
        x_TD = self.dropout(replace_first(backbone.embed(packed), cls_BD, packed))
        rows, seen = window_rows(packed, self.window)
        for layer in self.layers:
            x_TD = layer(x_TD, rows, seen)
        return self.norm(x_TD)

    def _initialise(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear):
            shrink = math.sqrt(2 * len(self.layers)) if getattr(module, "residual", False) else 1.0
            nn.init.normal_(module.weight, std=0.02 / shrink)
            nn.init.zeros_(module.bias)


class CausalBlock(nn.Module):
    """GPT-2's block: norm, attention, norm, feed-forward, each added to its input."""

    def __init__(self, width: int, heads: int, window: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention = nn.LayerNorm(width, eps=1e-5)
        self.qkv = nn.Linear(width, 3 * width)
        self.mix = nn.Linear(width, width)
        self.norm_feed = nn.LayerNorm(width, eps=1e-5)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)
        self.mix.residual = self.down.residual = True  # type: ignore[assignment]  # read by the initialiser

    def forward(self, x_TD: Tensor, rows: Tensor, seen: Tensor) -> Tensor:
        qkv = self.qkv(self.norm_attention(x_TD)).view(x_TD.shape[0], 3, self.heads, -1)
        mixed_THE = attend_rows(qkv[:, 0], qkv[:, 1], qkv[:, 2], rows, seen)
        x_TD = x_TD + self.dropout(self.mix(mixed_THE.flatten(1)))
        wide = F.gelu(self.up(self.norm_feed(x_TD)), approximate="tanh")
        return x_TD + self.dropout(self.down(wide))


def attend_rows(q_THE: Tensor, k_THE: Tensor, v_THE: Tensor, rows: Tensor, seen: Tensor) -> Tensor:
    """Attention of every token to the few rows it sees (`rows`, T x W+1; `seen` False where a place is empty)."""
    keys, values = k_THE[rows], v_THE[rows]
    scores = torch.einsum("the,twhe->thw", q_THE, keys) * q_THE.shape[-1] ** -0.5
    shares = scores.masked_fill(~seen[:, None, :], float("-inf")).softmax(-1)
    return torch.einsum("thw,twhe->the", shares.to(values.dtype), values)


def window_rows(packed: Packed, window: int) -> tuple[Tensor, Tensor]:
    """For each token the rows of position 0 and of its last `window` positions, and which of them exist.

    Position 0 comes first and once: a window place that falls on it, or before it, is empty.
    """
    row_T1 = torch.arange(packed.total, device=packed.device)[:, None]
    back = torch.arange(window - 1, -1, -1, device=packed.device)[None, :]
    first_T1 = packed.firsts[packed.sequence][:, None]
    near = row_T1 - back
    rows = torch.cat([first_T1, near.maximum(first_T1)], 1)
    seen = torch.cat([torch.ones_like(first_T1, dtype=torch.bool), near > first_T1], 1)
    return rows, seen


def next_tokens(packed: Packed) -> tuple[Tensor, Tensor]:
    """Rows that predict a next token of their sequence (all but the last ones), and those tokens."""
    kept = torch.arange(packed.total - len(packed), device=packed.device)
    ends = packed.offsets[1:].long() - torch.arange(1, len(packed) + 1, device=packed.device)
    rows = kept + torch.bucketize(kept, ends, right=True)
    return rows, packed.tokens[rows + 1]


def replace_first(x_TD: Tensor, first_BD: Tensor, packed: Packed) -> Tensor:
    """The row with the first token's state of every sequence replaced."""
    return x_TD.index_copy(0, packed.firsts, first_BD.to(x_TD.dtype))
