"""The files and folders that this user has indexed on this machine, so that a server opens no others.

A retriever says in `retriever.json` what it was built from, and one made by somebody else may name any folder of the
reader. So `build`, and `update` with sources on its command line, note what they were given in a folder outside of the
retriever: one small file per source, named by the hash of its path. Notes are never removed: a line costs 100 bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from liebig.base.machine import state_folder


def note(sources: Iterable[str]) -> str:
    """Note sources that the user named; gives why it could not be done, or ""."""
    try:
        for source in sources:
            if Path(source).is_absolute():  # others are names, such as `stdlib:`
                path = _place(source)
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                path.write_bytes(os.fsencode(source) + b"\n")
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    return ""


def is_noted(source: str) -> bool:
    """Whether the user has indexed this on this machine."""
    return "\0" not in source and _place(source).is_file()


def _place(source: str) -> Path:
    return state_folder() / "sources" / sha256(os.fsencode(os.path.realpath(source))).hexdigest()
