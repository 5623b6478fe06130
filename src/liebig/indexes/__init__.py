"""The table of index back ends, and opening an index folder of any kind.

A back end is one file of this folder and one line of `BUILT_IN`; another package adds one by an entry point of the
group `liebig.indexes`, with the same "module:Class". See `base.py` for what the class needs.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

from liebig.base import workspace
from liebig.base.errors import CorruptError, DataError
from liebig.base.extensions import extended, load
from liebig.base.json_file import read_json
from liebig.indexes.base import INDEX, Index, IndexFile
from liebig.vectors import SUMMARY

BUILT_IN = {
    "exact": "liebig.indexes.exact:ExactIndex",
    "faiss": "liebig.indexes.faiss:FaissIndex",
}
GROUP = "liebig.indexes"


def back_ends() -> dict[str, type[Index]]:
    """Every back end by its kind: those of Liebig, and those that installed packages add."""
    table = extended(BUILT_IN, GROUP)
    return {kind: load(table, kind) for kind in table}


def config_choice() -> Any:
    """The union of all back ends' configs, told apart by `kind`."""
    return reduce(or_, (back_end.Config for back_end in back_ends().values()))


def open_index(
    path: str | Path, *, threads: int | None = None, device: str | None = None, hashes: bool = True
) -> Index:
    """An index, or a folder of vectors as an exact one; `device` is for exact search on a GPU."""
    path = Path(path)
    outputs = workspace.checked_outputs(path, hashes=hashes)
    if INDEX in outputs:
        kind = read_json(path / INDEX, IndexFile, fix="index again").kind
    elif SUMMARY in outputs:
        kind = "exact"
    else:
        raise DataError("the folder is not an index", file=path, fix="make one with liebig index")
    # No package can replace Liebig's own, and asking every installed package takes longer than opening a small index.
    table = BUILT_IN if kind in BUILT_IN else extended(BUILT_IN, GROUP)
    if kind not in table:
        raise CorruptError(
            f"there is no index back end {kind!r}",
            file=path,
            fix=f"install the package that adds it, or index again as {', '.join(table)}",
        )
    back_end: type[Index] = load(table, kind)
    index = back_end.open(path, threads=threads, device=device)
    for shard in (index.stored() or ()) if hashes else ():
        shard.check_finite()
    index.folder = path
    return index
