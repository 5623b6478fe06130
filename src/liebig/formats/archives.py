"""A .zip or .tar as a folder, or as the file itself if it holds only one.

Archives in an archive are folders too, and what is deeper is a file. Nothing is ever extracted to disk under its own
name. What cannot be read of it is a flaw of the folder; an archive that may fill the machine is refused.
"""

from __future__ import annotations

import io
import posixpath
import re
import shutil
import tarfile
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, cached_property, lru_cache, partial
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO, NamedTuple, cast

from liebig.base.errors import DataError
from liebig.formats.compressed import BUFFER, PACKED, check_growth
from liebig.formats.inputs import DAMAGE, InputSource, Stamp, Stored, printable
from liebig.formats.left_out import IGNORE_FILES, LARGEST, MARKS, USUAL, FolderRules, by_name, patterns

SPOOL = 1 << 20  # bytes of an archive in an archive that stay in memory
OPEN_ARCHIVES = 32
TARS = (".tar", ".tgz", ".tbz2", ".txz", *(f".tar{suffix}" for suffix in PACKED))
DRIVE = re.compile(r"[A-Za-z]:")  # of Windows; any other colon is part of a name
MEMBERS = 100_000  # files of an archive
LONGEST = 4096  # bytes of a member's path, as of a path on disk
DEEPEST = 64  # folders of such a path: the names below are copied for each


class Member(NamedTuple):
    """A file of an archive: how it is opened, and its size and time."""

    open: Callable[[], IO[bytes]]
    stored: Stored


Members = dict[str, Member]


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


def unwrap(
    source: InputSource,
    pairs: Iterable[tuple[str, Member]],
    rules: FolderRules = FolderRules(USUAL),  # noqa: B008  frozen
    place: str = "",
) -> InputSource:
    """One file stands for itself; one folder for its contents. Of members of one name the last one counts.

    What the rules leave out is listed; `place` is where the archive lies below the source that was named.
    """
    pairs = list(pairs)
    members, flaws = _with_nested(source, _inside(source, dict(pairs)))
    wrong = {name: why for name in members if (why := _wrong(name))}
    members = {name: member for name, member in members.items() if name not in wrong}
    own = [name for name in members if not _is_clutter(name)]
    if not own:
        raise DataError("the archive is empty", file=source.label)
    top = own[0] if len(own) == 1 else _top(own)
    kept, left_out = _meant(members, top if len(own) > 1 else "", rules, place, f"{source.label}!", flaws)
    tree: InputSource = MemberSource(source.label + "!", source.name, kept, source)
    for part in filter(None, top.split("/")):
        tree = next((child for child in tree.children() if child.name == part), tree)
    tree.subpath = tree.location = ""
    tree.left_out = tuple((f"{source.label}!{name}", reason) for name, reason in left_out.items())
    repeated = [(name, n) for name, n in Counter(name for name, _ in pairs).items() if n > 1 and name in kept]
    tree.flaws = (
        *flaws,
        *(_member_flaw(source, printable(name if len(name) <= 80 else f"{name[:80]}…"), why)
          for name, why in wrong.items()),
        *(_member_flaw(source, f"{name} (not the last)", f"the archive has {n} members of this name; only the last "
          "one is read")
          for name, n in repeated),
    )  # fmt: skip
    return tree


