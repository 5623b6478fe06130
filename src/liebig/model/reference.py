"""The model's own padded forward: what packed runs are checked against, and the way of families that cannot pack.

It pads the whole row to its longest sequence and calls the Hugging Face model as anybody would, by one of
transformers' own attention implementations. Slow; for checks and analysis.

B sequences, L longest length, D width, H heads.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from liebig.model.packed import Packed


def padded_inputs(packed: Packed, pad: int) -> dict[str, Tensor]:
    """`input_ids`, `attention_mask` and `token_type_ids` as transformers wants them, B x L."""
    real_BL = torch.arange(packed.max_length, device=packed.device)[None, :] < packed.lengths[:, None]
    tokens_BL = torch.full(real_BL.shape, pad, device=packed.device).masked_scatter(real_BL, packed.tokens)
    inputs = {"input_ids": tokens_BL, "attention_mask": real_BL.long()}
    if packed.segments is not None:
        inputs["token_type_ids"] = torch.zeros_like(tokens_BL).masked_scatter(real_BL, packed.segments)
    return inputs


def own_states(model: Any, packed: Packed) -> Tensor:
    """Last states of the model's own padded forward, put back on the row, T x D."""
    inputs = padded_inputs(packed, getattr(model.config, "pad_token_id", None) or 0)
    with own_attention(model, "sdpa" if model._supports_sdpa else "eager"):
        states_BLD = model.base_model(**inputs).last_hidden_state
    return states_BLD[inputs["attention_mask"].bool()]


def own_attentions(model: Any, packed: Packed) -> list[Tensor]:
    """Attention probabilities of each sequence from the model's own forward, layers x H x L x L."""
    inputs = padded_inputs(packed, getattr(model.config, "pad_token_id", None) or 0)
    with own_attention(model, "eager"):
        layers = model.base_model(**inputs, output_attentions=True, return_dict=True).attentions
    shares = torch.stack(list(layers), dim=1)
    return [shares[i, :, :, :n, :n] for i, n in enumerate(packed.lengths.tolist())]


@contextmanager
def own_attention(model: Any, name: str) -> Iterator[None]:
    """The model with one of transformers' own attention implementations for a while."""
    before = model.config._attn_implementation
    model.config._attn_implementation = name
    try:
        yield
    finally:
        model.config._attn_implementation = before


@torch.no_grad()
def packing_error(backbone: Any, lengths: tuple[int, ...] = (7, 1, 19, 7, 12), seed: int = 0) -> float:
    """Largest difference between the backbone on a random packed row and its own padded forward.

    The numeric self-check of a family: rounding error where it may be trusted, 1e-3 and more where not.
    """
    random = torch.Generator().manual_seed(seed)
    room = min(backbone.max_positions, max(lengths))
    low = 5 if backbone.vocab_size > 10 else 0
    lists = [
        torch.randint(low, backbone.vocab_size, (min(n, room),), generator=random).tolist() for n in lengths
    ]
    packed = Packed.from_lists(lists).to(backbone.body.device)
    was_training = backbone.training
    backbone.eval()
    error = (backbone(packed).last - own_states(backbone.model, packed)).abs().max()
    backbone.train(was_training)
    return float(error)
