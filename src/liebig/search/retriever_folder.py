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
from math import inf
from pathlib import Path, PurePosixPath
from typing import Any, Literal, get_args

from liebig.base import workspace
from liebig.base.errors import CorruptError, DataError, WorkspaceError

NAME = "retriever.json"
WORK = "work"  # below the folder: stages of a build that no search reads
VERSION = 1
Norm = Literal["minmax", "zscore", "spread"]  # how a hybrid brings scores to one scale (`systems.weighted`)
SystemName = Literal["hybrid", "dense", "bm25", "reranked"]
SYSTEMS: tuple[SystemName, ...] = get_args(SystemName)
PARTS = ("collection", "bm25", "index", "sentences", "model", "query", "checks", "reranker")
_KEYS = ("version", "generation", "system", "weight", "norm", "spread", "depth", *PARTS)
DEPTH = 50  # hits that a reranker orders


@dataclass(frozen=True)
class RetrieverDescription:
    """What retriever.json says: sub-folders (None: there is none), the system of choice, and how systems are asked.

    In a hybrid, `weight` is that of BM25 and `spread` the unit of the vectors' scores (`systems.weighted`). `depth` is
    the number of hits that the reranker orders.
    """

    generation: int
    system: SystemName
    collection: str
    bm25: str | None = None
    index: str | None = None
    model: str | None = None
    checks: str | None = None
    query: str | None = None  # the model of questions, where it is another than that of passages
    sentences: str | None = None  # vectors of every sentence, which take part in a hybrid
    weight: float = 0.5
    norm: Norm = "minmax"
    spread: float = 1.0
    reranker: str | None = None
    depth: int = DEPTH
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def systems(self) -> tuple[SystemName, ...]:
        """The systems that can be asked."""
        has = {"bm25": self.bm25 is not None, "dense": self.index is not None}
        has |= {"hybrid": all(has.values()), "reranked": self.reranker is not None and any(has.values())}
        return tuple(name for name in SYSTEMS if has[name])

    def row(self) -> dict[str, Any]:
        """As it is written."""
        own = {"version": VERSION} | {key: getattr(self, key) for key in _KEYS if key != "version"}
        return own | dict(self.more)


def read(folder: Path) -> RetrieverDescription:
    """The description of a retriever's folder."""
    path = folder / NAME
    try:
        row = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        if is_unfinished(folder):
            raise WorkspaceError(
                "the build is not finished", file=folder, fix="run the same command again"
            ) from None
        fix = "make one with liebig build"
        raise DataError(
            "the folder is not a retriever: it has no retriever.json", file=folder, fix=fix
        ) from None
    except ValueError as error:
        raise CorruptError(f"is not JSON ({error})", file=path, fix="build again") from None
    return _parsed(row, path)


def _parsed(row: Any, path: Path) -> RetrieverDescription:
    if not isinstance(row, dict) or row.get("version") != VERSION:
        found = row.get("version") if isinstance(row, dict) else None
        raise DataError(f"has version {found}, this Liebig reads {VERSION}", file=path, fix="build again")
    try:
        own = {key: row[key] for key in _KEYS if key in row and key != "version"}
        description = RetrieverDescription(**own, more={key: row[key] for key in row if key not in _KEYS})
    except TypeError as error:
        raise CorruptError(f"is not a description of a retriever ({error})", file=path) from None
    _check(description, path)
    return description


def _check(description: RetrieverDescription, path: Path) -> None:
    for part in PARTS:
        name = getattr(description, part)
        inside = isinstance(name, str) and not PurePosixPath(name).is_absolute()
        if name is not None and not (inside and ".." not in PurePosixPath(name).parts):
            raise DataError(f"{part} = {name!r} is not a path below the folder", file=path)
    if description.system not in description.systems:
        raise DataError(f"system = {description.system!r}, but there is {description.systems}", file=path)
    if type(description.generation) is not int or type(description.weight) not in (int, float):
        raise DataError("generation or weight is not a number", file=path)
    if type(description.depth) is not int or description.depth < 1:
        raise DataError(f"depth = {description.depth!r} is not a number of hits", file=path)
    if not 0 <= description.weight <= 1:
        raise DataError(f"weight = {description.weight} is not between 0 and 1", file=path)
    if type(description.spread) not in (int, float) or not 0 < description.spread < inf:
        raise DataError(f"spread = {description.spread!r} is not a positive number", file=path)
    if description.norm not in get_args(Norm):
        raise DataError(f"norm = {description.norm!r} is not one of {', '.join(get_args(Norm))}", file=path)


def write(folder: Path, description: RetrieverDescription) -> None:
    """Put a new description in the place of the old one."""
    _check(description, folder / NAME)
    text = json.dumps(description.row(), indent=2, ensure_ascii=False) + "\n"
    workspace.atomic_write(folder / NAME, text.encode())


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
            lock.unlink()
            with contextlib.suppress(OSError):  # where bad input left nothing to keep
                (folder / WORK).rmdir()
                folder.rmdir()


def is_retriever(path: Path) -> bool:
    """Whether a folder is a retriever's."""
    return (path / NAME).is_file()


def is_unfinished(path: Path) -> bool:
    """Whether a build began to write a retriever here and did not end."""
    return (path / WORK).is_dir() and not is_retriever(path)
