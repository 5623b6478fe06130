"""Out of memory: caught, reported, and answered by halving the chunk budget; and a budget found by trial.

A step that ran out has touched no weight and draws its random numbers from its seed, so it is simply run again.
A smaller budget means other chunks, hence other dropout: the budget in force is logged and checkpointed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from liebig.base.errors import TrainingError
from liebig.train.batch import Batch
from liebig.train.distributed import World
from liebig.train.step import OutOfMemory, StepResult

CPU_TOKENS = 16384
SMALLEST_TRIAL = 4096
MEMORY_SHARE = 0.85


@dataclass
class Budget:
    """Tokens a chunk may have; None is the whole batch."""

    tokens: int | None

    def halve(self, batch: Batch, world: World) -> str:
        """Half of what did not fit, and the sentence to say about it; the same in all processes."""
        held = max((chunk.tokens for chunk in batch.chunks(self.tokens)), default=0)
        held = world.largest(held)
        if world.largest(max((chunk.n for chunk in batch.chunks(self.tokens)), default=0)) <= 1:
            raise TrainingError(
                "one example alone does not fit in memory", fix="use shorter texts or a smaller model"
            )
        self.tokens = max(1, held // 2)
        return f"out of memory with chunks of {held} tokens: continuing with {self.tokens}"


def fitting(
    gradient: Callable[[int | None], StepResult],
    budget: Budget,
    batch: Batch,
    world: World,
    say: Callable[[str], None],
) -> StepResult:
    """The gradient with chunks that fit: each time memory runs out the budget is halved, and the user is told."""
    while True:
        try:
            return gradient(budget.tokens)
        except OutOfMemory:
            pass
        # Outside the handler, so that no traceback holds on to what should be freed.
        if world.device.type == "cuda":
            torch.cuda.empty_cache()
        say(budget.halve(batch, world))


def find_budget(
    gradient: Callable[[int | None], StepResult],
    batch: Batch,
    world: World,
    reserve: int = 0,
    *,
    careful: bool = False,
) -> int:
    """A good chunk budget for this device, by trying: twice as many tokens while memory lasts, fastest wins.

    `reserve`: bytes that will be needed later (optimiser state). Without a GPU a fixed number is right.
    `careful` tries nothing that could run out of memory. Gradients are thrown away; no weight moves.
    """
    if world.device.type != "cuda":
        return CPU_TOKENS
    whole = world.largest(batch.tokens)
    room = torch.cuda.get_device_properties(world.device).total_memory * MEMORY_SHARE - reserve
    tokens, best = SMALLEST_TRIAL, (float("inf"), SMALLEST_TRIAL)
    while True:
        taken = _trial(gradient, tokens, world)
        used = torch.cuda.max_memory_reserved(world.device)
        if taken is None or world.any(used > room):
            break
        best = min(best, (taken, tokens))
        if tokens >= whole or (careful and world.any(2 * used > room)):
            break
        tokens *= 2
    torch.cuda.empty_cache()
    return world.smallest(best[1])


def _trial(gradient: Callable[[int | None], StepResult], tokens: int, world: World) -> float | None:
    """Seconds of a step with this budget (the second one counts: the first may compile), None if too large."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(world.device)
    seconds = 0.0
    for _ in range(2):
        began = time.monotonic()
        try:
            gradient(tokens)
        except OutOfMemory:
            return None
        torch.cuda.synchronize(world.device)
        seconds = time.monotonic() - began
    return seconds
