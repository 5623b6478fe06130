"""One step for every objective: the gradient of a batch, whole or in chunks, on one process or many.

1. Vectors of each chunk, without graph (the last chunk keeps its graph, so one chunk is simply the whole batch).
2. The contrastive loss of all vectors, and its gradient with respect to them: the cache.
3. Each chunk again with the same random numbers, backward on its own terms, each divided by its count over the
   whole batch, plus the dot product of its vectors with their cached gradient. Gradients are then summed over
   processes once. Without a contrastive loss only step 3 remains: plain accumulation.

Without dropout the gradient does not depend on chunks and processes. Dropout is drawn by (seed, process, chunk): both
passes over a chunk draw the same, other chunks and other processes draw other numbers.

Cost: memory of one chunk; one extra forward pass for all chunks but the last where there is a contrast.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from liebig import losses
from liebig.base import machine
from liebig.base.errors import TrainingError
from liebig.base.rng import key
from liebig.train.batch import Batch
from liebig.train.distributed import ALONE, World
from liebig.train.gradients import reduce_gradients, trainable
from liebig.train.objective import Contrast, Objective, Represented
from liebig.train.precision import autocast, full, wide

FULL = (*machine.GPU_FULL, *machine.MEMORY_FULL)


class OutOfMemory(Exception):
    """At least one process ran out of memory; the gradients are worthless, the weights untouched."""


@dataclass(frozen=True)
class StepResult:
    """The result of a step over all processes, without gradient: `loss` is what was differentiated."""

    loss: Tensor
    losses: Mapping[str, Tensor]
    metrics: Mapping[str, Tensor]
    counts: Mapping[str, int]
    chunks: int
    constants: Tensor | None = field(default=None, repr=False)


def step(
    objective: Objective,
    batch: Batch,
    world: World = ALONE,
    *,
    chunk_tokens: int | None = None,
    dtype: torch.dtype | None = None,
    scale: float = 1.0,
    seed: int = 0,
    constants: Tensor | None = None,
    diagnose: bool = False,
) -> StepResult:
    """Set every parameter's gradient to that of the global batch, times `scale`.

    `batch` is this process's share, in host memory. The random numbers of chunk i are a function of (`seed`, i).
    `constants` of an earlier call on the same batch are used again (SAM). `diagnose` adds metrics of the vectors.
    """
    parameters = trainable(objective)
    for parameter in parameters:
        parameter.grad = None
    pieces = [chunk.to(world.device, non_blocking=True) for chunk in batch.chunks(chunk_tokens)]
    mine = {**objective.counts(batch), "examples": batch.n, "tokens": batch.tokens}
    run = _Run(objective, pieces, world.counts(mine), world, dtype, scale, seed, constants)
    with forked(world.device):
        if objective.contrastive:
            whole = pieces[0] if len(pieces) == 1 else batch.to(world.device, non_blocking=True)
            run.cached(whole)
        else:
            run.accumulated()
    reduce_gradients(parameters, world)
    return run.result(diagnose)


@dataclass
class _Run:
    """One step under way."""

    objective: Objective
    pieces: Sequence[Batch]
    counts: Mapping[str, int]
    world: World
    dtype: torch.dtype | None
    scale: float
    seed: int
    constants: Tensor | None
    sums: dict[str, Tensor] = field(default_factory=dict)
    metrics: dict[str, Tensor] = field(default_factory=dict)
    seen: list[Tensor] = field(default_factory=list)

    def accumulated(self) -> None:
        """No contrast: each chunk's own terms, one after the other."""
        with _agreed(self.world):
            for i in range(len(self.pieces)):
                represented = self._represent(i)
                if represented.vectors is not None:
                    self.seen.append(full(represented.vectors.detach()))
                self._backward(i, represented, None)

    def cached(self, whole: Batch) -> None:
        """The three passes of the module's docstring."""
        last = len(self.pieces) - 1
        with _agreed(self.world):
            kept = self._first_pass(last)
        cache = self._contrast(whole)
        with _agreed(self.world):
            self._backward(last, kept, cache[last])
            del kept
            for i in range(last):
                self._backward(i, self._represent(i), cache[i])

    def _first_pass(self, last: int) -> Represented:
        fixed = []
        for i in range(last + 1):
            if i < last:
                with self._running(i, "vectors"), torch.no_grad():
                    vectors = self.objective.vectors(self.pieces[i])
            else:
                kept = self._represent(i)
                assert kept.vectors is not None, "a contrastive objective returns vectors"
                vectors = kept.vectors.detach()
            self.seen.append(full(vectors))
            if self.constants is None:
                with self._running(i, "constants"), torch.no_grad():
                    fixed.append(self.objective.constants(self.pieces[i]))
        rows = [full(x) for x in fixed if x is not None]
        self.constants = torch.cat(rows) if rows else self.constants
        return kept

    def _contrast(self, whole: Batch) -> Sequence[Tensor]:
        """The gradient of the contrastive loss with respect to the vectors of each chunk, scaled.

        Parameters that the loss itself has (a temperature) get theirs here, so the scale belongs here too.
        """
        vectors = torch.cat(self.seen).requires_grad_()
        with _alone_in_memory(self.world), torch.autocast(self.world.device.type, enabled=False):
            contrast = self.objective.contrast(vectors, self.constants, whole, self.world)
            assert isinstance(contrast, Contrast), "contrast returns a Contrast"
            weight = self.objective.weights.get("contrast", 1.0)
            (contrast.loss * (weight * self.scale)).backward()
        self._add("contrast", contrast.loss)
        self.metrics.update({name: wide(value) for name, value in contrast.metrics.items()})
        assert vectors.grad is not None, "the contrastive loss does not depend on the vectors"
        return vectors.grad.split([len(x) for x in self.seen])

    def _represent(self, i: int) -> Represented:
        with self._running(i, "represent"):
            return self.objective.represent(self.pieces[i])

    def _backward(self, i: int, represented: Represented, cache: Tensor | None) -> None:
        parts = []
        for name, term in represented.terms.items():
            mean = term / max(1, self.counts[name])
            self._add(name, mean)
            weight = self.objective.weights.get(name, 1.0)
            if weight and mean.requires_grad:
                parts.append(full(mean) * (weight * self.scale))
        if cache is not None and represented.vectors is not None and len(represented.vectors):
            vectors = full(represented.vectors)
            parts.append((vectors * cache).sum())
            self._replayed(vectors.detach(), self.seen[i])
        if parts:
            torch.stack(parts).sum().backward()

    def _replayed(self, again: Tensor, before: Tensor) -> None:
        """How far the second pass is from the first: rounding, unless randomness was drawn in another order."""
        off = wide((again - before).abs().max()) / wide(before.abs().max().clamp(min=1e-30))
        old = self.metrics.get("replay")
        self.metrics["replay"] = off if old is None else torch.maximum(old, off)

    def _add(self, name: str, value: Tensor) -> None:
        value = wide(value)
        self.sums[name] = self.sums[name] + value if name in self.sums else value

    @contextmanager
    def _running(self, i: int, part: str) -> Iterator[None]:
        """Chunk i's own random numbers and precision; the pass without graph leaves no cast weights behind."""
        draws = 1 if part == "constants" else 0
        seed = int(key(self.seed, self.world.rank, i, draws) >> 1)
        # torch.manual_seed notes the call stack for every device that is not in use: a third of a small step.
        torch.default_generator.manual_seed(seed)
        if self.world.device.type == "cuda":
            torch.cuda.manual_seed_all(seed)
        elif self.world.device.type == "mps":
            torch.mps.manual_seed(seed)
        with autocast(self.world.device, self.dtype, cache=part == "represent"):
            yield

    def result(self, diagnose: bool) -> StepResult:
        if diagnose and self.seen:
            vectors = torch.cat(self.seen)
            share = 1 / self.world.size
            self.metrics["spread"] = wide(losses.spread(vectors)) * share
            self.metrics["uniformity"] = wide(losses.uniformity(vectors)) * share
        replay = self.metrics.pop("replay", None)
        sums, metrics = _totals(self.world, self.sums, self.metrics)
        if diagnose and replay is not None:
            metrics["replay"] = replay
        weights = self.objective.weights
        loss = torch.stack([value * weights.get(name, 1.0) for name, value in sums.items()]).sum()
        return StepResult(loss, sums, metrics, self.counts, len(self.pieces), self.constants)


