"""The learning-to-rank baseline of the ABS paper: a linear head on query and passage vectors, softmax over the group.

Scores are σ(W{q, d} + b) (Eq. 14), so a passage cannot be found by a search, only ranked among candidates: that is
why it is a baseline and evaluated by reranking. Each query is judged with its own group; nothing else meets.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor, nn

from liebig import losses
from liebig.finetune.contrastive import SIDES, Retriever
from liebig.finetune.evaluation import Candidates, vectors
from liebig.model.encoder import Encoder
from liebig.train.batch import Batch
from liebig.train.objective import Objective, Represented

HEAD = "ltr.safetensors"


class Ltr(Objective):
    """Towers as a retriever's, and a head on pairs of vectors."""

    def __init__(self, query: Encoder, passage: Encoder | None = None) -> None:
        super().__init__()
        self.retriever = Retriever(query, passage)
        self.head = nn.Linear(2 * query.width, 1)

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"ltr": batch.n}

    def represent(self, chunk: Batch) -> Represented:
        found = {name: self.retriever.tower(name)(chunk.sides[name].packed) for name in SIDES}
        owner = chunk.sides["passage"].owner
        logits = self.logits(found["query"][owner], found["passage"])
        sizes = torch.bincount(owner, minlength=chunk.n)
        place = torch.arange(len(owner), device=owner.device) - (sizes.cumsum(0) - sizes)[owner]
        table = logits.new_zeros(chunk.n, int(sizes.max()))
        mask = torch.zeros_like(table, dtype=torch.bool)
        table, mask[owner, place] = table.index_put((owner, place), logits), True
        return Represented(None, {"ltr": losses.ltr(table, mask=mask, total=1)})

    def logits(self, queries: Tensor, passages: Tensor) -> Tensor:
        """W{q, d} + b of each row."""
        found: Tensor = self.head(torch.cat((queries, passages), dim=1).to(self.head.weight.dtype))
        return found[:, 0].float() if found.dtype != torch.float64 else found[:, 0]

    def save_head(self, folder: Path) -> None:
        """The head beside the model's files."""
        state = {name: value.detach().cpu().contiguous() for name, value in self.head.state_dict().items()}
        save_file(state, folder / HEAD, metadata={"format": "pt"})

    def compile(self, *args: Any, **kwargs: Any) -> None:
        self.retriever.compile(*args, **kwargs)


def evaluate_ltr(dev: Candidates, objective: Objective) -> dict[str, float]:
    """The dev split's candidates ranked by the head."""
    assert isinstance(objective, Ltr), "the head belongs to ltr"
    queries = vectors(objective.retriever.tower("query"), dev.queries, "dot")
    passages = vectors(objective.retriever.tower("passage"), dev.passages, "dot")

    def scores() -> Iterator[NDArray[np.float32]]:
        device = objective.head.weight.device
        for i, group in enumerate(dev.groups):
            d = torch.from_numpy(passages[group]).to(device)
            q = torch.from_numpy(queries[i : i + 1]).to(device).expand(len(d), -1)
            yield objective.logits(q, d).detach().cpu().numpy()

    return dev.measured(scores())
