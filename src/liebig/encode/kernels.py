"""What lies between the products of the lean forward on a CPU, in one pass over memory each.

Softmax leaves out its division, which goes into the copy of what was mixed; residual, bias and layer norm are one
pass over rows in the first cache. Loops are written so that they become vector instructions: exp is a polynomial
(relative error 2e-7), and the largest score is found among integers that are ordered as the scores are.

T tokens, D width, H heads, E head width, L tokens of a sequence.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
F, I = np.float32, np.int32  # noqa: E741
FAST = {"reassoc", "contract", "nsz", "arcp"}  # sums in any order; NaN and infinity stay what they are

_inline: Any = numba.njit(inline="always", fastmath=FAST, error_model="numpy")
_kernel: Any = numba.njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")


@_inline
def _power_of_2(x: np.float32) -> np.float32:
    """2 ** x for x <= 0: whole powers by their bits, the rest by a series."""
    x = max(x, F(-126))
    whole = np.floor(x + F(0.5))
    rest = x - whole
    p = F(1.5403530e-4)
    p = p * rest + F(1.3333558e-3)
    p = p * rest + F(9.6181291e-3)
    p = p * rest + F(5.5504109e-2)
    p = p * rest + F(2.4022651e-1)
    p = p * rest + F(6.9314718e-1)
    p = p * rest + F(1)
    return p * I((I(whole) + I(127)) << I(23)).view(F)


@_inline
def _ordered(bits: np.int32) -> np.int32:
    """The bits of a float as an integer with the same order, and back."""
    return I(bits ^ ((bits >> I(31)) & I(0x7FFFFFFF)))


@_kernel
def exponentials(scores_HLL: Floats, factor: np.float32, sums_HL: Floats) -> None:
    """2 ** (factor * score) over the row's largest, in place, and the sum of each row."""
    heads, length = sums_HL.shape
    bits_HLL = scores_HLL.view(np.int32)
    for h in range(heads):
        for i in range(length):
            most = _ordered(bits_HLL[h, i, 0])
            for j in range(length):
                most = max(most, _ordered(bits_HLL[h, i, j]))
            highest = _ordered(most).view(F)
            total = F(0)
            for j in range(length):
                power = _power_of_2((scores_HLL[h, i, j] - highest) * factor)
                scores_HLL[h, i, j] = power
                total += power
            sums_HL[h, i] = total


@_kernel
def divide_into(mixed_HLE: Floats, sums_HL: Floats, out_LD: Floats) -> None:
    """Each head's mixed values over their sums, beside each other in the rows of the sequence."""
    heads, length, width = mixed_HLE.shape
    for h in range(heads):
        for i in range(length):
            share = F(1) / sums_HL[h, i]
            for e in range(width):
                out_LD[i, h * width + e] = mixed_HLE[h, i, e] * share


@_kernel
def add_and_normalise(
    x_TD: Floats, new_TD: Floats, bias: Floats, scale: Floats, shift: Floats, eps: np.float32
) -> None:
    """Layer norm of x + new + bias, in place of x, which may have further columns."""
    tokens, width = new_TD.shape
    for t in range(tokens):
        total = F(0)
        for d in range(width):
            x_TD[t, d] += new_TD[t, d] + bias[d]
            total += x_TD[t, d]
        mean, square = total / F(width), F(0)
        for d in range(width):
            square += (x_TD[t, d] - mean) ** 2
        factor = F(1) / np.sqrt(square / F(width) + eps)
        for d in range(width):
            x_TD[t, d] = (x_TD[t, d] - mean) * factor * scale[d] + shift[d]
