"""MoCo as Contriever uses it: each query against its own key and a queue of earlier keys.

Keys come from a momentum encoder, θ_k ← m θ_k + (1 − m) θ_q, without gradient; after a step the keys of all
processes enter the queue in the order of the batch, and the oldest leave. Other keys of the same batch are no
negatives. Queue and momentum encoder are part of the state, so they are in every checkpoint, and every process
holds the same ones: nothing is sent but the new keys. Cost: a forward pass for the keys, a second copy of the
encoder, and queue x width numbers.

n examples, D width, K queue.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from liebig import losses
from liebig.base.errors import RecipeError
from liebig.losses.contrastive import Similarity
from liebig.model.backbone import Backbone
from liebig.model.encoder import pool, through, width_after
from liebig.train.batch import Batch
from liebig.train.distributed import World
from liebig.train.objective import Contrast, Objective, Represented


class MoCo(Objective):
    """Queries and keys, a momentum encoder and a queue; Contriever, 3.1.3."""

    queue: Tensor
    oldest: Tensor

    def __init__(
        self,
        backbone: Backbone,
        tail: Sequence[nn.Module] = (),
        *,
        queue: int = 131_072,
        momentum: float = 0.9995,
        temperature: float = 0.05,
        similarity: Similarity = "dot",
        pooling: str = "mean",
        key_dropout: bool = True,
        label_smoothing: float = 0.0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.tail = nn.ModuleList(tail)
        self.key_encoder = copy.deepcopy(backbone).requires_grad_(False)
        self.key_tail = copy.deepcopy(self.tail).requires_grad_(False)
        self.momentum, self.temperature = momentum, temperature
        self.similarity: Similarity = similarity
        self.pooling = pooling
        self.key_dropout = key_dropout
        self.label_smoothing = label_smoothing
        # Random unit rows stand in for keys until real ones have filled the queue, as in the released code.
        random = torch.Generator().manual_seed(seed)
        rows = normalize(torch.randn(queue, width_after(tail, backbone.width), generator=random), dim=1)
        self.register_buffer("queue", rows.to(backbone.dtype))
        self.register_buffer("oldest", torch.zeros((), dtype=torch.long))
        self._fresh: Tensor | None = None

    def train(self, mode: bool = True) -> MoCo:
        """Dropout of the momentum encoder is on only where asked for."""
        super().train(mode)
        self.key_encoder.train(mode and self.key_dropout)
        return self

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Both encoders."""
        self.backbone.compile(*args, **kwargs)
        self.key_encoder.compile(*args, **kwargs)

    def represent(self, chunk: Batch) -> Represented:
        packed = chunk.sides["query"].packed
        return Represented(through(self.tail, pool(self.backbone(packed).last, packed, self.pooling)))

    def constants(self, chunk: Batch) -> Tensor:
        packed = chunk.sides["key"].packed
        return through(self.key_tail, pool(self.key_encoder(packed).last, packed, self.pooling))

    def contrast(self, vectors: Tensor, constants: Tensor | None, batch: Batch, world: World) -> Contrast:
        assert constants is not None, "MoCo's keys are its constants"
        self._fresh = world.gather(constants).rows.detach()
        found = losses.queued_info_nce(
            vectors,
            constants,
            self.queue,
            temperature=self.temperature,
            similarity=self.similarity,
            total=len(self._fresh),
        )
        loss = found.loss
        if self.label_smoothing:
            loss = loss + self.label_smoothing * self._smoothing(vectors, constants) / len(self._fresh)
        return Contrast(loss, {"partner_accuracy": found.accuracy, "alignment": found.alignment})

    def _smoothing(self, q_nD: Tensor, k_nD: Tensor) -> Tensor:
        """Σ over queries of (own score − mean score): what smoothed labels add to the cross entropy."""
        q, k, old = (
            normalize(x, dim=1) if self.similarity == "cosine" else x for x in (q_nD, k_nD, self.queue)
        )
        mean_nD = (k + old.sum(dim=0)) / (1 + len(old))
        return (q * (k - mean_nD)).sum() / self.temperature

    @torch.no_grad()
    def after_step(self) -> None:
        """New keys in, oldest out; then the momentum encoder follows. Exactly once a step."""
        assert self._fresh is not None, "no keys: a step comes before after_step"
        n, size = len(self._fresh), len(self.queue)
        check_queue(size, n)
        # Where to write stays on the device, so that nothing waits for it.
        places = (self.oldest + torch.arange(n, device=self.queue.device)) % size
        self.queue.index_copy_(0, places, self._fresh.to(self.queue.dtype))
        self.oldest.add_(n).remainder_(size)
        self._fresh = None
        keys = [*self.key_encoder.parameters(), *self.key_tail.parameters()]
        follow(keys, [*self.backbone.parameters(), *self.tail.parameters()], self.momentum)

    def in_order(self) -> Tensor:
        """The queue from the oldest key to the newest."""
        return self.queue.roll(-int(self.oldest), dims=0)


def follow(keys: Iterable[Tensor], queries: Iterable[Tensor], momentum: float) -> None:
    """θ_k ← m θ_k + (1 − m) θ_q."""
    torch._foreach_lerp_(list(keys), list(queries), 1 - momentum)


def check_queue(queue: int, batch: int) -> None:
    """A queue holds whole batches; the error says which sizes near the wanted one do."""
    if batch > 0 and queue >= batch and queue % batch == 0:
        return
    below, above = max(queue // batch, 1) * batch, (queue // batch + 1) * batch
    sizes = f"{below:,} or {above:,}" if below != above else f"{below:,}"
    raise RecipeError(
        f"a queue of {queue:,} is not a multiple of the batch of {batch:,} examples",
        fix=f"use a queue of {sizes} (any multiple of the batch), or a batch that divides the queue",
    )
