"""Optimisers: AdamW with its decay groups, SAM and ASAM around it, and one update with clipping and scaling.

An update asks for the gradient (once, twice under SAM), clips its global norm and steps. Under fp16 a gradient
that is not finite leaves the weights as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from liebig.train.config import AdamWConfig, ASAMConfig, SAMConfig
from liebig.train.precision import LossScaler
from liebig.train.reduce import clip, trainable
from liebig.train.sam import Sharpness
from liebig.train.step import StepResult

Gradient = Callable[[Tensor | None], StepResult]
"""Sets the gradients of the global batch; takes the constants of an earlier call on the same batch."""


@dataclass(frozen=True)
class Update:
    """What one update saw: the step's losses at the point it started from, the gradient's norm, and whether it
    was made at all (an overflow of fp16 is not)."""

    result: StepResult
    norm: Tensor
    made: bool


@dataclass
class Optimiser:
    """AdamW, the neighbourhood SAM looks at (None: none), clipping and the loss scale."""

    adamw: torch.optim.Optimizer
    parameters: Sequence[nn.Parameter]
    sharpness: Sharpness | None = None
    clip: float | None = None
    scaler: LossScaler | None = None

    def update(self, gradient: Gradient, lr: float) -> Update:
        """One step of the optimiser at learning rate `lr`."""
        result = self._gradient(gradient, None)
        if self.sharpness is not None:
            with self.sharpness.perturbed(self.parameters):
                self._gradient(gradient, result.constants)
        norm = clip(self.parameters, self.clip)
        made = True
        if self.scaler is not None and self.scaler.on:
            made = bool(norm.isfinite())
            self.scaler.update(made)
        if made:
            for group in self.adamw.param_groups:
                group["lr"] = lr
            self.adamw.step()
        return Update(result, norm, made)

    def _gradient(self, gradient: Gradient, constants: Tensor | None) -> StepResult:
        result = gradient(constants)
        if self.scaler is not None:
            self.scaler.unscale(self.parameters)
        return result


def decay_groups(module: nn.Module, weight_decay: float, decay_all: bool = False) -> list[dict[str, Any]]:
    """Matrices and embeddings decay; biases and LayerNorm do not, unless all do."""
    parameters = trainable(module)
    yes = [p for p in parameters if decay_all or p.ndim >= 2]
    no = [p for p in parameters if not decay_all and p.ndim < 2]
    groups = [{"params": yes, "weight_decay": weight_decay}, {"params": no, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def build(
    config: AdamWConfig | SAMConfig | ASAMConfig,
    module: nn.Module,
    *,
    clip: float | None = None,
    scaler: LossScaler | None = None,
) -> Optimiser:
    """The optimiser of a recipe over the module's trained parameters."""
    adamw = torch.optim.AdamW(
        decay_groups(module, config.weight_decay, config.decay_all),
        lr=config.lr,
        betas=(config.beta1, config.beta2),
        eps=config.eps,
        fused=True,
    )
    sharpness = None
    if isinstance(config, SAMConfig):
        sharpness = Sharpness(config.rho)
    elif isinstance(config, ASAMConfig):
        sharpness = Sharpness(config.rho, config.eta)
    return Optimiser(adamw, trainable(module), sharpness, clip, scaler)
