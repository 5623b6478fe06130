"""Where bytes come from: files, folders, archives and standard input, behind one small interface.

A source is a file or a folder. What is packed is unpacked while it is read (.gz, .xz, .zst by their first bytes);
a .zip or .tar is a folder, or the file itself where it holds only one. Nothing is ever extracted to disk by its
own name; a format that must seek gets an anonymous temporary file. Cost: that of the decompressor.
"""

from __future__ import annotations

import contextlib
import io
import lzma
import shutil
import sys
import tarfile
import tempfile
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO, cast

import zstandard

from liebig.data.unpack import BUFFER, PACKED, Chain, Readable, unpack, unpacker_of
from liebig.errors import DataError

DAMAGE = (
    EOFError,
    OSError,
    ValueError,
    RuntimeError,
    NotImplementedError,
    zlib.error,
    lzma.LZMAError,
    zstandard.ZstdError,
    zipfile.BadZipFile,
    tarfile.TarError,
)


class Source(ABC):
    """A file or folder to read. `label` is how errors name it, `name` its last part, `parent` its folder's name."""

    name: str
    label: str
    parent: str = ""

    @property
    def is_folder(self) -> bool:
        """Whether it has children instead of contents."""
        return False

    @abstractmethod
    def raw(self) -> BinaryIO:
        """The bytes as they are stored."""

    def children(self) -> list[Source]:
        """What lies in a folder, by name; hidden files and links to folders left out."""
        return []

    @property
    def plain(self) -> str:
        """The name without the suffix of a compressor: `corpus.jsonl.xz` -> `corpus.jsonl`."""
        stem, dot, last = self.name.rpartition(".")
        return stem if stem and dot + last.lower() in PACKED else self.name

    @property
    def suffix(self) -> str:
        """The suffix of the plain name, in lower case: `.jsonl`."""
        return PurePosixPath(self.plain).suffix.lower()

    @property
    def stem(self) -> str:
        """The plain name without its suffix."""
        return PurePosixPath(self.plain).stem

    def open(self) -> BinaryIO:
        """The contents, unpacked while they are read."""
        try:
            return unpack(self.raw())
        except DAMAGE as error:
            raise self.damaged(error) from None

    def head(self, size: int = 1 << 16) -> bytes:
        """The first bytes of the contents."""
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

    def find(self, name: str) -> Source | None:
        """The child of this plain name, packed or not."""
        return next((child for child in self.children() if child.plain == name), None)

    def files(self) -> Iterator[Source]:
        """Every file at or below this source, in the order of names."""
        if not self.is_folder:
            yield self
        for child in self.children():
            yield from child.files()

    def damaged(self, error: BaseException, line: int | None = None) -> DataError:
        """An error of reading, as a sentence."""
        if isinstance(error, FileNotFoundError):
            return DataError("there is no such file", file=self.label, fix="check the path")
        why = str(error).strip().rstrip(".") or type(error).__name__
        return DataError(
            f"cannot be read to its end, so it is damaged or cut short ({why})",
            file=self.label,
            line=line,
            fix="copy or download it again",
        )


class DiskSource(Source):
    """A file or folder on disk."""

    def __init__(self, path: Path) -> None:
        self.path, self.label = path, str(path)
        self.name, self.parent = path.name or str(path), path.absolute().parent.name

    @property
    def is_folder(self) -> bool:
        return self.path.is_dir()

    def raw(self) -> BinaryIO:
        return self.path.open("rb", buffering=BUFFER)

    def children(self) -> list[Source]:
        if not self.is_folder:
            return []
        found = (path for path in self.path.iterdir() if not path.name.startswith("."))
        return [source_of(path) for path in sorted(found) if not (path.is_symlink() and path.is_dir())]

    @contextlib.contextmanager
    def seekable(self) -> Iterator[BinaryIO]:
        with self.path.open("rb") as stream:
            if unpacker_of(stream) is None:
                yield cast(BinaryIO, stream)
                return
        with super().seekable() as copy:
            yield copy


class StandardInput(Source):
    """Standard input, which can be read once; its head can be looked at before."""

    name = "-"
    label = "standard input"

    def __init__(self, stream: BinaryIO) -> None:
        self._stream: BinaryIO | None = stream

    def head(self, size: int = 1 << 16) -> bytes:
        stream = self.open()
        try:
            start = stream.read(size)
        except DAMAGE as error:
            raise self.damaged(error) from None
        self._stream = io.BufferedReader(Readable(Chain(start, stream).read), BUFFER)
        return start

    def open(self) -> BinaryIO:
        if self._stream is None:
            raise DataError("standard input can only be read once", fix="save it to a file")
        stream, self._stream = self._stream, None
        return stream

    def raw(self) -> BinaryIO:
        return self.open()


