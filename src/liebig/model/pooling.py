"""One vector per sequence from the states of a packed row.

Means include CLS and SEP, as Contriever's do. Sums run over each sequence's own rows: added one by one in order
on a CPU, by one segment reduction on CUDA; both are deterministic and never read another sequence. Half
precision is summed in float32, and vectors are never in half precision.

T packed tokens, B sequences, D width.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from liebig.errors import ModelError
from liebig.model.packed import Packed


def pool(states_TD: Tensor, packed: Packed, kind: str = "cls", skip: int = 0) -> Tensor:
    """B x D. `skip` leaves out the first tokens of every sequence (a prompt that is not to be pooled)."""
    if kind not in POOLINGS:
        raise ModelError(f"unknown pooling {kind!r}", fix=f"use one of {', '.join(POOLINGS)}")
    return POOLINGS[kind](states_TD, packed, skip)


def cls(states_TD: Tensor, packed: Packed, skip: int = 0) -> Tensor:
    """The state of the first token."""
    rows = packed.firsts + skip * (packed.lengths > skip) if skip else packed.firsts
    return wide(states_TD.index_select(0, rows))


def last(states_TD: Tensor, packed: Packed, skip: int = 0) -> Tensor:
    """The state of the last token."""
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
