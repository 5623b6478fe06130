"""Settings of optimisers, schedules and the loop: what a recipe can say about training. Imports nothing heavy."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from liebig.base.config import Config


class _Adam(Config):
    lr: float = Field(default=1e-4, gt=0, description="Highest learning rate")
    beta1: float = Field(default=0.9, ge=0, lt=1, description="Decay of the mean of gradients")
    beta2: float = Field(default=0.999, ge=0, lt=1, description="Decay of the mean of squared gradients")
    eps: float = Field(default=1e-8, gt=0, description="Added to the root of the second moment")
    weight_decay: float = Field(default=0.01, ge=0, description="Decoupled weight decay")
    decay_all: bool = Field(default=False, description="Decay biases and LayerNorm too, as Contriever does")


class AdamWConfig(_Adam):
    """AdamW, fused."""

    kind: Literal["adamw"] = Field(default="adamw", description="AdamW")


class SAMConfig(_Adam):
    """Sharpness-aware minimisation around AdamW: two gradients a step."""

    kind: Literal["sam"] = Field(default="sam", description="AdamW on the gradient at the worst point nearby")
    rho: float = Field(default=0.05, gt=0, description="Radius of the neighbourhood")


class ASAMConfig(_Adam):
    """Adaptive SAM: the neighbourhood is scaled by each weight's size."""

    kind: Literal["asam"] = Field(default="asam", description="SAM in units of each weight's size")
    rho: float = Field(default=0.5, gt=0, description="Radius, about ten times SAM's")
    eta: float = Field(default=0.01, ge=0, description="Added to each weight's size, so that zeros can move")


OptimConfig = Annotated[AdamWConfig | SAMConfig | ASAMConfig, Field(discriminator="kind")]


class ScheduleConfig(Config):
    """The learning rate over the run, as a share of its highest value."""

    kind: Literal["linear", "cosine", "constant", "trapezoid"] = Field(
        default="linear", description="Shape after the warm-up; trapezoid is constant with a linear end"
    )
    warmup_ratio: float = Field(default=0.1, ge=0, lt=1, description="Share of all steps spent warming up")
    warmup_steps: int | None = Field(default=None, ge=0, description="Warm-up in steps, instead of a share")
    final: float = Field(default=0.0, ge=0, le=1, description="Share of the learning rate left at the end")
    decay_ratio: float = Field(
        default=0.2, gt=0, le=1, description="Share of all steps the trapezoid falls over"
    )

    @model_validator(mode="after")
    def _one_warmup(self) -> ScheduleConfig:
        usual = type(self).model_fields["warmup_ratio"].default
        if self.warmup_steps is not None and self.warmup_ratio != usual:
            raise ValueError("give warmup_steps or warmup_ratio, not both")
        return self


class LoopConfig(Config):
    """How long, in what pieces and how watched a model is trained."""

    steps: int | None = Field(
        default=None, ge=1, description="Length in steps; one of steps, epochs, minutes"
    )
    epochs: float | None = Field(
        default=None, gt=0, description="Length in passes over the data; 1 if nothing is given"
    )
    minutes: float | None = Field(
        default=None,
        gt=0,
        description="Length in minutes, by the clock: the schedule follows it, and the last step ends in time",
    )
    batch: int = Field(default=64, ge=1, description="Examples in a step, over all processes")
    chunk_tokens: int | Literal["auto", "whole"] = Field(
        default="auto",
        description="Tokens the model sees at once; auto finds a good number, whole never divides a batch",
    )
    precision: Literal["auto", "fp32", "bf16", "fp16"] = Field(
        default="auto",
        description="Autocast precision; weights stay fp32. auto is bf16 on a GPU and fp32 without",
    )
    clip: float | None = Field(default=1.0, gt=0, description="Largest global norm of the gradient")
    seed: int = Field(default=0, ge=0, description="Seed of every random number of the run")
    ema: float | None = Field(
        default=None, gt=0, lt=1, description="Decay of averaged weights, which are then the result"
    )
    log_every: int = Field(default=20, ge=1, description="Steps between lines of the log")
    eval_every: int | None = Field(
        default=None, ge=1, description="Steps between evaluations; always one at the end"
    )
    best: str | None = Field(
        default=None, description="Measure that decides which checkpoint is best; default the first"
    )
    best_is: Literal["highest", "lowest"] = Field(
        default="highest", description="Is a high or a low measure good?"
    )
    patience: int | None = Field(
        default=None, ge=1, description="Stop after so many evaluations without a better one"
    )
    checkpoint_every: int = Field(
        default=1000, ge=1, description="Steps between checkpoints; always one at the end"
    )
    keep: int = Field(default=2, ge=1, description="Newest checkpoints kept, beside the best one")
    collapse: float = Field(
        default=0.05, ge=0, description="Spread of the vectors below which a collapse is announced"
    )
    workers: int = Field(
        default=2, ge=0, description="Threads that prepare batches ahead; 0 prepares them in line"
    )
    compile: bool = Field(default=False, description="Compile the model with torch.compile")
    shard: bool | None = Field(
        default=None,
        description="Divide parameters over processes (FSDP); if not given, where training whole copies of the "
        "model would take more than half of a GPU's memory",
    )
    trackers: tuple[Literal["tensorboard", "trackio"], ...] = Field(
        default=(), description="Further places the log goes to"
    )

    @model_validator(mode="after")
    def _one_length(self) -> LoopConfig:
        given = [name for name in ("steps", "epochs", "minutes") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"give one of steps, epochs and minutes, not {' and '.join(given)}")
        if isinstance(self.chunk_tokens, int) and self.chunk_tokens < 1:
            raise ValueError("chunk_tokens is at least 1")
        return self
