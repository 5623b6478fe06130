"""Running layers over a packed row: Hugging Face's own forward, a leaner one for BERT-like layers, and compiling.

The lean forward uses the same weights in the same order, so it computes the same function. It makes queries, keys
and values by one product, and under autocast keeps the states between products in half precision where
transformers would widen them to float32: half the memory traffic that bounds narrow models. Its dropout is a hash
of numbers drawn beforehand. Compiled functions are made for any number of tokens and shared by all layers of one
shape.

T packed tokens, D width, H heads, E head width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.activations import GELUActivation

from liebig.model.attention import attend_qkv
from liebig.model.families import Extras

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
    noise = route.get("packed_noise")
    for i, layer in enumerate(layers, 1):
        own = route if noise is None else {**route, "packed_noise": noise[i - 1]}
        x_TD = call(layer, x_TD, extras[getattr(layer, "attention_type", "")], own)
        if i in wanted:
            kept[i] = x_TD
    return x_TD, kept


def plain_layer(layer: Any, x_TD: Tensor, extra: Mapping[str, Any], route: Mapping[str, Any]) -> Tensor:
    """A layer's own forward; what is in `route` reaches `attention.packed_attention`."""
    out = layer(x_TD.unsqueeze(0), attention_mask=None, **extra, **route)
    states: Tensor = out[0] if isinstance(out, tuple) else out
    return states.squeeze(0)


def lean_bert(layer: Any, x_TD: Tensor, extra: Mapping[str, Any], route: Mapping[str, Any]) -> Tensor:
    """BERT, RoBERTa and ELECTRA: attention, norm, feed-forward, norm."""
    inner, outer = layer.attention.self, layer.attention.output
    qkv = projected(x_TD, (inner.query, inner.key, inner.value), inner.num_attention_heads)
    seen_THE = attend_qkv(qkv, route["packed_offsets"], route["packed_longest"], inner.scaling)
    x_TD = joined(outer.dense, outer.dropout, outer.LayerNorm, seen_THE.flatten(1), x_TD, route, 0)
    wide = activated(layer.intermediate.dense, layer.intermediate.intermediate_act_fn, x_TD)
    return joined(layer.output.dense, layer.output.dropout, layer.output.LayerNorm, wide, x_TD, route, 1)


def lean_distilbert(layer: Any, x_TD: Tensor, extra: Mapping[str, Any], route: Mapping[str, Any]) -> Tensor:
    """DistilBERT: the same under other names."""
    inner, feed = layer.attention, layer.ffn
    qkv = projected(x_TD, (inner.q_lin, inner.k_lin, inner.v_lin), inner.n_heads)
    seen_THE = attend_qkv(qkv, route["packed_offsets"], route["packed_longest"], inner.scaling)
    x_TD = joined(inner.out_lin, None, layer.sa_layer_norm, seen_THE.flatten(1), x_TD, route, 0)
    wide = activated(feed.lin1, feed.activation, x_TD)
    return joined(feed.lin2, feed.dropout, layer.output_layer_norm, wide, x_TD, route, 1)


def projected(x_TD: Tensor, projections: Sequence[Any], heads: int) -> Tensor:
    """Queries, keys and values by one product instead of three, T x 3 x H x E."""
    weight = torch.cat([projection.weight for projection in projections])
    bias = torch.cat([projection.bias for projection in projections])
    return F.linear(x_TD, weight, bias).view(x_TD.shape[0], len(projections), heads, -1)


def draw_noise(layers: int, device: torch.device) -> Tensor:
    """What the dropouts of a pass are a function of, from torch's generator: layers x 2 dropouts x 2 numbers."""
    return torch.randint(2**31 - 1, (layers, 2, 2), dtype=torch.int32, device=device)


def drop(dropout: nn.Dropout, x_TD: Tensor, route: Mapping[str, Any], which: int) -> Tensor:
    """Dropout as a hash of the noise and the place (murmur's finaliser), so that it is the same in any compiled form.

    A few integer operations where torch's generator takes ten rounds, and nothing to keep for the backward pass.
    """
    noise = route.get("packed_noise")
    if noise is None or dropout.p == 0 or not dropout.training:
        return dropout(x_TD)
    rows, columns = (torch.arange(n, dtype=torch.int32, device=x_TD.device) for n in x_TD.shape)
    # The noise comes first: products of a place and a constant would be folded into an index too large for int32.
    h = ((rows[:, None] * x_TD.shape[1] + columns) ^ noise[which, 0]) * -1640531535
    h = (h ^ ((h >> 16) & 0xFFFF)) * -2048144789
    h = (h ^ ((h >> 13) & 0x7FFFF) ^ noise[which, 1]) * -1028477387
    h = (h ^ ((h >> 16) & 0xFFFF)) & 0x7FFFFFFF
    return torch.where(h >= int(dropout.p * 2**31), x_TD * (1 / (1 - dropout.p)), 0.0)


def joined(
    dense: Any,
    dropout: nn.Dropout | None,
    layer_norm: Any,
    seen_TD: Tensor,
    x_TD: Tensor,
    route: Mapping[str, Any],
    which: int,
) -> Tensor:
    """The norm of a state and what a product of it adds; on CUDA all but the product in one kernel."""
    if not x_TD.is_cuda:
        new_TD = dense(seen_TD)
        return norm(layer_norm, new_TD if dropout is None else drop(dropout, new_TD, route, which), x_TD)
    from liebig.model.fused import add_norm

    noise, p = route.get("packed_noise"), 0.0
    if noise is not None and dropout is not None and dropout.training:
        noise, p = noise[which], dropout.p
    new_TD = F.linear(seen_TD, dense.weight)
    weight, shift = layer_norm.weight, layer_norm.bias
    keep = torch.is_grad_enabled()
    out, _ = add_norm(new_TD, dense.bias, x_TD, weight, shift, noise if p else None, p, layer_norm.eps, keep)
    return out


def activated(dense: Any, activation: Any, x_TD: Tensor) -> Tensor:
    """The wide half of the feed-forward part; on CUDA bias and GELU in one kernel."""
    if not x_TD.is_cuda or not isinstance(activation, GELUActivation):
        out: Tensor = activation(dense(x_TD))
        return out
    from liebig.model.fused import bias_gelu

    wide: Tensor = bias_gelu(F.linear(x_TD, dense.weight), dense.bias)
    return wide


def norm(layer_norm: nn.Module, new_TD: Tensor, x_TD: Tensor) -> Tensor:
    """The norm of a sum, left in the precision of the products around it."""
    out: Tensor = layer_norm(new_TD + x_TD)
    return out.to(new_TD.dtype)


LEAN: dict[str, LayerCall] = {
    "bert": lean_bert,
    "roberta": lean_bert,
    "xlm-roberta": lean_bert,
    "camembert": lean_bert,
    "electra": lean_bert,
    "distilbert": lean_distilbert,
}


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """The function compiled for any sizes, with a code object and so a cache of compiled forms of its own.

    Forms differ by layer type, training or not, gradient or not, autocast or not: more than torch's limit of 8.
    """
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, 64)
    own = FunctionType(function.__code__.replace(), function.__globals__, function.__name__)
    made: Callable[..., Any] = torch.compile(own, dynamic=True, **options)
    return made
