"""On CUDA: cross entropy of a decoder matrix is that of float64, and the same every time.

With TRITON_INTERPRET=1 the kernels are interpreted, so that the same tests run without a GPU.
"""

from __future__ import annotations

import os

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

pytestmark = pytest.mark.gpu
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
SIZES = [(0, 100), (1, 64), (37, 100), (37, 5000), (37, 30_522)] + [(3001, 30_522)] * (not INTERPRETED)
WIDTH = 64
SCALE = 0.37  # not 1, so that a gradient that is forgotten shows


def inputs(total: int, size: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """States, weight, bias and labels, of which the last row's is the last column."""
    torch.manual_seed(0)
    states = torch.randn(total, WIDTH, device=DEVICE).to(dtype).requires_grad_()
    weight = (torch.randn(size, WIDTH, device=DEVICE) / 4).requires_grad_()
    labels = torch.randint(0, size, (total,), device=DEVICE)
    labels[-1:] = size - 1
    return states, weight, torch.randn(size, device=DEVICE, requires_grad=True), labels


def off(mine: Tensor, exact: Tensor) -> float:
    return float((mine.double() - exact).norm() / exact.norm().clamp(min=1e-9))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize(("total", "size"), SIZES)
def test_loss_hits_and_gradients_are_those_of_float64(
    total: int, size: int, biased: bool, dtype: torch.dtype
) -> None:
    from liebig.model.kernels import cross_entropy as kernels

    states, weight, bias, labels = inputs(total, size, dtype)
    given = bias if biased else None
    loss, correct = kernels.LinearCrossEntropy.apply(states, weight, given, labels)
    (loss * SCALE).backward()
    # The same product, so that logits are rounded alike; all that follows is in float64.
    half = kernels.padded(weight.detach(), None, dtype)[0]
    logits = (states.detach() @ half.t())[:, :size]
    added = bias.detach() if biased else torch.zeros_like(bias)
    exact = (logits.double() + added.double()).requires_grad_()
    right = F.cross_entropy(exact, labels, reduction="sum")
    (delta,) = torch.autograd.grad(right * SCALE, exact)
    assert (loss.dtype, correct.dtype) == (torch.float32, torch.int64)
    # Exponentials, logarithm and sums in float32, rounded at 6e-8: some of them after another.
    assert torch.allclose(loss.double(), right, rtol=1e-5, atol=1e-5)
    assert int(correct) == int(((logits.float() + added).argmax(dim=1) == labels).sum())
    # The logits' gradient is rounded once, by up to 2e-3 in bfloat16, and so is the product that comes of it.
    error = {torch.bfloat16: 5e-3, torch.float16: 1e-3, torch.float32: 1e-5}[dtype]
    assert states.grad is not None
    assert weight.grad is not None
    assert weight.grad.dtype == torch.float32
    assert off(states.grad, delta @ half[:size].double()) < error
    assert off(weight.grad, delta.t() @ states.detach().double()) < error
    if biased:
        assert bias.grad is not None
        assert off(bias.grad, delta.sum(0)) < 1e-5  # summed before it is rounded


@pytest.mark.parametrize("other", [3, 5, 900, 1023, 1024, 2500, 4999])
def test_of_columns_that_tie_the_first_is_predicted(other: int) -> None:
    from liebig.model.kernels.cross_entropy import reduced

    labels = torch.tensor([5, 5, other, other, 1024, 4999], device=DEVICE)
    logits = torch.zeros(6, 5056, device=DEVICE, dtype=torch.bfloat16)
    logits[:4, 5] = logits[:4, other] = 2
    logits[1, 4000] = logits[3, 2] = 2
    correct = reduced(logits, torch.zeros(5056, device=DEVICE), labels)[2]
    assert correct.tolist() == (logits.float().argmax(dim=1) == labels).tolist()


def test_columns_may_be_excluded_by_a_bias_of_minus_infinity() -> None:
    from liebig.model.kernels.cross_entropy import LinearCrossEntropy

    states, weight, bias, labels = inputs(7, 5000, torch.float32)
    with torch.no_grad():
        bias[:3000] = float("-inf")
        labels[:] = 3000 + labels % 2000
    loss, correct = LinearCrossEntropy.apply(states, weight, bias, labels)
    rest, hits = LinearCrossEntropy.apply(states, weight[3000:], bias[3000:], labels - 3000)
    assert torch.allclose(loss, rest, rtol=1e-5)
    assert correct == hits


@pytest.mark.parametrize("label", [-100, -3000, 5000, 10**6])
def test_a_label_outside_the_vocabulary_is_not_passed_over(label: int) -> None:
    from liebig.model.kernels.cross_entropy import LinearCrossEntropy

    states, weight, bias, labels = inputs(7, 5000, torch.float32)
    labels[3] = label
    assert not LinearCrossEntropy.apply(states, weight, bias, labels)[0].isfinite()


def test_two_runs_give_the_same_bits() -> None:
    from liebig.model.kernels.cross_entropy import LinearCrossEntropy

    runs = []
    for _ in range(2):
        states, weight, bias, labels = inputs(37 if INTERPRETED else 5000, 30_522, torch.bfloat16)
        loss, correct = LinearCrossEntropy.apply(states, weight, bias, labels)
        runs.append([loss, correct, *torch.autograd.grad(loss, [states, weight, bias])])
    assert all(torch.equal(one, two) for one, two in zip(*runs))


def test_a_second_backward_pass_is_refused() -> None:
    from liebig.model.kernels.cross_entropy import LinearCrossEntropy

    states, weight, bias, labels = inputs(3, 100, torch.float32)
    loss, correct = LinearCrossEntropy.apply(states, weight, bias, labels)
    assert not correct.requires_grad
    loss.backward(retain_graph=True)
    with pytest.raises(AssertionError, match="differentiated a second time"):
        loss.backward()


def test_what_is_frozen_gets_no_gradient() -> None:
    from liebig.model.kernels.cross_entropy import LinearCrossEntropy

    states, weight, bias, labels = inputs(3, 100, torch.float32)
    LinearCrossEntropy.apply(states, weight.detach(), bias.detach(), labels)[0].backward()
    assert states.grad is not None
    assert weight.grad is bias.grad is None


@pytest.mark.skipif(INTERPRETED, reason="takes 4 GB and too long")
def test_rows_past_two_to_the_31_logits_are_like_others() -> None:
    from liebig.model.kernels.cross_entropy import differentiate, reduced

    total, width = 71_000, 30_528
    assert total * width > 2**31
    logits = torch.zeros(total, width, device=DEVICE, dtype=torch.bfloat16)
    logits[-5:] = torch.randn(5, width, device=DEVICE).to(logits.dtype)
    labels = torch.arange(total, device=DEVICE) % width
    bias, one = torch.zeros(width, device=DEVICE), torch.ones((), device=DEVICE)
    last = logits[-5:].clone()
    lse, losses, _ = reduced(logits, bias, labels)
    own_lse, own_losses, _ = reduced(last, bias, labels[-5:])
    assert torch.equal(losses[-5:], own_losses)
    differentiate(logits, bias, labels, lse, one)
    differentiate(last, bias, labels[-5:], own_lse, one)
    assert torch.equal(logits[-5:], last)
