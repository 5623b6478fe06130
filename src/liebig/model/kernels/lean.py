"""BERT-like layers as a handful of products with one kernel between them, all layers as one function of autograd.

The same weights in the same order as Hugging Face's layers, so the same function. Queries, keys and values are one
product; states stay in half precision between products where transformers under autocast would widen them to
float32; what lies between products is one kernel each way (`fused.py`); the weights of all products are rounded by one
copy. Written out like this a layer costs the host a few dozen calls and autograd one node for all layers, which is
what bounds narrow models and small batches.

T packed tokens, D width, F feed-forward width, H heads, E head width.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from operator import attrgetter
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from liebig.model.attention import attend_qkv, is_short
from liebig.model.kernels import plain
from liebig.model.layer_names import LAYER_NAMES, LayerNames


class LeanWeights(NamedTuple):
    """The parameters of a layer, as they are trained."""

    query: Tensor
    key: Tensor
    value: Tensor
    query_bias: Tensor
    key_bias: Tensor
    value_bias: Tensor
    close: Tensor  # D x D, behind attention
    close_bias: Tensor
    close_norm: Tensor
    close_shift: Tensor
    up: Tensor  # F x D
    up_bias: Tensor
    down: Tensor  # D x F
    down_bias: Tensor
    down_norm: Tensor
    down_shift: Tensor


@dataclass(frozen=True)
class LeanLayer:
    """A layer's parameters and numbers; the rates of its two dropouts are 0 where it drops nothing."""

    weights: LeanWeights
    heads: int
    scale: float
    eps: tuple[float, float]
    rates: tuple[float, float]


Lean = Callable[[Any], LeanLayer]


def _lean(names: LayerNames) -> Lean:
    """What reads the layers of a family: attention, norm, feed-forward, norm, under these names."""
    products = attrgetter(names.query, names.key, names.value, names.out, names.up, names.down)
    norms = attrgetter(names.first_norm, names.second_norm)
    numbers = attrgetter(names.heads, names.scale)
    dropouts = [
        attrgetter(f"{name}.p") if name else None for name in (names.first_dropout, names.second_dropout)
    ]

    def read(layer: Any) -> LeanLayer:
        query, key, value, close, up, down = products(layer)
        first, second = norms(layer)
        weights = LeanWeights(
            query.weight, key.weight, value.weight, query.bias, key.bias, value.bias,
            close.weight, close.bias, first.weight, first.bias,
            up.weight, up.bias, down.weight, down.bias, second.weight, second.bias,
        )  # fmt: skip
        one, two = (rate(layer) if rate is not None and layer.training else 0.0 for rate in dropouts)
        return LeanLayer(weights, *numbers(layer), (first.eps, second.eps), (one, two))

    return read


LEAN: dict[str, Lean] = {family: _lean(names) for family, names in LAYER_NAMES.items()}


@cache
def gelu_class() -> type[Any]:
    """Loaded already where there is a layer; else it takes seconds."""
    from transformers.activations import GELUActivation

    activation: type[Any] = GELUActivation
    return activation


@cache
def triton_is_here() -> bool:
    """Whether the kernels of `fused.py` can be made; torch for CUDA brings Triton along, but not on every system."""
    return importlib.util.find_spec("triton") is not None


def lean_form(family: str, layer: Any) -> Lean | None:
    """The lean form of a layer as it is: none where a product is adapted, the activation another, or a hook waits."""
    if family not in LEAN:
        return None
    names = LAYER_NAMES[family]
    activation, *products = attrgetter(
        names.activation, names.query, names.key, names.value, names.out, names.up, names.down
    )(layer)
    known = isinstance(activation, gelu_class()) and activation.act is nn.functional.gelu
    return LEAN[family] if known and not hooked(layer) and all(map(is_plain, products)) else None


def is_plain(product: nn.Module) -> bool:
    """Whether a product is its weight and its bias alone: not adapted (as by peft) and without hooks."""
    return type(product) is nn.Linear and not hooked(product)


def hooked(module: nn.Module) -> bool:
    """Whether something waits for this module's own forward or backward pass, which the lean form does not make."""
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
    )


