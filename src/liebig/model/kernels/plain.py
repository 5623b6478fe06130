"""What happens between a layer's products, in torch's own operations: what the kernels of `fused.py` compute.

Used where those kernels are not, and what they are tested against. Dropout is a hash of noise drawn beforehand and of
the place (murmur's finaliser): a few integer operations, nothing to keep for the backward pass, and the same mask
however the pass is cut.

T packed tokens, D width.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F


def draw_noise(layers: int, device: torch.device) -> Tensor:
    """What the dropouts of a pass are a function of, from torch's generator: layers x 2 dropouts x 2 numbers."""
    return torch.randint(2**31 - 1, (layers, 2, 2), dtype=torch.int32, device=device)


def stays(shape: tuple[int, int], noise: Tensor, p: float) -> Tensor:
    """Which numbers of a T x D tensor dropout keeps."""
    # int32 throughout: products wrap around as the kernel's do. torch's >> keeps the sign, so the mask behind each
    # shift makes it the logical shift that murmur asks for; the last one leaves 31 bits, uniform below 2 ** 31.
    rows, columns = (torch.arange(n, dtype=torch.int32, device=noise.device) for n in shape)
    h = ((rows[:, None] * shape[1] + columns) ^ noise[0]) * -1640531535
    h = (h ^ ((h >> 16) & 0xFFFF)) * -2048144789
    h = (h ^ ((h >> 13) & 0x7FFFF) ^ noise[1]) * -1028477387
    h = (h ^ ((h >> 16) & 0xFFFF)) & 0x7FFFFFFF
    return h >= int(p * 2**31)


def dropped(x_TD: Tensor, noise: Tensor | None, p: float) -> Tensor:
    """Dropout by that hash; none without noise."""
    if noise is None:
        return x_TD
    return torch.where(stays((x_TD.shape[0], x_TD.shape[1]), noise, p), x_TD / (1 - p), 0.0)


def add_norm(
    new: Tensor,
    bias: Tensor,
    x: Tensor,
    weight: Tensor,
    shift: Tensor,
    noise: Tensor | None,
    p: float,
    eps: float,
    keep: bool,
) -> tuple[Tensor, Tensor | None]:
    """LayerNorm of x + dropout(new + bias), and that sum where it is kept for the backward pass."""
    # The sum is rounded before the norm, not after: the backward pass starts from `kept` and has to see the same mean
    # and variance as this pass did.
    kept = (dropped(exact(new) + exact(bias), noise, p) + exact(x)).to(new.dtype)
    out = F.layer_norm(exact(kept), weight.shape, exact(weight), exact(shift), eps)
    return out.to(new.dtype), kept if keep else None


def add_norm_backward(
    grad: Tensor, kept: Tensor, weight: Tensor, noise: Tensor | None, p: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of x and of new, and those of weight, shift and bias in three rows."""
    x, g = exact(kept), exact(grad)
    centred = x - x.mean(1, keepdim=True)
    rate = torch.rsqrt(centred.square().mean(1, keepdim=True) + eps)
    normal, wg = centred * rate, g * exact(weight)
    # LayerNorm's Jacobian takes two directions out of w * g: the constant one (the mean was subtracted) and that of the
    # normalised row (its length was fixed). What is left is divided by the standard deviation.
    dx = (wg - wg.mean(1, keepdim=True) - normal * (wg * normal).mean(1, keepdim=True)) * rate
    dnew = dropped(dx, noise, p)
    sums = torch.stack([(g * normal).sum(0), g.sum(0), dnew.sum(0)])
    return dx.to(kept.dtype), dnew.to(kept.dtype), sums


def bias_gelu(x: Tensor, bias: Tensor) -> Tensor:
    """GELU(x + bias), by the error function."""
    return F.gelu(exact(x) + exact(bias)).to(x.dtype)


def bias_gelu_backward(grad: Tensor, x: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of x and of bias."""
    v = exact(x) + exact(bias)
    # GELU(v) = v Phi(v), so its derivative is Phi(v) + v phi(v), with the normal distribution and its density.
    below = 0.5 * (1 + torch.erf(v / math.sqrt(2)))
    d = exact(grad) * (below + v * torch.exp(-0.5 * v * v) / math.sqrt(2 * math.pi))
    return d.to(x.dtype), d.sum(0)


def column_sums(x: Tensor) -> Tensor:
    """The sum of rows."""
    return exact(x).sum(0)


def exact(x: Tensor) -> Tensor:
    """Half precision as float32; the rest as it is."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
