from __future__ import annotations

import pytest
import torch

from liebig.base.errors import ModelError
from liebig.model.packed import Packed
from liebig.model.pooling import POOLINGS, pool
from tests.worlds.models import random_row


def by_hand(states: torch.Tensor, kind: str) -> torch.Tensor:
    n = len(states)
    weights = torch.arange(1, n + 1, dtype=states.dtype)[:, None]
    return {
        "cls": states[0],
        "mean": states.sum(0) / n,
        "max": states.max(0).values,
        "mean_sqrt_len_tokens": states.sum(0) / n**0.5,
        "weightedmean": (states * weights).sum(0) / weights.sum(),
        "lasttoken": states[-1],
    }[kind]


def parts(states: torch.Tensor, packed: Packed) -> list[torch.Tensor]:
    return [states[a:b] for a, b in zip(packed.bounds[:-1], packed.bounds[1:])]


@pytest.mark.parametrize("kind", POOLINGS)
def test_pooling_is_what_it_is_by_hand_and_so_is_its_gradient(kind: str) -> None:
    packed = random_row()
    states = torch.randn(packed.total, 5, dtype=torch.float64, requires_grad=True)
    ours = pool(states, packed, kind)
    reference = torch.stack([by_hand(part, kind) for part in parts(states, packed)])
    weight = torch.randn_like(ours)
    assert torch.allclose(ours, reference, rtol=0, atol=1e-14)
    (got,), (expected,) = (torch.autograd.grad((x * weight).sum(), states) for x in (ours, reference))
    assert torch.allclose(got, expected, rtol=0, atol=1e-14)


def test_a_mean_does_not_depend_on_the_other_sequences() -> None:
    packed = random_row((3, 40, 5))
    states = torch.randn(packed.total, 8)
    alone = pool(states[43:], packed.slice(2, 3), "mean")
    assert torch.equal(pool(states, packed, "mean")[2:], alone)


def test_half_precision_is_summed_in_float32() -> None:
    packed = random_row((3000,), seed=2)
    states = torch.ones(3000, 2, dtype=torch.bfloat16)
    pooled = pool(states, packed, "mean")
    assert pooled.dtype == torch.float32
    assert torch.equal(pooled, torch.ones(1, 2))


@pytest.mark.parametrize("kind", ["mean", "weightedmean", "max", "cls"])
def test_the_first_tokens_can_be_left_out(kind: str) -> None:
    packed = random_row((6, 9))
    states = torch.randn(packed.total, 4, dtype=torch.float64)
    ours = pool(states, packed, kind, skip=2)
    changed = states.clone()
    changed[[0, 1, 6, 7]] += 10
    assert torch.equal(pool(changed, packed, kind, skip=2), ours)
    if kind != "weightedmean":
        assert torch.allclose(ours[0], by_hand(states[2:6], kind))


def test_an_unknown_pooling_is_refused() -> None:
    with pytest.raises(ModelError, match="unknown pooling 'median'"):
        pool(torch.zeros(1, 1), random_row((1,)), "median")