def run_lean(
    layers: Sequence[LeanLayer],
    x_TD: Tensor,
    route: Mapping[str, Any],
    noise: Tensor | None,
    taps: Sequence[int],
) -> tuple[Tensor, ...]:
    """States after all layers, then after the layers in `taps` (the first is 1).

    `noise` is what dropouts are a function of, layers x 2 x 2; None for no dropout.
    """
    if torch.is_grad_enabled():
        weights = all_weights(layers)
        outputs: tuple[Tensor, ...] = Layers.apply(x_TD, layers, route, noise, tuple(taps), *weights)
        return outputs
    return forward(x_TD, layers, halves(layers, x_TD.dtype), route, noise, taps, None)


def all_weights(layers: Sequence[LeanLayer]) -> list[Tensor]:
    """The parameters of layers, one after the other."""
    return [weight for layer in layers for weight in layer.weights]


class Halves(NamedTuple):
    """The weights of a layer's products in the precision of the states."""

    qkv: Tensor  # 3D x D
    qkv_bias: Tensor
    close: Tensor
    up: Tensor
    down: Tensor


def halves(layers: Sequence[LeanLayer], dtype: torch.dtype) -> list[Halves]:
    """Those of all layers, by one copy."""
    shapes = [_shapes(layer.weights) for layer in layers]
    sizes = [prod(shape) for some in shapes for shape in some]
    parts = iter(torch.empty(sum(sizes), dtype=dtype, device=layers[0].weights.up.device).split(sizes))
    rounded = [Halves(*(next(parts).view(shape) for shape in some)) for some in shapes]
    # One launch for all weights of all layers; a copy each would cost the host more than the GPU.
    places = [place for half in rounded for place in _places(half)]
    torch._foreach_copy_(places, [source for layer in layers for source in _products(layer.weights)])
    return rounded


def _shapes(w: LeanWeights) -> tuple[tuple[int, ...], ...]:
    width = w.query.shape[0]
    return (3 * width, width), (3 * width,), tuple(w.close.shape), tuple(w.up.shape), tuple(w.down.shape)


def _places(half: Halves) -> tuple[Tensor, ...]:
    """Where the weights of a layer go, in the order of `_products`."""
    return *half.qkv.chunk(3), *half.qkv_bias.chunk(3), half.close, half.up, half.down


def _products(w: LeanWeights) -> tuple[Tensor, ...]:
    """What products read, in the order in which it is copied."""
    return w.query, w.key, w.value, w.query_bias, w.key_bias, w.value_bias, w.close, w.up, w.down


CHANGED = "weights were changed between the forward pass and its backward pass"


def versions(layers: Sequence[LeanLayer]) -> list[int]:
    """How often those weights were changed in place that the backward pass reads as they are then."""
    return [
        weight._version
        for layer in layers
        for weight in (layer.weights.close_norm, layer.weights.down_norm, layer.weights.up_bias)
    ]


