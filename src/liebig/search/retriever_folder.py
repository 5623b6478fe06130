"""`retriever.json`: which stage folders below a retriever's folder belong together, and how they are asked.

It is replaced atomically and last, so whoever reads it finds a whole generation; the folders of the one before are
removed after. Paths in it are below the folder, so that the folder can be moved and shared.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, NonNegativeInt, PositiveInt

from liebig.base import workspace
from liebig.base.durable import atomic_write
from liebig.base.errors import DataError, WorkspaceError
from liebig.base.json_file import BelowPath, parse_json
from liebig.base.machine import remove_lock

NAME = "retriever.json"
WORK = "work"  # below the folder: stages of a build that no search reads
VERSION = 1
Norm = Literal["minmax", "spread"]  # how a hybrid brings scores to one scale (`fusion.weighted`)
SystemName = Literal["hybrid", "dense", "bm25", "reranked"]
SYSTEMS: tuple[SystemName, ...] = get_args(SystemName)
PARTS = ("collection", "bm25", "index", "sentences", "model", "query", "checks", "reranker", "engine")
LINKED = {
    "model",
    "query",
    "reranker",
}  # may be links: retrievers can share a model, whose files are never shown
_KEYS = ("version", "generation", "system", "weight", "norm", "spread", "depth", *PARTS)
MORE: Mapping[str, Any] = {
    "sources": list[str],
    "languages": dict[str, int],
}  # beside those, where it is there
SMALL = 64 << 20  # bytes of the indexes of a folder that numpy alone searches in some milliseconds
RERANK_DEPTH = 50  # hits that a reranker orders


@dataclass(frozen=True)
class RetrieverDescription:
    """What retriever.json says: sub-folders (None: there is none), the system of choice, and how systems are asked.

    In a hybrid, `weight` is that of BM25 and `spread` the unit of the vectors' scores (`fusion.weighted`). `depth` is
    the number of hits that the reranker orders.
    """

    generation: NonNegativeInt
    system: SystemName
    collection: BelowPath
    bm25: BelowPath | None = None
    index: BelowPath | None = None
    model: BelowPath | None = None
    checks: BelowPath | None = None
    query: BelowPath | None = None  # the model of questions, where it is another than that of passages
    sentences: BelowPath | None = None  # vectors of every sentence, which take part in a hybrid
    weight: Annotated[float, Field(ge=0, le=1)] = 0.5
    norm: Norm = "minmax"
    spread: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    reranker: BelowPath | None = None
    engine: BelowPath | None = (
        None  # where passages and indexes are in a search engine, which the other parts name too
    )
    depth: PositiveInt = RERANK_DEPTH
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def systems(self) -> tuple[SystemName, ...]:
        has = {"bm25": self.bm25 is not None, "dense": self.index is not None}
        has |= {"hybrid": all(has.values()), "reranked": self.reranker is not None and any(has.values())}
        return tuple(name for name in SYSTEMS if has[name])

    def row(self) -> dict[str, Any]:
        own = {"version": VERSION} | {key: getattr(self, key) for key in _KEYS if key != "version"}
        return own | dict(self.more)


def read(folder: Path) -> RetrieverDescription:
    if not is_retriever(folder):
        if is_unfinished(folder):
            raise WorkspaceError("the build is not finished", file=folder, fix="run the same command again")
        raise DataError(
            "the folder is not a retriever: it has no retriever.json",
            file=folder,
            fix="make one with liebig build",
        )
    return _parsed((folder / NAME).read_bytes(), folder)


def _parsed(data: bytes, folder: Path) -> RetrieverDescription:
    path, fix = folder / NAME, "build again"
    row = parse_json(data, dict[str, Any], path, fix=fix)
    if row.get("version") != VERSION:
        raise DataError(f"has version {row.get('version')}, this Liebig reads {VERSION}", file=path, fix=fix)
    own = {key: row[key] for key in _KEYS if key in row and key != "version"}
    for key, kind in MORE.items():
        if key in row:
            parse_json(json.dumps(row[key]).encode(), kind, path, error=DataError, fix=fix)
    own["more"] = {key: row[key] for key in row if key not in _KEYS}
    description = parse_json(json.dumps(own).encode(), RetrieverDescription, path, error=DataError, fix=fix)
    for part in set(PARTS) - LINKED:
        name = getattr(description, part)
        if name is not None and not (folder / name).resolve().is_relative_to(folder.resolve()):
            raise DataError(f"{part} = {name!r} is a link that leads out of the folder", file=path, fix=fix)
    if description.system not in description.systems:
        raise DataError(f"system = {description.system!r}, but there is {description.systems}", file=path)
    return description


def write(folder: Path, description: RetrieverDescription) -> None:
    """Put a new description in the place of the old one."""
    data = (json.dumps(description.row(), indent=2, ensure_ascii=False) + "\n").encode()
    _parsed(data, folder)
    atomic_write(folder / NAME, data)


def replace(folder: Path, before: RetrieverDescription | None, now: RetrieverDescription) -> None:
    """Describe a new generation and remove what it replaces, unless nothing but its number is new."""
    if before is None or before.row() | {"generation": 0} != now.row() | {"generation": 0}:
        write(folder, now)
        remove_old(folder, now)


def remove_old(folder: Path, now: RetrieverDescription | None) -> None:
    """Remove what finished and killed runs left: generations up to now that are not described, and replaced folders.

    Readers that map the files keep what they have. Folders of the next generation stay, to be resumed.
    """
    kept = set() if now is None else {getattr(now, part) for part in PARTS}
    generation = 0 if now is None else now.generation
    for path in folder.iterdir():
        part, _, number = path.name.removesuffix(".partial").rpartition("-")
        old = part in PARTS and number.isdecimal() and int(number) <= generation and path.name not in kept
        if old and any((path / name).is_file() for name in (workspace.MANIFEST, workspace.LOCK)):
            workspace.discard(path)
    for path in (*folder.glob(".*.liebig.old"), *(folder / WORK).glob(".*.liebig.old")):
        shutil.rmtree(path, ignore_errors=True)
    for path in folder.glob(f".{NAME}.*.tmp"):
        path.unlink()
    for path in (*folder.glob(f"*/{workspace.MANIFEST}"), *(folder / WORK).glob(f"*/{workspace.MANIFEST}")):
        if path.parent.suffix != ".partial":  # these are taken up again, and need both
            for name in (workspace.LOCK, workspace.INTENT):  # of a run killed right after its last rename
                path.with_name(name).unlink(missing_ok=True)


@contextlib.contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Hold a retriever's folder against a second build or update: each takes one generation for its start.

    The two would otherwise run the same stages one after the other, and the last to finish would drop what the
    other had taken in.
    """
    with workspace.locked(folder / WORK, "another liebig build or update is writing this retriever") as lock:
        try:
            yield
        finally:
            remove_lock(lock)
            with contextlib.suppress(OSError):  # where bad input left nothing to keep
                (folder / WORK).rmdir()
                folder.rmdir()


def is_retriever(path: Path) -> bool:
    return (path / NAME).is_file()


def is_small(folder: Path) -> bool:
    """Whether a search by numpy alone takes less than importing what makes it fast."""
    description = read(folder)
    parts = (description.bm25, description.index, description.sentences)
    files = (file for part in parts if part is not None for file in (folder / part).rglob("*.npy"))
    return sum(file.stat().st_size for file in files) <= SMALL


def is_unfinished(path: Path) -> bool:
    """Whether a build began to write a retriever here and did not end."""
    return (path / WORK).is_dir() and not is_retriever(path)
