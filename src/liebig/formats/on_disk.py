"""Files and folders on disk, and standard input, as sources to read.

What is in a folder and cannot be read (a broken symlink or one that leaves the folder, a pipe, a folder without
permission) is not a child but a flaw, which says why; the caller decides whether to skip it.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, cast

from liebig.base.errors import DataError
from liebig.formats.archives import MemberSource, archive_members, unwrap, zip_members
from liebig.formats.compressed import BUFFER, Readable, unpack, unpacker_of
from liebig.formats.inputs import DAMAGE, InputSource, Stamp, Stored, printable
from liebig.formats.left_out import USUAL, FolderRules, LeaveOut, marked


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


CONTROLS = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029\ufeff]")


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
                child = _below(path, root, rules, self.subpath)
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


def source_of(path: Path | str, rules: LeaveOut = USUAL) -> InputSource:
    """The source a path stands for: `-` is standard input; an archive is looked into."""
    if str(path) == "-":
        return standard_input(sys.stdin.buffer)
    path = Path(path)
    if not path.exists():
        raise DataError("there is no such file or folder", file=printable(str(path)), fix="check the path")
    return _disk_source(path, FolderRules(rules))


def _disk_source(path: Path, rules: FolderRules, root: Path | None = None, place: str = "") -> InputSource:
    source = DiskSource(path, root, rules)
    members = archive_members(source) if path.is_file() else None
    return source if members is None else unwrap(source, members, rules, place)


def _below(path: Path, root: Path, rules: FolderRules, subpath: str) -> InputSource | None:
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
    source = _disk_source(path, rules, root, f"{subpath}/{path.name}" if subpath else path.name)
    source.archive = path.name if isinstance(source, MemberSource) else ""
    source.is_link = is_link
    return source


def standard_input(stream: BinaryIO) -> InputSource:
    """Standard input, unpacked; a .zip is kept in an anonymous file, because its table stands at its end."""
    buffered = io.BufferedReader(Readable(stream.read), BUFFER)
    if not buffered.peek(4).startswith(b"PK\x03\x04"):
        return StandardInput(unpack(buffered, StandardInput.label))
    copy = tempfile.TemporaryFile()  # noqa: SIM115  members are read from it later
    shutil.copyfileobj(buffered, copy, BUFFER)
    source = StandardInput(cast(BinaryIO, copy))
    return unwrap(source, zip_members(source, lambda: cast(BinaryIO, copy)))