class Layers(Function):
    """All layers, their backward passes written out."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        layers: Sequence[LeanLayer],
        route: Mapping[str, Any],
        noise: Tensor | None,
        taps: tuple[int, ...],
        *parameters: Tensor,
    ) -> tuple[Tensor, ...]:
        ctx.saved, ctx.layers, ctx.noise, ctx.taps = [], layers, noise, taps
        ctx.halves, ctx.versions = halves(layers, x.dtype), versions(layers)
        ctx.set_materialize_grads(False)
        return forward(x, layers, ctx.halves, route, noise, taps, ctx.saved)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Tensor | None, *others: Tensor | None) -> tuple[Tensor | None, ...]:
        assert len(ctx.saved) == len(ctx.layers), "differentiated a second time"
        assert ctx.versions == versions(ctx.layers), CHANGED
        grads = (grad, *others)
        dx, gradients = differentiate(grads, ctx.layers, ctx.halves, ctx.saved, ctx.noise, ctx.taps)
        ctx.halves = None
        return dx, None, None, None, None, *gradients


def forward(
    x: Tensor,
    layers: Sequence[LeanLayer],
    halves: Sequence[Halves],
    route: Mapping[str, Any],
    noise: Tensor | None,
    taps: Sequence[int],
    saved: list[Activations] | None,
) -> tuple[Tensor, ...]:
    """The forward pass; what the backward pass needs is put into `saved`, if there will be one."""
    kept = {}
    for i, (layer, half) in enumerate(zip(layers, halves)):
        x, own = one_forward(x, layer, half, route, _own(noise, i), saved is not None)
        if own is not None and saved is not None:
            saved.append(own)
        if i + 1 in taps:
            kept[i + 1] = x.view_as(x)  # what autograd marks as an output must not be what is saved
    return x, *(kept[i] for i in taps)


def differentiate(
    grads: Sequence[Tensor | None],
    layers: Sequence[LeanLayer],
    halves: Sequence[Halves],
    saved: list[Activations],
    noise: Tensor | None,
    taps: Sequence[int],
) -> tuple[Tensor | None, list[Tensor | None]]:
    """The backward pass: gradients of the input and of all parameters; takes from `saved` what it is done with.

    `grads` belong to what the forward pass gave; layers behind the last of them that is there have none.
    """
    gradients: list[Tensor | None] = []
    grad, given = grads[0], dict(zip(taps, grads[1:], strict=True))
    # From the last layer down. A state that was asked for has a gradient of its own beside that of the layer above.
    for i in range(len(layers) - 1, -1, -1):
        grad, own = _sum(grad, given.get(i + 1)), saved.pop()
        parts: Sequence[Tensor | None] = [None] * len(LeanWeights._fields)
        if grad is not None:
            grad, parts = backward(grad.contiguous(), layers[i], halves[i], own, _own(noise, i))
        gradients = [*parts, *gradients]
    return grad, gradients


class Activations(NamedTuple):
    """What a layer keeps for its backward pass."""

    x: Tensor  # the input
    seen: Seen
    kept: Tensor  # before the first norm, the residual added
    middle: Tensor  # behind it
    wide: Tensor  # before GELU, without the bias
    active: Tensor  # behind GELU
    last_kept: Tensor  # before the second norm


class Seen(NamedTuple):
    """What attention keeps: by our kernels what they need, else the inside of torch's own graph."""

    qkv: Tensor
    out: Tensor
    sums: Tensor | None  # of each row of scores, as logarithms; None where torch differentiates
    offsets: Tensor
    longest: int


def one_forward(
    x: Tensor, layer: LeanLayer, half: Halves, route: Mapping[str, Any], noise: Tensor | None, keep: bool
) -> tuple[Tensor, Activations | None]:
    """LayerNorm(x + dropout(attention W + b)) as the middle, then the same of GELU(middle W₁ + b₁) W₂ + b₂."""
    kernels, w = between(x), layer.weights
    qkv = torch.addmm(half.qkv_bias, x, half.qkv.t()).view(x.shape[0], 3, layer.heads, -1)
    seen = attend(qkv, route["packed_offsets"], route["packed_longest"], layer.scale, keep)
    out = seen.out.detach().flatten(1)
    # Biases of the next two products are added by the kernels behind them, which read the result anyway.
    dropped = dropping(noise, layer.rates, 0)
    middle, kept = kernels.add_norm(
        out @ half.close.t(), w.close_bias, x, w.close_norm, w.close_shift, *dropped, layer.eps[0], keep
    )
    wide = middle @ half.up.t()
    active = kernels.bias_gelu(wide, w.up_bias)
    dropped = dropping(noise, layer.rates, 1)
    last, last_kept = kernels.add_norm(
        active @ half.down.t(), w.down_bias, middle, w.down_norm, w.down_shift, *dropped, layer.eps[1], keep
    )
    return last, Activations(x, seen, kept, middle, wide, active, last_kept) if keep else None