def _totals(
    world: World, sums: Mapping[str, Tensor], metrics: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Sums over processes of all losses and metrics, in one exchange."""
    names = sorted(sums), sorted(metrics)
    values = [sums[name] for name in names[0]] + [metrics[name] for name in names[1]]
    if not values:
        raise TrainingError("the objective returned no loss", fix="give one of its terms a weight")
    totals = world.total(torch.stack([v.to(world.device) for v in values])).unbind()
    cut = len(names[0])
    return dict(zip(names[0], totals[:cut])), dict(zip(names[1], totals[cut:]))


@contextmanager
def forked(device: torch.device) -> Iterator[None]:
    """The step's own random numbers leave everyone else's as they were."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        yield


@contextmanager
def _noticed() -> Iterator[list[bool]]:
    """A list that is filled if memory ran out, not with the error, which would keep tensors. Others are raised."""
    ran_out: list[bool] = []
    try:
        yield ran_out
    except RuntimeError as error:  # some libraries run out of memory under other names
        if not (isinstance(error, torch.OutOfMemoryError) or any(words in str(error) for words in FULL)):
            raise
        ran_out.append(True)


@contextmanager
def _agreed(world: World) -> Iterator[None]:
    """Out of memory in one process is out of memory in all, so that none waits for a sum that never comes."""
    with _noticed() as ran_out:
        yield
    if world.any(bool(ran_out)):
        raise OutOfMemory


@contextmanager
def _alone_in_memory(world: World) -> Iterator[None]:
    """Between gathering and its gradient the processes cannot turn back together; alone, one can."""
    with _noticed() as ran_out:
        yield
    if ran_out and world.size > 1:
        raise TrainingError(
            "the contrastive loss does not fit in memory", fix="use a smaller batch or fewer chunk_tokens"
        )
    if ran_out:
        raise OutOfMemory
