"""What guards a run: a loss that is not finite stops it, vectors that collapse are announced, and memory that runs out
is answered by smaller chunks.

On a GPU the check of a step is read one step later, from a copy made in the background, so that the device never waits
for it; before anything is logged, evaluated or stored it is read at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from liebig.base.errors import TrainingError
from liebig.model.kernels.captured import forget
from liebig.train.batch import Batch
from liebig.train.distributed import World
from liebig.train.optim import Update
from liebig.train.step import OutOfMemory, StepResult


@dataclass(frozen=True)
class _Pending:
    step: int
    batch: Batch
    update: Update
    values: Tensor
    event: Any


class Watch:
    """Looks at each update's loss and gradient norm."""

    def __init__(self, folder: Path, world: World) -> None:
        self._folder, self._world = folder, world
        self._pending: _Pending | None = None

    def put(self, step: int, batch: Batch, update: Update) -> None:
        """Take note of a step; checks it now without a GPU, and the one before it with one."""
        values = torch.stack((update.result.loss.detach().double(), update.norm.detach().double()))
        previous, event = self._pending, None
        if values.is_cuda:
            host = torch.empty(2, dtype=torch.float64, pin_memory=True)
            host.copy_(values, non_blocking=True)
            event, values = torch.cuda.Event(), host
            event.record()
        self._pending = _Pending(step, batch, update, values, event)
        if event is None:
            self.settle()
        elif previous is not None:
            self._check(previous)

    def settle(self) -> None:
        """Check everything noted so far."""
        if self._pending is not None:
            pending, self._pending = self._pending, None
            self._check(pending)

    def _check(self, pending: _Pending) -> None:
        if pending.event is not None:
            pending.event.synchronize()
        loss, norm = pending.values.tolist()
        # An overflow that fp16's scale answers for is no reason to stop; a loss that is not finite is.
        if torch.isfinite(torch.tensor(loss)) and (
            not pending.update.made or torch.isfinite(torch.tensor(norm))
        ):
            return
        terms = pending.update.result.losses
        wrong = [name for name, value in terms.items() if not value.isfinite()] or ["the gradient"]
        path = self._folder / f"bad-batch-step-{pending.step}-rank-{self._world.rank}.safetensors"
        save_batch(path, pending.batch)
        raise TrainingError(
            (
                f"{' and '.join(wrong)} became infinite or NaN at step {pending.step} (loss {loss}, gradient norm "
                f"{norm})"
            ),
            file=path,
            fix="look at the batch in this file; a lower learning rate, clipping or bf16 may help",
        )


def save_batch(path: Path, batch: Batch) -> None:
    """A batch as one safetensors file, for inspection: `side.tokens`, `side.offsets`, …, `extras.name`."""
    tensors = {f"extras.{name}": x for name, x in batch.extras.items()}
    for name, side in batch.sides.items():
        parts = {
            "tokens": side.packed.tokens,
            "offsets": side.packed.offsets,
            "segments": side.packed.segments,
            "owner": side.owner,
            "targets": side.targets,
            "labels": side.labels,
        }
        tensors |= {f"{name}.{part}": x for part, x in parts.items() if x is not None}
    path.parent.mkdir(parents=True, exist_ok=True)
    safetensors.torch.save_file({name: x.cpu().clone() for name, x in tensors.items()}, path)


@dataclass
class Collapse:
    """Says once when the vectors' spread falls below a threshold, and again if it recovered in between.

    New encoders, and those that only learned masked words, begin with vectors that are nearly alike.
    """

    threshold: float
    collapsed: bool = False
    began: bool = False

    def look(self, spread: float) -> str | None:
        """A sentence, when there is something to say."""
        began, self.began = self.began, True
        if not began and spread < self.threshold:
            self.collapsed = True
            return (
                f"the vectors begin nearly alike: their spread is {spread:.4f} (random directions have 1), "
                "as is usual before training; watch it rise"
            )
        if not self.collapsed and spread < self.threshold:
            self.collapsed = True
            return (
                f"the vectors have collapsed: their spread is {spread:.4f} (random directions have 1), "
                "so every text looks alike; lower the learning rate or check the pairs"
            )
        if self.collapsed and spread > 2 * self.threshold:
            self.collapsed = False
            return f"the vectors have spread out again: {spread:.4f}"
        return None


# Out of memory: caught, reported, and answered by halving the chunk budget; and a budget found by trial. What did not
# fit is tried again later, because on a shared GPU memory comes back, and small chunks are slow.
#
# A step that ran out has touched no weight and draws its random numbers from its seed, so it is simply run again. A
# smaller budget means other chunks, hence other dropout: the budget in force is logged and checkpointed.

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
