"""What a checkpoint holds of a run: objective, optimiser and averages as named tensors, and back again.

The objective's state is everything in its state_dict: model, heads, a queue, a momentum encoder. Sharded tensors
are gathered when they are taken and divided again when they are put back. Random numbers need no state: they are
a function of the seed and the step.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from liebig.errors import TrainingError
from liebig.train.checkpoint import Checkpoints, read
from liebig.train.sharding import fill, whole


def take_module(module: nn.Module) -> dict[str, Tensor]:
    """Copies of everything in the module's state, in host memory; tied weights stay tied."""
    seen: dict[tuple[int, tuple[int, ...]], Tensor] = {}
    found = {}
    for name, value in module.state_dict().items():
        place = (value.data_ptr() if not hasattr(value, "full_tensor") else id(value), tuple(value.shape))
        if place not in seen or not value.numel():
            seen[place] = _copy(whole(value))
        found[name] = seen[place]
    return found


@torch.no_grad()
def put_module(module: nn.Module, tensors: Mapping[str, Tensor], file: Path | None = None) -> None:
    """Write a stored state into the module; names and shapes must match."""
    own = module.state_dict()
    wrong = sorted(set(own) ^ set(tensors)) or [n for n in own if own[n].shape != tensors[n].shape]
    if wrong:
        raise TrainingError(
            f"the checkpoint is of another model: {wrong[0]} differs",
            file=file,
            fix="use the recipe it was made with",
        )
    for name, value in own.items():
        fill(value, tensors[name])


def take_optimiser(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Copies of the moments of each parameter, as `number.name`."""
    state = optimiser.state_dict()["state"]
    return take_tensors({f"{i}.{name}": x for i, inner in state.items() for name, x in inner.items()})


def take_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Whole copies in host memory."""
    return {name: _copy(whole(x)) for name, x in tensors.items()}


def put_optimiser(optimiser: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Take up stored moments."""
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    state: dict[int, dict[str, Any]] = {}
    for key, value in tensors.items():
        number, name = key.split(".", 1)
        state.setdefault(int(number), {})[name] = _placed(value, parameters[int(number)])
    groups = optimiser.state_dict()["param_groups"]
    optimiser.load_state_dict({"state": state, "param_groups": groups})


def load_checkpoint(objective: nn.Module, folder: Path, which: str = "best") -> int:
    """Put the best (or the "newest") weights of a training folder into the objective; returns their step.

    Averaged weights are used where the run kept them.
    """
    checkpoints = Checkpoints(folder / "checkpoints")
    step = checkpoints.best() if which == "best" else max(checkpoints.steps(), default=None)
    if step is None:
        raise TrainingError(
            f"there is no {which} checkpoint", file=folder, fix="train with an evaluation first"
        )
    snapshot = read(checkpoints.path(step))
    put_module(objective, snapshot.tensors["objective"], checkpoints.path(step))
    # Averages go in by parameter, not by name: a tied weight has two names in the state and one average.
    parameters = dict(objective.named_parameters())
    for name, mean in snapshot.tensors.get("ema", {}).items():
        fill(parameters[name], mean)
    return step


def _placed(value: Tensor, parameter: Any) -> Tensor:
    """A moment where its parameter lives: sharded alike, or just as it is."""
    if not hasattr(parameter, "device_mesh") or value.shape != parameter.shape:
        return value
    like = torch.zeros_like(parameter, dtype=value.dtype)
    fill(like, value)
    return like


def _copy(x: Tensor) -> Tensor:
    return x.detach().to("cpu", copy=True)
