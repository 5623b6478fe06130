"""Decompression while reading, compression while writing: .gz, .xz and .zst.

Reading goes by the first bytes, not the name; writing by the name. A stream that ends early is an error in all
three. Cost: the decompressor's own, in buffers of 1 MiB.
"""

from __future__ import annotations

import gzip
import io
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, cast

import zstandard

BUFFER = 1 << 20
PACKED = (".gz", ".xz", ".zst")


def unpacker_of(stream: Any) -> Callable[[BinaryIO], BinaryIO] | None:
    """The decompressor that the first bytes ask for; the stream stays at its start."""
    start = stream.peek(6)[:6]
    return next((unpacker for magic, unpacker in UNPACKERS.items() if start.startswith(magic)), None)


def unpack(stream: BinaryIO) -> BinaryIO:
    """The stream, decompressed where its first bytes say so."""
    if not isinstance(stream, io.BufferedReader):
        stream = io.BufferedReader(Readable(stream.read, stream.close), BUFFER)
    unpacker = unpacker_of(stream)
    return stream if unpacker is None else unpacker(stream)


def _gzip(stream: BinaryIO) -> BinaryIO:
    packed = gzip.GzipFile(fileobj=stream, mode="rb")
    return io.BufferedReader(Readable(packed.read, stream.close), BUFFER)


def _xz(stream: BinaryIO) -> BinaryIO:
    packed = lzma.LZMAFile(stream, "rb")  # noqa: SIM115  closed with the stream below
    return io.BufferedReader(Readable(packed.read, stream.close), BUFFER)


def _zst(stream: BinaryIO) -> BinaryIO:
    return io.BufferedReader(Readable(_Zst(stream).read, stream.close), BUFFER)


UNPACKERS: dict[bytes, Callable[[BinaryIO], BinaryIO]] = {
    b"\x1f\x8b": _gzip,
    b"\xfd7zXZ\x00": _xz,
    b"\x28\xb5\x2f\xfd": _zst,
}


class Readable(io.RawIOBase):
    """A readable stream made of a function `read(size)`."""

    def __init__(self, read: Callable[[int], bytes], close: Callable[[], None] | None = None) -> None:
        self._read, self._close = read, close

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # typeshed's buffer is wider
        data = self._read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if self._close is not None and not self.closed:
            self._close()
        super().close()


class _Zst:
    """Frames of zstandard, one behind the other; unlike the library's reader it notices a frame cut short."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._pending, self._begun = b"", False
        self._out = memoryview(b"")

    def read(self, size: int) -> bytes:
        """At most `size` bytes; nothing at the end."""
        while not self._out:
            data = self._pending or self._stream.read(1 << 16)
            if not data:
                if self._begun:
                    raise EOFError("the last zstandard frame ends early")
                return b""
            self._out, self._pending, self._begun = memoryview(self._frame.decompress(data)), b"", True
            if self._frame.eof:
                self._pending, self._begun = self._frame.unused_data, False
                self._frame = zstandard.ZstdDecompressor().decompressobj()
        taken, self._out = bytes(self._out[:size]), self._out[size:]
        return taken


class Chain:
    """Bytes that were looked at, then the rest of the stream they came from."""

    def __init__(self, start: bytes, rest: BinaryIO) -> None:
        self._start, self._rest = start, rest

    def read(self, size: int) -> bytes:
        """At most `size` bytes; nothing at the end."""
        if not self._start:
            return self._rest.read(size)
        taken, self._start = self._start[:size], self._start[size:]
        return taken


def create(path: Path) -> BinaryIO:
    """A file to write, packed as its suffix says; the same bytes for the same contents (no time in the header)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".gz":
        return io.BufferedWriter(_Gzip(path), BUFFER)
    if path.suffix == ".xz":
        return cast(BinaryIO, lzma.open(path, "wb"))
    if path.suffix == ".zst":
        return cast(BinaryIO, zstandard.open(path, "wb", cctx=zstandard.ZstdCompressor(write_checksum=True)))
    return path.open("wb", buffering=BUFFER)


class _Gzip(gzip.GzipFile):
    """A gzip file without name and time in its header, which closes what it writes to."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb", buffering=BUFFER)
        super().__init__(filename="", mode="wb", compresslevel=6, fileobj=self._file, mtime=0)

    def close(self) -> None:
        super().close()
        self._file.close()
