"""Optimisers: AdamW, with ASAM around it if wanted, and learning-rate schedules; with their configs.

An update computes the gradient (once, twice under ASAM), clips its global norm and steps. Under fp16 a gradient
that is not finite leaves the weights as they are. A schedule is a function of the step: there is nothing to store.

ASAM uses the gradient at the worst point nearby: w ← w + ρ T²g / ‖Tg‖ with T = |w| + η (SAM is T = 1), one norm over
all weights; gradient there; w back, bit for bit; then AdamW steps. Cost: a second gradient and a copy of the weights.
The direction comes from the gradient of the whole global batch, reduced over processes, so the update is the same on
any number of them (m-sharpness, one direction per process, would not be). Both gradients come from the step with the
same random numbers and constants, so chunks and cached gradients change nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from liebig.base.config import Config
from liebig.train.gradients import clip, global_norm, trainable
from liebig.train.precision import LossScaler
from liebig.train.step import StepResult


@dataclass(frozen=True)
class Sharpness:
    """The neighbourhood ASAM looks at: radius `rho`; `eta` is added to the size of every weight."""

    rho: float
    eta: float

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
        sizes = [p.abs() + self.eta for p in live]
        steps = [g * t for g, t in zip(grads, sizes)]
        length = self.rho / (global_norm(steps) + 1e-16)
        for p, step, size in zip(live, steps, sizes):
            p.add_(step * size * length)


class _Adam(Config):
    """What every optimiser configures: all of them end in a step of AdamW."""

    lr: float = Field(default=1e-4, gt=0, description="Highest learning rate")
    beta1: float = Field(default=0.9, ge=0, lt=1, description="Decay of the first moment")
    beta2: float = Field(default=0.999, ge=0, lt=1, description="Decay of the second moment")
    eps: float = Field(default=1e-8, gt=0, description="Added to the root of the second moment")
    weight_decay: float = Field(default=0.01, ge=0, description="Decoupled weight decay")
    decay_all: bool = Field(
        default=False, description="Also decay biases and LayerNorm weights, as Contriever does"
    )

    @property
    def sharpness(self) -> Sharpness | None:
        """The neighbourhood whose worst point gives the gradient; None for the gradient at the weights themselves."""
        raise NotImplementedError


class AdamWConfig(_Adam):
    """AdamW, fused."""

    kind: Literal["adamw"] = Field(default="adamw", description="AdamW")

    @property
    def sharpness(self) -> None:
        return None


class ASAMConfig(_Adam):
    """Adaptive SAM: the neighbourhood is scaled by each weight's size."""

    kind: Literal["asam"] = Field(default="asam", description="SAM scaled by the size of each weight")
    rho: float = Field(default=0.5, gt=0, description="Radius of the neighbourhood, about ten times SAM's")
    eta: float = Field(default=0.01, ge=0, description="Added to each weight's size, so that zeros can move")

    @property
    def sharpness(self) -> Sharpness:
        return Sharpness(self.rho, self.eta)


OptimConfig = Annotated[AdamWConfig | ASAMConfig, Field(discriminator="kind")]


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
    """AdamW, the neighbourhood of ASAM if there is one, clipping and the loss scale."""

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
    config: OptimConfig, module: nn.Module, *, clip: float | None = None, scaler: LossScaler | None = None
) -> Optimiser:
    """The optimiser of a recipe over the module's trained parameters."""
    adamw = torch.optim.AdamW(
        decay_groups(module, config.weight_decay, config.decay_all),
        lr=config.lr,
        betas=(config.beta1, config.beta2),
        eps=config.eps,
        fused=True,
    )
    return Optimiser(adamw, trainable(module), config.sharpness, clip, scaler)


class ScheduleConfig(Config):
    """The learning rate over the run, as a share of its highest value."""

    kind: Literal["linear", "cosine", "constant", "trapezoid"] = Field(
        default="linear",
        description="Shape after the warm-up; trapezoid is constant with a linear decay at the end",
    )
    warmup_ratio: float = Field(default=0.1, ge=0, lt=1, description="Share of all steps spent warming up")
    warmup_steps: int | None = Field(default=None, ge=0, description="Warm-up in steps, instead of a share")
    final: float = Field(
        default=0.0, ge=0, le=1, description="Final learning rate, as a share of the highest"
    )
    decay_ratio: float = Field(
        default=0.2, gt=0, le=1, description="Share of all steps in which the trapezoid decays"
    )

    @model_validator(mode="after")
    def _one_warmup(self) -> ScheduleConfig:
        usual = type(self).model_fields["warmup_ratio"].default
        if self.warmup_steps is not None and self.warmup_ratio != usual:
            raise ValueError("give warmup_steps or warmup_ratio, not both")
        return self


def build_schedule(config: ScheduleConfig, total: int) -> Callable[[float], float]:
    """Share of the highest learning rate at a step of `total`; step 0 is the first update.

    The warm-up rises from 1/w to 1 over w steps; the last step of a falling schedule is one step above its end.
    """
    warmup = config.warmup_steps if config.warmup_steps is not None else round(config.warmup_ratio * total)
    left = max(1, total - warmup)
    # The fall takes its share of all steps, while progress counts those after the warm-up.
    fall = min(1.0, config.decay_ratio * total / left)
    shapes: dict[str, Callable[[float], float]] = {
        "linear": lambda progress: 1 - progress,
        "cosine": lambda progress: (1 + math.cos(math.pi * progress)) / 2,
        "constant": lambda progress: 1.0,
        "trapezoid": lambda progress: min(1.0, (1 - progress) / fall),
    }
    shape = shapes[config.kind]

    def factor(step: float) -> float:
        if step < warmup:
            return (step + 1) / warmup
        return config.final + (1 - config.final) * shape(min(1.0, (step - warmup) / left))

    return factor
