"""The recipe of `liebig fuse`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from liebig.config import Config, InputPath


class FuseConfig(Config):
    """`liebig fuse`: several runs of the same queries as one, for example those of one recipe's seeds."""

    runs: tuple[InputPath, ...] = Field(min_length=2, description="TREC runs.")
    by: Literal["reciprocal-rank", "minmax", "zscore"] = Field(
        default="zscore", description="Ranks, or the sum of scores brought to one scale."
    )
    weights: tuple[float, ...] = Field(
        default=(), description="How much each run counts [default: all the same]."
    )
    depth: int = Field(default=1000, ge=1, description="Hits of a query that are written.")
    tag: str = Field(default="fused", description="The last column of the run.")

    @model_validator(mode="after")
    def _a_weight_a_run(self) -> FuseConfig:
        if self.weights and len(self.weights) != len(self.runs):
            raise ValueError(f"there are {len(self.runs)} runs and {len(self.weights)} weights")
        return self
