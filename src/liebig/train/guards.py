"""What guards a run: a loss that is not finite stops it, and vectors that collapse are announced.

On a GPU the check of a step is read one step later, from a copy made in the background, so that the device never waits
for it; before anything is logged, evaluated or stored it is read at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from liebig.base.errors import TrainingError
from liebig.train.batch import Batch
from liebig.train.distributed import World
from liebig.train.optim import Update
from liebig.train.precision import wide


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
        values = torch.stack((wide(update.result.loss), wide(update.norm)))
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
