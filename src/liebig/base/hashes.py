"""Hashes of files, each made once while the file stays the same, and what tells that it does."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

from liebig.base.machine import WINDOWS

RACY = 2.0  # seconds after a change in which another one might not show in the times of a file
TICK = 0.02  # the same on disks that count more than whole seconds
MOST_HASHES = 1 << 17  # of files that are remembered


def link(source: str, target: str) -> None:
    """Give a finished file a second name. A copy on Windows: there no name of it could go while one of them is open."""
    known = _HASHES.get(stamp_of(os.stat(source)))
    try:
        (shutil.copy2 if WINDOWS else os.link)(source, target)
    except OSError:
        shutil.copy2(source, target)
    if known is not None:  # a name more changes the stamp and no byte
        _HASHES[stamp_of(os.stat(target))] = known


def hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_output(path: Path) -> str:
    """The hash of a stage's file."""
    facts = path.stat()
    return hash_file(path) if _is_racy(facts.st_mtime_ns) else _hash_once(path, facts)


def hash_readable(path: Path) -> str:
    """The hash of an input, or a mark where it is not a readable file; the stage that reads it reports why."""
    try:
        if not path.is_file():
            return "not a file"
        facts = path.stat()
        if time.time() - max(facts.st_mtime, facts.st_ctime) < RACY:
            return hash_file(path)
        return _hash_once(path, facts)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG):
            raise
        return errno.errorcode[error.errno]


def _is_racy(changed: int) -> bool:
    """Whether another change may not show in the time of the last one, in nanoseconds; some disks count seconds."""
    return time.time_ns() - changed < (TICK if changed % 10**9 else RACY) * 10**9


_HASHES: dict[tuple[int, ...], str] = {}


def _hash_once(path: Path, facts: os.stat_result) -> str:
    """The hash of a file, kept while its stamp is the same: who follows a folder asks again with every change."""
    stamp = stamp_of(facts)
    if (known := _HASHES.get(stamp)) is None:
        if len(_HASHES) >= MOST_HASHES:
            _HASHES.clear()
        known = _HASHES[stamp] = hash_file(path)
    return known


def stamp_of(facts: os.stat_result) -> tuple[int, ...]:
    """What changes with a file's bytes, for what is kept in memory while a file stays the same.

    A copy keeps the time of its contents, which files that are written together share, and may get the number of a
    file that is gone; so the time at which the inode changed counts too.
    """
    return facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns


def hash_json(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
