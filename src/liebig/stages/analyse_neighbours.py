"""`liebig analyse neighbours`: neighbourhood recall between two retrievers (coCondenser, Eq. 17 and Fig. 3).

    nb-recall^n@k = |top k of the first ∩ top n of the second| / n, averaged over queries

With the retrievers of training stages one and two, it measures how many of the negatives that stage two trains with
the first retriever already finds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from liebig.base.config import Config, InputPath
from liebig.base.errors import DataError, RecipeError
from liebig.base.pipeline import Stage
from liebig.base.workspace import Folder
from liebig.evaluation.plots import Axes, Series, lines, write_svg
from liebig.evaluation.runs import needed_run, ranked_in
from liebig.evaluation.scoring import system_names
from liebig.evaluation.tables import write_table

Ranked = Mapping[str, Sequence[str]]


def nb_recall(first: Sequence[str], second: Sequence[str], n: int, ks: Sequence[int]) -> NDArray[np.float64]:
    """Of one query, for each k. A second retriever with fewer than n hits is still divided by n, as in the equation."""
    place = {passage: rank for rank, passage in enumerate(first, 1)}
    ranks = np.array([place.get(passage, len(first) + max(ks) + 1) for passage in second[:n]], dtype=np.int64)
    return np.array([np.sum(ranks <= k) / n for k in ks], dtype=np.float64)


def curve(first: Ranked, second: Ranked, n: int, ks: Sequence[int]) -> NDArray[np.float64]:
    """Queries × ks, over the queries that the second retriever has; one the first has not counts with 0."""
    return np.stack([nb_recall(first.get(query, ()), hits, n, ks) for query, hits in second.items()])


def _ranked(path: Path, depth: int) -> dict[str, list[str]]:
    return ranked_in(needed_run(path), depth)


Depth = Annotated[int, Field(ge=1)]


class NeighboursConfig(Config):
    """`liebig analyse neighbours`: nb-recall^n@k between the retrievers of two training stages."""

    first: tuple[InputPath, ...] = Field(min_length=1, description="Runs of the first stage, one per system.")
    second: tuple[InputPath, ...] = Field(
        min_length=1, description="Runs of the second stage, in the same order."
    )
    names: tuple[str, ...] = Field((), description="Names of the systems, in order.")
    n: tuple[Depth, ...] = Field(
        (50, 100), min_length=1, description="Number of hits of the second stage that should be covered."
    )
    k: tuple[Depth, ...] = Field(
        (10, 20, 50, 100, 200, 500, 1000), min_length=1, description="Depths of the first stage."
    )


def run(config: NeighboursConfig, folder: Folder) -> None:
    """nb-recall^n@k (coCondenser, Equation 17)."""
    if len(config.first) != len(config.second):
        raise RecipeError(
            "the two stages have different numbers of runs", fix="give one run per stage for each system"
        )
    names = system_names(config.second, config.names)
    ks = sorted(set(config.k))
    results: list[dict[str, Any]] = []
    for name, first, second in zip(names, config.first, config.second):
        later = _ranked(second, max(config.n))
        earlier = _ranked(first, max(config.k))
        if not later.keys() & earlier.keys():
            raise DataError(
                f"has no query in common with {second}", file=first, fix="search the same queries"
            )
        for n in config.n:
            values = curve(earlier, later, n, ks)
            results.append({"system": name, "n": n, "k": ks, "queries": len(values)})
            results[-1]["recall"] = values.mean(axis=0).tolist()
    series = [
        Series(
            f"{one['system']}, n = {one['n']}",
            one["k"],
            one["recall"],
            dashed=i % len(config.n) > 0,
            colour=i // len(config.n),
        )
        for i, one in enumerate(results)
    ]
    write_svg(folder.path / "neighbours.svg", lines("neighbours", series, Axes("k", "nb-recall", log_x=True)))
    folder.write_json("neighbours.json", results)
    rows = [[one["system"], str(one["n"]), *(f"{value:.3f}" for value in one["recall"])] for one in results]
    write_table(folder, "neighbours.md", ["system", "n", *(f"k = {k}" for k in ks)], rows)


STAGE = Stage(
    "analyse neighbours",
    NeighboursConfig,
    run,
    "liebig analyse neighbours first=[runs/one.trec] second=[runs/two.trec] --out runs/neighbours",
)
