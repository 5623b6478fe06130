"""Who may not be a negative: other vectors that come from the same document.

A batch carries the number of each example's document. On request, candidates of a row's own document other than
its partner are left out of the contrast. Cost: one small gather and a sort of 8-byte numbers.
"""

from __future__ import annotations

import torch
from torch import Tensor

from liebig import losses
from liebig.errors import RecipeError
from liebig.train.batch import Batch
from liebig.train.distributed import World

DOCUMENT = "document"


def same_text(batch: Batch, targets: Tensor, rows_per_example: int, world: World) -> Tensor:
    """Entries (row, candidate) of one document, without each row's own target; on the host."""
    found = batch.on_host(DOCUMENT)
    if found is None:
        raise RecipeError(
            "the pair source does not say which document its texts come from",
            fix="set distinct_documents = false, or use spans, crops, cloze or queries with documents",
        )
    own = torch.repeat_interleave(found, rows_per_example)
    everything = own if world.size == 1 else world.gather(own.to(world.device)).rows.cpu()
    return losses.false_negatives(own, everything, targets.cpu())
