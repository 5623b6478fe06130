"""SimCLR as Contriever uses it: two views of a text, every other text's view in the batch a negative.

The encoder runs over both views, with what its folder has behind the pooling; the gradient flows through queries and
keys, and keys come from all processes.
Cost: the encoder on both views, and one more pass without gradient when the batch is cut into chunks.
Recipe: `recipes/contriever-ablations.toml`, Table 3. Docs: `docs/methods/contriever.md`.
Tests: `tests/methods/test_pretrain_simclr.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from liebig import losses
from liebig.losses.contrastive import Similarity
from liebig.methods.base import DOCUMENT, Method, MethodStart, Pooling, Preset, PretrainRecipe, Saved, Shape
from liebig.methods.cocondenser import same_document
from liebig.methods.shapes import examples, halves, plain_side
from liebig.methods.sources.token_rows import TokenRow
from liebig.model.backbone import Backbone
from liebig.model.pooling import pool, through
from liebig.text.tokenizer import Tokenizer
from liebig.train.batch import Batch, joined, unweave, woven
from liebig.train.distributed import World
from liebig.train.objective import Contrast, Represented

SIDES = ("query", "key")
DELETION: dict[Preset, float] = {"paper": 0.2, "reference": 0.1}
"""How often a token of a crop is deleted: Contriever's paper, and its released code."""


def two_views(row: TokenRow) -> Batch:
    """The shape of SimCLR and MoCo: the first sequence of an example is the query, the second the key."""
    first, second = halves(row)
    return Batch({"query": plain_side(first), "key": plain_side(second)}, examples(row))


class TwoViewsConfig(Method.Config):
    """What SimCLR and MoCo share."""

    temperature: float = Field(default=0.05, gt=0, description="Temperature: scores are divided by it.")
    similarity: Similarity = Field(default="dot", description="Dot product or cosine.")
    pooling: Pooling = Field(default="mean", description="How a text becomes a vector.")
    pairs: ClassVar[bool] = True
    singles: ClassVar[bool] = False

    def crop_defaults(self, preset: Preset) -> dict[str, float]:
        return super().crop_defaults(preset) | {"delete": DELETION[preset]}

    def shape(self, tokenizer: Tokenizer) -> Shape:
        return two_views


class SimCLR(Method):
    """InfoNCE of each query view against the key views of the whole batch; Contriever, Eq. 1."""

    class Config(TwoViewsConfig):
        """Two views of a text find each other in the batch (Contriever, in-batch)."""

        kind: Literal["simclr"] = "simclr"
        distinct_documents: bool = Field(
            default=False, description="Never use texts of the same document as negatives of each other."
        )

        @property
        def negatives(self) -> Literal["batch"]:
            return "batch"

        @property
        def extras(self) -> frozenset[str]:
            return frozenset({DOCUMENT} if self.distinct_documents else ())

    config: Config

    def __init__(self, config: Config, backbone: Backbone, tail: Sequence[nn.Module] = ()) -> None:
        super().__init__()
        self.config = config
        self.backbone = backbone
        self.tail = nn.ModuleList(tail)

    @classmethod
    def build(cls, recipe: PretrainRecipe, backbone: Backbone, start: MethodStart) -> SimCLR:
        config = recipe.objective
        assert isinstance(config, SimCLR.Config)
        return cls(config, backbone, start.tail(config.pooling))

    def represent(self, chunk: Batch) -> Represented:
        views = joined(chunk, SIDES)
        pooled = pool(self.backbone(views).last, views, self.config.pooling)
        return Represented(woven(chunk, through(self.tail, pooled), SIDES))

    def contrast(self, vectors: Tensor, constants: Tensor | None, batch: Batch, world: World) -> Contrast:
        views = unweave(batch, vectors, SIDES)
        keys = world.gather(views["key"])
        targets = torch.arange(keys.start, keys.start + batch.n)
        scored = losses.info_nce(
            views["query"],
            keys.rows,
            targets,
            temperature=self.config.temperature,
            similarity=self.config.similarity,
            exclude=same_document(batch, targets, 1, world) if self.config.distinct_documents else None,
            total=len(keys.rows),
        )
        return Contrast(scored.loss, {"partner_accuracy": scored.accuracy, "alignment": scored.alignment})

    def saved(self) -> Saved:
        return Saved(self.config.pooling, self.config.similarity, list(self.tail))
