"""Where bytes come from: files, folders, archives and standard input, behind one small interface.

A source is a file or a folder. Compressed files (.gz, .bz2, .xz, .zst) are recognised by their first bytes and
decompressed while they are read; a stream that ends early is an error. A .zip or .tar is a folder, or the file itself
if it holds only one; archives in an archive are folders too, and what is deeper is a file. Nothing is ever extracted to
disk under its own name; a format that must seek gets an anonymous temporary file. What is in a folder and cannot be
read (a broken symlink or one that leaves the folder, a pipe, a folder without permission) is not a child but a flaw,
which says why; the caller decides whether to skip it. Writing compresses by the suffix of the name. Cost: that of the
compressor, in buffers of 1 MiB.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import os
import posixpath
import re
import shutil
import stat
import sys
import tarfile
import tempfile
import time
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, lru_cache, partial
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import IO, Any, BinaryIO, NamedTuple, cast

from liebig.base.errors import DataError
from liebig.formats.left_out import USUAL, FolderRules, LeaveOut, by_name, marked

BUFFER = 1 << 20
PACKED = (".gz", ".bz2", ".xz", ".zst")
SPOOL = 1 << 20  # bytes of an archive in an archive that stay in memory
OPEN_ARCHIVES = 32
TARS = (".tar", ".tgz", ".tbz2", ".txz", *(f".tar{suffix}" for suffix in PACKED))
Read = Callable[[int], bytes]
# Bounds on what a small file may unpack to. Text shrinks to a twentieth at best, a file made to fill a machine to less
# than a thousandth; what is small in the end may shrink as much as it likes.
ALWAYS = 1 << 26  # bytes that any file may unpack to
RATIO = 250  # of the unpacked to the packed size beyond that
MEMBERS = 100_000  # files of an archive


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


def _gzip(stream: Any) -> Read:
    return gzip.GzipFile(fileobj=stream, mode="rb").read


def _bz2(stream: Any) -> Read:
    return bz2.BZ2File(stream, "rb").read


def _xz(stream: Any) -> Read:
    return lzma.LZMAFile(stream, "rb").read


def _zst(stream: Any) -> Read:
    return _Zst(stream).read


UNPACKERS: dict[bytes, Callable[[Any], Read]] = {
    b"\x1f\x8b": _gzip,
    b"BZh": _bz2,
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
CONTROLS = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029\ufeff]")
LONGEST = 4096  # bytes of a member's path, as of a path on disk
DEEPEST = 64  # folders of such a path: the names below are copied for each


class Stored(NamedTuple):
    """How large a file is as it is stored, in bytes, and when it was changed, in seconds since 1970."""

    size: int
    modified: float


class Member(NamedTuple):
    """A file of an archive: how it is opened, and its size and time."""

    open: Callable[[], IO[bytes]]
    stored: Stored


Members = dict[str, Member]


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
        fields = {"path": path, "folder": path.rpartition("/")[0] or ".", "type": self.suffix[1:] or "text"}
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
            below = f"{path}/" if path else ""
            stack += [(below + child.part, child) for child in reversed(source.children())]

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


class DiskSource(InputSource):
    """A file or folder on disk; `root` is the folder that links below it must not leave."""

    def __init__(self, path: Path, root: Path | None = None, rules: FolderRules | None = None) -> None:
        self.path, self.label, self._root = path, printable(str(path)), root
        self._rules = rules or FolderRules(USUAL)
        self.name, self.parent = path.name or str(path), path.absolute().parent.name

    @cached_property
    def is_folder(self) -> bool:  # type: ignore[override]  # decided once: a folder is listed once
        return self.path.is_dir()

    def raw(self) -> BinaryIO:
        return self.path.open("rb", buffering=BUFFER)

    def stored(self) -> Stored | None:
        try:
            facts = self.path.stat()
        except OSError:
            return None
        return Stored(facts.st_size, facts.st_mtime)

    def stamp(self) -> Stamp | None:
        try:
            facts = self.path.stat()
        except OSError:
            return None
        return Stamp(facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino)

    def children(self) -> list[InputSource]:
        return self._listing[0]

    @property
    def flaws(self) -> tuple[DataError, ...]:  # type: ignore[override]  # known once the folder is listed
        return self._listing[1]

    @property
    def left_out(self) -> tuple[tuple[str, str], ...]:  # type: ignore[override]  # known once the folder is listed
        return self._listing[2]

    @cached_property
    def _listing(self) -> tuple[list[InputSource], tuple[DataError, ...], tuple[tuple[str, str], ...]]:
        """What lies in the folder, what of it cannot be read, and what is left out."""
        children: list[InputSource] = []
        flaws: list[DataError] = []
        left_out: list[tuple[str, str]] = []
        if not self.is_folder:
            return children, (), ()
        root = self._root or self.path.resolve()
        try:
            paths = sorted(self.path.iterdir(), key=lambda path: path.name)  # alike on every system
        except OSError as error:
            reason = f"the folder cannot be listed ({os.strerror(error.errno or 0)})"
            return children, (DataError(reason, file=self.label, fix="allow it to be read"),), ()
        rules = self._rules
        try:
            rules = rules.inside(self.path, self.subpath, [path.name for path in paths])
        except DataError as error:  # an ignore file that cannot be understood
            flaws.append(error)
        for path in paths:
            is_folder = os.path.isdir(path) and not os.path.islink(path)
            reason = rules.reason(path.name, self.subpath, is_folder) or (marked(path) if is_folder else "")
            if reason:
                left_out.append((printable(str(path)) + "/" * is_folder, reason))
                continue
            try:
                child = _below(path, root, rules)
            except DataError as error:
                flaws.append(error)
            else:
                children += [child] if child is not None else []
        return self._placed(children), tuple(flaws), tuple(left_out)

    @contextlib.contextmanager
    def seekable(self) -> Iterator[BinaryIO]:
        with self.path.open("rb") as stream:
            if unpacker_of(stream) is None:
                yield cast(BinaryIO, stream)
                return
        with super().seekable() as copy:
            yield copy


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


class StandardInput(InputSource):
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


class BytesSource(InputSource):
    """A file in memory, such as the attachment of a message."""

    def __init__(self, name: str, data: bytes) -> None:
        self.name = self.label = name
        self._data = data

    def raw(self) -> BinaryIO:
        return io.BytesIO(self._data)


class OpenedSource(InputSource):
    """A file that is opened by a function, in a copy that can seek."""

    def __init__(self, name: str, label: str, opened: Callable[[], IO[bytes]]) -> None:
        self.name, self.label, self._opened = name, label, opened

    def raw(self) -> BinaryIO:
        copy = tempfile.SpooledTemporaryFile(SPOOL)  # noqa: SIM115  members are read from it later
        with self._opened() as stream:
            shutil.copyfileobj(stream, copy, BUFFER)
        copy.seek(0)
        return cast(BinaryIO, copy)


class NamedSource(InputSource):
    """A source that is only a name, such as `stdlib:`, and has no bytes; a format reads it by the name."""

    def __init__(self, name: str) -> None:
        self.name = self.label = name

    def raw(self) -> BinaryIO:
        raise DataError("is the name of a dataset, not a file with bytes to read", file=self.label)


class MemberSource(InputSource):
    """A file of an archive, or the archive itself as a folder; parts of a member's name are its folders."""

    def __init__(self, label: str, name: str, members: Members, archive: InputSource) -> None:
        self.label, self.name, self._members, self._file = label, name, members, archive
        self.parent = PurePosixPath(label.rpartition("!")[2]).parent.name

    @property
    def is_folder(self) -> bool:
        return list(self._members) != [""]

    def raw(self) -> BinaryIO:
        return cast(BinaryIO, self._members[""].open())

    def stored(self) -> Stored | None:
        return self._members[""].stored if "" in self._members else None

    def stamp(self) -> Stamp | None:
        return self._file.stamp()

    def children(self) -> list[InputSource]:
        return self._placed(self._children)

    @cached_property
    def _children(self) -> list[InputSource]:  # every format asks for them, and an archive may have very many
        if not self.is_folder:
            return []
        groups: dict[str, Members] = {}
        for member, opener in self._members.items():
            first, _, rest = member.partition("/")
            groups.setdefault(first, {})[rest] = opener
        joint = "" if self.label.endswith("!") else "/"
        return [
            MemberSource(self.label + joint + name, name, groups[name], self._file) for name in sorted(groups)
        ]


