"""MoCo as Contriever uses it: each query against its own key and a queue of earlier keys.

Keys come from a momentum encoder, θ_k ← m θ_k + (1 − m) θ_q, without gradient; after a step the keys of all
processes enter the queue in the order of the batch, and the oldest leave. Other keys of the same batch are no
negatives. Queue and momentum encoder are part of the state, so they are in every checkpoint, and every process
holds the same ones: nothing is sent but the new keys. Cost: a forward pass for the keys, a second copy of the
encoder, and queue x width numbers. Recipes: `recipes/contriever*.toml`. Docs: `docs/methods/contriever.md`.
Tests: `tests/methods/test_pretrain_moco.py`.

n examples, D width, K queue.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any, Literal, Self

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import normalize

from liebig import losses
from liebig.base.errors import RecipeError
from liebig.methods.base import Method, MethodStart, Preset, PretrainRecipe, Saved, unset
from liebig.methods.simclr import TwoViewsConfig
from liebig.model.backbone import Backbone
from liebig.model.pooling import pool, through, width_after
from liebig.train.batch import Batch
from liebig.train.distributed import World
from liebig.train.objective import Contrast, Represented

SETTINGS: dict[str, dict[str, Any]] = {
    "zero-shot": {"queue": 131_072, "momentum": 0.9995},
    "fine-tuned": {"queue": 65_536, "momentum": 0.999},
}
SHORTEST_CROP = {"zero-shot": 0.05, "fine-tuned": 0.10}


class MoCo(Method):
    """Queries and keys, a momentum encoder and a queue; Contriever, 3.1.3."""

    class Config(TwoViewsConfig):
        """Two views of a text find each other among a queue of earlier ones (Contriever)."""

        kind: Literal["moco"] = "moco"
        setting: Literal["zero-shot", "fine-tuned"] = Field(
            default="zero-shot",
            description="The paper's settings (queue, momentum, crops) for a model used without fine-tuning, or for "
            "one to be fine-tuned.",
        )
        queue: int | None = Field(
            default=None,
            ge=1,
            description="Number of keys in the queue [default: by setting, 131,072 or 65,536].",
        )
        momentum: float | None = Field(
            default=None,
            ge=0.0,
            le=1.0,
            description="Momentum of the key encoder [default: by setting, 0.9995 or 0.999].",
        )
        key_dropout: bool = Field(
            default=True, description="Use dropout in the key encoder, as in the released code."
        )

        @property
        def negatives(self) -> Literal["queue"]:
            return "queue"

        def filled(self) -> Self:
            """With queue and momentum of the setting where the recipe has none."""
            return self.model_copy(update=unset(self, SETTINGS[self.setting]))

        def resolve(self, recipe: PretrainRecipe) -> Self:
            full = self.filled()
            check_queue(full.queue or 0, recipe.loop.batch)
            return full

        def crop_defaults(self, preset: Preset) -> dict[str, float]:
            return super().crop_defaults(preset) | {"shortest": SHORTEST_CROP[self.setting]}

    config: Config
    queue: Tensor
    oldest: Tensor

    def __init__(
        self, config: Config, backbone: Backbone, tail: Sequence[nn.Module] = (), *, seed: int = 0
    ) -> None:
        super().__init__()
        self.config = config = config.filled()
        assert config.queue is not None, "the setting has one"
        assert config.momentum is not None, "the setting has one"
        self.backbone = backbone
        self.tail = nn.ModuleList(tail)
        self.key_encoder = copy.deepcopy(backbone).requires_grad_(False)
        self.key_tail = copy.deepcopy(self.tail).requires_grad_(False)
        self.momentum = config.momentum
        # Random unit rows stand in for keys until real ones have filled the queue, as in the released code.
        random = torch.Generator().manual_seed(seed)
        rows = normalize(
            torch.randn(config.queue, width_after(tail, backbone.width), generator=random), dim=1
        )
        self.register_buffer("queue", rows.to(backbone.dtype))
        self.register_buffer("oldest", torch.zeros((), dtype=torch.long))
        self._fresh: Tensor | None = None

    @classmethod
    def build(cls, recipe: PretrainRecipe, backbone: Backbone, start: MethodStart) -> MoCo:
        config = recipe.objective
        assert isinstance(config, MoCo.Config)
        return cls(config, backbone, start.tail(config.pooling), seed=recipe.seed)

    def train(self, mode: bool = True) -> MoCo:
        """Dropout of the momentum encoder is on only with `key_dropout`."""
        super().train(mode)
        self.key_encoder.train(mode and self.config.key_dropout)
        return self

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Both encoders."""
        self.backbone.compile(*args, **kwargs)
        self.key_encoder.compile(*args, **kwargs)

    def represent(self, chunk: Batch) -> Represented:
        packed = chunk.sides["query"].packed
        return Represented(through(self.tail, pool(self.backbone(packed).last, packed, self.config.pooling)))

    def constants(self, chunk: Batch) -> Tensor:
        packed = chunk.sides["key"].packed
        return through(self.key_tail, pool(self.key_encoder(packed).last, packed, self.config.pooling))

    def contrast(self, vectors: Tensor, constants: Tensor | None, batch: Batch, world: World) -> Contrast:
        assert constants is not None, "MoCo's keys are its constants"
        self._fresh = world.gather(constants).rows.detach()
        scored = losses.queued_info_nce(
            vectors,
            constants,
            self.queue,
            temperature=self.config.temperature,
            similarity=self.config.similarity,
            total=len(self._fresh),
        )
        return Contrast(scored.loss, {"partner_accuracy": scored.accuracy, "alignment": scored.alignment})

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

    def saved(self) -> Saved:
        return Saved(self.config.pooling, self.config.similarity, list(self.tail))

    def in_order(self) -> Tensor:
        """The queue from the oldest key to the newest."""
        return self.queue.roll(-int(self.oldest), dims=0)


def follow(keys: Iterable[Tensor], queries: Iterable[Tensor], momentum: float) -> None:
    """θ_k ← m θ_k + (1 − m) θ_q."""
    torch._foreach_lerp_(list(keys), list(queries), 1 - momentum)


def check_queue(queue: int, batch: int) -> None:
    """A queue holds whole batches; the error says which sizes nearby do."""
    if batch > 0 and queue >= batch and queue % batch == 0:
        return
    below, above = max(queue // batch, 1) * batch, (queue // batch + 1) * batch
    sizes = f"{below:,} or {above:,}" if below != above else f"{below:,}"
    raise RecipeError(
        f"a queue of {queue:,} is not a multiple of the batch of {batch:,} examples",
        fix=f"use a queue of {sizes} (any multiple of the batch), or a batch that divides the queue",
    )
