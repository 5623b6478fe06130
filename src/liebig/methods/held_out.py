"""A share of the documents that is never trained on, and the evaluation on it while training.

What is held out is a few stretches of neighbouring documents from all over a store, the same ones whatever the
seed, the source or the objective, so that no later stage trains on what an earlier one was judged by. Examples are
numbered in the order of their documents, so a stretch of documents is a stretch of examples, found by bisection.
Cost: a bisection of a short table for each example.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from liebig.base import rng
from liebig.methods.sources.token_rows import ExampleSource, TokenRow, documents_of
from liebig.store import TokenStore
from liebig.train.batch import Batch
from liebig.train.distributed import World
from liebig.train.objective import Objective
from liebig.train.precision import autocast, full, wide

Ints = NDArray[np.int64]
STRETCHES = 32
KEY = rng.key(0)
CHUNK_TOKENS = 32_768


def document_count(source: ExampleSource) -> int | None:
    """Documents of the source's store, a few of which may give no example; None where it reads no store."""
    store = getattr(source, "store", None)
    if isinstance(store, TokenStore):
        return len(store)
    inner = getattr(source, "source", None)
    return None if inner is None else document_count(inner)


@dataclass(frozen=True)
class Part:
    """Some stretches of a source's examples as a source of their own."""

    source: ExampleSource
    begins: Ints  # first example of each stretch, ascending
    ends: Ints  # running number of examples at the end of each stretch

    @classmethod
    def of(cls, source: ExampleSource, stretches: Ints) -> Part:
        """From begin and end of each stretch."""
        stretches = stretches[stretches[:, 1] > stretches[:, 0]]
        return cls(source, stretches[:, 0], np.cumsum(stretches[:, 1] - stretches[:, 0]))

    def __len__(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def examples(self, numbers: Ints) -> Ints:
        stretch = np.searchsorted(self.ends, numbers, side="right")
        before = np.concatenate(([0], self.ends))[stretch]
        return np.asarray(self.begins[stretch] + numbers - before)

    def draw(self, examples: Ints, epoch: int, seed: int) -> TokenRow:
        return self.source.draw(self.examples(examples), epoch, seed)

    def documents(self, examples: Ints, epoch: int, seed: int) -> Ints:
        return documents_of(self.source, self.examples(examples), epoch, seed)

    def vectors(self, examples: Ints) -> NDArray[np.float32]:
        """The teacher's vectors of the inner source's examples, where it has them."""
        inner: Any = self.source
        vectors: NDArray[np.float32] = inner.vectors(self.examples(examples))
        return vectors


def hold_out(source: ExampleSource, share: float) -> tuple[ExampleSource, ExampleSource | None]:
    """The source without a share of its documents, and that share (None where it would be empty)."""
    documents = document_count(source)
    if documents is None:
        held = stretches(len(source), share)
    else:
        held = first_examples(source, stretches(documents, share).reshape(-1)).reshape(-1, 2)
    part = Part.of(source, held)
    if len(part) == 0:
        return source, None
    kept = np.concatenate(([0], held.reshape(-1), [len(source)])).reshape(-1, 2)
    return Part.of(source, kept), part


def stretches(n: int, share: float) -> Ints:
    """Begin and end of a few stretches of range(n) that make up the share, one somewhere in each equal part."""
    size = round(share * n)
    pieces = min(STRETCHES, size)
    if pieces == 0:
        return np.zeros((0, 2), np.int64)
    sizes = np.full(pieces, size // pieces)
    sizes[: size % pieces] += 1
    rooms = np.linspace(0, n, pieces + 1).astype(np.int64)
    begins = rooms[:-1] + rng.integers(KEY, np.arange(pieces), np.diff(rooms) - sizes + 1)
    return np.stack([begins, begins + sizes], axis=1)


def first_examples(source: ExampleSource, documents: Ints) -> Ints:
    """The first example of each of these documents or of one after it; all bisected at once."""
    low, high = np.zeros(len(documents), np.int64), np.full(len(documents), len(source))
    while (low < high).any():
        open_ = low < high
        middle = (low + high) // 2
        before = np.zeros(len(documents), np.bool_)
        before[open_] = documents_of(source, middle[open_], 0, 0) < documents[open_]
        low = np.where(open_ & before, middle + 1, low)
        high = np.where(open_ & ~before, middle, high)
    return low


def evaluate(
    objective: Objective,
    make: Callable[[int], Batch],
    batches: int,
    world: World,
    dtype: torch.dtype | None = None,
    chunk_tokens: int = CHUNK_TOKENS,
) -> dict[str, float]:
    """The objective's own terms on held-out batches: means over `make(0)`, …, each this process's share of a batch.

    Terms are summed over all batches and processes and divided by their counts; the contrastive loss and whatever
    metrics come with it are averaged over batches. The batches are always the same ones, masks included, so values of
    different steps can be compared.
    """
    sums: dict[str, Tensor] = {}
    counts: dict[str, int] = {}
    per_batch: set[str] = set()
    for number in range(batches):
        batch = make(number)
        for name, count in objective.counts(batch).items():
            counts[name] = counts.get(name, 0) + count
        terms, metrics = _batch_values(objective, batch, world, dtype, chunk_tokens)
        per_batch |= set(metrics)
        for name, value in (terms | metrics).items():
            sums[name] = sums[name] + value if name in sums else value
    divisors = world.counts(counts) | dict.fromkeys(per_batch, batches)
    # Partners found first, then accuracies, then losses: the first measure decides which checkpoint is best.
    names = sorted(sums, key=lambda name: (name != "partner_accuracy", "accuracy" not in name, name))
    sums_of_all = world.total(torch.stack([wide(sums[name]) for name in names]))
    return {name: float(value) / divisors[name] for name, value in zip(names, sums_of_all)}


@torch.no_grad()
def _batch_values(
    objective: Objective, batch: Batch, world: World, dtype: torch.dtype | None, chunk_tokens: int
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Summed terms of this process's share, and its share of the contrastive loss and of the contrast's metrics."""
    sums: dict[str, Tensor] = {}
    vectors, constants = [], []
    for chunk in batch.chunks(chunk_tokens):
        on_device = chunk.to(world.device)
        with autocast(world.device, dtype, cache=False):
            result = objective.represent(on_device)
            fixed = objective.constants(on_device)
        for name, term in result.terms.items():
            sums[name] = sums[name] + term if name in sums else term
        vectors += [] if result.vectors is None else [full(result.vectors)]
        constants += [] if fixed is None else [full(fixed)]
    metrics: dict[str, Tensor] = {}
    if objective.contrastive:
        contrast = objective.contrast(
            torch.cat(vectors), torch.cat(constants) if constants else None, batch.to(world.device), world
        )
        assert contrast is not None, "a contrastive objective contrasts"
        metrics = {**contrast.metrics, "contrast": contrast.loss}
    return sums, metrics
