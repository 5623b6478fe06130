"""How a vector is stored, and what that does to a score.

| type   | bytes a number | a stored number             | error of a score, at most                    |
| ------ | -------------- | --------------------------- | -------------------------------------------- |
| fp32   | 4              | itself                      | 0                                            |
| fp16   | 2              | rounded, 2^-11 relative     | 2^-11 |q| |d|, plus 2^-25 |q|_1 for tiny ones |
| int8   | 1              | whole number * vector's scale | scale / 2 * |q|_1, scale = max |d_i| / 127   |

The error is that of rounding alone: over the stored numbers the search is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from liebig.base.errors import DataError

Type = Literal["fp32", "fp16", "int8"]
Floats = NDArray[np.float32]
Codes = NDArray[Any]
DTYPES: dict[Type, Any] = {"fp32": np.float32, "fp16": np.float16, "int8": np.int8}
QUIET_NAN = 0x7E00  # of fp16
ROWS = 4096  # vectors looked at together


@dataclass(frozen=True)
class VectorCodes:
    """Vectors as they are stored: codes, and a scale each where the type is int8."""

    type: Type
    codes: Codes
    scales: Floats | None = None

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: slice | NDArray[np.int64]) -> VectorCodes:
        return VectorCodes(self.type, self.codes[rows], None if self.scales is None else self.scales[rows])

    @cached_property
    def decoded(self) -> Floats:
        """The same as `decode`, kept in memory."""
        return self.decode()

    @property
    def finite(self) -> bool:
        """Whether every number is one; int8 has no others."""
        if self.codes.dtype.kind != "f":
            return True
        return all(np.isfinite(self.codes[i : i + ROWS]).all() for i in range(0, len(self), ROWS))

    def decode(self) -> Floats:
        """The numbers the codes stand for; fp32 is not copied."""
        values = self.codes.astype(np.float32, copy=False)
        return values if self.scales is None else values * self.scales[:, None]


def encode(vectors: Floats, kind: Type) -> VectorCodes:
    """Round vectors to a type; what is not finite, or too large for it, is refused."""
    if not np.isfinite(vectors).all():
        raise DataError("a vector contains NaN or infinity", fix="check the model that made it")
    if kind == "int8":
        scales = (np.abs(vectors).max(1, initial=0) / 127).astype(np.float32)
        safe = np.where(scales > 0, scales, 1)[:, None]
        return VectorCodes(kind, np.clip(np.rint(vectors / safe), -127, 127).astype(np.int8), scales)
    if kind == "fp16" and np.abs(vectors).max(initial=0) > np.finfo(np.float16).max:
        raise DataError("a number is too large for fp16", fix="store fp32")
    return VectorCodes(kind, vectors.astype(DTYPES[kind]))


@cache
def table(kind: Type) -> Floats:
    """What each code stands for, for compiled loops: one number a code."""
    if kind == "fp32":
        return np.zeros(0, np.float32)
    if kind == "fp16":
        codes = np.arange(1 << 16, dtype=np.uint16)
        # Half of the NaNs are signalling ones; casting those raises the invalid flag on aarch64.
        codes[(codes & 0x7FFF) > 0x7C00] = QUIET_NAN
        return codes.view(np.float16).astype(np.float32)
    return np.arange(256, dtype=np.uint8).view(np.int8).astype(np.float32)


def raw(coded: VectorCodes) -> Codes:
    """The codes as a type that compiled loops can use as an index: the same bytes."""
    if coded.type == "fp16":
        return coded.codes.view(np.uint16)
    return coded.codes.view(np.uint8) if coded.type == "int8" else coded.codes


def unit_length(vectors: Floats) -> Floats:
    """Scaled to length 1."""
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return (vectors / np.maximum(norms, 1e-12)).astype(np.float32, copy=False)
