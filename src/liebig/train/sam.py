"""SAM and ASAM: the gradient at the worst point nearby instead of the gradient here.

w ← w + ρ T²g / ‖Tg‖ with T = 1 (SAM) or T = |w| + η (ASAM), one norm over all weights; gradient there; w back,
bit for bit; then the base optimiser steps. Cost: a second gradient and a copy of the weights.

The gradient that decides the direction is that of the whole global batch, reduced over processes, so that the
update is the same on any number of them (m-sharpness, a direction for each process, would not be). Chunks and
cached gradients change nothing, because both gradients come from the step. Both see the same random numbers and
the same constants: it is one function at two points.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from liebig.train.reduce import global_norm


@dataclass(frozen=True)
class Sharpness:
    """Where to look for the worst point: `eta` None is SAM, a number is ASAM."""

    rho: float
    eta: float | None = None

    @contextmanager
    def perturbed(self, parameters: Sequence[nn.Parameter]) -> Iterator[None]:
        """The parameters at the worst point their gradients point to; back where they were afterwards."""
        live: list[Tensor] = [p for p in parameters if p.grad is not None]
        kept = [p.detach().clone() for p in live]
        try:
            self._move(live, [p.grad for p in live if p.grad is not None])
            yield
        finally:
            with torch.no_grad():
                for p, before in zip(live, kept):
                    p.copy_(before)

    @torch.no_grad()
    def _move(self, live: Sequence[Tensor], grads: list[Tensor]) -> None:
        sizes = None if self.eta is None else [p.abs() + self.eta for p in live]
        step = grads if sizes is None else [g * t for g, t in zip(grads, sizes)]
        length = self.rho / (global_norm(step) + 1e-16)
        for i, p in enumerate(live):
            p.add_((step[i] if sizes is None else step[i] * sizes[i]) * length)
