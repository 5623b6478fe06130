from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from liebig.model import attention
from liebig.model.packed import MOST_PADDING, Packed
from tests.worlds.models import random_row

WIDTH = (3, 8)  # heads, head width


def one_by_one(q: Tensor, k: Tensor, v: Tensor, packed: Packed, reach: int) -> Tensor:
    """Softmax attention written out, sequence by sequence."""
    parts = []
    for start, end in zip(packed.bounds[:-1], packed.bounds[1:]):
        a, b, c = (x[start:end].transpose(0, 1) for x in (q, k, v))
        scores = a @ b.transpose(1, 2) / WIDTH[1] ** 0.5
        place = torch.arange(end - start)
        if reach >= 0:
            scores = scores.masked_fill((place[:, None] - place[None]).abs() > reach, float("-inf"))
        parts.append((scores.softmax(-1) @ c).transpose(0, 1))
    return torch.cat(parts)


def random_qkv(packed: Packed) -> list[Tensor]:
    torch.manual_seed(3)
    return [torch.randn(packed.total, *WIDTH, dtype=torch.float64, requires_grad=True) for _ in range(3)]


@pytest.mark.parametrize("reach", [-1, 0, 2, 100])
def test_bucketed_attention_is_attention_of_each_sequence_and_so_is_its_gradient(reach: int) -> None:
    packed = random_row((5, 1, 12, 6, 30, 5))
    inputs = random_qkv(packed)
    q, k, v = inputs
    ours = attention.attend_padded(q, k, v, packed.plan, None, reach)
    reference = one_by_one(q, k, v, packed, reach)
    weight = torch.randn_like(ours)
    assert torch.allclose(ours, reference, rtol=0, atol=1e-13)
    got, expected = (torch.autograd.grad((x * weight).sum(), inputs) for x in (ours, reference))
    assert all(torch.allclose(a, b, rtol=0, atol=1e-12) for a, b in zip(got, expected))


def test_a_sequence_does_not_see_its_neighbours() -> None:
    packed = random_row((4, 7))
    q, k, v = random_qkv(packed)
    before = attention.attend_padded(q, k, v, packed.plan, None, -1)[:4]
    changed = v.detach().clone()
    changed[4:] += 1
    assert torch.equal(before, attention.attend_padded(q, k, changed, packed.plan, None, -1)[:4])


@pytest.mark.parametrize("lengths", [(3,), (5, 5, 5), (1, 100), tuple(range(1, 60)), (128, 1, 127, 2, 64)])
def test_a_plan_brings_every_token_back_and_pads_little(lengths: tuple[int, ...]) -> None:
    packed = random_row(lengths)
    plan = packed.plan
    assert torch.equal(plan.scatter(plan.gather(packed.tokens)), packed.tokens)
    slots = sum(bucket.slots for bucket in plan.buckets)
    assert slots * (1 - MOST_PADDING) <= packed.total
    assert np.sort(np.concatenate([bucket.sequences for bucket in plan.buckets])).tolist() == list(
        range(len(lengths))
    )


def test_longest_lengths_are_rounded_to_few_values() -> None:
    assert [attention.rounded_longest(n) for n in (1, 32, 33, 64, 82, 128, 129, 500)] == [
        32, 32, 64, 64, 128, 128, 256, 512,
    ]  # fmt: skip


def test_the_variable_length_kernel_is_not_asked_for_what_it_cannot_do() -> None:
    assert not attention.varlen_runs(torch.device("cpu"), torch.bfloat16, 64)
    assert not attention.varlen_runs(torch.device("cuda"), torch.float32, 64)
    assert not attention.varlen_runs(torch.device("cuda"), torch.bfloat16, 20)
