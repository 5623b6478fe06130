"""Shared storage: folders at addresses such as s3://bucket/runs/vectors, read and written through fsspec.

Everything else reads and writes folders of this machine. `fetched` copies what an address has into the cache, and
copies again only what changed; `published` lets a command write into that copy and uploads what differs when it ended
well. What says that a folder is whole (its manifest, or retriever.json) is removed first and uploaded last, so a
reader finds a whole folder or one that is not finished. One writer at a time: nothing locks an address.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from liebig.base.errors import LiebigError, MissingDependency, RecipeError, ResourceError, WorkspaceError
from liebig.base.machine import WINDOWS, cache_folder, process_count

T = TypeVar("T")
ADDRESS = re.compile(r"([a-z][a-z0-9+.-]+):/+([^/].*)")  # a Path has one slash where an address has two
FORBIDDEN = re.compile(r'[<>:"|?*\\]')  # in names of files on Windows; a port has a colon
NOT_STORAGE = ("ray", "hf", "liebig", "stdlib")
WHOLE = ("manifest.json", "retriever.json")  # names that say that a folder is finished
WRITING = ".publishing"
STAMPS = (
    "ETag",
    "etag",
    "md5Hash",
    "mtime",
    "LastModified",
    "created",
)  # what storages say of a file's contents
Seen = dict[str, list[Any]]  # name -> size and stamp at the address, size and time of the copy


def address(path: str | Path) -> str | None:
    """The address that a path stands for; None for one of this machine."""
    match = ADDRESS.fullmatch(path.as_posix() if isinstance(path, Path) else path)
    if match is None or match[1] in NOT_STORAGE or Path(path).exists():
        return None
    return f"{match[1]}:{'///' if match[1] in ('file', 'local') else '//'}{match[2]}"


def place(path: str | Path) -> Path:
    """Where the copy of an address lies."""
    protocol, _, rest = str(address(path)).partition(":")
    inner = PurePosixPath(rest.lstrip("/"))
    user, _, host = inner.parts[0].rpartition("@")
    if ":" in user:  # user:password, which would stand in names and messages
        what = f"an address cannot have a password in it ({protocol}://…@{host})"
        raise RecipeError(what, fix="give it to the storage as its documentation says")
    if ".." in inner.parts:
        raise RecipeError("an address cannot have .. in it", file=str(address(path)), fix="write it out")
    name = FORBIDDEN.sub(lambda sign: f"%{ord(sign[0]):02X}", str(inner))
    return cache_folder() / "shared" / protocol / name


def fetched(path: T) -> T | Path:
    """A path of this machine as it is; of an address the copy, which is what the address has now."""
    if not isinstance(path, str | Path) or (name := address(path)) is None:
        return path
    with _lock(copy := place(path)), _explained(name):
        storage, root = _open(name)
        there = _listed(storage, root)
        if not there:
            raise WorkspaceError("there is no such file or folder", file=name, fix="check the address")
        if WRITING in there:
            raise WorkspaceError("is not finished", file=name, fix="run the command that writes it again")
        _download(storage, root, copy, there)
    return copy


@contextmanager
def published(path: Path) -> Iterator[Path]:
    """A folder to write: of this machine as it is; for an address its copy, which is uploaded when the block ends."""
    if (name := address(path)) is None:
        yield path
        return
    if process_count() > 1:
        fix = "give a folder on a disk that all of them see, or use --part"
        raise RecipeError("several processes cannot write one address", file=name, fix=fix)
    copy = place(path)
    with _lock(copy), _explained(name):
        storage, root = _open(name)
        there = _listed(storage, root)
        # The folder of a run has manifests in its stages alone.
        files = {PurePosixPath(one).name for one in there}
        if there and not {*WHOLE, WRITING} & files:
            what = "already exists and was not created by Liebig; refusing to overwrite it"
            raise WorkspaceError(what, file=name, fix="give another --out")
        if there and WRITING not in there:
            _download(storage, root, copy, there)
        elif not there and _seen(copy):  # it was removed there
            _record(copy, {})
            shutil.rmtree(copy, ignore_errors=True)
    yield copy
    with _lock(copy), _explained(name):
        _upload(storage, root, copy)


@contextmanager
def at_hand(values: dict[str, Any], written: Collection[str]) -> Iterator[dict[str, Any]]:
    """The values of a command with copies in the place of addresses; the `written` ones are uploaded at the end."""
    with ExitStack() as stack:
        local = dict(values)
        for name, value in values.items():
            if isinstance(value, Path):
                local[name] = stack.enter_context(published(value)) if name in written else fetched(value)
            elif isinstance(value, list):
                local[name] = [fetched(one) if isinstance(one, Path) else one for one in value]
        yield local


def remove(path: Path) -> None:
    """Remove a folder, here or at an address."""
    if (name := address(path)) is not None:
        with _explained(name):
            storage, root = _open(name)
            storage.rm(root, recursive=True)
        path = place(path)
    shutil.rmtree(path)


def _open(name: str) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise MissingDependency("fsspec", "storage", name) from None
    storage, root = url_to_fs(name, use_listings_cache=False, skip_instance_cache=True)
    return storage, root.rstrip("/")


def _listed(storage: Any, root: str) -> Seen:
    """What is at an address, by name; a file has the name ""."""
    try:
        found = storage.find(root, detail=True)
    except FileNotFoundError:
        return {}
    listed: Seen = {}
    for full, info in found.items():
        name = full.removeprefix(root).strip("/")
        if ".." in PurePosixPath(name).parts or "\\" in name or (WINDOWS and ":" in name):
            raise WorkspaceError(f"has a file of the name {name!r}", file=root, fix="rename it")
        stamp = next((str(info[key]) for key in STAMPS if info.get(key) is not None), "")
        listed[name] = [info.get("size"), stamp]
    return listed


def _download(storage: Any, root: str, copy: Path, there: Seen) -> None:
    seen = _seen(copy)
    if {name: row[:2] for name, row in seen.items()} == there and (copy.exists() or not there):
        return
    wanted = [name for name in there if seen.get(name, [])[:2] != there[name] or not (copy / name).is_file()]
    for name in seen.keys() - there.keys():
        (copy / name).unlink(missing_ok=True)
    for name in wanted:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
    if wanted:
        storage.get([_at(root, name) for name in wanted], [str(copy / name) for name in wanted])
    _record(copy, {name: [*row, *_facts(copy / name)] for name, row in there.items()})


def _upload(storage: Any, root: str, copy: Path) -> None:
    """What differs from what the address had; names that say that the folder is whole go last."""
    seen, there = _seen(copy), _listed(storage, root)
    paths = (Path(folder, name) for folder, _, found in os.walk(copy, followlinks=True) for name in found)
    mine = {path.relative_to(copy).as_posix(): _facts(path) for path in paths}
    changed = [name for name, facts in mine.items() if name not in there or seen.get(name, [])[2:] != facts]
    gone = [name for name in there if name not in mine]
    if not changed and not gone:
        return
    storage.makedirs(root, exist_ok=True)
    storage.pipe_file(_at(root, WRITING), b"")
    for name in [name for name in WHOLE if name in there] + [
        name for name in gone if name not in (*WHOLE, WRITING)
    ]:
        storage.rm_file(_at(root, name))
    last = [name for name in WHOLE if name in mine]
    first = [name for name in changed if name not in last]
    for names in (first, last):
        if names:
            for parent in {_at(root, name).rpartition("/")[0] for name in names}:
                storage.makedirs(parent, exist_ok=True)
            storage.put([str(copy / name) for name in names], [_at(root, name) for name in names])
    storage.rm_file(_at(root, WRITING))
    there = _listed(storage, root)
    _record(copy, {name: [*there[name], *facts] for name, facts in mine.items() if name in there})


def _at(root: str, name: str) -> str:
    return f"{root}/{name}" if name else root


def _facts(path: Path) -> list[int]:
    facts = path.stat()
    return [facts.st_size, facts.st_mtime_ns]


def _note(copy: Path, suffix: str) -> Path:
    """A file about a copy, outside of all copies: one address may lie within another."""
    inner = copy.relative_to(cache_folder()).as_posix()
    name = hashlib.sha256(inner.encode("utf-8", "surrogateescape")).hexdigest()
    return cache_folder() / "shared" / ".notes" / f"{name}.{suffix}"


def _seen(copy: Path) -> Seen:
    try:
        return dict(json.loads(_note(copy, "seen").read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def _record(copy: Path, seen: Seen) -> None:
    from liebig.base.durable import atomic_write

    atomic_write(_note(copy, "seen"), json.dumps(seen).encode())


@contextmanager
def _lock(copy: Path) -> Iterator[None]:
    """Several processes of a machine share the copies."""
    from filelock import FileLock

    note = _note(copy, "lock")
    for folder in (copy.parent, note.parent):
        folder.mkdir(parents=True, exist_ok=True)
    with FileLock(note):
        yield


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """Errors of the many packages behind fsspec, as one sentence."""
    try:
        yield
    except LiebigError:
        raise
    except ImportError as error:  # "Install s3fs to access S3"
        raise LiebigError(f"needs another package: {error}", file=name, fix="install it with pip") from None
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        said = (str(error).strip() or type(error).__name__).splitlines()[0]
        fix = "check the address, the network and your credentials for it, and run the same command again"
        raise ResourceError(f"the storage does not answer: {said}", file=name, fix=fix) from None
