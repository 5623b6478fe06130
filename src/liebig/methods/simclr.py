"""SimCLR as Contriever uses it: two views of a text, every other text's view in the batch a negative.

The encoder runs over both views, with what its folder has behind the pooling; the gradient flows through queries and
keys, and keys come from all processes.
Cost: the encoder on both views, and one more pass without gradient when the batch is cut into chunks.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from liebig import losses
from liebig.losses.contrastive import Similarity
from liebig.methods.cocondenser import same_text
from liebig.model.backbone import Backbone
from liebig.model.encoder import pool, through
from liebig.train.batch import Batch, joined, unweave, woven
from liebig.train.distributed import World
from liebig.train.objective import Contrast, Objective, Represented

SIDES = ("query", "key")


class SimCLR(Objective):
    """InfoNCE of each query view against the key views of the whole batch; Contriever, Eq. 1."""

    def __init__(
        self,
        backbone: Backbone,
        tail: Sequence[nn.Module] = (),
        *,
        temperature: float = 0.05,
        similarity: Similarity = "dot",
        pooling: str = "mean",
        distinct_documents: bool = False,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.tail = nn.ModuleList(tail)
        self.temperature = temperature
        self.similarity: Similarity = similarity
        self.pooling = pooling
        self.distinct_documents = distinct_documents

    def represent(self, chunk: Batch) -> Represented:
        views = joined(chunk, SIDES)
        pooled = pool(self.backbone(views).last, views, self.pooling)
        return Represented(woven(chunk, through(self.tail, pooled), SIDES))

    def contrast(self, vectors: Tensor, constants: Tensor | None, batch: Batch, world: World) -> Contrast:
        views = unweave(batch, vectors, SIDES)
        keys = world.gather(views["key"])
        targets = torch.arange(keys.start, keys.start + batch.n)
        found = losses.info_nce(
            views["query"],
            keys.rows,
            targets,
            temperature=self.temperature,
            similarity=self.similarity,
            exclude=same_text(batch, targets, 1, world) if self.distinct_documents else None,
            total=len(keys.rows),
        )
        return Contrast(found.loss, {"partner_accuracy": found.accuracy, "alignment": found.alignment})
