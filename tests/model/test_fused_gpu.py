"""On CUDA: the kernels between a layer's products compute what their plain forms do."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from liebig.model.kernels import plain

pytestmark = pytest.mark.gpu
SHAPES = [(1, 64), (7, 384), (1000, 768), (5000, 256), (40_000, 1024)]


def draws(seed: int, *shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> list[Tensor]:
    torch.manual_seed(seed)
    return [torch.randn(shape, device="cuda").to(dtype) for shape in shapes]


def near(mine: Tensor, other: Tensor, dtype: torch.dtype) -> None:
    error = 1e-5 if dtype == torch.float32 else 5e-3
    off = (mine.double() - other.double()).norm() / other.double().norm().clamp(min=1e-9)
    assert float(off) < error
    assert mine.dtype == other.dtype


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("p", [0.0, 0.1])
@pytest.mark.parametrize("shape", SHAPES)
def test_bias_dropout_residual_and_norm_in_one_are_the_four(
    shape: tuple[int, int], p: float, dtype: torch.dtype
) -> None:
    from liebig.model.kernels import fused

    new, x, grad = draws(0, shape, shape, shape, dtype=dtype)
    bias, weight, shift = draws(1, *[(shape[1],)] * 3)
    noise = plain.draw_noise(1, new.device)[0, 1] if p else None
    mine, other = (
        kernels.add_norm(new, bias, x, weight, shift, noise, p, 1e-12, True) for kernels in (fused, plain)
    )
    for one, two in zip(mine, other):
        near(one, two, dtype)
    mine, other = (
        kernels.add_norm_backward(grad, other[1], weight, noise, p, 1e-12) for kernels in (fused, plain)
    )
    for one, two in zip(mine, other):
        near(one, two, dtype)
    assert torch.equal(mine[1] == 0, other[1] == 0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("shape", [(1, 64), (7, 1536), (1000, 3072), (3000, 4096)])
def test_bias_and_gelu_in_one_are_the_two(shape: tuple[int, int], dtype: torch.dtype) -> None:
    from liebig.model.kernels import fused

    x, grad = draws(0, shape, shape, dtype=dtype)
    (bias,) = draws(1, (shape[1],))
    near(fused.bias_gelu(x, bias), plain.bias_gelu(x, bias), dtype)
    mine, other = (kernels.bias_gelu_backward(grad, x, bias) for kernels in (fused, plain))
    for one, two in zip(mine, other):
        near(one, two, dtype)
    near(fused.column_sums(grad), plain.column_sums(grad), torch.float32)


def test_two_backward_passes_give_the_same_bits() -> None:
    from liebig.model.kernels import fused

    kept, grad = draws(0, (20_000, 768), (20_000, 768), dtype=torch.bfloat16)
    (weight,) = draws(1, (768,))
    noise = plain.draw_noise(1, kept.device)[0, 0]
    found = [fused.add_norm_backward(grad, kept, weight, noise, 0.1, 1e-12) for _ in range(2)]
    assert all(torch.equal(one, two) for one, two in zip(*found))


def test_without_gradient_nothing_is_kept() -> None:
    from liebig.model.kernels import fused

    new, x = draws(0, (10, 64), (10, 64), dtype=torch.bfloat16)
    ones = torch.ones(64, device="cuda")
    assert fused.add_norm(new, ones, x, ones, ones, None, 0.0, 1e-12, False)[1] is None
