"""Files that a reader sees whole or not at all, and that outlive a power cut, on every system."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from liebig.base.machine import WINDOWS


def atomic_write(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees the old contents or the new, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    sync(path.parent)


# Windows neither replaces nor moves what a program has open, nor a folder with such a file in it. A reader of a small
# file is done in a moment, a scanner for viruses in a second.
PAUSES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0) if WINDOWS else ()


def replace(source: Path, target: Path) -> None:
    """Put a file or folder in the place of another; on Windows again after a while, if one of them is open."""
    for pause in PAUSES:
        try:
            os.replace(source, target)
            return
        except PermissionError:
            time.sleep(pause)
    os.replace(source, target)


def remove(path: Path) -> None:
    """Remove a file or a folder, if it is there; of a link only the link."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on disk; Windows knows no such wait for a folder."""
    if WINDOWS and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDWR if WINDOWS else os.O_RDONLY)  # Windows syncs what it may write
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
