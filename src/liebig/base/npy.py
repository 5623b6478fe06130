"""`.npy` files written row by row and read as maps.

A file is begun without knowing its length: the header is reserved and filled in at the end. Memory: one buffer.
Reading maps the file and closes it: Python's own maps keep a file descriptor each, of which a process may have 1,024,
and an index of many shards has more files than that. Nothing is ever unpickled, and a file that is not what its header
says is a CorruptError.
"""

from __future__ import annotations

import ast
import ctypes
import errno
import io
import mmap
import os
import weakref
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from liebig.base.errors import AGAIN, CorruptError, ResourceError
from liebig.base.machine import WINDOWS

HEADER = 128  # bytes of a version 1.0 header of one or two axes, which numpy pads to a multiple of 64


class NpyWriter:
    """An array on disk that grows along its first axis; complete once the `with` block has ended."""

    def __init__(self, path: Path, dtype: DTypeLike, shape: tuple[int, ...] = ()) -> None:
        self.dtype, self.shape, self.rows = np.dtype(dtype), shape, 0
        self._file: IO[bytes] = path.open("wb")
        self._file.write(bytes(HEADER))

    def append(self, rows: NDArray[Any] | bytes) -> None:
        if not isinstance(rows, bytes):
            assert rows.shape[1:] == self.shape, f"rows of shape {rows.shape[1:]}, not {self.shape}"
            rows = np.ascontiguousarray(rows, dtype=self.dtype).tobytes()
        self._file.write(rows)
        self.rows += len(rows) // (self.dtype.itemsize * int(np.prod(self.shape, dtype=np.int64)))

    def close(self) -> None:
        """Fill in the header; the caller that renames the file into place syncs it to disk."""
        self._file.seek(0)
        self._file.write(header(self.dtype, (self.rows, *self.shape)))
        self._file.close()

    def __enter__(self) -> NpyWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._file.close()


def header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """The first HEADER bytes of a `.npy` file in C order."""
    buffer = io.BytesIO()
    fields = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(buffer, fields)
    assert buffer.tell() == HEADER, "a header of an unusual length"
    return buffer.getvalue()


def save(path: Path, array: NDArray[Any]) -> None:
    with NpyWriter(path, array.dtype, array.shape[1:]) as writer:
        writer.append(array)


def load(
    path: Path, kinds: Sequence[DTypeLike] | None = None, shape: Sequence[int | None] | None = None
) -> NDArray[Any]:
    """A plain read-only array over the mapped file, of one of the types `kinds`; None in a shape is any length."""
    array = _load(path)
    if kinds is not None and array.dtype not in kinds:
        raise corrupt(
            path, f"has numbers of type {array.dtype}, not {' or '.join(str(np.dtype(k)) for k in kinds)}"
        )
    if shape is not None and (
        array.ndim != len(shape) or any(n not in (None, m) for n, m in zip(shape, array.shape))
    ):
        expected = " x ".join("n" if length is None else str(length) for length in shape)
        raise corrupt(path, f"has shape {array.shape}, not {expected}")
    return array


def load_offsets(path: Path, rows: int | None = None, end: int | None = None) -> NDArray[np.int64]:
    """Where rows begin, and the last one's end: from 0, never falling, up to `end`."""
    offsets = load(path, [np.int64], (None if rows is None else rows + 1,))
    if (
        not len(offsets)
        or offsets[0] != 0
        or (end is not None and offsets[-1] != end)
        or not ascends(offsets)
    ):
        raise corrupt(path, "has offsets that do not fit what they point into")
    return offsets


def load_numbers(path: Path, size: int, *, rows: int | None = None) -> NDArray[np.int64]:
    """Numbers of things of which there are `size`."""
    numbers = load(path, [np.int64], (rows,))
    if not within(numbers, size):
        raise corrupt(path, f"has numbers that are not from 0 to {size - 1:,}")
    return numbers


def ascends(values: NDArray[Any], *, strictly: bool = False) -> bool:
    """Whether no number is below the one before it, or each is above it."""
    before, after = values[:-1], values[1:]
    return bool((after > before).all() if strictly else (after >= before).all())


def within(numbers: NDArray[Any], size: int) -> bool:
    """Whether all numbers are below `size` and none is negative."""
    return not len(numbers) or bool(numbers.min() >= 0 and numbers.max() < size)


def corrupt(path: Path, what: str) -> CorruptError:
    """An array that is not what its reader needs."""
    return CorruptError(what, file=path, fix=AGAIN)


def _load(path: Path) -> NDArray[Any]:
    try:
        return _mapped(path)
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise ResourceError(
                "too many files are open", file=path, fix="raise the limit: ulimit -n 65536"
            ) from None
        raise corrupt(path, f"cannot be mapped: {error}") from None
    # The header is parsed as Python source, with all the parser's errors; MemoryError is that of deep nesting.
    except (
        ValueError,
        TypeError,
        SyntaxError,
        RecursionError,
        OverflowError,
        MemoryError,
        LookupError,
    ) as error:
        raise corrupt(path, f"cannot be mapped: {error}") from None


def _mapped(path: Path) -> NDArray[Any]:
    with path.open("rb") as file:
        major, _ = np.lib.format.read_magic(file)
        if major != 1:
            raise ValueError(f"version {major} of the format")
        shape, dtype = _read_header(file)
        offset, count = file.tell(), int(np.prod(shape, dtype=object))
        size = os.fstat(file.fileno()).st_size
        if offset + count * dtype.itemsize > size:
            raise ValueError(f"{size:,} bytes are fewer than the header says")
        if WINDOWS:  # whose maps need no descriptor
            view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            return np.frombuffer(view, dtype, count, offset).reshape(shape)
        address = _LIBC.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)
    if address == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    buffer = (ctypes.c_ubyte * size).from_address(address)
    # Not at the end of the process, where threads may still be reading.
    weakref.finalize(buffer, _LIBC.munmap, address, size).atexit = False
    array = np.frombuffer(memoryview(buffer), dtype, count, offset).reshape(shape)
    array.flags.writeable = False
    return array


def _read_header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and type. numpy's own reader also accepts headers of Python 2, with a warning on the terminal."""
    return _parsed(file.read(int.from_bytes(file.read(2), "little")))


@lru_cache(maxsize=1 << 10)  # an index of many updates has many small arrays, most of them alike
def _parsed(text: bytes) -> tuple[tuple[int, ...], np.dtype[Any]]:
    fields = ast.literal_eval(text.decode("latin-1"))
    if not isinstance(fields, dict) or fields.keys() != {"descr", "fortran_order", "shape"}:
        raise ValueError("the header has other fields than those of an array")
    shape, dtype = fields["shape"], np.lib.format.descr_to_dtype(fields["descr"])
    whole = isinstance(shape, tuple) and all(type(length) is int and length >= 0 for length in shape)
    if fields["fortran_order"] is not False or dtype.hasobject or not whole:
        raise ValueError("not a plain array")
    return shape, dtype


if not WINDOWS:
    _LIBC = ctypes.CDLL(None, use_errno=True)
    _LIBC.mmap.restype = ctypes.c_void_p
    _LIBC.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_int64)
    _LIBC.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
