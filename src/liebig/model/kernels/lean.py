"""BERT-like layers as a handful of products with one kernel between them, their backward passes written out.

The same weights in the same order as Hugging Face's layers, so the same function. Queries, keys and values are one
product; states stay in half precision between products where transformers under autocast would widen them to
float32; what lies between products is one kernel each way (`fused.py`). Written out, a layer costs the host a few
dozen calls and no compiling, which is what bounds narrow models and small batches.

T packed tokens, D width, F feed-forward width, H heads, E head width.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from functools import cache
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from liebig.model.attention import attend_qkv
from liebig.model.kernels import plain


def bert(layer: Any, x_TD: Tensor, route: Mapping[str, Any]) -> Tensor:
    """BERT, RoBERTa and ELECTRA: attention, norm, feed-forward, norm."""
    inner, outer, last = layer.attention.self, layer.attention.output, layer.output
    parts = (inner.query, inner.key, inner.value)
    seen_TD = attended(parts, inner.num_attention_heads, inner.scaling, x_TD, route)
    dense, norm, p, noise = outer.dense, outer.LayerNorm, outer.dropout.p, route["packed_noise"]
    x_TD = Close.apply(
        seen_TD, x_TD, dense.weight, dense.bias, norm.weight, norm.bias, *dropping(noise, 0, p), norm.eps, keeping()
    )  # fmt: skip
    return fed(layer.intermediate.dense, last.dense, last.LayerNorm, x_TD, dropping(noise, 1, last.dropout.p))


def distilbert(layer: Any, x_TD: Tensor, route: Mapping[str, Any]) -> Tensor:
    """DistilBERT: the same under other names, with no dropout after attention."""
    inner, feed, norm = layer.attention, layer.ffn, layer.sa_layer_norm
    parts = (inner.q_lin, inner.k_lin, inner.v_lin)
    seen_TD = attended(parts, inner.n_heads, inner.scaling, x_TD, route)
    dense, noise = inner.out_lin, route["packed_noise"]
    x_TD = Close.apply(
        seen_TD, x_TD, dense.weight, dense.bias, norm.weight, norm.bias, None, 0.0, norm.eps, keeping()
    )
    return fed(feed.lin1, feed.lin2, layer.output_layer_norm, x_TD, dropping(noise, 1, feed.dropout.p))


Lean = Callable[[Any, Tensor, Mapping[str, Any]], Tensor]
LEAN: dict[str, Lean] = {
    "bert": bert,
    "roberta": bert,
    "xlm-roberta": bert,
    "camembert": bert,
    "electra": bert,
    "distilbert": distilbert,
}


@cache
def triton_is_here() -> bool:
    """Whether the kernels of `fused.py` can be made; torch for CUDA brings Triton along, but not on every system."""
    return importlib.util.find_spec("triton") is not None


def lean_form(family: str, layer: Any) -> Lean | None:
    """The lean form of a layer as it is: none where a product is adapted, the activation another, or a hook waits."""
    form = LEAN.get(family)
    if form is bert:
        inner, outer = layer.attention.self, layer.attention.output
        products = (
            inner.query,
            inner.key,
            inner.value,
            outer.dense,
            layer.intermediate.dense,
            layer.output.dense,
        )
        activation = layer.intermediate.intermediate_act_fn
    elif form is distilbert:
        inner, feed = layer.attention, layer.ffn
        products = (inner.q_lin, inner.k_lin, inner.v_lin, inner.out_lin, feed.lin1, feed.lin2)
        activation = feed.activation
    else:
        return None
    from transformers.activations import (
        GELUActivation,
    )  # loaded already where there is a layer; else it takes seconds

    known = isinstance(activation, GELUActivation) and activation.act is nn.functional.gelu
    plainly = known and all(type(one) is nn.Linear for one in products)
    return form if plainly and not any(map(hooked, (layer, *products))) else None


def hooked(module: nn.Module) -> bool:
    """Whether something waits for this module's own forward or backward pass, which the lean form does not make."""
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
    )


def attended(parts: Any, heads: int, scale: float, x_TD: Tensor, route: Mapping[str, Any]) -> Tensor:
    """What each token sees of its sequence, T x D."""
    weights, biases = [part.weight for part in parts], [part.bias for part in parts]
    qkv = Project.apply(x_TD, *weights, *biases).view(x_TD.shape[0], 3, heads, -1)
    return attend_qkv(qkv, route["packed_offsets"], route["packed_longest"], scale).flatten(1)


