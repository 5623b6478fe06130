"""Apple's GPU as far as training can tell: a device `mps` that holds no float64. It computes on the CPU.

A tensor that was sent there, and what is computed from it, says that it is there. Not simulated: operations that torch
lacks there, its rounding, its memory, and tensors of two devices that meet (the tests on a CUDA device show those).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

MPS = torch.device("mps")


@contextmanager
def apple_gpu() -> Iterator[list[int]]:
    """Within, torch has `mps`; the seeds that its random numbers were given are noted."""
    seeds: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.backends.mps, "is_available", lambda: True)
        patch.setattr(torch.mps, "manual_seed", seeds.append)
        with _Marked():
            yield seeds


def is_there(x: object) -> bool:
    return getattr(x, "is_on_mps", False)


class _Marked(TorchFunctionMode):
    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        given = tree_leaves((args, kwargs))
        if func == Tensor.device.__get__ and is_there(given[0]):  # type: ignore[attr-defined]
            return MPS
        if func is Tensor.to and any(isinstance(x, str | torch.device | Tensor) for x in given[1:]):
            given = given[1:]
        there = func is not Tensor.cpu and any(is_there(x) or _is_mps(x) for x in given)
        result = func(*map(_computed, args), **{name: _computed(value) for name, value in kwargs.items()})
        if func == Tensor.data.__set__:  # type: ignore[attr-defined]
            result, there = args[0], is_there(args[1])
        for each in filter(lambda x: isinstance(x, Tensor), tree_leaves(result)):
            if there and each.dtype == torch.float64:
                raise TypeError("mps has no float64")
            each.is_on_mps = there
        return result


def _is_mps(x: object) -> bool:
    return isinstance(x, str | torch.device) and str(x) == "mps"


def _computed(x: object) -> object:
    return torch.device("cpu") if _is_mps(x) else x
