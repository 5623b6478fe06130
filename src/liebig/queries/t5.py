"""One step of T5's decoder (T5, v1.1 and flan; mT5, UMT5 excluded by its bias in every layer) from its own weights.

The rows' new tokens go through all layers together; queries, keys and values of a layer come from one product, and so
do the two halves of a gated feed-forward part. The same numbers as transformers' own decoder. Cost: the weights'
products with N rows, and a pass over the keys and values that are kept.

N rows, H heads, E head width, D width, V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from liebig.queries.cache import Cache, Memory, Rows, attend_own, attend_passage, passage_mask

FAMILIES = ("t5", "mt5")


@dataclass(frozen=True, eq=False)
class Layer:
    """The weights of a layer, joined where one product serves."""

    norms: tuple[Tensor, Tensor, Tensor]
    qkv: Tensor
    own_out: Tensor
    query: Tensor
    keys_values: Tensor
    cross_out: Tensor
    wi: Tensor
    wo: Tensor
    gated: bool


class T5Decoder:
    """The decoder of a T5 model that stays as it is while this is used."""

    def __init__(self, model: Any) -> None:
        config, stack = model.config, model.decoder
        self.heads, self.width, self.eps = config.num_heads, config.d_kv, config.layer_norm_epsilon
        self.activation = stack.block[0].layer[2].DenseReluDense.act
        self.layers = [_layer(block.layer) for block in stack.block]
        self.table = model.shared.weight.detach()
        self.norm = stack.final_layer_norm.weight.detach()
        self.head = model.lm_head.weight.detach()
        scaled = getattr(config, "scale_decoder_outputs", config.tie_word_embeddings)
        self.output_scale = config.d_model**-0.5 if scaled else 1.0
        bias = stack.block[0].layer[0].SelfAttention.relative_attention_bias.weight.detach()
        self.bias_buckets = bias.float().T  # H x buckets
        self.max_distance = config.relative_attention_max_distance

    def remember(self, states_PLD: Tensor, lengths_P: Tensor) -> Memory:
        """Keys and values of the passages, layer by layer."""
        keys, values = [], []
        for layer in self.layers:
            both = F.linear(states_PLD, layer.keys_values).unflatten(2, (2, self.heads, self.width))
            k, v = both.permute(2, 0, 3, 1, 4).contiguous().unbind(0)
            keys.append(k)
            values.append(v)
        return Memory(keys, values, passage_mask(lengths_P, states_PLD.shape[1], states_PLD.dtype))

    def begin(self, rows: int, length: int) -> Cache:
        """A cache for so many rows of at most `length` tokens."""
        self.bias_HT = self.bias_buckets[:, buckets(length, self.bias_buckets.shape[1], self.max_distance)]
        return Cache(len(self.layers), rows, self.heads, self.width, self.table)

    def step(self, tokens_N: Tensor, position: int, memory: Memory, cache: Cache, rows: Rows) -> Tensor:
        """Scores of the tokens that follow, N x V."""
        x = self.table[tokens_N]
        bias = self.bias_HT[:, : position + 1].flip(1)
        for number, layer in enumerate(self.layers):
            x = x + self._own(self._norm(x, layer.norms[0]), layer, number, position, cache, bias)
            x = x + self._cross(self._norm(x, layer.norms[1]), layer, number, memory, rows)
            x = x + self._forward(self._norm(x, layer.norms[2]), layer)
        x = self._norm(x, self.norm)
        return F.linear(x * self.output_scale if self.output_scale != 1.0 else x, self.head)

    def _norm(self, x_ND: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x_ND, weight.shape, weight, self.eps)

    def _own(
        self, x_ND: Tensor, layer: Layer, number: int, position: int, cache: Cache, bias: Tensor
    ) -> Tensor:
        q, k, v = F.linear(x_ND, layer.qkv).unflatten(1, (3, self.heads, self.width)).unbind(1)
        out = attend_own(q, *cache.put(number, position, k, v), bias, 1.0)
        return F.linear(out.flatten(1), layer.own_out)

    def _cross(self, x_ND: Tensor, layer: Layer, number: int, memory: Memory, rows: Rows) -> Tensor:
        q = F.linear(x_ND, layer.query).unflatten(1, (self.heads, self.width))
        return F.linear(attend_passage(q, memory, number, rows, 1.0).flatten(1), layer.cross_out)

    def _forward(self, x_ND: Tensor, layer: Layer) -> Tensor:
        x = F.linear(x_ND, layer.wi)
        if layer.gated:
            gate, straight = x.chunk(2, dim=1)
            return F.linear(self.activation(gate) * straight, layer.wo)
        return F.linear(self.activation(x), layer.wo)


def _layer(parts: Any) -> Layer:
    own, cross, dense = parts[0].SelfAttention, parts[1].EncDecAttention, parts[2].DenseReluDense
    gated = hasattr(dense, "wi_0")
    wi = (dense.wi_0, dense.wi_1) if gated else (dense.wi,)
    return Layer(
        norms=tuple(part.layer_norm.weight.detach() for part in parts),
        qkv=_joined(own.q, own.k, own.v),
        own_out=own.o.weight.detach(),
        query=cross.q.weight.detach(),
        keys_values=_joined(cross.k, cross.v),
        cross_out=cross.o.weight.detach(),
        wi=_joined(*wi),
        wo=dense.wo.weight.detach().to(dense.wi_0.weight.dtype if gated else dense.wi.weight.dtype),
        gated=gated,
    )


def _joined(*linears: Any) -> Tensor:
    return torch.cat([linear.weight.detach() for linear in linears])


def buckets(length: int, n: int, max_distance: int) -> Tensor:
    """The bucket of each distance back, 0 … length - 1: one each at first, then ever wider ones (T5, 2.1)."""
    exact = n // 2
    found = []
    for distance in range(length):
        if distance >= exact:
            share = math.log(distance / exact) / math.log(max_distance / exact)
            distance = min(n - 1, exact + int(share * (n - exact)))
        found.append(distance)
    return torch.tensor(found)
