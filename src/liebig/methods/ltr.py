"""The learning-to-rank baseline of the ABS paper: a linear head on query and passage vectors, softmax over the batch.

Scores are σ(W{q, d} + b) (Eq. 14), so a passage cannot be found by a search, only ranked among candidates: that is
why it is a baseline and evaluated by reranking. W is linear, so a pair's score before σ is a number of the query plus
one of the passage; only these numbers are exchanged between processes. As the equation stands, they order passages
alike for every query, which may be why the paper found it so much worse. The released code has no such head.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from safetensors.torch import save_file
from torch import Tensor, nn

from liebig import losses
from liebig.losses.contrastive import Similarity
from liebig.methods.finetune_base import FinetuneRecipe
from liebig.methods.retrieval import SIDES, RetrievalObjective
from liebig.model.encoder import Encoder
from liebig.model.settings import LTR_HEAD
from liebig.train.batch import Batch, unweave, weave
from liebig.train.distributed import World
from liebig.train.objective import Contrast, Represented


class Ltr(RetrievalObjective):
    """The towers of a retriever, and a head on pairs of vectors."""

    class Config(RetrievalObjective.Config):
        """A head with parameters on the pair, softmax over the batch (ABS paper, Eq. 14): can rerank only."""

        kind: Literal["ltr"] = Field(
            default="ltr", description="Learn to rank with a scoring head on query and passage vectors"
        )

        @property
        def alone(self) -> None:
            return None

        def compared_by(self) -> Similarity:
            return "dot"

        def check(self, recipe: FinetuneRecipe) -> None:
            super().check(recipe)
            if recipe.evaluation.split is not None and recipe.evaluation.over == "all":
                raise ValueError("ltr scores pairs and cannot search: evaluate over candidates")

    def __init__(self, query: Encoder, passage: Encoder | None = None) -> None:
        super().__init__(query, passage)
        self.head = nn.Linear(2 * query.width, 1)

    @classmethod
    def build(cls, config: Config, query: Encoder, passage: Encoder | None) -> Self:
        return cls(query, passage)

    def represent(self, chunk: Batch) -> Represented:
        """Vectors, for the log to look at, each with its score as a last number."""
        vectors = super().represent(chunk).vectors
        assert vectors is not None, "a retriever returns vectors"
        sides = unweave(chunk, vectors, SIDES)
        rows = {side: torch.cat((x, self.part(side, x)[:, None].to(x)), dim=1) for side, x in sides.items()}
        return Represented(weave(chunk, rows))

    def contrast(self, vectors: Tensor, constants: Tensor | None, batch: Batch, world: World) -> Contrast:
        scores = self.gather(vectors[:, -1:], batch, world)
        loss = losses.ltr(
            scores.queries[:, 0],
            scores.passages[:, 0],
            scores.targets(),
            exclude=scores.exclude(),
            total=scores.total,
        )
        return Contrast(loss)

    def part(self, side: str, vectors: Tensor) -> Tensor:
        """What vectors of a side add to W{q, d} + b; the bias is the passage's."""
        weight, bias = self.head.weight[0], self.head.bias[0]
        of_query, of_passage = weight.split(len(weight) // 2)
        with torch.autocast(vectors.device.type, enabled=False):
            x = vectors.to(weight.dtype)
            return x @ of_query if side == "query" else x @ of_passage + bias

    @torch.no_grad()
    def scores(self, query: NDArray[np.float32], passages: NDArray[np.float32]) -> NDArray[np.floating]:
        device = self.head.weight.device
        q, d = (torch.from_numpy(x).to(device) for x in (query[None], passages))
        summed: NDArray[np.float32] = (self.part("query", q) + self.part("passage", d)).float().cpu().numpy()
        return summed

    def save_head(self, folder: Path) -> None:
        """The head beside the model's files."""
        state = {name: value.detach().cpu().contiguous() for name, value in self.head.state_dict().items()}
        save_file(state, folder / LTR_HEAD, metadata={"format": "pt"})
