"""From the states of a packed row to one vector per sequence: pooling, and the modules that follow it.

The kinds of pooling and the modules are those of sentence-transformers, on rows without padding. Pooling in half
precision is done in float32. Cost: one pass over the states.

T packed tokens, B sequences, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from liebig.base.errors import ModelError
from liebig.model.packed import Packed


def pool(states_TD: Tensor, packed: Packed, kind: str = "cls", skip: int = 0) -> Tensor:
    """B x D. `skip` leaves out the first tokens of every sequence (a prompt that is not to be pooled)."""
    if kind not in POOLINGS:
        raise ModelError(f"unknown pooling {kind!r}", fix=f"use one of {', '.join(POOLINGS)}")
    return POOLINGS[kind](states_TD, packed, skip)


def cls(states_TD: Tensor, packed: Packed, skip: int = 0) -> Tensor:
    rows = packed.firsts + skip * (packed.lengths > skip) if skip else packed.firsts
    return wide(states_TD.index_select(0, rows))


def last(states_TD: Tensor, packed: Packed, skip: int = 0) -> Tensor:
    return wide(states_TD.index_select(0, packed.offsets[1:].long() - 1))


def mean(states_TD: Tensor, packed: Packed, skip: int = 0) -> Tensor:
    """The mean of all tokens' states, special tokens included."""
    x_TD = wide(states_TD)
    return segment_sum(kept(x_TD, packed, skip), packed) / counts(x_TD, packed, skip)


def mean_sqrt(states_TD: Tensor, packed: Packed, skip: int = 0) -> Tensor:
    """The sum of all states over the root of their number."""
    x_TD = wide(states_TD)
    return segment_sum(kept(x_TD, packed, skip), packed) / counts(x_TD, packed, skip).sqrt()


def weighted_mean(states_TD: Tensor, packed: Packed, skip: int = 0) -> Tensor:
    """The mean with weights 1, 2, 3, ... along the sequence."""
    weight_T1 = kept((packed.positions + 1).to(wide(states_TD).dtype)[:, None], packed, skip)
    return segment_sum(wide(states_TD) * weight_T1, packed) / segment_sum(weight_T1, packed).clamp_min(1e-9)


def largest(states_TD: Tensor, packed: Packed, skip: int = 0) -> Tensor:
    """The largest value of each column over the sequence."""
    x_TD = wide(states_TD)
    if skip:
        x_TD = x_TD.masked_fill((packed.positions < skip)[:, None], float("-inf"))
    index_TD = packed.sequence[:, None].expand_as(x_TD)
    start_BD = x_TD.new_full((len(packed), x_TD.shape[1]), float("-inf"))
    return start_BD.scatter_reduce(0, index_TD, x_TD, reduce="amax")


def pool_padded(states_BLD: Tensor, mask_BL: Tensor, kind: str) -> Tensor:
    """The same of padded rows, B x D, for graphs; `kind` is one of PADDED."""
    if kind == "cls":
        return states_BLD[:, 0]
    mask_BL1 = mask_BL.to(states_BLD.dtype)[:, :, None]
    return (states_BLD * mask_BL1).sum(1) / mask_BL1.sum(1)


class PaddedForward(nn.Module):
    """Token ids, mask and perhaps token types (B x L) to vectors or logits, by transformers' own forward, for graphs.

    Without a `pooling` it gives the logits of the model's own head; `zero_types` gives all tokens the first type.
    """

    def __init__(
        self, model: nn.Module, pooling: str | None, tail: nn.ModuleList, *, zero_types: bool = False
    ) -> None:
        super().__init__()
        self.model, self.pooling, self.tail, self.zero_types = model, pooling, tail, zero_types

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> Tensor:
        types = torch.zeros_like(input_ids) if self.zero_types else token_type_ids
        typed = {} if types is None else {"token_type_ids": types}
        out = self.model(input_ids=input_ids, attention_mask=attention_mask, **typed)
        if self.pooling is None:
            logits: Tensor = out.logits
            return logits
        return through(self.tail, pool_padded(out.last_hidden_state, attention_mask, self.pooling))


def check_exportable(kind: str) -> None:
    """Refuse a pooling that a graph cannot have."""
    if kind not in PADDED:
        raise ModelError(f"{kind} pooling cannot be exported", fix=f"use {' or '.join(PADDED)}")


def segment_sum(x_TD: Tensor, packed: Packed) -> Tensor:
    """The sum of each sequence's rows, B x D."""
    if x_TD.is_cuda:
        return torch.segment_reduce(x_TD, "sum", offsets=packed.offsets.long(), axis=0, unsafe=True)
    return x_TD.new_zeros(len(packed), x_TD.shape[1]).index_add(0, packed.sequence, x_TD)


def kept(x_TD: Tensor, packed: Packed, skip: int) -> Tensor:
    """The row with the first `skip` tokens of every sequence set to 0."""
    return x_TD * (packed.positions >= skip)[:, None] if skip else x_TD


def counts(x_TD: Tensor, packed: Packed, skip: int) -> Tensor:
    """Tokens pooled in each sequence, B x 1."""
    return (packed.lengths - skip).clamp_min(0).to(x_TD.dtype).clamp_min(1e-9)[:, None]


def wide(x: Tensor) -> Tensor:
    """Half precision as float32; float32 and float64 as they are."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


POOLINGS: dict[str, Callable[[Tensor, Packed, int], Tensor]] = {
    "cls": cls,
    "mean": mean,
    "max": largest,
    "mean_sqrt_len_tokens": mean_sqrt,
    "weightedmean": weighted_mean,
    "lasttoken": last,
}
PADDED = ("cls", "mean")  # what a graph can have
ACTIVATIONS: dict[str, type[nn.Module]] = {
    "torch.nn.modules.linear.Identity": nn.Identity,
    "torch.nn.modules.activation.Tanh": nn.Tanh,
    "torch.nn.modules.activation.ReLU": nn.ReLU,
    "torch.nn.modules.activation.GELU": nn.GELU,
    "torch.nn.modules.activation.SiLU": nn.SiLU,
    "torch.nn.modules.activation.Sigmoid": nn.Sigmoid,
}


class Dense(nn.Module):
    """A projection of the pooled vector, as sentence-transformers' module of that name."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        bias: bool = True,
        activation: str = "torch.nn.modules.linear.Identity",
    ) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ModelError(f"unknown activation {activation!r}", fix=f"use one of {', '.join(ACTIVATIONS)}")
        self.linear = nn.Linear(inputs, outputs, bias=bias)
        self.activation = activation
        self.function = ACTIVATIONS[activation]()

    def forward(self, x_BD: Tensor) -> Tensor:
        out: Tensor = self.function(self.linear(x_BD))
        return out


class Normalize(nn.Module):
    """Vectors of length 1."""

    def forward(self, x_BD: Tensor) -> Tensor:
        return F.normalize(x_BD, dim=-1)


def through(tail: Iterable[nn.Module], x_BD: Tensor) -> Tensor:
    """Pooled vectors through what follows the pooling; never in half precision, as pooled ones are not."""
    with torch.autocast(x_BD.device.type, enabled=False):
        for part in tail:
            x_BD = part(x_BD)
    return x_BD


def width_after(tail: Iterable[nn.Module], width: int) -> int:
    """The width of a vector after the tail."""
    return [width, *(part.linear.out_features for part in tail if isinstance(part, Dense))][-1]
