"""Exact search many times over the same texts: rows packed once and left on the device, and the measures in NumPy.

The measures are nDCG@10, RR@10 and R@100 with grades 0 and 1, equal to those of `liebig evaluate` (a test holds them
together) but without compiled kernels, which a fresh machine would have to compile in every process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from liebig.model.encoder import TOKENS, Encoder
from liebig.model.packed import Packed
from liebig.ragged import Ragged, split_by_budget

Longs = NDArray[np.int64]
MEASURES = ("nDCG@10", "RR@10", "R@100")
TOKENS_CUDA = 131_072
"""Tokens of a row on a GPU."""


@dataclass(frozen=True)
class Rows:
    """Texts in packed rows, the longest first, and the places of each row's texts."""

    n: int
    rows: Sequence[tuple[Tensor, Packed]]

    @classmethod
    def of(cls, texts: Ragged, device: torch.device, which: Longs | None = None) -> Rows:
        """All texts, or some, in their order."""
        which = np.arange(len(texts)) if which is None else which
        budget = TOKENS_CUDA if device.type == "cuda" else TOKENS
        return cls(
            len(which),
            [
                (
                    torch.from_numpy(places).to(device),
                    Packed.from_ragged(texts.take(which[places])).to(device),
                )
                for places in split_by_budget(texts.lengths[which], budget)
            ],
        )

    @torch.no_grad()
    def vectors(self, encoder: Encoder) -> Tensor:
        """Vectors of length 1 on the device, n x D; the mode of training is left as it was."""
        was_training, device = encoder.training, encoder.device
        encoder.eval()
        out = torch.empty(self.n, encoder.width, device=device)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            for places, packed in self.rows:
                out[places] = normalize(encoder(packed).float(), dim=-1)
        encoder.train(was_training)
        return out


def values(found: Longs, relevant: Ragged, passages: int) -> NDArray[np.float64]:
    """The measures of every question, from the numbers of the passages found, best first."""
    owner = np.repeat(np.arange(len(relevant)), relevant.lengths)
    known = np.unique(owner * passages + relevant.values)
    counts = np.bincount(known // passages, minlength=len(relevant))
    hits = np.isin(np.arange(len(found))[:, None] * passages + found, known)
    gains = 1 / np.log2(np.arange(2, 12))
    ideal = np.concatenate(([0.0], np.cumsum(gains)))[np.minimum(counts, 10)]
    top = hits[:, :10]
    first = top.argmax(axis=1)
    return np.stack(
        (
            (top * gains[: top.shape[1]]).sum(axis=1) / ideal,
            top.any(axis=1) / (first + 1),
            hits[:, :100].sum(axis=1) / counts,
        ),
        axis=1,
    )
