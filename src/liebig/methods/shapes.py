"""From drawn rows to batches, as a pure function of the step.

A source decides which sequences lie in a row; a method's shape decides what becomes of them (masked text, two views,
encoder and decoder). `Maker` draws this process's share of a step's examples and shapes it, on background threads a few
steps ahead of the model. Cost: about 30 ns a token, masking included, so one core feeds 30 M tokens/s.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from liebig.base.errors import RecipeError
from liebig.methods.base import DOCUMENT, TEACHER, Shape
from liebig.methods.sources.batches import Batches, StepBatches
from liebig.methods.sources.token_rows import ExampleSource, Ints, TokenRow, documents_of
from liebig.model.packed import Packed
from liebig.train.batch import Batch, Side
from liebig.train.distributed import World


def examples(row: TokenRow) -> int:
    """How many examples a row holds; each has a sequence at least."""
    return int(row.owner[-1]) + 1


def halves(row: TokenRow) -> tuple[TokenRow, TokenRow]:
    """Sequences 0, 2, 4, … and 1, 3, 5, …"""
    assert len(row) % 2 == 0, "sequences come in pairs"
    return row.take(np.arange(0, len(row), 2)), row.take(np.arange(1, len(row), 2))


def plain_side(row: TokenRow) -> Side:
    """The row as it is."""
    return Side(Packed.from_ragged(row.tokens), torch.from_numpy(row.owner))


def plain_text(row: TokenRow) -> Batch:
    """The shape of methods that read every sequence as it is."""
    return Batch({"text": plain_side(row)}, examples(row))


def text_of(batch: Batch) -> Side:
    """The side of methods that read one kind of text."""
    return batch.sides["text"]


class HasVectors(Protocol):
    """A source whose texts have a teacher's vectors."""

    def vectors(self, examples: Ints) -> NDArray[np.float32]:
        """The teacher's vectors of each example's texts."""


@dataclass(frozen=True)
class Maker:
    """This process's share of the batch of a step; `extras` go along: documents, a teacher's vectors."""

    rows: StepBatches
    shape: Shape
    world: World
    extras: frozenset[str] = frozenset()

    def __call__(self, step: int) -> Batch:
        batch = self.shape(self.rows(step, self.world.rank, self.world.size))
        return Batch(batch.sides, batch.n, {name: EXTRAS[name](self, step) for name in sorted(self.extras)})

    def _drawn(self, step: int) -> tuple[ExampleSource, Ints]:
        """The one source and its examples."""
        if not isinstance(self.rows, Batches):
            raise RecipeError(
                "distinct_documents needs a single source over a single store", fix="set it to false"
            )
        return self.rows.source, self.rows.examples(step, self.world.rank, self.world.size)

    def documents(self, step: int) -> Tensor:
        source, numbers = self._drawn(step)
        assert isinstance(self.rows, Batches)
        documents = documents_of(source, numbers, step // self.rows.steps_per_epoch, self.rows.seed)
        return torch.from_numpy(np.ascontiguousarray(documents, np.int64))

    def teacher(self, step: int) -> Tensor:
        source, numbers = self._drawn(step)
        return torch.from_numpy(cast(HasVectors, source).vectors(numbers))


EXTRAS: dict[str, Callable[[Maker, int], Tensor]] = {DOCUMENT: Maker.documents, TEACHER: Maker.teacher}
