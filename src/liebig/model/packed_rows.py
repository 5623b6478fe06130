"""Rows of packed pieces: what every forward of an encoder takes, with torch or without."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from liebig.ragged import Ragged

TOKENS_CPU = 1024  # of a row: what a cache holds
Floats = NDArray[np.float32]
Longs = NDArray[np.int64]
PackedRow = tuple[Ragged, Longs]  # the tokens of some pieces, and their numbers


def nothing(count: float) -> None:
    """The progress callback of a caller that shows none."""
