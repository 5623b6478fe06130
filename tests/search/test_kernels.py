"""What lies between the products of the lean forward computes what torch computes."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from liebig.model.kernels.lean_forward import add_and_normalise, divide_into, exponentials


def numbers(*shape, seed=0, scale=1.0):
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


@pytest.mark.parametrize("length", [1, 7, 16, 33])
@pytest.mark.parametrize("spread", [0.1, 3.0, 300.0])
def test_exponentials_over_their_sums_are_torchs_softmax(length, spread):
    scores = numbers(3, length, length, scale=spread)
    wanted = torch.softmax(torch.from_numpy(scores).double() * 0.25, -1).numpy()
    sums = np.empty((3, length), np.float32)
    exponentials(scores, np.float32(0.25 / np.log(2)), sums)
    np.testing.assert_allclose(scores / sums[..., None], wanted, atol=1e-6 if spread < 100 else 1e-5)


def test_a_score_far_below_the_largest_has_no_share_and_none_is_lost_to_overflow():
    scores = np.array([[[3e38, -3e38], [-1e30, -1e30]]], np.float32)
    sums = np.empty((1, 2), np.float32)
    exponentials(scores, np.float32(1), sums)
    np.testing.assert_allclose(scores[0] / sums[0][:, None], [[1, 0], [0.5, 0.5]], atol=1e-30)


def test_a_score_that_is_no_number_is_not_hidden():
    scores = np.array([[[0, np.nan, 1], [1, 2, 3], [np.nan, 0, 0]]], np.float32)
    sums = np.empty((1, 3), np.float32)
    exponentials(scores, np.float32(1), sums)
    assert np.isnan(sums).tolist() == [[True, False, True]]


def test_heads_are_divided_and_put_beside_each_other():
    mixed, sums, out = numbers(3, 5, 8), np.abs(numbers(3, 5, seed=1)) + 1, np.empty((5, 24), np.float32)
    divide_into(mixed, sums, out)
    wanted = (mixed / sums[..., None]).transpose(1, 0, 2).reshape(5, 24)
    np.testing.assert_allclose(out, wanted, atol=1e-6)


@pytest.mark.parametrize("width", [1, 24, 384])
@pytest.mark.parametrize("offset", [0.0, 50.0])
def test_adding_and_normalising_is_torchs_layer_norm_of_the_sum(width, offset):
    x = numbers(6, width + 1) + np.float32(offset)
    new, (bias, scale, shift) = numbers(6, width, seed=1), numbers(3, width, seed=2)
    total = torch.from_numpy(x[:, :width] + new + bias).double()
    weights = (torch.from_numpy(v).double() for v in (scale, shift))
    wanted = F.layer_norm(total, (width,), *weights, eps=1e-5).numpy()
    column = x[:, width].copy()
    add_and_normalise(x, new, bias, scale, shift, np.float32(1e-5))
    # Four roundings of the largest sum, as large as the scale makes them; processors add in their own order.
    rounding = 4 * np.finfo(np.float32).eps * float(total.abs().max()) * float(np.abs(scale).max())
    np.testing.assert_allclose(x[:, :width], wanted, rtol=1e-6, atol=rounding)
    np.testing.assert_array_equal(x[:, width], column)
