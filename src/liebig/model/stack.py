"""Running layers over a packed row: Hugging Face's own forward, a leaner one for BERT-like layers, and compiling.

The lean forward uses the same weights in the same order, so it computes the same function. It makes queries, keys
and values by one product, and under autocast keeps the states between products in half precision where
transformers would widen them to float32: half the memory traffic that bounds narrow models. Compiled functions
are made for any number of tokens and shared by all layers of one shape.

T packed tokens, D width, H heads, E head width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

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


def lean_bert(layer: Any, x_TD: Tensor, extra: Mapping[str, Any], route: Mapping[str, Any]) -> Tensor:
    """BERT, RoBERTa and ELECTRA: attention, norm, feed-forward, norm."""
    inner, outer = layer.attention.self, layer.attention.output
    qkv = projected(x_TD, (inner.query, inner.key, inner.value), inner.num_attention_heads)
    seen_THE = attend_qkv(qkv, route["packed_offsets"], route["packed_longest"], inner.scaling)
    x_TD = norm(outer.LayerNorm, outer.dropout(outer.dense(seen_THE.flatten(1))), x_TD)
    wide = layer.intermediate.intermediate_act_fn(layer.intermediate.dense(x_TD))
    return norm(layer.output.LayerNorm, layer.output.dropout(layer.output.dense(wide)), x_TD)


def lean_distilbert(layer: Any, x_TD: Tensor, extra: Mapping[str, Any], route: Mapping[str, Any]) -> Tensor:
    """DistilBERT: the same under other names."""
    inner, feed = layer.attention, layer.ffn
    qkv = projected(x_TD, (inner.q_lin, inner.k_lin, inner.v_lin), inner.n_heads)
    seen_THE = attend_qkv(qkv, route["packed_offsets"], route["packed_longest"], inner.scaling)
    x_TD = norm(layer.sa_layer_norm, inner.out_lin(seen_THE.flatten(1)), x_TD)
    wide = feed.activation(feed.lin1(x_TD))
    return norm(layer.output_layer_norm, feed.dropout(feed.lin2(wide)), x_TD)


def projected(x_TD: Tensor, projections: Sequence[Any], heads: int) -> Tensor:
    """Queries, keys and values by one product instead of three, T x 3 x H x E."""
    weight = torch.cat([projection.weight for projection in projections])
    bias = torch.cat([projection.bias for projection in projections])
    return F.linear(x_TD, weight, bias).view(x_TD.shape[0], len(projections), heads, -1)


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
