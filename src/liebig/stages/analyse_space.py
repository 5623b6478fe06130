"""`liebig analyse space`: the shape of a vector space: alignment, uniformity, isotropy, hubness, effective dimension.

The measures are functions on arrays; each cites its source. They do not replace a retrieval measure: they describe how
a space fails, not how well it searches. Arrays are N × D; sums over all pairs are computed in tiles, so that N = 50,000
needs 0.1 GB instead of 20.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from liebig.base.config import Config, InputPath, ModelPath
from liebig.base.errors import DataError
from liebig.base.pipeline import Stage
from liebig.base.records import Passage
from liebig.base.rng import draw
from liebig.base.workspace import Folder
from liebig.evaluation.encoders import ModelScorer
from liebig.evaluation.scoring import system_names
from liebig.evaluation.tables import write_table
from liebig.evaluation.tasks import Task, read_task
from liebig.vectors.topk import topk

Floats = NDArray[np.floating]
TILE = 2048


@dataclass(frozen=True, slots=True)
class Hubness:
    """How unevenly passages are found: skewness of the k-occurrence, share never found, largest share of finds."""

    skewness: float
    never: float
    largest: float


def unit(vectors_ND: Floats) -> NDArray[np.float64]:
    """Vectors of length 1; zero vectors stay zero."""
    vectors = np.asarray(vectors_ND, dtype=np.float64)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)


def alignment(a_ND: Floats, b_ND: Floats, alpha: float = 2.0) -> float:
    """Mean distance of positive pairs on the sphere, to the power alpha (Wang and Isola 2020). Lower is nearer."""
    distances = np.linalg.norm(unit(a_ND) - unit(b_ND), axis=1)
    return float(np.mean(distances**alpha))


def uniformity(vectors_ND: Floats, t: float = 2.0) -> float:
    """log of the mean of exp(-t · squared distance) over all pairs on the sphere (Wang and Isola 2020).

    Lower is more even.
    """
    x = unit(vectors_ND)
    assert len(x) > 1
    total = sum(float(np.exp(2 * t * (tile - 1)).sum()) for tile in _upper_tiles(x))
    return float(np.log(total / (len(x) * (len(x) - 1) / 2)))


def mean_cosine(vectors_ND: Floats) -> float:
    """Mean cosine of all pairs (Ethayarajh 2019): 0 for directions spread evenly, near 1 for a narrow cone."""
    x = unit(vectors_ND)
    n = len(x)
    together = x.sum(axis=0)
    return float((together @ together - np.einsum("nd,nd->", x, x)) / (n * (n - 1)))


def isotropy(vectors_ND: Floats) -> float:
    """Least over largest partition function along the principal directions (Mu and Viswanath 2018): 1 is isotropic."""
    x = unit(vectors_ND)
    _, directions = np.linalg.eigh(x.T @ x)
    totals = np.exp(x @ directions).sum(axis=0)
    negative = np.exp(-(x @ directions)).sum(axis=0)
    both = np.concatenate([totals, negative])
    return float(both.min() / both.max())


def spectrum(vectors_ND: Floats) -> NDArray[np.float64]:
    """Share of the variance along each principal direction, descending."""
    x = np.asarray(vectors_ND, dtype=np.float64)
    x = x - x.mean(axis=0)
    values = np.clip(np.linalg.eigvalsh(x.T @ x)[::-1], 0, None)
    return values / values.sum() if values.sum() > 0 else values


def participation_ratio(shares: NDArray[np.float64]) -> float:
    """Effective dimension as (sum)^2 / sum of squares of the variances."""
    return float(shares.sum() ** 2 / (shares**2).sum()) if shares.sum() > 0 else 0.0


def effective_rank(shares: NDArray[np.float64]) -> float:
    """Effective dimension as exp of the spectrum's entropy (Roy and Vetterli 2007)."""
    kept = shares[shares > 0]
    return float(np.exp(-(kept * np.log(kept)).sum())) if kept.size else 0.0


def k_occurrence(neighbours_QK: NDArray[np.integer], passages: int) -> NDArray[np.int64]:
    """How often each passage is among the k found (Radovanović et al. 2010)."""
    return np.bincount(neighbours_QK[neighbours_QK >= 0], minlength=passages).astype(np.int64)


def hubness(counts: NDArray[np.integer]) -> Hubness:
    """The skewness of the k-occurrence, and its two ends."""
    values = counts.astype(np.float64)
    deviation = values.std()
    skewness = float(np.mean((values - values.mean()) ** 3) / deviation**3) if deviation > 0 else 0.0
    return Hubness(skewness, float(np.mean(values == 0)), float(values.max() / max(values.sum(), 1)))