def _meant(
    members: Members, top: str, rules: FolderRules, place: str, label: str, flaws: list[DataError]
) -> tuple[Members, dict[str, str]]:
    """The members that the rules, relative to the folder `top`, do not leave out, and why the others are."""
    folders = set[str]()
    for name in members:
        while (name := name.rpartition("/")[0]) and name not in folders:
            folders.add(name)
    inside: dict[str, FolderRules | None] = {}  # of each folder; None if it is left out
    left_out: dict[str, str] = {}
    start = top.strip("/")

    @cache
    def below(folder: str) -> str:
        return "/".join(filter(None, (place, folder.removeprefix(start).strip("/"))))

    def rules_in(folder: str) -> FolderRules | None:
        if folder not in inside:
            parent, _, name = folder.rpartition("/")
            above, reason = rules if folder in ("", start) else rules_in(parent), ""
            if above is not None and folder not in ("", start):
                marks = (
                    why for mark, why in MARKS.items() if (f := f"{folder}/{mark}") in members or f in folders
                )
                reason = above.reason(name, below(parent), True) or next(marks, "")
            if reason:
                left_out[f"{folder}/"] = reason
            inside[folder] = None if reason else above
            if above is not None and not reason and rules.rules.ignore_files:
                found = {n: f for n in IGNORE_FILES if (f := f"{folder}/{n}".lstrip("/")) in members}
                try:
                    texts = {n: patterns(_bytes_of(members[f]), Path(label + f)) for n, f in found.items()}
                    inside[folder] = above.with_files(below(folder), texts, Path(label + folder))
                except DataError as error:  # an ignore file that cannot be understood
                    flaws.append(error)
        return inside[folder]

    kept = Members()
    for name, member in members.items():
        folder, _, file = name.rpartition("/")
        if (here := rules_in(folder)) is None:
            continue
        if reason := here.reason(file, below(folder), False):
            left_out[name] = reason
        else:
            kept[name] = member
    return kept, left_out


def _bytes_of(member: Member) -> bytes:
    """The beginning of an ignore file; nothing if it cannot be read."""
    try:
        with member.open() as stream:
            return stream.read(LARGEST + 1)
    except (DataError, *DAMAGE):
        return b""


def _top(names: Sequence[str]) -> str:
    """The innermost folder that all of some members lie in, with a slash; "" if there is none."""
    top = ""
    while len(parts := {name[len(top) :].partition("/")[:2] for name in names}) == 1:
        [(folder, slash)] = parts
        if not slash:
            break
        top += f"{folder}/"
    return top


def _wrong(name: str) -> str:
    """Why a member of this name is not read; "" if it is."""
    if printable(name) != name:
        return "the name is not UTF-8"
    return "the path is too long" if len(name) > LONGEST or name.count("/") > DEEPEST else ""


def _inside(source: InputSource, members: Members) -> Members:
    """The members of an archive; one that points outside is refused."""
    for name in members:
        is_absolute = name.startswith(("/", "\\")) or DRIVE.match(name)
        if is_absolute or ".." in PurePosixPath(name.replace("\\", "/")).parts:
            what = f"the archive has a member that points outside of it, {name!r}"
            raise DataError(what, file=source.label, fix="unpack it and name the folder")
    return members


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
            pairs = None if _is_clutter(name) else archive_members(nested)
            if pairs is None:
                expanded[name] = member
                continue
            # What was refused counts too: the tables of many archives in one take long to read.
            listed = list(pairs) if seen <= MEMBERS else []
            seen += len(listed)
            if seen > MEMBERS:
                what = f"the archive that it lies in has more than {MEMBERS:,} files with those of archives"
                raise DataError(what, file=nested.label, fix="unpack it and name the folder")
            inner = _inside(nested, dict(listed))
            top = _top([path for path in inner if not _is_clutter(path)])
            inner = {path.removeprefix(top): part for path, part in inner.items()}
            grown = total + sum(part.stored.size for part in inner.values())
            check_growth(grown, packed, nested.label)
        except DataError as error:
            flaws.append(error)
        else:
            total = grown
            expanded |= {f"{name}/{path}": part for path, part in inner.items()}
    return expanded, flaws


def archive_members(source: InputSource) -> Iterator[tuple[str, Member]] | None:
    """The members of a source whose name is that of an archive; None where it is none."""
    name = source.name.lower()
    if name.endswith(".zip"):
        return zip_members(source, source.raw)
    return _tar_members(source) if name.endswith(TARS) else None


def _member_flaw(source: InputSource, name: str, what: str) -> DataError:
    return DataError(what, file=f"{source.label}!{name}", fix="pack the archive again")


def _is_clutter(name: str) -> bool:
    *folders, file = PurePosixPath(name).parts
    return bool(by_name(file, False)) or any(by_name(part, True) for part in folders)


def zip_members(source: InputSource, opened: Callable[[], BinaryIO]) -> Iterator[tuple[str, Member]]:
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
