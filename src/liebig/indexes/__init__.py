"""Opening an index folder of any kind: hashes first, native libraries after."""

from __future__ import annotations

import json
from pathlib import Path

from liebig.base import workspace
from liebig.base.errors import CorruptError, DataError
from liebig.indexes.base import INDEX, Index
from liebig.indexes.exact import ExactIndex
from liebig.vectors.vector_folder import SUMMARY, Vectors


def open_index(
    path: Path, *, threads: int | None = None, device: str | None = None, hashes: bool = True
) -> Index:
    """An index, or a folder of vectors as an exact one; `device` is for exact search on a GPU."""
    manifest = workspace.verify(path, hashes=hashes)
    if INDEX in manifest.outputs:
        kind = json.loads((path / INDEX).read_text(encoding="utf-8"))["kind"]
    elif SUMMARY in manifest.outputs:
        kind = "exact"
    else:
        raise DataError("the folder is no index", file=path, fix="make one with liebig index")
    if kind == "milvus":
        from liebig.indexes.milvus import MilvusIndex

        return MilvusIndex.open(path)
    vectors = ExactIndex.of(Vectors.read(path), threads=threads, device=device)
    if kind == "exact":
        return vectors
    if kind != "faiss":
        raise CorruptError(f"there is no index of kind {kind!r}", file=path, fix="index again")
    from liebig.indexes.faiss import FaissIndex

    return FaissIndex.open(path, vectors)
