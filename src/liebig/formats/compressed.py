"""Compressed streams (.gz, .bz2, .xz, .zst): recognised by their first bytes, unpacked while they are read.

A stream that ends early is an error, and so is one that grows too much. Writing compresses by the suffix of the name.
Cost: that of the compressor, in buffers of 1 MiB.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, cast

from liebig.base.errors import DataError

BUFFER = 1 << 20
PACKED = (".gz", ".bz2", ".xz", ".zst")
Read = Callable[[int], bytes]
# Bounds on what a small file may unpack to. Text shrinks to a twentieth at best, a file made to fill a machine to less
# than a thousandth; what is small in the end may shrink as much as it likes.
ALWAYS = 1 << 26  # bytes that any file may unpack to
RATIO = 250  # of the unpacked to the packed size beyond that


def unpacker_of(stream: Any) -> Callable[[Any], Read] | None:
    """The decompressor that the first bytes ask for; the stream stays at its start."""
    start = stream.peek(6)[:6]
    return next((unpacker for magic, unpacker in UNPACKERS.items() if start.startswith(magic)), None)


def unpack(stream: BinaryIO, label: str) -> BinaryIO:
    """The stream, decompressed where its first bytes say so; one that grows too much is refused."""
    if not isinstance(stream, io.BufferedReader):
        stream = io.BufferedReader(Readable(stream.read, stream.close), BUFFER)
    unpacker = unpacker_of(stream)
    if unpacker is None:
        return stream
    packed = _CountedReader(stream.read)
    unpacked = _CountedReader(unpacker(packed))

    def read(size: int) -> bytes:
        data = unpacked.read(size)
        check_growth(unpacked.count, packed.count, label)
        return data

    return io.BufferedReader(Readable(read, stream.close), BUFFER)


class _CountedReader:
    """A function `read(size)` as a file, with the number of bytes it gave."""

    def __init__(self, read: Read) -> None:
        self._read, self.count = read, 0

    def read(self, size: int = -1) -> bytes:
        """At most `size` bytes; nothing at the end."""
        data = self._read(size)
        self.count += len(data)
        return data


def check_growth(unpacked: int, packed: int, label: str) -> None:
    """Refuse what unpacks to more than ALWAYS bytes and more than RATIO times its size."""
    if unpacked > ALWAYS and unpacked > RATIO * packed:
        raise DataError(
            f"unpacks to more than {ALWAYS >> 20} MiB and {RATIO} times its size",
            file=label,
            fix="unpack it yourself if you trust it, and name the files",
        )


UNPACKERS: dict[bytes, Callable[[Any], Read]] = {
    b"\x1f\x8b": lambda stream: gzip.GzipFile(fileobj=stream, mode="rb").read,
    b"BZh": lambda stream: bz2.BZ2File(stream, "rb").read,
    b"\xfd7zXZ\x00": lambda stream: lzma.LZMAFile(stream, "rb").read,  # noqa: SIM115
    b"\x28\xb5\x2f\xfd": lambda stream: _Zst(stream).read,
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

    def __init__(self, stream: Any) -> None:
        import zstandard  # an extra: a machine that only searches reads no such files

        self._stream, self._library = stream, zstandard
        self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._pending, self._begun = b"", False
        self._out = memoryview(b"")

    def read(self, size: int) -> bytes:
        """At most `size` bytes; nothing at the end."""
        while not self._out:
            data = self._pending or self._stream.read(1 << 12)  # small: it may grow 30,000 times
            if not data:
                if self._begun:
                    raise EOFError("the last zstandard frame ends early")
                return b""
            try:
                self._out, self._pending, self._begun = memoryview(self._frame.decompress(data)), b"", True
            except self._library.ZstdError as error:
                raise ValueError(str(error)) from error
            if self._frame.eof:
                self._pending, self._begun = self._frame.unused_data, False
                self._frame = self._library.ZstdDecompressor().decompressobj()
        taken, self._out = bytes(self._out[:size]), self._out[size:]
        return taken


def create(path: Path) -> BinaryIO:
    """A file to write, packed as its suffix says; the same bytes for the same contents (no time in the header)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".gz":
        return io.BufferedWriter(_Gzip(path), BUFFER)
    if path.suffix == ".bz2":
        return cast(BinaryIO, bz2.open(path, "wb"))
    if path.suffix == ".xz":
        return cast(BinaryIO, lzma.open(path, "wb"))
    if path.suffix == ".zst":
        import zstandard

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
