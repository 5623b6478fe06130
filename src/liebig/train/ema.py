"""An exponential moving average of the trained weights: mean ← d · mean + (1 − d) · weight, after each step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from liebig.train.sharding import fill


class EMA:
    """Averages of a module's trained parameters. Cost: one copy of them, one pass a step."""

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.decay = decay
        self._live = {name: p for name, p in module.named_parameters() if p.requires_grad}
        self._mean = {name: p.detach().clone() for name, p in self._live.items()}

    @torch.no_grad()
    def update(self) -> None:
        """Take in the weights as they are now."""
        torch._foreach_lerp_(list(self._mean.values()), list(self._live.values()), 1 - self.decay)

    @contextmanager
    def swapped(self) -> Iterator[None]:
        """The module with its averaged weights."""
        kept = {name: p.detach().clone() for name, p in self._live.items()}
        self.apply()
        try:
            yield
        finally:
            self._write(kept)

    def apply(self) -> None:
        """Put the averages into the module, for good."""
        self._write(self._mean)

    def state(self) -> dict[str, Tensor]:
        """The averages by parameter name."""
        return self._mean

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take up averages that were stored."""
        for name, x in self._mean.items():
            fill(x, state[name])

    @torch.no_grad()
    def _write(self, values: dict[str, Tensor]) -> None:
        for name, p in self._live.items():
            p.copy_(values[name])
