"""Many short strings as one row of bytes, with the two operations ranking needs: hash and compare.

Ids stay bytes from the run file to the measure: nothing is decoded, and bytes of UTF-8 sort as trec_eval's strcmp
sorts them. A string is the range [start, end) of a byte array; hashes are FNV-1a and always confirmed by a comparison.
"""

from __future__ import annotations

from collections.abc import Iterable

import numba
import numpy as np
from numpy.typing import NDArray

from liebig.measures.arrays import Bytes, Longs


def pack(strings: Iterable[str]) -> tuple[Bytes, Longs]:
    """All strings in one byte array, and offsets such that string i is `data[offsets[i]:offsets[i + 1]]`.

    The array is read-only, as the bytes of a file are, so that kernels are compiled once for both.
    """
    encoded = [string.encode() for string in strings]
    offsets = np.zeros(len(encoded) + 1, dtype=np.int64)
    np.cumsum([len(piece) for piece in encoded], out=offsets[1:])
    return np.frombuffer(b"".join(encoded), dtype=np.uint8), offsets


def unpack(data: Bytes, start: int, end: int) -> str:
    """The string in a range of bytes; bytes that are not UTF-8 are shown as escapes."""
    return data[start:end].tobytes().decode("utf-8", errors="backslashreplace")


@numba.njit(cache=True, nogil=True)
def hash_range(data: Bytes, start: int, end: int) -> np.uint64:
    """FNV-1a, 64 bits."""
    value = np.uint64(0xCBF29CE484222325)
    for i in range(start, end):
        value = (value ^ np.uint64(data[i])) * np.uint64(0x100000001B3)
    return value


@numba.njit(cache=True, nogil=True)
def compare(a: Bytes, a_start: int, a_end: int, b: Bytes, b_start: int, b_end: int) -> int:
    """Negative, zero or positive as the first string sorts before, equals or sorts after the second."""
    length_a, length_b = a_end - a_start, b_end - b_start
    for i in range(min(length_a, length_b)):
        x, y = a[a_start + i], b[b_start + i]
        if x != y:
            return -1 if x < y else 1
    return length_a - length_b


@numba.njit(cache=True, nogil=True)
def hash_all(data: Bytes, starts: Longs, ends: Longs) -> NDArray[np.uint64]:
    """The hash of every range."""
    hashes = np.empty(starts.size, dtype=np.uint64)
    for i in range(starts.size):
        hashes[i] = hash_range(data, starts[i], ends[i])
    return hashes
