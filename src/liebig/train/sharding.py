"""Parameters, gradients and optimiser state divided over processes (FSDP2), for models too large for one.

Every layer of a list of layers is sharded by itself and the rest with the objective. Gradients are summed, not
averaged, because each process already holds its share of the global mean, and only with the last chunk.
FSDP2 is imported when it is asked for; it costs more than a second.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from liebig.train.distributed import World

TRAINED = 16  # bytes of a trained number: weight, gradient and two moments in float32


def shard(objective: nn.Module, world: World) -> None:
    """Divide the objective over all processes, layer by layer. Call it before the optimiser is built."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FSDPModule, fully_shard

    mesh = init_device_mesh(world.device.type, (world.size,))
    for module in list(objective.modules()):
        if isinstance(module, nn.ModuleList):
            for layer in module:
                fully_shard(layer, mesh=mesh)
    fully_shard(objective, mesh=mesh)
    for module in objective.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)


def too_large(objective: nn.Module, world: World) -> bool:
    """Whether whole copies would take more than half of some process's GPU, so that FSDP pays. (A meeting point.)"""
    need = sum(x.numel() * (TRAINED if x.requires_grad else 4) for x in objective.parameters())
    return world.smallest(device_memory(world.device)) < 2 * need


def device_memory(device: torch.device) -> int:
    """Bytes of a GPU; a machine's own memory is shared by its processes, and never said to be too small."""
    return int(torch.cuda.get_device_properties(device).total_memory) if device.type == "cuda" else 1 << 62


def sharded(objective: nn.Module) -> bool:
    """Is the objective divided? Then it sums its gradients over processes on its own."""
    return hasattr(objective, "set_requires_gradient_sync")


def synchronise(objective: Any, last: bool) -> None:
    """Let a sharded objective reduce its gradients with the coming backward pass only if it is the last."""
    if sharded(objective):
        objective.set_requires_gradient_sync(last)
        objective.set_is_last_backward(last)


def whole(x: Any) -> Tensor:
    """The tensor itself, gathered from all processes where it is sharded (a meeting point of all)."""
    full: Tensor = x.full_tensor() if hasattr(x, "full_tensor") else x
    return full


@torch.no_grad()
def fill(x: Any, value: Tensor) -> None:
    """Write a whole tensor into x, or this process's part of it where x is sharded."""
    if hasattr(x, "device_mesh"):
        from torch.distributed.tensor import distribute_tensor

        value = distribute_tensor(value.to(x.device), x.device_mesh, x.placements, src_data_rank=None)
    x.copy_(value)
