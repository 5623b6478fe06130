"""Where bytes come from: files, folders, archives and standard input, behind one small interface.

A source is a file or a folder; compressed files are decompressed while they are read (`compressed.py`), and archives
are folders (`archives.py`). `source_of` in `on_disk.py` is the source that a path stands for. A format that must seek
gets an anonymous temporary file.
"""

from __future__ import annotations

import contextlib
import io
import lzma
import posixpath
import shutil
import tarfile
import tempfile
import time
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import BinaryIO, NamedTuple, cast

from liebig.base.errors import DataError
from liebig.formats.compressed import BUFFER, PACKED, unpack

DAMAGE = (
    EOFError,
    OSError,
    ValueError,
    RuntimeError,
    NotImplementedError,
    zlib.error,
    lzma.LZMAError,
    zipfile.BadZipFile,
    tarfile.TarError,
)


def printable(name: str) -> str:
    """A name that can be printed and written: bytes that are not UTF-8 are shown as escapes."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


class Stored(NamedTuple):
    """How large a file is as it is stored, in bytes, and when it was changed, in seconds since 1970."""

    size: int
    modified: float


class Stamp(NamedTuple):
    """What tells a file from the same file after a change: its size, its times in nanoseconds, and its inode."""

    size: int
    modified: int
    status: int
    inode: int

    @property
    def changed(self) -> float:
        """The later of both times, in seconds since 1970."""
        return max(self.modified, self.status) / 1e9


class InputSource(ABC):
    """A file or folder to read. `label` is how errors name it, `name` its last part, `parent` its folder's name."""

    name: str
    label: str
    parent: str = ""
    subpath: str = ""
    """Its path below the source that was named, without suffixes of compressors; "" for that one."""
    location: str = ""
    """The same path as it is on disk, through archives too."""
    archive: str = ""
    """The name of the archive in a folder that this stands for."""
    is_link: bool = False
    """Whether it is a symlink in a folder, or in an archive that is reached by one."""
    flaws: tuple[DataError, ...] = ()
    """What lies directly in it and cannot be read, with the reason."""
    left_out: tuple[tuple[str, str], ...] = ()
    """Labels of what lies directly in it and is not meant to be read, with the reason; a folder's ends in a slash."""

    @property
    def is_folder(self) -> bool:
        """Whether it has children instead of contents."""
        return False

    @abstractmethod
    def raw(self) -> BinaryIO:
        """The bytes as they are stored."""

    def children(self) -> list[InputSource]:
        """What lies in a folder, by name; what is left out, links to folders and flaws are not among it."""
        return []

    def _placed(self, children: list[InputSource]) -> list[InputSource]:
        for child in children:
            child.subpath = f"{self.subpath}/{child.part}" if self.subpath else child.part
            name = child.archive or child.name
            child.location = f"{self.location}/{name}" if self.location else name
        return children

    @property
    def part(self) -> str:
        """Its part of a path: the plain name; an archive of one file is a folder with that file."""
        if not self.archive:
            return self.plain
        return self.archive if self.is_folder else f"{self.archive}/{self.plain}"

    def stored(self) -> Stored | None:
        """The size and time of a file; None of what has neither."""
        return None

    def stamp(self) -> Stamp | None:
        """What changes whenever the file does, or the archive that it lies in; None of what is not on disk."""
        return None

    def metadata(self) -> dict[str, str]:
        """What every document of a file says about it: path, folder, type, size and time of change (UTC)."""
        path = self.location or self.name
        suffix = self.suffix[1:]  # that of notes-2.11 is none
        fields = {"path": path, "folder": path.rpartition("/")[0] or "."}
        fields["type"] = suffix if suffix[:1].isalpha() and " " not in suffix else "text"
        if stored := self.stored():
            fields["size"] = str(stored.size)
            with contextlib.suppress(OverflowError, ValueError, OSError):  # an archive may claim any time
                fields["modified"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(stored.modified))
        return fields

    @property
    def plain(self) -> str:
        """The name without the suffix of a compressor: `corpus.jsonl.xz` -> `corpus.jsonl`; a folder's whole name."""
        stem, dot, last = self.name.rpartition(".")
        return stem if stem and dot + last.lower() in PACKED and not self.is_folder else self.name

    @property
    def suffix(self) -> str:
        """The suffix of the plain name, in lower case: `.jsonl`."""
        suffix = posixpath.splitext(self.plain)[1].lower()  # quicker than a Path, and asked for often
        return suffix if len(suffix) > 1 else ""

    @property
    def stem(self) -> str:
        """The plain name without its suffix."""
        return PurePosixPath(self.plain).stem

    def open(self) -> BinaryIO:
        """The contents, unpacked while they are read."""
        try:
            return unpack(self.raw(), self.label)
        except DAMAGE as error:
            raise self.damaged(error) from None

    def head(self, size: int = 1 << 16) -> bytes:
        try:
            with self.open() as stream:
                return stream.read(size)
        except DAMAGE as error:
            raise self.damaged(error) from None

    @contextlib.contextmanager
    def seekable(self) -> Iterator[BinaryIO]:
        """The contents as a file that can seek, for formats that start at their end (Parquet)."""
        with self.open() as stream, tempfile.TemporaryFile() as copy:
            try:
                shutil.copyfileobj(stream, copy, BUFFER)
            except DAMAGE as error:
                raise self.damaged(error) from None
            copy.seek(0)
            yield cast(BinaryIO, copy)

    def find(self, name: str) -> InputSource | None:
        """The child of this plain name, packed or not."""
        return next((child for child in self.children() if child.plain == name), None)

    def walk(self) -> Iterator[tuple[str, InputSource]]:
        """This source and everything below it, in the order of names, each with its path below this one."""
        stack: list[tuple[str, InputSource]] = [
            ("", self)
        ]  # no recursion: folders may be deeper than Python's stack
        while stack:
            path, source = stack.pop()
            yield path, source
            below, children = f"{path}/" if path else "", source.children()
            for child in children if source.is_link else ():  # members of an archive
                child.is_link = True
            stack += [(below + child.part, child) for child in reversed(children)]

    def files(self) -> Iterator[InputSource]:
        """Every file at or below this source, in the order of names."""
        return (source for _, source in self.walk() if not source.is_folder)

    def damaged(self, error: BaseException, line: int | None = None) -> DataError:
        if isinstance(error, FileNotFoundError):
            return DataError("there is no such file", file=self.label, fix="check the path")
        if isinstance(error, PermissionError):
            return DataError("permission denied", file=self.label, fix="allow the file to be read")
        why = str(error).strip().rstrip(".") or type(error).__name__
        if "encrypted" in why or "password" in why:
            return DataError("is encrypted", file=self.label, fix="save it without a password")
        return DataError(
            f"cannot be read completely; it is damaged or truncated ({why})",
            file=self.label,
            line=line,
            fix="copy or download it again",
        )


class FileSelection(InputSource):
    """Some of the files below a folder, in the place of the folder."""

    def __init__(self, folder: InputSource, files: Sequence[InputSource]) -> None:
        self.label, self.name, self.parent, self._files = folder.label, folder.name, folder.parent, files

    @property
    def is_folder(self) -> bool:
        return True

    def raw(self) -> BinaryIO:
        raise DataError("is a folder", file=self.label)

    def walk(self) -> Iterator[tuple[str, InputSource]]:
        return ((file.subpath, file) for file in self._files)


class BytesSource(InputSource):
    """A file in memory, such as the attachment of a message."""

    def __init__(self, name: str, data: bytes) -> None:
        self.name = self.label = name
        self._data = data

    def raw(self) -> BinaryIO:
        return io.BytesIO(self._data)


class NamedSource(InputSource):
    """A source that is only a name, such as `stdlib:`, and has no bytes; a format reads it by the name."""

    def __init__(self, name: str) -> None:
        self.name = self.label = name

    def raw(self) -> BinaryIO:
        raise DataError("is the name of a dataset, not a file with bytes to read", file=self.label)
