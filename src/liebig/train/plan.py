"""What is fixed before the first step: the number of steps and the chunk budget, written down in `plan.json`.

A run in minutes first measures its rate on a few steps that move no weight; the number of steps follows, the
schedule knows its end from the start, and from there on it is a run like any other. A restart reads the file (and
later the checkpoint), so it does the same. Evaluations are not counted in the minutes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import torch

from liebig.errors import TrainingError
from liebig.train.distributed import World
from liebig.train.memory import Budget
from liebig.workspace import atomic_write

PLAN = "plan.json"
SETTLING, MEASURED, ENOUGH_SECONDS = 3, 20, 10.0
MARGIN = 0.97


@dataclass(frozen=True)
class Plan:
    """Steps of the run, and tokens of a chunk at its start (None: whole batches)."""

    total: int
    chunk_tokens: int | None


@dataclass(frozen=True)
class Length:
    """How long a run was asked to be: steps, epochs or minutes; one epoch if nothing was said."""

    steps: int | None = None
    epochs: float | None = None
    minutes: float | None = None
    epoch_steps: int | None = None

    def total(self, rate: Callable[[], float], began: float) -> int:
        """The number of steps; `rate` measures steps a second, `began` is when the run began."""
        if self.steps is not None:
            return self.steps
        if self.minutes is not None:
            per_second = rate()
            left = self.minutes * 60 - (time.monotonic() - began)
            return max(1, int(left * per_second * MARGIN))
        if self.epoch_steps is None:
            raise TrainingError("the data has no end, so epochs say nothing", fix="give steps or minutes")
        return max(1, round((1.0 if self.epochs is None else self.epochs) * self.epoch_steps))


def make_plan(
    folder: Path,
    length: Length,
    chunk_tokens: int | Literal["auto", "whole"],
    budget: Budget,
    find: Callable[[], int],
    rate: Callable[[], float],
    world: World,
) -> int:
    """The steps of the plan in the folder, or of a new one; sets the `budget`.

    `find` is asked for a budget if need be, and `rate` for the steps a second, which may halve the budget.
    """
    path = folder / PLAN
    if world.any(path.is_file()):
        plan = Plan(**json.loads(path.read_text(encoding="utf-8")))
        budget.tokens = plan.chunk_tokens
        return plan.total
    began = time.monotonic()
    budget.tokens = find() if chunk_tokens == "auto" else None if chunk_tokens == "whole" else chunk_tokens
    total = length.total(rate, began)
    plan = Plan(int(world.told({"total": total})["total"]), budget.tokens)
    if world.first:
        atomic_write(path, (json.dumps(asdict(plan)) + "\n").encode())
    world.barrier()
    return plan.total


def dry_rate(gradient: Callable[[int], object], world: World) -> float:
    """Steps a second of `gradient(number)`, after a few that settle (compilation, caches)."""
    for number in range(SETTLING):
        gradient(number)
    _wait(world)
    began, number = time.monotonic(), 0
    while number < MEASURED and not world.any(time.monotonic() - began > ENOUGH_SECONDS):
        gradient(SETTLING + number)
        _wait(world)
        number += 1
    return number / max(1e-9, time.monotonic() - began)


def _wait(world: World) -> None:
    if world.device.type == "cuda":
        torch.cuda.synchronize(world.device)