def printable(name: str) -> str:
    """A name that can be printed and written: bytes that are not UTF-8 are shown as escapes."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def source_of(path: Path | str, rules: LeaveOut = USUAL) -> InputSource:
    """The source a path stands for: `-` is standard input; an archive is looked into."""
    if str(path) == "-":
        return standard_input(sys.stdin.buffer)
    path = Path(path)
    if not path.exists():
        raise DataError("there is no such file or folder", file=printable(str(path)), fix="check the path")
    return _disk_source(path, rules=FolderRules(rules))


def _disk_source(path: Path, root: Path | None = None, rules: FolderRules | None = None) -> InputSource:
    source = DiskSource(path, root, rules)
    members = _archive_members(source) if path.is_file() else None
    return source if members is None else _unwrap(source, members)


def _below(path: Path, root: Path, rules: FolderRules) -> InputSource | None:
    """What a path inside a folder stands for; None for a link to a folder that is read where it lies.

    Pipes, sockets and devices are never opened: a pipe that nobody writes to would be waited for without end.
    """
    label = printable(str(path))
    if label != str(path):
        raise DataError("the name is not UTF-8", file=label, fix="rename it")
    if CONTROLS.search(path.name):
        raise DataError("the name has a line break or another control character", file=label, fix="rename it")
    try:
        mode, is_link = path.stat().st_mode, path.is_symlink()
        inside = not is_link or path.resolve().is_relative_to(root)
    except (OSError, RuntimeError) as error:  # RuntimeError: a symlink loop, before Python 3.13
        if os.path.islink(path):
            raise DataError("the symlink is broken", file=label, fix="repair or remove it") from None
        reason = os.strerror(error.errno or 0) if isinstance(error, OSError) else str(error)
        raise DataError(f"cannot be opened ({reason})", file=label, fix="remove it") from None
    if not inside:
        fix = "copy what it points to into the folder, or name that as a source too"
        raise DataError("the symlink points outside of the folder", file=label, fix=fix)
    if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
        raise DataError("this is a pipe, socket or device, not a file", file=label, fix="remove it")
    if is_link and stat.S_ISDIR(mode):
        return None
    source = _disk_source(path, root, rules)
    source.archive = path.name if isinstance(source, MemberSource) else ""
    return source


def standard_input(stream: BinaryIO) -> InputSource:
    """Standard input, unpacked; a .zip is kept in an anonymous file, because its table stands at its end."""
    buffered = io.BufferedReader(Readable(stream.read), BUFFER)
    if not buffered.peek(4).startswith(b"PK\x03\x04"):
        return StandardInput(unpack(buffered, StandardInput.label))
    copy = tempfile.TemporaryFile()  # noqa: SIM115  members are read from it later
    shutil.copyfileobj(buffered, copy, BUFFER)
    source = StandardInput(cast(BinaryIO, copy))
    return _unwrap(source, _zip_members(source, lambda: cast(BinaryIO, copy)))


def _unwrap(source: InputSource, pairs: Iterable[tuple[str, Member]]) -> InputSource:
    """One file stands for itself; one folder for its contents. Of members of one name the last one counts."""
    pairs = list(pairs)
    kept, flaws = _with_nested(source, _inside(source, dict(pairs)))
    long = [name for name in kept if len(name) > LONGEST or name.count("/") > DEEPEST]
    kept = {name: member for name, member in kept.items() if name not in long}
    if not kept:
        raise DataError("the archive is empty", file=source.label)
    tree: InputSource = MemberSource(source.label + "!", source.name, kept, source)
    while len(children := tree.children()) == 1:
        tree = children[0]
        if not tree.is_folder:
            break
    tree.subpath = tree.location = ""
    repeated = [(name, n) for name, n in Counter(name for name, _ in pairs).items() if n > 1 and name in kept]
    tree.flaws = (
        *flaws,
        *(_member_flaw(source, f"{name[:80]}…", "the path is too long") for name in long),
        *(_member_flaw(source, f"{name} (not the last)", f"the archive has {n} members of this name; only the last "
          "one is read")
          for name, n in repeated),
    )  # fmt: skip
    return tree


def _inside(source: InputSource, members: Members) -> Members:
    """The members of an archive without clutter; one that points outside is refused."""
    for name in members:
        is_absolute = name.startswith(("/", "\\")) or ":" in name
        if is_absolute or ".." in PurePosixPath(name.replace("\\", "/")).parts:
            raise DataError(
                f"the archive has a member that points outside of it, {name!r}", file=source.label
            )
    return {name: member for name, member in members.items() if not _is_clutter(name)}


def _with_nested(source: InputSource, members: Members) -> tuple[Members, list[DataError]]:
    """The members, with archives among them as folders, and what is wrong with those; no deeper than that.

    All together they may not grow more than one archive may.
    """
    expanded, flaws = Members(), list[DataError]()
    stored = source.stored()
    packed, total = stored.size if stored else 0, sum(member.stored.size for member in members.values())
    seen = len(members)
    for name, member in members.items():
        nested = OpenedSource(PurePosixPath(name).name, f"{source.label}!{name}", member.open)
        try:
            pairs = _archive_members(nested)
            if pairs is None:
                expanded[name] = member
                continue
            # What was refused counts too: the tables of many archives in one take long to read.
            listed = list(pairs) if seen <= MEMBERS else []
            seen += len(listed)
            if seen > MEMBERS:
                what = f"the archive that it lies in has more than {MEMBERS:,} files with those of archives"
                raise DataError(what, file=nested.label, fix="unpack it and name the folder")
            inner = _below_one_folder(_inside(nested, dict(listed)))
            grown = total + sum(part.stored.size for part in inner.values())
            check_growth(grown, packed, nested.label)
        except DataError as error:
            flaws.append(error)
        else:
            total = grown
            expanded |= {f"{name}/{path}": part for path, part in inner.items()}
    return expanded, flaws


def _below_one_folder(members: Members) -> Members:
    """Members without the folder that all of them lie in."""
    while len({name.partition("/")[0] for name in members}) == 1 and all("/" in name for name in members):
        members = {name.partition("/")[2]: member for name, member in members.items()}
    return members


def _archive_members(source: InputSource) -> Iterator[tuple[str, Member]] | None:
    """The members of a source whose name is that of an archive; None where it is none."""
    name = source.name.lower()
    if name.endswith(".zip"):
        return _zip_members(source, source.raw)
    return _tar_members(source) if name.endswith(TARS) else None


def _member_flaw(source: InputSource, name: str, what: str) -> DataError:
    return DataError(what, file=f"{source.label}!{name}", fix="pack the archive again")


def _is_clutter(name: str) -> bool:
    *folders, file = PurePosixPath(name).parts
    return bool(by_name(file, False)) or any(by_name(part, True) for part in folders)


def _zip_members(source: InputSource, opened: Callable[[], BinaryIO]) -> Iterator[tuple[str, Member]]:
    try:
        archive = _opened_zip(opened)
        assert archive.fp is not None, "it is open"
        size = archive.fp.seek(0, io.SEEK_END)
    except DAMAGE as error:
        raise source.damaged(error) from None
    members = [member for member in archive.infolist() if member.filename and not member.is_dir()]
    # No member gives more bytes than the table says, and several may share the same packed ones: the size of the
    # whole file is what the table's sizes are held against.
    _check_archive(source, [member.file_size for member in members], size)
    for member in members:
        # The time is local and has no zone.
        modified = time.mktime((*member.date_time, 0, 0, -1))
        opener = partial(_open_in_zip, opened, member)
        yield member.filename, Member(opener, Stored(member.file_size, modified))


# A folder may hold more archives than a process may have open files: the last ones are kept open, others are opened
# again when a member is read. One that is dropped closes when the last of its members does.
@lru_cache(maxsize=OPEN_ARCHIVES)
def _opened_zip(opened: Callable[[], BinaryIO]) -> zipfile.ZipFile:
    return zipfile.ZipFile(opened())


def _open_in_zip(opened: Callable[[], BinaryIO], member: zipfile.ZipInfo) -> IO[bytes]:
    return _opened_zip(opened).open(member)


def _check_archive(source: InputSource, sizes: list[int], packed: int) -> None:
    if len(sizes) > MEMBERS:
        raise DataError(
            f"the archive has more than {MEMBERS:,} files",
            file=source.label,
            fix="unpack it and name the folder",
        )
    check_growth(sum(sizes), packed, source.label)


def _tar_members(source: InputSource) -> Iterator[tuple[str, Member]]:
    try:
        archive = _opened_tar(source)
        members = list(islice((member for member in archive if not member.isdir()), MEMBERS + 1))
        size = cast(BinaryIO, archive.fileobj).seek(0, io.SEEK_END)
    except DAMAGE as error:
        raise source.damaged(error) from None
    files = {posixpath.normpath(member.name): member for member in members if member.isfile()}
    targets = [member if member.isfile() else files.get(_target(member)) for member in members]
    # A sparse file may be larger than the archive, and many links may name one file.
    _check_archive(source, [target.size for target in targets if target is not None], size)
    for member, target in zip(members, targets):
        name = member.name.removeprefix("./")
        if target is None:
            yield (
                name,
                Member(partial(_refuse_link, f"{source.label}!{name}"), Stored(1, member.mtime)),
            )  # 0 would be empty
        else:
            yield name, Member(partial(_open_in_tar, source, target), Stored(target.size, member.mtime))


def _target(member: tarfile.TarInfo) -> str:
    """What a link in an archive points to: a hard link from the top of it, a symlink from where it lies."""
    folder = posixpath.dirname(member.name) if member.issym() else ""
    return posixpath.normpath(posixpath.join(folder, member.linkname))


def _refuse_link(label: str) -> IO[bytes]:
    what = "this is a link out of the archive, a pipe or a device, not a file"
    raise DataError(what, file=label, fix="pack what it points to")


@lru_cache(maxsize=OPEN_ARCHIVES)
def _opened_tar(source: InputSource) -> tarfile.TarFile:
    copy = tempfile.TemporaryFile()  # noqa: SIM115  members are read from it later
    with source.open() as stream:
        shutil.copyfileobj(stream, copy, BUFFER)
    copy.seek(0)
    return tarfile.open(fileobj=copy, mode="r:")


def _open_in_tar(source: InputSource, member: tarfile.TarInfo) -> IO[bytes]:
    stream = _opened_tar(source).extractfile(member)
    assert stream is not None, "only files are members"
    return stream
