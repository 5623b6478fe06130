"""Optimisers: AdamW with its decay groups, SAM and ASAM around it, and one update with clipping and scaling.

An update asks for the gradient (once, twice under SAM), clips its global norm and steps. Under fp16 a gradient
that is not finite leaves the weights as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from liebig.train.distributed import fill
from liebig.train.gradients import clip, global_norm, trainable
from liebig.train.precision import LossScaler
from liebig.train.settings import AdamWConfig, ASAMConfig, SAMConfig, ScheduleConfig
from liebig.train.step import StepResult

# SAM and ASAM: the gradient at the worst point nearby instead of the gradient here.
#
# w ← w + ρ T²g / ‖Tg‖ with T = 1 (SAM) or T = |w| + η (ASAM), one norm over all weights; gradient there; w
# back, bit for bit; then the base optimiser steps. Cost: a second gradient and a copy of the weights.
#
# The gradient that decides the direction is that of the whole global batch, reduced over processes, so that
# the update is the same on any number of them (m-sharpness, a direction for each process, would not be).
# Chunks and cached gradients change nothing, because both gradients come from the step. Both see the same
# random numbers and the same constants: it is one function at two points.


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


def build_optimiser(
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


# Learning-rate schedules as functions of the step: nothing to store, nothing to restore.
#
# Step 0 is the first update; the warm-up rises from 1/w to 1 over w steps, and the last step of a falling
# schedule is one step above its end.

Shape = Callable[[float], float]


def linear(progress: float) -> float:
    """From 1 to 0 in a straight line."""
    return 1 - progress


def cosine(progress: float) -> float:
    """From 1 to 0 along half a cosine."""
    return (1 + math.cos(math.pi * progress)) / 2


def constant(progress: float) -> float:
    """1 throughout."""
    return 1.0


def trapezoid(share: float) -> Shape:
    """1, and a straight line down to 0 over the last `share` of the way."""
    return lambda progress: min(1.0, (1 - progress) / share)


def factor(step: float, total: int, *, shape: Shape, warmup: int, final: float = 0.0) -> float:
    """Share of the highest learning rate at `step` of `total`."""
    if step < warmup:
        return (step + 1) / warmup
    progress = min(1.0, (step - warmup) / max(1, total - warmup))
    return final + (1 - final) * shape(progress)


def build_schedule(config: ScheduleConfig, total: int) -> Callable[[float], float]:
    """The schedule of a recipe for a run of `total` steps."""
    warmup = config.warmup_steps if config.warmup_steps is not None else round(config.warmup_ratio * total)
    shapes: dict[str, Shape] = {
        "linear": linear,
        "cosine": cosine,
        "constant": constant,
        # The fall takes its share of all steps, while progress counts those after the warm-up.
        "trapezoid": trapezoid(min(1.0, config.decay_ratio * total / max(1, total - warmup))),
    }
    return lambda step: factor(step, total, shape=shapes[config.kind], warmup=warmup, final=config.final)


# An exponential moving average of the trained weights: mean ← d · mean + (1 − d) · weight, after each step.


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
