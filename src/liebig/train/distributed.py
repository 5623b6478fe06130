"""Several processes that compute what one would: shares of a batch, gathered vectors, sums.

Each process takes a contiguous share of whole examples and returns its share of every loss; gradients are
summed. Vectors are gathered once; each process differentiates its own rows of the loss against all vectors, and
the gradients that land on others' vectors are summed back to their owners. That is the exact gradient of the
global mean for any number of processes, up to the dropout that each draws. Ranks are global ranks, so several
nodes need no special handling.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from liebig.base import machine
from liebig.base.errors import TrainingError
from liebig.train.batch import Batch

CPU = torch.device("cpu")
SLOTS = 32
"""The most counts one exchange can carry."""


class BatchRows(NamedTuple):
    """The rows of all processes in rank order, and where this process's begin."""

    rows: Tensor
    start: int


@dataclass(frozen=True)
class World:
    """This process among `size`; alone by default. `device` is where it computes."""

    rank: int = 0
    size: int = 1
    device: torch.device = CPU

    @property
    def first(self) -> bool:
        """Is this the process that writes and speaks?"""
        return self.rank == 0

    def share(self, n: int) -> tuple[int, int]:
        """The contiguous range of n examples that is this process's; shares differ by at most one."""
        if n < self.size:
            raise TrainingError(
                f"a batch of {n} examples cannot be shared by {self.size} processes",
                fix="make the batch larger or use fewer processes",
            )
        return n * self.rank // self.size, n * (self.rank + 1) // self.size

    def slice(self, batch: Batch) -> Batch:
        return batch if self.size == 1 else batch.slice(*self.share(batch.n))

    def gather(self, rows: Tensor) -> BatchRows:
        """All processes' rows; shares may differ in length. Gradients flow back to their owners, summed."""
        if self.size == 1:
            return BatchRows(rows, 0)
        lengths = torch.zeros(self.size, dtype=torch.long)
        lengths[self.rank] = len(rows)
        dist.all_reduce(lengths)
        sizes: list[int] = lengths.tolist()
        return BatchRows(_Gather.apply(rows, self.rank, sizes), sum(sizes[: self.rank]))

    def total(self, x: Tensor) -> Tensor:
        if self.size > 1:
            x = x.clone()
            dist.all_reduce(x)
        return x

    def counts(self, mine: Mapping[str, int]) -> dict[str, int]:
        """Sums of named counts over processes; the names must be the same everywhere."""
        if self.size == 1:
            return dict(mine)
        names = sorted(mine)
        assert len(names) < SLOTS, "too many counts"
        row = torch.zeros(SLOTS, dtype=torch.long)
        row[0] = zlib.crc32(",".join(names).encode())
        row[1 : len(names) + 1] = torch.tensor([mine[name] for name in names], dtype=torch.long)
        table = [torch.zeros_like(row) for _ in range(self.size)]
        dist.all_gather(table, row)
        rows = torch.stack(table)
        if bool((rows[:, 0] != rows[0, 0]).any()):
            raise TrainingError("the processes have different kinds of examples in one batch")
        return dict(zip(names, rows[:, 1 : len(names) + 1].sum(dim=0).tolist()))

    def any(self, flag: bool) -> bool:
        """Is it so in at least one process? (A meeting point of all.)"""
        return self.largest(int(flag)) > 0

    def largest(self, value: int) -> int:
        if self.size == 1:
            return value
        x = torch.tensor([value], dtype=torch.long)
        dist.all_reduce(x, op=dist.ReduceOp.MAX)
        return int(x.item())

    def smallest(self, value: int) -> int:
        return -self.largest(-value)

    def told(self, values: Mapping[str, float]) -> dict[str, float]:
        """The first process's numbers, everywhere; the names must be the same."""
        if self.size == 1 or not values:
            return dict(values)
        names = sorted(values)
        x = torch.tensor([values[name] for name in names], dtype=torch.float64)
        dist.broadcast(x, src=0)
        told = dict(zip(names, x.tolist()))
        return {name: told[name] for name in values}

    def barrier(self) -> None:
        self.largest(0)


ALONE = World()


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, rank: int, sizes: list[int]) -> Tensor:
        ctx.rank, ctx.sizes = rank, sizes
        longest = max(sizes)
        padded = rows.new_zeros(longest, *rows.shape[1:])
        padded[: len(rows)] = rows
        table = [torch.empty_like(padded) for _ in sizes]
        dist.all_gather(table, padded)
        return torch.cat([part[:size] for part, size in zip(table, sizes)])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        # A copy: the sum is taken in place, and autograd may hand out a tensor it still needs.
        grad = grad.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(grad)
        start = sum(ctx.sizes[: ctx.rank])
        return grad[start : start + ctx.sizes[ctx.rank]], None, None


def connect(*, cpu: bool = False, mps: bool = False, minutes: float = 30) -> World:
    """Join the processes torchrun started, or be alone. For commands: nothing else asks torch how it was started.

    Host values travel by gloo and device tensors by nccl, so that counting never waits for the device. With `mps`
    a process that is alone takes Apple's GPU where the user asks for it.
    """
    cuda = torch.cuda.is_available() and not cpu
    launched = dist.is_available() and dist.is_torchelastic_launched()
    local = dist.get_node_local_rank() if launched else 0
    device = torch.device("cuda", local) if cuda else CPU
    if cuda:
        torch.cuda.set_device(device)
    if not launched:
        return World(device=torch.device("mps") if mps and machine.wants_mps() else device)
    if not dist.is_initialized():
        backend = "cpu:gloo,cuda:nccl" if cuda else "gloo"
        dist.init_process_group(backend, timeout=timedelta(minutes=minutes))
    return World(dist.get_rank(), dist.get_world_size(), device)


def disconnect() -> None:
    """Leave the other processes; does nothing when alone."""
    if dist.is_initialized():
        dist.destroy_process_group()


@contextmanager
def joined(*, cpu: bool = False, mps: bool = False) -> Iterator[World]:
    """Among the processes torchrun started, or alone; all end together, unless one fails."""
    world = connect(cpu=cpu, mps=mps)
    try:
        yield world
        world.barrier()
    finally:
        disconnect()