def fed(up: Any, down: Any, norm: Any, x_TD: Tensor, dropped: tuple[Tensor | None, float]) -> Tensor:
    """The feed-forward half of a layer."""
    out: Tensor = Feed.apply(
        x_TD,
        up.weight,
        up.bias,
        down.weight,
        down.bias,
        norm.weight,
        norm.bias,
        *dropped,
        norm.eps,
        keeping(),
    )
    return out


def dropping(noise: Tensor | None, which: int, p: float) -> tuple[Tensor | None, float]:
    """The noise and the rate of a layer's dropout."""
    return (None, 0.0) if noise is None or p == 0 else (noise[which], p)


def keeping() -> bool:
    """Whether there will be a backward pass."""
    return torch.is_grad_enabled()


def between(x: Tensor) -> ModuleType:
    """The kernels between products: Triton's on CUDA."""
    if not x.is_cuda:
        return plain
    from liebig.model.kernels import fused

    return fused


class Project(Function):
    """Queries, keys and values by one product, T x 3D."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, *parts: Tensor) -> Tensor:
        weight, bias = (torch.cat(some).to(x.dtype) for some in (parts[:3], parts[3:]))
        ctx.save_for_backward(x, weight)
        ctx.dtype = parts[0].dtype
        return torch.addmm(bias, x, weight.t())

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        x, weight = ctx.saved_tensors
        grad = grad.contiguous()
        sums = between(x).column_sums(grad)
        dweight = (grad.t() @ x).to(ctx.dtype)
        return grad @ weight, *dweight.chunk(3), *sums.to(ctx.dtype).chunk(3)


class Close(Function):
    """A product, then the norm of the residual and it: LayerNorm(x + dropout(seen Wᵀ + b))."""

    @staticmethod
    def forward(
        ctx: Any, seen: Tensor, x: Tensor, weight: Tensor, bias: Tensor, scale: Tensor, shift: Tensor,
        noise: Tensor | None, p: float, eps: float, keep: bool,
    ) -> Tensor:  # fmt: skip
        half = weight.to(x.dtype)
        out, kept = between(x).add_norm(seen @ half.t(), bias, x, scale, shift, noise, p, eps, keep)
        ctx.save_for_backward(seen, half, kept, scale, noise)
        ctx.p, ctx.eps, ctx.dtype = p, eps, weight.dtype
        return out

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        seen, half, kept, scale, noise = ctx.saved_tensors
        dx, dnew, sums = between(kept).add_norm_backward(
            grad.contiguous(), kept, scale, noise, ctx.p, ctx.eps
        )
        dscale, dshift, dbias = sums.to(ctx.dtype).unbind()
        dweight = (dnew.t() @ seen).to(ctx.dtype)
        return dnew @ half, dx, dweight, dbias, dscale, dshift, None, None, None, None


class Feed(Function):
    """The feed-forward half: LayerNorm(x + dropout(GELU(x W₁ᵀ + b₁) W₂ᵀ + b₂))."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, up: Tensor, up_bias: Tensor, down: Tensor, down_bias: Tensor, scale: Tensor,
        shift: Tensor, noise: Tensor | None, p: float, eps: float, keep: bool,
    ) -> Tensor:  # fmt: skip
        up_half, down_half, kernels = up.to(x.dtype), down.to(x.dtype), between(x)
        wide = x @ up_half.t()
        active = kernels.bias_gelu(wide, up_bias)
        out, kept = kernels.add_norm(active @ down_half.t(), down_bias, x, scale, shift, noise, p, eps, keep)
        ctx.save_for_backward(x, up_half, up_bias, wide, active, down_half, kept, scale, noise)
        ctx.p, ctx.eps, ctx.dtype = p, eps, up.dtype
        return out  # type: ignore[no-any-return]

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, up, up_bias, wide, active, down, kept, scale, noise = ctx.saved_tensors
        kernels = between(x)
        dx, dnew, sums = kernels.add_norm_backward(grad.contiguous(), kept, scale, noise, ctx.p, ctx.eps)
        dscale, dshift, ddown_bias = sums.to(ctx.dtype).unbind()
        ddown = (dnew.t() @ active).to(ctx.dtype)
        dwide, dup_bias = kernels.bias_gelu_backward(dnew @ down, wide, up_bias)
        dup = (dwide.t() @ x).to(ctx.dtype)
        dx.addmm_(dwide, up)  # without dropout dx is dnew, which is done with
        return dx, dup, dup_bias.to(ctx.dtype), ddown, ddown_bias, dscale, dshift, None, None, None, None
