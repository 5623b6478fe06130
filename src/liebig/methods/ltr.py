"""The learning-to-rank baseline of the ABS paper: a linear head on query and passage vectors, softmax over the batch.

Scores are σ(W{q, d} + b) (Eq. 14), so a passage cannot be found by a search, only ranked among candidates: that is
why it is a baseline and evaluated by reranking. W is linear, so a pair's score before σ is a number of the query plus
one of the passage; only these numbers meet, over all processes. As the equation stands, they order passages alike for
every query, which may be why the paper found it so much worse. The released code has no such head.
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
from liebig.methods.contrastive import SIDES, Meeting, Retriever
from liebig.methods.dev_evaluation import Candidates, vectors
from liebig.model.encoder import Encoder
from liebig.train.batch import Batch, unweave, weave
from liebig.train.distributed import World
from liebig.train.objective import Contrast, Objective, Represented

HEAD = "ltr.safetensors"


class Ltr(Objective):
    """Towers as a retriever's, and a head on pairs of vectors."""

    def __init__(self, query: Encoder, passage: Encoder | None = None) -> None:
        super().__init__()
        self.retriever = Retriever(query, passage)
        self.head = nn.Linear(2 * query.width, 1)

    def represent(self, chunk: Batch) -> Represented:
        """Vectors, for the log to look at, each with its score as a last number."""
        found = self.retriever.represent(chunk).vectors
        assert found is not None, "a retriever returns vectors"
        sides = unweave(chunk, found, SIDES)
        rows = {side: torch.cat((x, self.scores(side, x)[:, None].to(x)), dim=1) for side, x in sides.items()}
        return Represented(weave(chunk, rows))

    def contrast(self, vectors: Tensor, constants: Tensor | None, batch: Batch, world: World) -> Contrast:
        sides = unweave(batch, vectors[:, -1:], SIDES)
        passages = world.gather(sides["passage"])
        meeting = Meeting(sides["query"], passages.rows, batch, int(world.total(torch.tensor(batch.n))))
        loss = losses.ltr(
            meeting.queries[:, 0],
            meeting.passages[:, 0],
            meeting.targets(),
            exclude=meeting.exclude(),
            total=meeting.total,
        )
        return Contrast(loss)

    def scores(self, side: str, vectors: Tensor) -> Tensor:
        """What vectors of a side add to W{q, d} + b; the bias is the passage's."""
        weight, bias = self.head.weight[0], self.head.bias[0]
        of_query, of_passage = weight.split(len(weight) // 2)
        with torch.autocast(vectors.device.type, enabled=False):
            x = vectors.to(weight.dtype)
            return x @ of_query if side == "query" else x @ of_passage + bias

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
            q, d = (torch.from_numpy(x).to(device) for x in (queries[i : i + 1], passages[group]))
            found = objective.scores("query", q) + objective.scores("passage", d)
            yield found.detach().float().cpu().numpy()

    return dev.measured(scores())
