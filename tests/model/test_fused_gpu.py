"""On CUDA: the kernels between a layer's products are what they replace, forward and backward."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from liebig.model.stack import drop

pytestmark = pytest.mark.gpu
SHAPES = [(1, 64), (7, 384), (1000, 768), (5000, 256), (40_000, 1024)]


def draws(seed: int, *shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Normal numbers that want gradients."""
    torch.manual_seed(seed)
    return [torch.randn(shape, device="cuda").to(dtype).requires_grad_() for shape in shapes]


def gradients(out: Tensor, leaves: list[Tensor], grad: Tensor) -> list[Tensor]:
    return [g.float() for g in torch.autograd.grad(out, leaves, grad.to(out.dtype))]


def near(mine: Tensor, other: Tensor, error: float) -> None:
    assert float((mine.float() - other.float()).norm() / other.float().norm().clamp(min=1e-9)) < error


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("p", [0.0, 0.1])
@pytest.mark.parametrize("shape", SHAPES)
def test_bias_dropout_residual_and_norm_in_one_are_the_four(
    shape: tuple[int, int], p: float, dtype: torch.dtype
) -> None:
    from liebig.model.fused import add_norm

    total, width = shape
    new, x, g = draws(0, shape, shape, shape, dtype=dtype)
    bias, weight, shift = draws(1, (width,), (width,), (width,))
    noise = torch.randint(2**31 - 1, (2, 2), dtype=torch.int32, device="cuda")
    out, kept = add_norm(new, bias, x, weight, shift, noise[1] if p else None, p, 1e-12, True)
    added = drop(torch.nn.Dropout(p), new.float() + bias, {"packed_noise": noise}, 1) + x.float()
    plain = F.layer_norm(added, (width,), weight, shift, 1e-12)
    error = 1e-5 if dtype == torch.float32 else 1e-2
    near(kept, added, error)
    near(out, plain, error)
    leaves = [new, bias, x, weight, shift]
    for mine, other in zip(gradients(out, leaves, g), gradients(plain, leaves, g.float())):
        near(mine, other, error)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("shape", [(1, 64), (7, 1536), (1000, 3072), (3000, 4096)])
def test_bias_and_gelu_in_one_are_the_two(shape: tuple[int, int], dtype: torch.dtype) -> None:
    from liebig.model.fused import bias_gelu

    x, g = draws(0, shape, shape, dtype=dtype)
    (bias,) = draws(1, (shape[1],))
    out, plain = bias_gelu(x, bias), F.gelu(x.float() + bias)
    error = 1e-5 if dtype == torch.float32 else 1e-2
    near(out, plain, error)
    for mine, other in zip(gradients(out, [x, bias], g), gradients(plain, [x, bias], g.float())):
        near(mine, other, error)


def test_a_first_layer_gets_the_gradient_of_its_wider_input_apart() -> None:
    from liebig.model.fused import add_norm

    (new,) = draws(0, (300, 128), dtype=torch.bfloat16)
    x, bias, weight, shift = draws(1, (300, 128), (128,), (128,), (128,))
    out, _ = add_norm(new, bias, x, weight, shift, None, 0.0, 1e-12, True)
    out.float().square().sum().backward()
    assert x.grad is not None and new.grad is not None
    assert x.grad.dtype == torch.float32 and new.grad.dtype == torch.bfloat16
    near(new.grad, x.grad, 1e-2)


def test_two_backward_passes_give_the_same_bits() -> None:
    from liebig.model.fused import add_norm

    new, x, g = draws(0, (20_000, 768), (20_000, 768), (20_000, 768), dtype=torch.bfloat16)
    bias, weight, shift = draws(1, (768,), (768,), (768,))
    noise = torch.randint(2**31 - 1, (2,), dtype=torch.int32, device="cuda")
    leaves = [new, bias, x, weight, shift]
    found = [
        gradients(add_norm(new, bias, x, weight, shift, noise, 0.1, 1e-12, True)[0], leaves, g)
        for _ in range(2)
    ]
    assert all(torch.equal(one, two) for one, two in zip(*found))


def test_without_gradient_nothing_is_kept() -> None:
    from liebig.model.fused import add_norm

    new, x = draws(0, (10, 64), (10, 64), dtype=torch.bfloat16)
    ones = torch.ones(64, device="cuda")
    with torch.no_grad():
        assert add_norm(new, ones, x, ones, ones, None, 0.0, 1e-12, False)[1].numel() == 0
