"""What is fixed before the first step: the number of steps and the chunk budget, written down in `plan.json`.

A restart reads the file (and later the checkpoint), so it does the same. A run in minutes has no fixed number of
steps: its clock decides (`train/clock.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from liebig.errors import TrainingError
from liebig.train.distributed import World
from liebig.train.memory import Budget
from liebig.workspace import atomic_write

PLAN = "plan.json"


@dataclass(frozen=True)
class Plan:
    """Steps of the run (None: by the clock), and tokens of a chunk at its start (None: whole batches)."""

    total: int | None
    chunk_tokens: int | None


@dataclass(frozen=True)
class Length:
    """How long a run was asked to be: steps, epochs or minutes; one epoch if nothing was said."""

    steps: int | None = None
    epochs: float | None = None
    minutes: float | None = None
    epoch_steps: int | None = None

    @property
    def total(self) -> int | None:
        """The number of steps; None where the clock decides."""
        if self.steps is not None or self.minutes is not None:
            return self.steps
        if self.epoch_steps is None:
            raise TrainingError("the data has no end, so epochs say nothing", fix="give steps or minutes")
        return max(1, round((1.0 if self.epochs is None else self.epochs) * self.epoch_steps))


def make_plan(
    folder: Path,
    length: Length,
    chunk_tokens: int | Literal["auto", "whole"],
    budget: Budget,
    find: Callable[[], int],
    world: World,
) -> int | None:
    """The steps of the plan in the folder, or of a new one; sets the `budget`, for which `find` is asked if need be."""
    path = folder / PLAN
    if world.any(path.is_file()):
        plan = Plan(**json.loads(path.read_text(encoding="utf-8")))
        budget.tokens = plan.chunk_tokens
        return plan.total
    budget.tokens = find() if chunk_tokens == "auto" else None if chunk_tokens == "whole" else chunk_tokens
    plan = Plan(length.total, budget.tokens)
    if world.first:
        atomic_write(path, (json.dumps(asdict(plan)) + "\n").encode())
    world.barrier()
    return plan.total
