"""How broadly CLS attends, layer by layer (Condenser, Section 5 and Fig. 2; after Clark et al. 2019).

The entropy of the attention that position 0 pays to all positions, averaged over heads and over texts: high is broad,
low is focused. Two models of one origin are compared by how far the curve moved; a model whose attention fine-tuning
hardly changes was structurally ready. Cost: one forward pass a text, with attention probabilities kept.

L layers, H heads, T tokens of one text.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]


@dataclass(frozen=True, eq=False)
class Curve:
    """Entropy per layer in nats: mean over texts, its standard error, and the share of the largest possible."""

    mean: NDArray[np.float64]
    error: NDArray[np.float64]
    relative: NDArray[np.float64]
    texts: int


def cls_entropy(attention_LHTT: Floats) -> NDArray[np.float64]:
    """Per layer: -sum p log p of the first row, mean over heads."""
    rows = np.asarray(attention_LHTT[:, :, 0, :], dtype=np.float64)
    logs = np.log(rows, out=np.zeros_like(rows), where=rows > 0)
    return -(rows * logs).sum(axis=-1).mean(axis=1)


def average(attentions: Iterable[Floats]) -> Curve:
    """The curve of a model from the attention of each text."""
    entropies, relative = [], []
    for attention_LHTT in attentions:
        entropy = cls_entropy(attention_LHTT)
        entropies.append(entropy)
        relative.append(entropy / max(np.log(attention_LHTT.shape[-1]), 1e-12))
    values = np.stack(entropies)
    spread = values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1])
    return Curve(
        values.mean(axis=0), spread / np.sqrt(len(values)), np.stack(relative).mean(axis=0), len(values)
    )


def movement(before: Curve, after: Curve) -> float:
    """Mean over layers of how far the entropy moved, in nats: what fine-tuning had to change."""
    assert before.mean.shape == after.mean.shape
    return float(np.abs(after.mean - before.mean).mean())
