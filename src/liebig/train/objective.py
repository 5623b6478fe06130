"""What an objective has to provide: losses of a chunk by itself, and a loss of the whole batch together.

`represent` turns a chunk into vectors and its own summed losses; `contrast` turns all vectors of the batch into a loss.
The step (`step.py`) divides, weights, caches and reduces them, so an objective need not know about chunks or processes.
Everything that a process returns is its share; the shares of all processes add up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from liebig.train.batch import Batch
from liebig.train.distributed import World


@dataclass(frozen=True)
class Represented:
    """What a chunk gives alone: a row of vectors for each thing to contrast, and summed losses by name."""

    vectors: Tensor | None = None
    terms: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Contrast:
    """What the whole batch gives together: this process's share of the mean loss and of the metrics."""

    loss: Tensor
    metrics: Mapping[str, Tensor] = field(default_factory=dict)


class Objective(nn.Module):
    """Base of every objective; a subclass has `represent`, and what else it needs."""

    weights: Mapping[str, float] = {}
    """Weight of each term and of "contrast"; 1 where absent. A term of weight 0 is logged and not trained on."""

    @property
    def contrastive(self) -> bool:
        """Does the batch have to meet in `contrast`? Without it a step is one pass over the chunks."""
        return type(self).contrast is not Objective.contrast

    def counts(self, batch: Batch) -> dict[str, int]:
        """By how many (masked tokens, examples) each term is divided; known before any forward pass."""
        return {}

    def represent(self, chunk: Batch) -> Represented:
        """Vectors in the order of the examples, and summed terms."""
        raise NotImplementedError

    def vectors(self, chunk: Batch) -> Tensor:
        """The vectors of `represent` alone, for the pass without gradient.

        Override it to leave out heads, but draw random numbers in the same order up to the vectors.
        """
        vectors = self.represent(chunk).vectors
        assert vectors is not None, "a contrastive objective returns vectors"
        return vectors

    def constants(self, chunk: Batch) -> Tensor | None:
        """What `contrast` needs without gradient (MoCo's keys); computed once a step, row by row as vectors."""
        return None

    def contrast(
        self, vectors: Tensor, constants: Tensor | None, batch: Batch, world: World
    ) -> Contrast | None:
        """The loss of all of this process's vectors; other processes' come from `world.gather`.

        `batch` is this process's share, whole, on the device. Called at the perturbed point again under SAM,
        so it may remember but not move anything; that is for `after_step`.
        """
        return None

    def after_step(self) -> None:
        """Move what moves once a step (a queue, a momentum encoder)."""

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile what pays; by default every child module."""
        for child in self.children():
            child.compile(*args, **kwargs)
