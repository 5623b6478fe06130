"""Attention per sequence on a packed row, behind transformers' public `AttentionInterface`.

On CUDA in half precision it is `torch.nn.attention.varlen.varlen_attn`: no padding, no mask. Everywhere else
(CPU, float32, float64) sequences of similar length are padded together inside attention only, and SDPA runs.
Dropout on attention probabilities is 0 in both, because the first has none. Keyword arguments given to a layer
reach this function, so Hugging Face layers run unchanged.

T packed tokens, H heads, E head width, b x L sequences and slots of a bucket.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from liebig.model.packed import Bucket, BucketPlan

NAME = "liebig_packed"
HALF = (torch.bfloat16, torch.float16)


def register() -> None:
    """Makes `NAME` an attention implementation of transformers; doing it twice changes nothing."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(NAME, packed_attention)
    AttentionMaskInterface.register(NAME, no_mask)


def no_mask(*args: Any, **kwargs: Any) -> None:
    """A packed row needs no mask: offsets separate the sequences."""


def packed_attention(
    module: nn.Module,
    query: Tensor,  # 1 x H x T x E
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    packed_offsets: Tensor | None = None,
    packed_longest: int = 0,
    packed_plan: BucketPlan | None = None,
    packed_record: list[list[Tensor]] | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """The function transformers' layers call; `packed_*` come from `Backbone`, the rest from the layer.

    `sliding_window` is transformers' number: one more than the distance a token may look, either way.
    """
    q_THE, k_THE, v_THE = (x.transpose(1, 2).squeeze(0) for x in (query, key, value))
    reach = -1 if sliding_window is None else sliding_window - 1
    if packed_record is not None and packed_plan is not None:
        packed_record.append(probabilities(q_THE, k_THE, packed_plan, scaling, reach))
    if packed_plan is not None:
        out_THE = attend_padded(q_THE, k_THE, v_THE, packed_plan, scaling, reach)
    else:
        assert packed_offsets is not None, "packed attention without offsets"
        out_THE = attend_varlen(q_THE, k_THE, v_THE, packed_offsets, packed_longest, scaling, reach)
    return out_THE.unsqueeze(0), None


def attend_varlen(
    q_THE: Tensor,
    k_THE: Tensor,
    v_THE: Tensor,
    offsets: Tensor,
    longest: int,
    scale: float | None,
    reach: int,
) -> Tensor:
    """Attention of each sequence to itself by the variable-length kernel; `reach` -1 is everywhere."""
    from torch.nn.attention.varlen import varlen_attn

    out = varlen_attn(
        q_THE, k_THE, v_THE, offsets, offsets, longest, longest, scale=scale, window_size=(reach, reach)
    )
    assert isinstance(out, Tensor)
    return out


def attend_qkv(qkv_T3HE: Tensor, offsets: Tensor, longest: int, scale: float) -> Tensor:
    """The same from queries, keys and values of one product."""
    q_THE, k_THE, v_THE = qkv_T3HE.unbind(1)
    return attend_varlen(q_THE, k_THE, v_THE, offsets, longest, scale, -1)


def is_short(longest: int, head_width: int) -> bool:
    """Whether rows of such sequences have kernels of their own (`kernels/short_attention.py`)."""
    return longest <= 128 and head_width in (16, 32, 64)


def attend_padded(
    q_THE: Tensor, k_THE: Tensor, v_THE: Tensor, plan: BucketPlan, scale: float | None, reach: int
) -> Tensor:
    """The same by SDPA, bucket by bucket; exact in float64, differentiable, deterministic on a CPU."""
    parts = []
    gathered = (plan.gather(x) for x in (q_THE, k_THE, v_THE))
    for bucket, *qkv in zip(plan.buckets, *gathered, strict=True):
        q, k, v = (x_bLHE.transpose(1, 2) for x_bLHE in qkv)
        mask = allowed(bucket, reach, q.device)
        parts.append(F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale).transpose(1, 2))
    return plan.scatter(parts)


def probabilities(
    q_THE: Tensor, k_THE: Tensor, plan: BucketPlan, scale: float | None, reach: int
) -> list[Tensor]:
    """Attention probabilities of every sequence, H x L x L each, in the row's order."""
    by_sequence: dict[int, Tensor] = {}
    scale = q_THE.shape[-1] ** -0.5 if scale is None else scale
    for bucket, q_bLHE, k_bLHE in zip(plan.buckets, plan.gather(q_THE), plan.gather(k_THE), strict=True):
        q, k = q_bLHE.transpose(1, 2), k_bLHE.transpose(1, 2)
        scores = (q @ k.transpose(2, 3)) * scale
        mask = allowed(bucket, reach, q.device)
        if mask is not None:
            scores = scores.masked_fill(~mask, float("-inf"))
        share = scores.softmax(-1)
        for i, sequence in enumerate(bucket.sequences):
            n = bucket.length if bucket.real is None else int(bucket.real[i].sum())
            by_sequence[int(sequence)] = share[i, :, :n, :n]
    return [by_sequence[i] for i in range(len(by_sequence))]


def allowed(bucket: Bucket, reach: int, device: torch.device) -> Tensor | None:
    """True where a query (second last axis) may look at a key (last axis); None where it may look anywhere."""
    mask = None if bucket.real is None else bucket.real[:, None, None, :]
    if reach < 0 or reach >= bucket.length - 1:
        return mask
    place = torch.arange(bucket.length, device=device)
    near = ((place[:, None] - place[None, :]).abs() <= reach)[None, None]
    # A padding slot far from every real token would see nothing; it may see itself, and is thrown away.
    return near if mask is None else (near & mask) | torch.eye(bucket.length, dtype=torch.bool, device=device)


def varlen_runs(device: torch.device, dtype: torch.dtype, head_width: int) -> bool:
    """Whether the variable-length kernel can take this device, dtype and head width."""
    if device.type != "cuda" or dtype not in HALF or head_width % 8 or head_width > 256:
        return False
    return varlen_kernel() is not None and torch.cuda.get_device_capability(device) >= (8, 0)


def varlen_kernel() -> Callable[..., Any] | None:
    """torch's variable-length attention, or None where this torch has none."""
    try:
        return getattr(importlib.import_module("torch.nn.attention.varlen"), "varlen_attn", None)
    except ImportError:
        return None


def compute_dtype(device: torch.device, weights: torch.dtype) -> torch.dtype:
    """The dtype attention will see: the autocast dtype where autocast is on, else that of the weights."""
    if weights == torch.float64 or not torch.is_autocast_enabled(device.type):
        return weights
    return torch.get_autocast_dtype(device.type)


def rounded_longest(longest: int) -> int:
    """A power of two not below `longest`, at least 32: few values, so compiled code is made few times."""
    return max(32, 1 << (longest - 1).bit_length())
