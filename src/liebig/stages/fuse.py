"""`liebig fuse`: the hits of several runs as one run, by ranks or by scores brought to one scale.

A query that a run lacks counts as one that found nothing. Queries come in the order of the first run that has them.
Cost: all runs in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from liebig.base.config import Config, InputPath
from liebig.base.pipeline import Stage
from liebig.base.records import Hit
from liebig.base.workspace import Folder
from liebig.formats.inputs import DiskSource
from liebig.formats.items import Options
from liebig.formats.trec import by_query, read_run, run_lines
from liebig.search.systems import Hits, reciprocal_rank, weighted


class FuseConfig(Config):
    """`liebig fuse`: several runs of the same queries as one, for example those of one recipe's seeds."""

    runs: tuple[InputPath, ...] = Field(min_length=2, description="TREC runs.")
    by: Literal["reciprocal-rank", "minmax", "zscore"] = Field(
        default="zscore", description="Fuse by reciprocal rank, or by the sum of normalised scores."
    )
    weights: tuple[float, ...] = Field(default=(), description="Weight of each run [default: equal].")
    depth: int = Field(default=1000, ge=1, description="Number of hits to write per query.")
    tag: str = Field(default="fused", description="Last column of the run.")

    @model_validator(mode="after")
    def _a_weight_a_run(self) -> FuseConfig:
        if self.weights and len(self.weights) != len(self.runs):
            raise ValueError(f"there are {len(self.runs)} runs and {len(self.weights)} weights")
        return self


RUN = "run.trec"


def run(config: FuseConfig, folder: Folder) -> None:
    """Write `run.trec`."""
    runs = [read(path) for path in config.runs]
    weights = config.weights or (1.0,) * len(runs)
    with (folder.path / RUN).open("w", encoding="utf-8") as file:
        hits = fused(runs, config.by, weights, config.depth)
        file.writelines(line + "\n" for line in run_lines(hits, config.tag))


def read(path: Path) -> dict[str, Hits]:
    """The hits of each query, best first."""

    def hits() -> Iterator[Hit]:
        for item in read_run(DiskSource(path), Options()):
            assert isinstance(item.record, Hit), "a run holds hits"
            yield item.record

    return {
        group[0].query: [(hit.passage, hit.score) for hit in sorted(group, key=lambda h: h.rank)]
        for group in map(list, by_query(hits()))
    }


def fused(runs: Sequence[dict[str, Hits]], by: str, weights: Sequence[float], depth: int) -> Iterator[Hit]:
    """The hits of all runs together, query after query."""
    for query in dict.fromkeys(query for one in runs for query in one):
        lists = [one.get(query, []) for one in runs]
        if by == "reciprocal-rank":
            hits = reciprocal_rank(lists, weights)
        else:
            hits = weighted(lists, weights, "minmax" if by == "minmax" else "zscore")
        for rank, (passage, score) in enumerate(hits[:depth], 1):
            yield Hit(query, passage, score, rank)


STAGE = Stage(
    "fuse",
    FuseConfig,
    run,
    "liebig fuse runs/seed-1/run.trec runs/seed-2/run.trec --out runs/fused",
    positional="runs",
)
