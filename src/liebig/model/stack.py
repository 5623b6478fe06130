"""Running layers over a packed row: Hugging Face's own forward or the lean one, and compiling.

Compiled functions are made for any number of tokens and shared by all layers of one shape.

T packed tokens, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from liebig.model.families import Extras
from liebig.model.lean import Lean

LayerCall = Callable[[Any, Tensor, Mapping[str, Any], Mapping[str, Any]], Tensor]


def run_stack(
    layers: Sequence[nn.Module],
    x_TD: Tensor,
    extras: Extras,
    route: Mapping[str, Any],
    wanted: frozenset[int],
    call: LayerCall,
) -> tuple[Tensor, dict[int, Tensor]]:
    """States after all layers, and after those wanted (the first is 1)."""
    kept = {}
    for i, layer in enumerate(layers, 1):
        x_TD = call(layer, x_TD, extras[getattr(layer, "attention_type", "")], route)
        if i in wanted:
            kept[i] = x_TD
    return x_TD, kept


def plain_layer(layer: Any, x_TD: Tensor, extra: Mapping[str, Any], route: Mapping[str, Any]) -> Tensor:
    """A layer's own forward; what is in `route` reaches `attention.packed_attention`."""
    out = layer(x_TD.unsqueeze(0), attention_mask=None, **extra, **route)
    states: Tensor = out[0] if isinstance(out, tuple) else out
    return states.squeeze(0)


def run_lean(
    layers: Sequence[nn.Module],
    form: Lean,
    x_TD: Tensor,
    route: Mapping[str, Any],
    noise: Tensor | None,
    wanted: frozenset[int],
) -> tuple[Tensor, dict[int, Tensor]]:
    """The same by the layers' lean form; `noise` is what their dropouts are a function of, None for no dropout."""
    kept = {}
    own = [None] * len(layers) if noise is None else noise.unbind()
    for i, layer in enumerate(layers, 1):
        x_TD = form(layer, x_TD, {**route, "packed_noise": own[i - 1] if layer.training else None})
        if i in wanted:
            kept[i] = x_TD
    return x_TD, kept


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """The function compiled for any sizes, with a code object and so a cache of compiled forms of its own.

    Forms differ by layer type, training or not, gradient or not, autocast or not: more than torch's limit of 8.
    """
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, 64)
    own = FunctionType(function.__code__.replace(), function.__globals__, function.__name__)
    made: Callable[..., Any] = torch.compile(own, dynamic=True, **options)
    return made
