"""Ensembles of runs: the hits of several runs as one run, by ranks or by scores brought to one scale.

A query that a run lacks counts as one that found nothing. Queries come in the order of the first run that has them.
Cost: all runs in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from liebig.data.items import Options
from liebig.data.sources import DiskSource
from liebig.data.trec import by_query, read_run, run_lines
from liebig.records import Hit
from liebig.rerank.fuse_config import FuseConfig
from liebig.search.fuse import reciprocal_rank, weighted
from liebig.search.systems import Found
from liebig.workspace import Folder

RUN = "run.trec"


def run(config: FuseConfig, folder: Folder) -> None:
    """Write `run.trec`."""
    runs = [read(path) for path in config.runs]
    weights = config.weights or (1.0,) * len(runs)
    with (folder.path / RUN).open("w", encoding="utf-8") as file:
        hits = fused(runs, config.by, weights, config.depth)
        file.writelines(line + "\n" for line in run_lines(hits, config.tag))


def read(path: Path) -> dict[str, Found]:
    """The hits of each query, best first."""

    def hits() -> Iterator[Hit]:
        for item in read_run(DiskSource(path), Options()):
            assert isinstance(item.record, Hit), "a run holds hits"
            yield item.record

    return {
        group[0].query: [(hit.passage, hit.score) for hit in sorted(group, key=lambda h: h.rank)]
        for group in map(list, by_query(hits()))
    }


def fused(runs: Sequence[dict[str, Found]], by: str, weights: Sequence[float], depth: int) -> Iterator[Hit]:
    """The hits of all runs together, query after query."""
    for query in dict.fromkeys(query for one in runs for query in one):
        lists = [one.get(query, []) for one in runs]
        if by == "reciprocal-rank":
            found = reciprocal_rank(lists, weights)
        else:
            found = weighted(lists, weights, "minmax" if by == "minmax" else "zscore")
        for rank, (passage, score) in enumerate(found[:depth], 1):
            yield Hit(query, passage, score, rank)
