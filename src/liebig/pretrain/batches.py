"""The batch of a step: examples drawn, masked and packed, as a pure function of the step number.

A process draws its own share only. Called from background threads (`train/feed.py`), a few steps ahead of the
model; the kernels below release the interpreter. Cost: about 30 ns a token, so one core feeds 30 M tokens/s.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from liebig.data.batch_row import Ints
from liebig.data.batches import Batches, Source, Stepped
from liebig.errors import RecipeError
from liebig.pretrain.documents import documents_of
from liebig.pretrain.partners import DOCUMENT
from liebig.pretrain.shapes import Shape
from liebig.pretrain.texts import vectors_of
from liebig.pretrain.vectors import TEACHER
from liebig.train.batch import Batch
from liebig.train.distributed import World


@dataclass(frozen=True)
class Maker:
    """This process's share of the batch of a step; `extras` go along: documents, a teacher's vectors."""

    rows: Stepped
    shape: Shape
    world: World
    extras: frozenset[str] = frozenset()

    def __call__(self, step: int) -> Batch:
        batch = self.shape(self.rows(step, self.world.rank, self.world.size))
        return Batch(batch.sides, batch.n, {name: EXTRAS[name](self, step) for name in sorted(self.extras)})

    def _drawn(self, step: int) -> tuple[Source, Ints]:
        """The one source and its examples."""
        if not isinstance(self.rows, Batches):
            raise RecipeError(
                "distinct_documents needs a single source over a single store", fix="set it to false"
            )
        return self.rows.source, self.rows.examples(step, self.world.rank, self.world.size)

    def documents(self, step: int) -> Tensor:
        """The document of each example."""
        source, examples = self._drawn(step)
        assert isinstance(self.rows, Batches)
        found = documents_of(source, examples, step // self.rows.steps_per_epoch, self.rows.seed)
        return torch.from_numpy(np.ascontiguousarray(found, np.int64))

    def teacher(self, step: int) -> Tensor:
        """The teacher's vector of each example."""
        return torch.from_numpy(vectors_of(*self._drawn(step)))


EXTRAS: dict[str, Callable[[Maker, int], Tensor]] = {DOCUMENT: Maker.documents, TEACHER: Maker.teacher}