def _upper_tiles(x_ND: NDArray[np.float64]) -> Iterator[NDArray[np.float64]]:
    """Cosines of all pairs i < j, a tile at a time."""
    for a in range(0, len(x_ND), TILE):
        for b in range(a, len(x_ND), TILE):
            tile = x_ND[a : a + TILE] @ x_ND[b : b + TILE].T
            yield tile[np.triu_indices(len(tile), 1)] if a == b else tile


def describe_space(
    model: Path, task: Task, passages: Sequence[Passage], k: int, device: str
) -> dict[str, float]:
    """The numbers of one encoder's space over some passages and, where there are any, the task's positive pairs."""
    scorer = ModelScorer(model, device, depth=k)
    vectors = scorer.embed(passages, "passage")
    queries, relevant = _positive_pairs(scorer, task)
    shares = spectrum(vectors)
    hubs = hubness(k_occurrence(_neighbours(vectors, k, scorer.device), len(vectors)))
    return ({"alignment": alignment(queries, relevant)} if len(queries) else {}) | {
        "uniformity": uniformity(vectors),
        "mean cosine": mean_cosine(vectors),
        "isotropy": isotropy(vectors),
        "participation ratio": participation_ratio(shares),
        "effective rank": effective_rank(shares),
        "hubness skewness": hubs.skewness,
        "share never found": hubs.never,
        "largest share of finds": hubs.largest,
    }


def _neighbours(vectors_ND: NDArray[np.float32], k: int, device: torch.device) -> NDArray[np.int64]:
    """The k nearest other vectors of each, by inner product."""
    _, numbers = topk(vectors_ND, vectors_ND, k + 1, device=device)
    others = numbers != np.arange(len(numbers))[:, None]
    others[others.all(axis=1), -1] = False
    return numbers[others].reshape(len(numbers), -1)


def _positive_pairs(scorer: ModelScorer, task: Task) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Vectors of queries and of a relevant passage of each."""
    assert task.judgements is not None
    best = {name: _best(task.judgements.grades(name)) for name in task.queries}
    named = set(best.values())
    passages = {passage.id: passage for passage in task.passages() if passage.id in named}
    pairs = [(query, best[name]) for name, query in task.queries.items() if best[name] in passages]
    used = dict.fromkeys(name for _, name in pairs)
    vectors = dict(zip(used, scorer.embed([passages[name] for name in used], "passage")))
    query_vectors = scorer.embed([query for query, _ in pairs], "query")
    return query_vectors, np.stack([vectors[name] for _, name in pairs]) if pairs else query_vectors


def _best(grades: dict[str, int]) -> str:
    return max((p for p, grade in grades.items() if grade > 0), key=lambda p: (grades[p], p), default="")


class SpaceConfig(Config):
    """`liebig analyse space MODEL…`: alignment, uniformity, isotropy, hubness, effective dimension."""

    models: tuple[ModelPath, ...] = Field(description="Model folders.")
    collection: InputPath = Field(
        description="Collection with passages; alignment also needs its judgements."
    )
    split: str | None = Field(
        None, description="Split whose queries and relevant passages are the pairs for alignment."
    )
    names: tuple[str, ...] = Field((), description="Names of the models, in order.")
    count: int = Field(10_000, ge=10, description="Number of passages, drawn at random.")
    k: int = Field(10, ge=1, description="Number of neighbours per passage for hubness.")
    device: str = Field("auto", description="auto, cpu or cuda.")
    seed: int = Field(0, ge=0, description="Seed of the random sample.")


def run(config: SpaceConfig, folder: Folder) -> None:
    """Alignment, uniformity, isotropy, hubness, effective dimension."""

    names = system_names(config.models, config.names)
    task = read_task(config.collection, split=config.split, kind="judgements")
    passages = draw(task.passages(), config.count, config.seed)
    if len(passages) < 2:
        raise DataError(
            "the analysis needs at least two passages",
            file=config.collection,
            fix="use a collection with more",
        )
    descriptions = [describe_space(path, task, passages, config.k, config.device) for path in config.models]
    folder.write_json("space.json", {"passages": len(passages), "models": dict(zip(names, descriptions))})
    header = ["measure", *names]
    rows = [[key, *(f"{one[key]:.4f}" for one in descriptions)] for key in descriptions[0]]
    write_table(folder, "space.md", header, rows, left=1)


STAGE = Stage(
    "analyse space",
    SpaceConfig,
    run,
    "liebig analyse space runs/mlm/model --collection runs/collection --out runs/space",
    positional="models",
)
