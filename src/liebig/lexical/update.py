"""Writing an index folder: new, or an older one with passages added and removed.

Segments are never changed. Adding links the old ones into the new folder and writes a segment beside them; removing
writes the numbers that are gone. A passage whose id is already there takes its place. When there are more than
MOST_SEGMENTS they are merged. Cost of adding: that of the new passages, plus one read of the old files for the hashes.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from liebig import workspace
from liebig.data import npy
from liebig.errors import DataError
from liebig.lexical.bm25 import BM25, FORMAT, SUMMARY, Settings, open_segments
from liebig.lexical.build import SEGMENT_WORDS, Expanded, write_segments
from liebig.lexical.merge import link_tree, merge_segments
from liebig.lexical.segment import Segment
from liebig.workspace import Folder

MOST_SEGMENTS = 8


def write_index(
    folder: Folder,
    passages: Iterable[Expanded],
    settings: Settings,
    *,
    texts: bool = True,
    words: int = SEGMENT_WORDS,
    base: Path | None = None,
    delete: Iterable[str] = (),
    compact: bool = False,
) -> list[str]:
    """Write the files of an index; gives the ids that were to be deleted and are not there."""
    for part in ("segments", "deleted"):
        shutil.rmtree(folder.path / part, ignore_errors=True)
    names = _take_over(folder, base) if base is not None else []
    old = len(names)
    first = 1 + max(map(int, names), default=-1)
    names += write_segments(
        passages, folder.path / "segments", settings.analyzer, settings.weights, first=first, texts=texts, words=words
    )  # fmt: skip
    unknown = _mark_deleted(folder.path, names, old, delete)
    if compact or len(names) > MOST_SEGMENTS:
        names = _merge(folder.path, names)
    folder.write_json(SUMMARY, {"format": FORMAT, "settings": asdict(settings), "segments": names})
    return unknown


def settings_of(base: Path) -> Settings:
    """The settings of an index to be added to."""
    return BM25.open(base, hashes=False).settings


def _take_over(folder: Folder, base: Path) -> list[str]:
    """Link the segments and deletions of an index that has been checked."""
    workspace.verify(base)
    index = BM25.open(base, hashes=False)
    for part in ("segments", "deleted"):
        if (base / part).is_dir():
            link_tree(base / part, folder.path / part)
    return [segment.path.name for segment in index.segments]


def _mark_deleted(path: Path, names: Sequence[str], old: int, delete: Iterable[str]) -> list[str]:
    """Write which passages of the `old` first segments are gone: those named, and those that came again."""
    segments = list(open_segments(path, names))
    _refuse_duplicates(segments[old:])
    wanted = set(delete)
    missing = set(wanted)
    for segment in segments[:old]:
        named = {id: segment.ids.find(id) for id in wanted}
        missing -= {id for id, number in named.items() if number is not None}
        gone = {number for number in named.values() if number is not None}
        gone.update(*(_shared(segment, new) for new in segments[old:]), segment.deleted.tolist())
        if len(gone) > len(segment.deleted):
            _write_deleted(path, segment.path.name, gone)
    return sorted(missing)


def _refuse_duplicates(segments: Sequence[Segment]) -> None:
    for place, segment in enumerate(segments):
        for later in segments[place + 1 :]:
            if shared := _shared(segment, later):
                raise DataError(
                    f"the id {segment.ids[shared[0]]!r} occurs twice",
                    fix="give every passage an id of its own",
                )


def _shared(segment: Segment, later: Segment) -> list[int]:
    """Numbers of a segment whose ids a later one has too: found by their hashes, confirmed by the ids."""
    candidates = np.flatnonzero(np.isin(segment.ids.hashes, later.ids.hashes))
    numbers = segment.ids.order[candidates].tolist()
    return [number for number in numbers if later.ids.find(segment.ids[number]) is not None]


def _write_deleted(path: Path, name: str, gone: set[int]) -> None:
    """Write anew, never into a file that the older index may share."""
    target = path / "deleted" / f"{name}.npy"
    target.parent.mkdir(exist_ok=True)
    target.unlink(missing_ok=True)
    npy.save(target, np.array(sorted(gone), np.int64))


def _merge(path: Path, names: Sequence[str]) -> list[str]:
    """One segment in the place of all."""
    name = f"{1 + max(map(int, names)):05d}"
    merge_segments(list(open_segments(path, names)), path / "segments" / name)
    for old in names:
        shutil.rmtree(path / "segments" / old)
    shutil.rmtree(path / "deleted", ignore_errors=True)
    return [name]
