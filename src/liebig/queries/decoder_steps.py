"""One step of a decoder: T5's from its own weights, any other seq2seq model's through transformers.

Our own decoder gives the same numbers as that of transformers. The rows' new tokens go through all layers together;
queries, keys and values of a layer come from one product, and so do the two halves of a gated feed-forward part. Keys
and values of a passage are shared by all of its queries. Cost: the weights' products with N rows, and a pass over the
keys and values that are kept.

N rows, H heads, E head width, D width, V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from liebig.queries.sampling import Cache, Memory, Rows, attend_own, attend_passage, passage_mask

T5_FAMILIES = ("t5", "mt5")


@dataclass(frozen=True, eq=False)
class T5Layer:
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
    """The decoder of T5, v1.1, flan and mT5 (not UMT5, which has a bias in every layer); the model must not change."""

    def __init__(self, model: Any) -> None:
        config, stack = model.config, model.decoder
        self.heads, self.width, self.eps = config.num_heads, config.d_kv, config.layer_norm_epsilon
        self.activation = stack.block[0].layer[2].DenseReluDense.act
        self.layers = [_t5_layer(block.layer) for block in stack.block]
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
        """A cache for `rows` rows of at most `length` tokens."""
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
        self, x_ND: Tensor, layer: T5Layer, number: int, position: int, cache: Cache, bias: Tensor
    ) -> Tensor:
        q, k, v = F.linear(x_ND, layer.qkv).unflatten(1, (3, self.heads, self.width)).unbind(1)
        out = attend_own(q, *cache.put(number, position, k, v), bias)
        return F.linear(out.flatten(1), layer.own_out)

    def _cross(self, x_ND: Tensor, layer: T5Layer, number: int, memory: Memory, rows: Rows) -> Tensor:
        q = F.linear(x_ND, layer.query).unflatten(1, (self.heads, self.width))
        return F.linear(attend_passage(q, memory, number, rows).flatten(1), layer.cross_out)

    def _forward(self, x_ND: Tensor, layer: T5Layer) -> Tensor:
        x = F.linear(x_ND, layer.wi)
        if layer.gated:
            gate, straight = x.chunk(2, dim=1)
            return F.linear(self.activation(gate) * straight, layer.wo)
        return F.linear(self.activation(x), layer.wo)


def _t5_layer(parts: Any) -> T5Layer:
    own, cross, dense = parts[0].SelfAttention, parts[1].EncDecAttention, parts[2].DenseReluDense
    gated = hasattr(dense, "wi_0")
    wi = (dense.wi_0, dense.wi_1) if gated else (dense.wi,)
    return T5Layer(
        norms=tuple(part.layer_norm.weight.detach() for part in parts),
        qkv=_t5_joined(own.q, own.k, own.v),
        own_out=own.o.weight.detach(),
        query=cross.q.weight.detach(),
        keys_values=_t5_joined(cross.k, cross.v),
        cross_out=cross.o.weight.detach(),
        wi=_t5_joined(*wi),
        wo=dense.wo.weight.detach().to(dense.wi_0.weight.dtype if gated else dense.wi.weight.dtype),
        gated=gated,
    )


def _t5_joined(*linears: Any) -> Tensor:
    return torch.cat([linear.weight.detach() for linear in linears])


def buckets(length: int, n: int, max_distance: int) -> Tensor:
    """The bucket of each distance back, 0 … length - 1: one each at first, then ever wider ones (T5, 2.1)."""
    exact = n // 2
    numbers = []
    for distance in range(length):
        if distance >= exact:
            share = math.log(distance / exact) / math.log(max_distance / exact)
            distance = min(n - 1, exact + int(share * (n - exact)))
        numbers.append(distance)
    return torch.tensor(numbers)


@dataclass(eq=False)
class States:
    """The encoder's output of the passages."""

    states: Tensor  # P x L x D
    mask: Tensor  # P x L

    def __len__(self) -> int:
        return len(self.mask)

    def select(self, passages: Tensor) -> None:
        """Nothing is read from here after the first step: the rows have their copies."""


class OwnCache:
    """transformers' cache, and the rows' copies of their passages."""

    def __init__(self) -> None:
        self.past: Any = None
        self.states: Tensor | None = None
        self.mask: Tensor | None = None

    def select(self, rows: Tensor) -> None:
        """Keep these rows, in this order."""
        assert self.states is not None, "rows are dropped after a step"
        assert self.mask is not None, "rows are dropped after a step"
        self.past.batch_select_indices(rows)
        self.states, self.mask = self.states[rows], self.mask[rows]


class PlainDecoder:
    """transformers' own decoder and cache, for BART, BERT and every other seq2seq model.

    The passage's states are repeated for each of its queries, so it is slower than our own decoder.
    """

    def __init__(self, model: Any) -> None:
        self.model = model

    def remember(self, states_PLD: Tensor, lengths_P: Tensor) -> States:
        """The states, and which of them are real."""
        mask = torch.arange(states_PLD.shape[1], device=lengths_P.device) < lengths_P[:, None]
        return States(states_PLD, mask.long())

    def begin(self, rows: int, length: int) -> OwnCache:
        """A cache that makes itself in the first step."""
        return OwnCache()

    def step(self, tokens_N: Tensor, position: int, memory: States, cache: OwnCache, rows: Rows) -> Tensor:
        """Scores of the tokens that follow, N x V."""
        from transformers.modeling_outputs import BaseModelOutput

        if cache.states is None:
            cache.states = memory.states.repeat_interleave(rows.width, dim=0)
            cache.mask = memory.mask.repeat_interleave(rows.width, dim=0)
        out = self.model(
            encoder_outputs=BaseModelOutput(last_hidden_state=cache.states),
            attention_mask=cache.mask,
            decoder_input_ids=tokens_N[:, None],
            past_key_values=cache.past,
            use_cache=True,
        )
        cache.past = out.past_key_values
        scores: Tensor = out.logits[:, -1]
        return scores
