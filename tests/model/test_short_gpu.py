"""Attention for short sequences equals attention in float64 within bf16 error, forward and backward."""

import pytest
import torch

from liebig.model.attention import attend_padded
from liebig.model.packed import make_plan

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(
    ("heads", "width", "longest"), [(12, 64, 128), (12, 32, 128), (4, 64, 64), (3, 16, 32), (2, 64, 1)]
)
def test_short_attention_equals_float64_within_half_precision(heads, width, longest):
    from liebig.model.kernels.short_attention import short_attention

    torch.manual_seed(0)
    lengths = torch.randint(1, longest + 1, (200,))
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)])
    qkv = torch.randn(
        int(offsets[-1]), 3, heads, width, device="cuda", dtype=torch.bfloat16, requires_grad=True
    )
    grad = torch.randn(len(qkv), heads, width, device="cuda", dtype=torch.bfloat16)
    out = short_attention(qkv, offsets.int().cuda(), longest, width**-0.5)
    out.backward(grad)
    exact = qkv.detach().double().requires_grad_()
    wanted = attend_padded(*exact.unbind(1), make_plan(offsets.numpy(), qkv.device), width**-0.5, -1)
    wanted.backward(grad.double())
    assert float((out - wanted).norm() / wanted.norm()) < 5e-3
    assert float((qkv.grad - exact.grad).norm() / exact.grad.norm()) < 5e-3


def test_sequences_do_not_see_each_other():
    from liebig.model.kernels.short_attention import short_attention

    torch.manual_seed(0)
    qkv = torch.randn(150, 3, 2, 32, device="cuda", dtype=torch.bfloat16)
    offsets = torch.tensor([0, 50, 150], dtype=torch.int32, device="cuda")
    before = short_attention(qkv, offsets, 128, 0.2)
    qkv[50:] += 1
    after = short_attention(qkv, offsets, 128, 0.2)
    assert torch.equal(before[:50], after[:50])
    assert not torch.equal(before[50:], after[50:])


def test_a_row_may_hold_more_sequences_than_a_grid_has_rows():
    from liebig.model.kernels.short_attention import short_attention

    qkv = torch.randn(70_000, 3, 2, 32, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    out = short_attention(qkv, torch.arange(70_001, dtype=torch.int32, device="cuda"), 32, 0.2)
    assert torch.equal(out, qkv[:, 2])  # one token sees itself alone
    out.backward(torch.ones_like(out))
    assert torch.equal(qkv.grad[:, 2], torch.ones_like(out))
