"""Small random models and batches, in the package's form and in the plain one, from the same numbers."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from liebig.model.backbone import Backbone
from liebig.model.packed import Packed
from liebig.train.batch import Batch, Side
from tests.worlds.plain import Plain, Span

VOCAB = 61
FAMILIES = ("bert", "roberta")


def backbone(family: str = "bert", layers: int = 4, seed: int = 0, spread: float = 0.2) -> Backbone:
    """A random model in float64 without dropout; weights wide enough that attention matters."""
    made = Backbone.create(
        layers, 16, 2, VOCAB, family, intermediate=24, max_positions=40, dropout=0.0,
        initializer_range=spread, pad=0 if family == "bert" else 1, seed=seed,
    )  # fmt: skip
    return made.double().eval()


def plain_of(made: Backbone) -> Plain:
    """The same weights in a Hugging Face model of its own, padded, with eager attention."""
    config = copy.deepcopy(made.config)
    config._attn_implementation = "eager"
    model = type(made.model)(config).double().eval()
    model.load_state_dict(made.model.state_dict())
    return Plain(model)


def layers_of(made: nn.ModuleList, plain: Plain) -> nn.ModuleList:
    """A copy of head layers whose attention is the plain model's."""
    copies = nn.ModuleList(type(layer)(plain.model.config) for layer in made).double().eval()
    copies.load_state_dict(made.state_dict())
    return copies


def spans(n: int, seed: int = 0, low: int = 4, high: int = 14, masked: bool = True) -> list[Span]:
    """Random token rows between two fixed ids, with some positions masked."""
    random = np.random.default_rng(seed)
    return [_span(random, int(length), masked) for length in random.integers(low, high, n)]


def _span(random: np.random.Generator, length: int, masked: bool) -> Span:
    ids = [2, *random.integers(5, VOCAB, length).tolist(), 3]
    if not masked:
        return Span(ids)
    targets = sorted(random.choice(np.arange(1, length + 1), max(1, length // 3), replace=False).tolist())
    labels = [ids[t] for t in targets]
    for t in targets:
        ids[t] = 4
    return Span(ids, targets, labels)


def side(rows: Sequence[Span], per_example: int = 1) -> Side:
    """The rows packed; `per_example` neighbouring rows belong to one example."""
    packed = Packed.from_lists([row.ids for row in rows])
    starts = packed.bounds[:-1].tolist()
    targets = [start + t for start, row in zip(starts, rows) for t in row.targets]
    labels = [label for row in rows for label in row.labels]
    owner = torch.arange(len(rows)) // per_example
    return Side(
        packed, owner, torch.tensor(targets, dtype=torch.long), torch.tensor(labels, dtype=torch.long)
    )


def batch(n: int, **sides: Side) -> Batch:
    return Batch(sides, n)


def gradients(module: nn.Module, prefix: str = "") -> dict[str, Tensor]:
    return {prefix + name: p.grad for name, p in module.named_parameters() if p.grad is not None}


def assert_same_gradients(
    ours: dict[str, Tensor], theirs: dict[str, Tensor], tolerance: float = 1e-6
) -> None:
    """The same parameters have a gradient, and it is the same; one that is 0 may be absent."""
    for name in ours.keys() | theirs.keys():
        a, b = ours.get(name), theirs.get(name)
        known = b if a is None else a
        assert known is not None
        zero = torch.zeros_like(known)
        torch.testing.assert_close(
            zero if a is None else a, zero if b is None else b, rtol=tolerance, atol=tolerance, msg=name
        )
