"""Gradients of all processes, summed once after all chunks, and their one global norm.

Gradients are copied into buckets, the buckets summed asynchronously a few at a time, and copied back. A parameter
that has a gradient in any process gets one in all. Cost: one all-reduce of the gradients, four buckets of memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from liebig.train.distributed import World

BUCKET_BYTES = 1 << 26
IN_FLIGHT = 4


def trainable(module: nn.Module) -> list[nn.Parameter]:
    """The parameters that are trained, each once, in a fixed order."""
    return [p for p in module.parameters() if p.requires_grad]


@torch.no_grad()
def reduce_gradients(
    parameters: Sequence[nn.Parameter], world: World, bucket_bytes: int = BUCKET_BYTES
) -> None:
    """Replace each gradient by its sum over processes."""
    if world.size == 1:
        return
    grads = _agreed(parameters)
    flying: deque[tuple[Any, Tensor, list[Tensor]]] = deque()
    for bucket in _buckets(grads, bucket_bytes):
        flat = torch.cat([g.reshape(-1) for g in bucket])
        flying.append((dist.all_reduce(flat, async_op=True), flat, bucket))
        if len(flying) >= IN_FLIGHT:
            _land(*flying.popleft())
    while flying:
        _land(*flying.popleft())


def _agreed(parameters: Sequence[nn.Parameter]) -> list[Tensor]:
    """The gradients that exist in at least one process, made where they are missing."""
    have = torch.tensor([p.grad is not None for p in parameters], dtype=torch.uint8)
    dist.all_reduce(have, op=dist.ReduceOp.MAX)
    for parameter, somewhere in zip(parameters, have.tolist()):
        if somewhere and parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    return [p.grad for p in parameters if p.grad is not None]


def _buckets(grads: Iterable[Tensor], limit: int) -> Iterator[list[Tensor]]:
    bucket: list[Tensor] = []
    size = 0
    for grad in grads:
        bytes_ = grad.numel() * grad.element_size()
        if bucket and (size + bytes_ > limit or grad.dtype != bucket[0].dtype):
            yield bucket
            bucket, size = [], 0
        bucket.append(grad)
        size += bytes_
    if bucket:
        yield bucket


def _land(work: Any, flat: Tensor, bucket: list[Tensor]) -> None:
    work.wait()
    torch._foreach_copy_(
        bucket, [part.view_as(g) for part, g in zip(flat.split([g.numel() for g in bucket]), bucket)]
    )


@torch.no_grad()
def global_norm(tensors: Sequence[Tensor]) -> Tensor:
    """One norm over all the tensors, as if they were one vector."""
    return nn.utils.get_total_norm(tensors) if tensors else torch.zeros(())


@torch.no_grad()
def clip(parameters: Iterable[nn.Parameter], limit: float | None) -> Tensor:
    """Scale the gradients so that their global norm is at most `limit`; returns the norm they had."""
    with_grad = [p for p in parameters if p.grad is not None]
    norm = global_norm([p.grad for p in with_grad if p.grad is not None])
    if limit is not None and with_grad:
        nn.utils.clip_grads_with_norm_(with_grad, limit, norm)
    return norm