class MemberSource(Source):
    """A file of an archive, or the archive itself as a folder; parts of a member's name are its folders."""

    def __init__(self, label: str, name: str, members: dict[str, Callable[[], IO[bytes]]]) -> None:
        self.label, self.name, self._members = label, name, members
        self.parent = PurePosixPath(label.rpartition("!")[2]).parent.name

    @property
    def is_folder(self) -> bool:
        return list(self._members) != [""]

    def raw(self) -> BinaryIO:
        return cast(BinaryIO, self._members[""]())

    def children(self) -> list[Source]:
        if not self.is_folder:
            return []
        groups: dict[str, dict[str, Callable[[], IO[bytes]]]] = {}
        for member, opener in self._members.items():
            first, _, rest = member.partition("/")
            groups.setdefault(first, {})[rest] = opener
        joint = "" if self.label.endswith("!") else "/"
        return [MemberSource(self.label + joint + name, name, groups[name]) for name in sorted(groups)]


def source_of(path: Path | str) -> Source:
    """The source a path stands for: `-` is standard input; an archive is looked into."""
    if str(path) == "-":
        return standard_input(sys.stdin.buffer)
    path = Path(path)
    if not path.exists():
        raise DataError("there is no such file or folder", file=path, fix="check the path")
    source, name = DiskSource(path), path.name.lower()
    if name.endswith(".zip") and path.is_file():
        return _unwrap(source, _zip_members(source, source.raw()))
    if (name.endswith((".tar", ".tgz")) or ".tar." in name) and path.is_file():
        return _unwrap(source, _tar_members(source))
    return source


def standard_input(stream: BinaryIO) -> Source:
    """Standard input, unpacked; a .zip is kept in an anonymous file, because its table stands at its end."""
    buffered = io.BufferedReader(Readable(stream.read), BUFFER)
    if not buffered.peek(4).startswith(b"PK\x03\x04"):
        return StandardInput(unpack(buffered))
    copy = tempfile.TemporaryFile()  # noqa: SIM115  members are read from it later
    shutil.copyfileobj(buffered, copy, BUFFER)
    source = StandardInput(cast(BinaryIO, copy))
    return _unwrap(source, _zip_members(source, cast(BinaryIO, copy)))


def _unwrap(source: Source, members: dict[str, Callable[[], IO[bytes]]]) -> Source:
    """One file stands for itself; one folder for its contents."""
    for name in members:
        if (
            name.startswith(("/", "\\"))
            or ".." in PurePosixPath(name.replace("\\", "/")).parts
            or ":" in name
        ):
            raise DataError(
                f"the archive has a member that points outside of it, {name!r}", file=source.label
            )
    kept = {name: opener for name, opener in members.items() if not _is_clutter(name)}
    if not kept:
        raise DataError("the archive is empty", file=source.label)
    tree: Source = MemberSource(source.label + "!", source.name, kept)
    while len(tree.children()) == 1:
        tree = tree.children()[0]
        if not tree.is_folder:
            break
    return tree


def _is_clutter(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return "__MACOSX" in parts or any(part.startswith(".") for part in parts)


def _zip_members(source: Source, stream: BinaryIO) -> dict[str, Callable[[], IO[bytes]]]:
    try:
        archive = zipfile.ZipFile(stream)
    except DAMAGE as error:
        raise source.damaged(error) from None
    names = [name for name in archive.namelist() if name and not name.endswith("/")]
    return {name: _opener(archive.open, name) for name in names}


def _tar_members(source: Source) -> dict[str, Callable[[], IO[bytes]]]:
    copy = tempfile.TemporaryFile()  # noqa: SIM115  members are read from it later
    try:
        with source.open() as stream:
            shutil.copyfileobj(stream, copy, BUFFER)
        copy.seek(0)
        archive = tarfile.open(fileobj=copy, mode="r:")  # noqa: SIM115  members are read from it later
        members = [member for member in archive.getmembers() if member.isfile()]
    except DAMAGE as error:
        raise source.damaged(error) from None
    return {member.name.removeprefix("./"): _opener(archive.extractfile, member) for member in members}


def _opener(function: Callable[..., IO[bytes] | None], member: object) -> Callable[[], IO[bytes]]:
    def opener() -> IO[bytes]:
        stream = function(member)
        assert stream is not None, "only files are members"
        return stream

    return opener
