"""Out of memory: caught, reported, and answered by halving the chunk budget; and a budget found by trial.

A step that ran out has touched no weight and draws its random numbers from its seed, so it is simply run again. A
smaller budget means other chunks, hence other dropout: the budget in force is logged and checkpointed. What did not fit
is tried again later, because on a shared GPU memory comes back, and small chunks are slow.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from liebig.base.errors import TrainingError
from liebig.model.kernels.captured import forget
from liebig.train.batch import Batch
from liebig.train.distributed import World
from liebig.train.step import OutOfMemory, StepResult

CPU_TOKENS = 16384
SMALLEST_TRIAL = 4096
WAIT = 100  # steps that fit before a larger budget is tried again; twice as many each time that it fails
MEMORY_SHARE = 0.85


@dataclass
class Budget:
    """Tokens a chunk may have; None is the whole batch."""

    tokens: int | None
    larger: list[int | None] = field(default_factory=list)  # what did not fit, the smallest last
    steps: int = 0  # since it changed
    wait: int = field(default_factory=lambda: WAIT)
    raised: bool = False  # whether the last change was to a larger one

    def again(self, world: World) -> str | None:
        """Once before every step: the larger budget, where it is time to try it, and the sentence to say about it.

        Several processes cannot always turn back together, so only one that is alone tries.
        """
        self.steps += 1
        if world.size > 1 or not self.larger or self.steps < self.wait:
            return None
        said = f"memory was sufficient for {self.steps} steps: trying larger chunks again"
        self.tokens, self.steps, self.raised = self.larger.pop(), 0, True
        return said

    def halve(self, batch: Batch, world: World) -> str:
        """Half of what did not fit, and the sentence to say about it; the same in all processes."""
        held = max((chunk.tokens for chunk in batch.chunks(self.tokens)), default=0)
        held = world.largest(held)
        if world.largest(max((chunk.n for chunk in batch.chunks(self.tokens)), default=0)) <= 1:
            raise TrainingError(
                "one example alone does not fit in memory", fix="use shorter texts or a smaller model"
            )
        if self.raised and self.steps < self.wait:
            self.wait *= 2
        self.larger.append(self.tokens)
        self.tokens, self.steps, self.raised = max(1, held // 2), 0, False
        return f"out of memory with chunks of {held} tokens: continuing with {self.tokens}"


def fitting(
    gradient: Callable[[int | None], StepResult],
    budget: Budget,
    batch: Batch,
    world: World,
    say: Callable[[str], None],
) -> StepResult:
    """The gradient with chunks that fit: each time memory runs out, the budget is halved and the user is warned."""
    while True:
        try:
            return gradient(budget.tokens)
        except OutOfMemory:
            pass
        # Outside the handler, so that no traceback holds on to what should be freed.
        if world.device.type == "cuda":
            forget()
            torch.cuda.empty_cache()
        say(budget.halve(batch, world))


def find_budget(
    gradient: Callable[[int | None], StepResult], batch: Batch, world: World, reserve: int = 0
) -> int:
    """A good chunk budget for this device, by trying: twice as many tokens while memory lasts, fastest wins.

    `reserve`: bytes that will be needed later (optimiser state). Without a GPU a fixed number is right. Gradients are
    thrown away; no weight moves.
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
        if tokens >= whole:
            break
        tokens *= 2
    forget()  # graphs of budgets that were not chosen
    torch.cuda.empty_cache()
    return world.smallest(best[1])


def _trial(gradient: Callable[[int | None], StepResult], tokens: int, world: World) -> float | None:
    """Seconds of a step with this budget, None if too large; the third counts, after compiling and recording graphs."""
    forget()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(world.device)
    seconds = 0.0
    for _ in range(3):
        began = time.monotonic()
        try:
            gradient(tokens)
        except OutOfMemory:
            return None
        torch.cuda.synchronize(world.device)
        seconds = time.monotonic() - began
    return seconds
