"""What this user has named on this machine: files and folders that were indexed, and addresses of search engines.

A retriever says in its files what it was built from and where its engine is, and one made by somebody else may name any
folder of the reader, or any server. A server opens no other files, and no other engine gets the user's token. `build`,
`push`, and `update` with sources on its command line, note what they were given in a folder outside of it: one
small file each, named by the hash of a path or an address. Notes are never removed: a line costs 100 bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Literal

from liebig.base.machine import state_folder

Kind = Literal["sources", "engines"]


def note(names: Iterable[str], kind: Kind = "sources") -> str:
    """Note what the user named; gives why it could not be done, or ""."""
    try:
        for name in names:
            if kind == "engines" or Path(name).is_absolute():  # other sources are names, such as `stdlib:`
                path = _place(name, kind)
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                path.write_bytes(os.fsencode(name) + b"\n")
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    return ""


def is_noted(name: str, kind: Kind = "sources") -> bool:
    """Whether the user has named this on this machine."""
    return "\0" not in name and _place(name, kind).is_file()


def _place(name: str, kind: Kind) -> Path:
    key = os.path.realpath(name) if kind == "sources" else name
    return state_folder() / kind / sha256(os.fsencode(key)).hexdigest()