def backward(
    grad: Tensor, layer: LeanLayer, half: Halves, saved: Activations, noise: Tensor | None
) -> tuple[Tensor, LeanWeights]:
    """The gradient of a layer's input, and those of its parameters."""
    kernels, w = between(grad), layer.weights
    # The forward pass backwards: norm, second product, GELU, first product. dx is the gradient along the residual
    # connection, dnew the one behind dropout, which goes through the products.
    dropped = dropping(noise, layer.rates, 1)
    dx, dnew, last_sums = kernels.add_norm_backward(
        grad, saved.last_kept, w.down_norm, *dropped, layer.eps[1]
    )
    ddown = product(dnew.t(), saved.active, w.down.dtype)
    dwide, dup_bias = kernels.bias_gelu_backward(dnew @ half.down, saved.wide, w.up_bias)
    dup = product(dwide.t(), saved.middle, w.up.dtype)
    grad = dx.addmm_(dwide, half.up)  # without dropout dx is dnew, which is done with
    # Attention's half: norm, output product, attention, the product for queries, keys and values.
    dropped = dropping(noise, layer.rates, 0)
    dx, dnew, sums = kernels.add_norm_backward(grad, saved.kept, w.close_norm, *dropped, layer.eps[0])
    dclose = product(dnew.t(), saved.seen.out.detach().flatten(1), w.close.dtype)
    dqkv = attend_backward(dnew @ half.close, saved.seen, layer.scale)
    # One product for the three weights and one pass for the three biases, as in the forward pass.
    dquery, dkey, dvalue = product(dqkv.t(), saved.x, w.query.dtype).chunk(3)
    query_bias, key_bias, value_bias = kernels.column_sums(dqkv).to(w.query_bias.dtype).chunk(3)
    dx.addmm_(dqkv, half.qkv)
    norm, shift, bias = sums.to(w.close_norm.dtype).unbind()
    last_norm, last_shift, last_bias = last_sums.to(w.down_norm.dtype).unbind()
    return dx, LeanWeights(
        dquery, dkey, dvalue, query_bias, key_bias, value_bias, dclose, bias, norm, shift,
        dup, dup_bias.to(w.up_bias.dtype), ddown, last_bias, last_norm, last_shift,
    )  # fmt: skip


def attend(qkv: Tensor, offsets: Tensor, longest: int, scale: float, keep: bool) -> Seen:
    """What each token sees of its sequence: T x 3 x H x E -> T x H x E."""
    if qkv.is_cuda and is_short(longest, qkv.shape[-1]):
        from liebig.model.kernels import short_attention

        return Seen(qkv, *short_attention.forward(qkv, offsets, longest, scale), offsets, longest)
    with torch.set_grad_enabled(keep):
        qkv = qkv.requires_grad_(keep)
        return Seen(qkv, attend_qkv(qkv, offsets, longest, scale), None, offsets, longest)


def attend_backward(grad: Tensor, seen: Seen, scale: float) -> Tensor:
    """The gradient of queries, keys and values, T x 3D."""
    grad = grad.view_as(seen.out)
    if seen.sums is None:
        (dqkv,) = torch.autograd.grad(seen.out, seen.qkv, grad)
        return dqkv.contiguous().flatten(1)
    from liebig.model.kernels import short_attention

    given = seen.qkv, seen.out, seen.sums, seen.offsets, seen.longest
    return short_attention.backward(grad, *given, scale).flatten(1)


def product(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """a b in the precision of a parameter; a GPU writes what it summed in float32 as it is."""
    if a.is_cuda and dtype == torch.float32 and a.dtype != dtype:
        return torch.mm(a, b, out_dtype=dtype)
    return (a @ b).to(dtype)


def dropping(noise: Tensor | None, rates: tuple[float, float], which: int) -> tuple[Tensor | None, float]:
    """The noise and the rate of one of a layer's dropouts."""
    return (None, 0.0) if noise is None or rates[which] == 0 else (noise[which], rates[which])


def between(x: Tensor) -> ModuleType:
    """The kernels between products: Triton's on CUDA."""
    if not x.is_cuda:
        return plain
    from liebig.model.kernels import fused

    return fused


def _own(noise: Tensor | None, i: int) -> Tensor | None:
    """The noise of layer i, from 0."""
    return None if noise is None else noise[i]


def _sum(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    return b if a is None else a if b is None else a + b
