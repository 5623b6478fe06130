"""Half precision: autocast around the model, float32 around the loss, one scale for all of fp16.

bf16 needs no scale. For fp16 every loss is scaled once before the backward pass, so the cached gradient already has the
scale, and the reduced gradient is divided once. An overflow in any process makes the global norm infinite or NaN in
all of them, so all processes skip the step and halve the scale together.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from liebig.base.errors import TrainingError

Precision = Literal["fp32", "bf16", "fp16"]
DTYPES: dict[Precision, torch.dtype | None] = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


def choose(precision: Precision | Literal["auto"], device: torch.device) -> Precision:
    """The precision of a recipe; auto is bf16 on a GPU and fp32 without one."""
    if precision == "auto":
        return "bf16" if device.type == "cuda" else "fp32"
    return precision


def autocast(
    device: torch.device, dtype: torch.dtype | None, *, cache: bool = True
) -> AbstractContextManager[Any]:
    """Autocast to `dtype` (None: none). Without `cache` no cast weight outlives its use."""
    if dtype is None:
        return nullcontext()
    return torch.autocast(device.type, dtype=dtype, cache_enabled=cache)


def full(x: Tensor) -> Tensor:
    """In float32, or in float64 where it was."""
    return x if x.dtype == torch.float64 else x.float()


def wide(x: Tensor) -> Tensor:
    """Without graph in float64, so that sums over many steps stay exact; in float32 on `mps`, which has no other."""
    return x.detach().to(torch.float32 if x.device.type == "mps" else torch.float64)


@dataclass
class LossScaler:
    """Loss scale of fp16: doubles after `interval` good steps, halves on an overflow. 1 and idle when off."""

    on: bool = False
    scale: float = 65536.0
    interval: int = 2000
    good: int = 0

    @property
    def factor(self) -> float:
        """By what the losses are multiplied before they are differentiated."""
        return self.scale if self.on else 1.0

    @torch.no_grad()
    def unscale(self, parameters: Iterable[nn.Parameter]) -> None:
        """Divide the gradients by the scale, once, after they are reduced."""
        grads = [p.grad for p in parameters if p.grad is not None]
        if self.on and grads:
            torch._foreach_mul_(grads, 1.0 / self.scale)

    def update(self, finite: bool) -> None:
        """Move the scale after a step that was finite, or was left out."""
        if not self.on:
            return
        if not finite and self.scale <= 1.0:
            raise TrainingError("gradients overflow fp16 even unscaled", fix="use bf16 or fp32")
        self.good = self.good + 1 if finite else 0
        if not finite:
            self.scale = max(1.0, self.scale / 2)
        elif self.good >= self.interval:
            self.scale, self.good = self.scale * 2, 0
