"""One step of a BERT decoder with cross-attention (the one `warm.py` makes of an encoder), from its own weights.

Positions are absolute; every part ends with a sum and a LayerNorm. The same numbers as transformers' own decoder.

N rows, H heads, E head width, D width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from liebig.queries.cache import Cache, Memory, Rows, attend_own, attend_passage, passage_mask


@dataclass(frozen=True, eq=False)
class Joined:
    """Several linear maps of one input as one."""

    weight: Tensor
    bias: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


@dataclass(frozen=True, eq=False)
class Layer:
    """A layer's own modules, with joined maps."""

    qkv: Joined
    query: Any
    keys_values: Joined
    module: Any


class BertDecoder:
    """The decoder of an encoder–decoder of BERTs that stays as it is while this is used."""

    def __init__(self, model: Any) -> None:
        self.decoder = model.decoder
        self.body = model.decoder.bert
        config = model.decoder.config
        self.heads, self.width = (
            config.num_attention_heads,
            config.hidden_size // config.num_attention_heads,
        )
        self.project = getattr(model, "enc_to_dec_proj", None)
        self.layers = [_layer(layer) for layer in self.body.encoder.layer]
        self.scale = self.width**-0.5

    def remember(self, states_PLD: Tensor, lengths_P: Tensor) -> Memory:
        """Keys and values of the passages, layer by layer."""
        if self.project is not None:
            states_PLD = self.project(states_PLD)
        keys, values = [], []
        for layer in self.layers:
            both = layer.keys_values(states_PLD).unflatten(2, (2, self.heads, self.width))
            k, v = both.permute(2, 0, 3, 1, 4).contiguous().unbind(0)
            keys.append(k)
            values.append(v)
        return Memory(keys, values, passage_mask(lengths_P, states_PLD.shape[1], states_PLD.dtype))

    def begin(self, rows: int, length: int) -> Cache:
        """A cache for so many rows of at most `length` tokens."""
        weight = self.body.embeddings.word_embeddings.weight.detach()
        return Cache(len(self.layers), rows, self.heads, self.width, weight)

    def step(self, tokens_N: Tensor, position: int, memory: Memory, cache: Cache, rows: Rows) -> Tensor:
        """Scores of the tokens that follow, N x V."""
        x = self._embed(tokens_N, position)
        for number, layer in enumerate(self.layers):
            own, cross = layer.module.attention, layer.module.crossattention
            q, k, v = layer.qkv(x).unflatten(1, (3, self.heads, self.width)).unbind(1)
            out = attend_own(q, *cache.put(number, position, k, v), None, self.scale)
            x = own.output(out.flatten(1), x)
            q = layer.query(x).unflatten(1, (self.heads, self.width))
            out = attend_passage(q, memory, number, rows, self.scale)
            x = cross.output(out.flatten(1), x)
            x = layer.module.output(layer.module.intermediate(x), x)
        scores: Tensor = self.decoder.cls(x)
        return scores

    def _embed(self, tokens_N: Tensor, position: int) -> Tensor:
        table = self.body.embeddings
        x = table.word_embeddings(tokens_N) + table.position_embeddings.weight[position]
        normed: Tensor = table.LayerNorm(x + table.token_type_embeddings.weight[0])
        return normed


def _layer(module: Any) -> Layer:
    own, cross = module.attention.self, module.crossattention.self
    return Layer(_joined(own.query, own.key, own.value), cross.query, _joined(cross.key, cross.value), module)


def _joined(*linears: Any) -> Joined:
    return Joined(
        torch.cat([part.weight.detach() for part in linears]),
        torch.cat([part.bias.detach() for part in linears]),
    )
