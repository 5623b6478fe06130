"""The batch of a step: examples drawn, masked and packed, as a pure function of the step number.

A process draws its own share only. Called from background threads (`train/feed.py`), a few steps ahead of the
model; the kernels below release the interpreter. Cost: about 30 ns a token, so one core feeds 30 M tokens/s.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from liebig.data.batches import Batches, Stepped
from liebig.errors import RecipeError
from liebig.pretrain.documents import documents_of
from liebig.pretrain.partners import DOCUMENT
from liebig.pretrain.shapes import Shape
from liebig.train.batch import Batch
from liebig.train.distributed import World


@dataclass(frozen=True)
class Maker:
    """This process's share of the batch of a step; with `documents`, the document of each example goes along."""

    rows: Stepped
    shape: Shape
    world: World
    documents: bool = False

    def __call__(self, step: int) -> Batch:
        batch = self.shape(self.rows(step, self.world.rank, self.world.size))
        return Batch(batch.sides, batch.n, {DOCUMENT: self._documents(step)}) if self.documents else batch

    def _documents(self, step: int) -> Tensor:
        if not isinstance(self.rows, Batches):
            raise RecipeError(
                "distinct_documents needs a single source over a single store", fix="set it to false"
            )
        examples = self.rows.examples(step, self.world.rank, self.world.size)
        found = documents_of(self.rows.source, examples, step // self.rows.steps_per_epoch, self.rows.seed)
        return torch.from_numpy(np.ascontiguousarray(found, np.int64))
