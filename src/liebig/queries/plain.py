"""One step of any other seq2seq model (BART, Pegasus, …) through transformers' own decoder and cache.

The passage's states are repeated for each of its queries, so this is slower than the decoders of our own; it is there
so that every seq2seq model can be used, and the others are held against it.

N rows, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from liebig.queries.cache import Rows


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
    """A model of transformers as it is."""

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
