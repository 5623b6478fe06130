"""The objective's own terms on text that is never trained on: held-out loss, accuracy, partners found.

Each held-out batch is run once without gradient, chunk by chunk; terms are summed over all batches and processes
and divided by their counts, contrastive metrics are averaged over batches. The batches are always the same ones,
masks included, so values can be compared from one evaluation to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from liebig.train.batch import Batch
from liebig.train.distributed import World
from liebig.train.objective import Objective
from liebig.train.precision import autocast

CHUNK_TOKENS = 32_768


def evaluate(
    objective: Objective,
    make: Callable[[int], Batch],
    batches: int,
    world: World,
    dtype: torch.dtype | None = None,
    chunk_tokens: int = CHUNK_TOKENS,
) -> dict[str, float]:
    """Means over `make(0)`, …; `make` gives this process's share of a batch."""
    sums: dict[str, Tensor] = {}
    counts: dict[str, int] = {}
    for number in range(batches):
        batch = make(number)
        mine = objective.counts(batch) | dict.fromkeys(_contrast_names(objective), 1)
        for name, count in mine.items():
            counts[name] = counts.get(name, 0) + count
        for name, value in _batch_sums(objective, batch, world, dtype, chunk_tokens).items():
            sums[name] = sums[name] + value if name in sums else value
    totals = world.counts(counts)
    shared = {name: totals[name] / world.size for name in _contrast_names(objective)}
    names = sorted(sums, key=_rank)
    found = world.total(torch.stack([sums[name].double() for name in names]))
    return {name: float(value) / shared.get(name, totals[name]) for name, value in zip(names, found)}


def _rank(name: str) -> tuple[bool, bool, str]:
    """Partners found first, then accuracies, then losses: the first measure decides which checkpoint is best."""
    return name != "partner_accuracy", "accuracy" not in name, name


def _contrast_names(objective: Objective) -> tuple[str, ...]:
    return ("contrast", "partner_accuracy") if objective.contrastive else ()


@torch.no_grad()
def _batch_sums(
    objective: Objective, batch: Batch, world: World, dtype: torch.dtype | None, chunk_tokens: int
) -> Mapping[str, Tensor]:
    """Summed terms of this process's share, and its share of the contrastive loss and accuracy."""
    sums: dict[str, Tensor] = {}
    vectors, constants = [], []
    for chunk in batch.chunks(chunk_tokens):
        on_device = chunk.to(world.device)
        with autocast(world.device, dtype, cache=False):
            found = objective(on_device, "represent")
            fixed = objective(on_device, "constants")
        for name, term in found.terms.items():
            sums[name] = sums[name] + term if name in sums else term
        vectors += [] if found.vectors is None else [_full(found.vectors)]
        constants += [] if fixed is None else [_full(fixed)]
    if objective.contrastive:
        contrast = objective.contrast(
            torch.cat(vectors), torch.cat(constants) if constants else None, batch.to(world.device), world
        )
        assert contrast is not None, "a contrastive objective contrasts"
        sums |= {"contrast": contrast.loss, "partner_accuracy": contrast.metrics["partner_accuracy"]}
    return sums


def _full(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()
