"""The objective and the batches that train a query generator.

B sequences, L tokens of the longest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from liebig.methods.samplers import Sampler
from liebig.model.packed import Packed
from liebig.queries.generator import Generator
from liebig.train.batch import Batch, Side
from liebig.train.distributed import World
from liebig.train.objective import Objective, Represented

TERM = "tokens-of-queries"


class GeneratorObjective(Objective):
    """Cross entropy of each token of a query, given the passage and the tokens before it."""

    def __init__(self, generator: Generator) -> None:
        super().__init__()
        self.generator, self.model = generator, generator.model
        self._pad, self._start = generator.pad, generator.marks.start

    def counts(self, batch: Batch) -> dict[str, int]:
        return {TERM: batch.sides["query"].packed.total}

    def represent(self, chunk: Batch) -> Represented:
        passages, queries = chunk.sides["passage"].packed, chunk.sides["query"].packed
        tokens_BL, real_BL = padded(passages, self._pad)
        labels_BL, written_BL = padded(queries, self._pad)
        start = labels_BL.new_full((len(labels_BL), 1), self._start)
        logits_BLV = self.model(
            input_ids=tokens_BL,
            attention_mask=real_BL.long(),
            decoder_input_ids=torch.cat((start, labels_BL[:, :-1]), dim=1),
            use_cache=False,
        ).logits
        loss = F.cross_entropy(logits_BLV[written_BL].float(), labels_BL[written_BL], reduction="sum")
        return Represented(None, {TERM: loss})

    def compile(self, *args: Any, **kwargs: Any) -> None:
        self.model.compile(dynamic=True)


def padded(packed: Packed, pad: int) -> tuple[Tensor, Tensor]:
    """A packed row as a rectangle, and which of its places are real."""
    shape = (len(packed), packed.max_length)
    tokens = packed.tokens.new_full(shape, pad)
    real = torch.zeros(shape, dtype=torch.bool, device=packed.device)
    tokens[packed.sequence, packed.positions] = packed.tokens
    real[packed.sequence, packed.positions] = True
    return tokens, real


@dataclass(frozen=True)
class GeneratorBatches:
    """This process's share of the batch of a step.

    Examples are sorted by length, so that the chunks of the step hold texts of similar length and little padding.
    """

    sources: Sequence[Sequence[int]]
    targets: Sequence[Sequence[int]]
    passage_of: Sequence[int]  # of each pair
    sampler: Sampler
    world: World

    def __call__(self, step: int) -> Batch:
        chosen = self.sampler(step)
        first, last = self.world.share(len(chosen)) if self.world.size > 1 else (0, len(chosen))
        mine = sorted(chosen[first:last].tolist(), key=lambda i: len(self.sources[self.passage_of[i]]))
        owner = torch.arange(len(mine))
        passages = Packed.from_lists([self.sources[self.passage_of[i]] for i in mine])
        queries = Packed.from_lists([self.targets[i] for i in mine])
        return Batch({"passage": Side(passages, owner), "query": Side(queries, owner)}, len(mine))
