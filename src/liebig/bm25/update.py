"""Writing an index folder: a new one, or an older one with passages added and removed.

Segments are never changed. Adding links the old ones into the new folder and writes new segments beside them; removing
writes the numbers of the deleted passages. A passage with an id that is already indexed replaces the old one. Cost of
adding: that of the new passages, plus one read of the old files for their hashes.

More than MOST_SEGMENTS segments are merged into one without reading the passages again: terms are merged in order, and
postings are copied term by term. Numbers only go up, so the result is what indexing the live passages would have given.
Memory of a merge: the terms, and one number per passage; postings are memory-mapped.
"""

from __future__ import annotations

import heapq
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liebig.base import npy, workspace
from liebig.base.errors import DataError
from liebig.base.hashes import link
from liebig.base.records import Passage
from liebig.base.workspace import Folder
from liebig.bm25.analysis import AUTO, analyzed_as
from liebig.bm25.index import SEGMENT_WORDS, Segment, write_segments
from liebig.bm25.kernels import Longs, copy_postings, count_live
from liebig.bm25.search import BM25, FORMAT, SUMMARY, BM25Settings, open_segments
from liebig.collection.lookup import index_ids, read_strings, write_strings

MOST_SEGMENTS = 8  # more are merged into one
BLOCK = 1 << 20  # bytes that are written at once


def write_index(
    folder: Folder,
    passages: Iterable[Passage],
    settings: BM25Settings,
    *,
    texts: bool = True,
    words: int = SEGMENT_WORDS,
    base: Path | None = None,
    delete: Iterable[str] = (),
    compact: bool = False,
) -> list[str]:
    """Write the files of an index; returns the ids to delete that it does not have."""
    for part in ("segments", "deleted"):
        shutil.rmtree(folder.path / part, ignore_errors=True)
    names = _link_base(folder, base) if base is not None else []
    old = len(names)
    first = 1 + max(map(int, names), default=-1)
    languages = set(settings.languages)
    if settings.language == AUTO:
        passages = _note_languages(passages, languages)
    names += write_segments(
        passages, folder.path / "segments", settings.analyzer, settings.weights, first=first, texts=texts, words=words
    )  # fmt: skip
    unknown = _mark_deleted(folder.path, names, old, delete)
    if compact or len(names) > MOST_SEGMENTS:
        names = _merge(folder.path, names)
    settings = replace(settings, languages=tuple(sorted(languages)))
    folder.write_json(SUMMARY, {"format": FORMAT, "settings": asdict(settings), "segments": names})
    return unknown


def _note_languages(passages: Iterable[Passage], languages: set[str]) -> Iterator[Passage]:
    """The passages; those of their languages that are new are added to the set."""
    for item in passages:
        languages.add(analyzed_as(item.language))
        yield item


def settings_of(base: Path) -> BM25Settings:
    return BM25.open(base, hashes=False).settings


def _link_base(folder: Folder, base: Path) -> list[str]:
    """Link the segments and deletions of an index into the folder, after checking them; returns the segments' names."""
    workspace.verify(base)
    index = BM25.open(base, hashes=False)
    for part in ("segments", "deleted"):
        if (base / part).is_dir():
            shutil.copytree(base / part, folder.path / part, copy_function=link)
    return [segment.path.name for segment in index.segments]


def _mark_deleted(path: Path, names: Sequence[str], old: int, delete: Iterable[str]) -> list[str]:
    """Mark passages of the first `old` segments as deleted: those named, and those that were replaced."""
    segments = list(open_segments(path, names))
    _refuse_duplicates(segments[old:])
    ids = set(delete)
    missing = set(ids)
    for segment in segments[:old]:
        named = {id: segment.ids.find(id) for id in ids}
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
    """Numbers of a segment whose ids a later one has too: candidates by hash, confirmed by id."""
    candidates = np.flatnonzero(np.isin(segment.ids.hashes, later.ids.hashes))
    numbers = segment.ids.order[candidates].tolist()
    return [number for number in numbers if later.ids.find(segment.ids[number]) is not None]


def _write_deleted(path: Path, name: str, gone: set[int]) -> None:
    """Write a new file: the old one may be shared with the older index."""
    target = path / "deleted" / f"{name}.npy"
    target.parent.mkdir(exist_ok=True)
    target.unlink(missing_ok=True)
    npy.save(target, np.array(sorted(gone), np.int64))


def _merge(path: Path, names: Sequence[str]) -> list[str]:
    name = f"{1 + max(map(int, names)):05d}"
    merge_segments(list(open_segments(path, names)), path / "segments" / name)
    for old in names:
        shutil.rmtree(path / "segments" / old)
    shutil.rmtree(path / "deleted", ignore_errors=True)
    return [name]


def merge_segments(segments: Sequence[Segment], path: Path) -> None:
    """Write one segment with the live passages of the given ones."""
    path.mkdir(parents=True)
    renumber = _new_numbers(segments)
    targets = _merge_terms(segments, path)
    starts = _write_starts(segments, renumber, targets, path)
    _write_postings(segments, renumber, targets, starts, path)
    npy.save(path / "lengths.npy", np.concatenate([segment.lengths[segment.live] for segment in segments]))
    write_strings(path, "ids", _live(segments, [segment.ids.strings for segment in segments]))
    index_ids(path)
    if all(segment.texts is not None for segment in segments):
        write_strings(path, "titles", _live(segments, [segment.titles for segment in segments]))
        write_strings(path, "texts", _live(segments, [segment.texts for segment in segments]))


def _new_numbers(segments: Sequence[Segment]) -> list[Longs]:
    """The new number of each passage; -1 for deleted ones."""
    numbers, start = [], 0
    for segment in segments:
        count = np.cumsum(segment.live)
        numbers.append(np.where(segment.live, start + count - 1, -1))
        start += int(count[-1]) if len(count) else 0
    return numbers


def _merge_terms(segments: Sequence[Segment], path: Path) -> list[Longs]:
    """Write all terms in order; returns the new number of each term of each segment."""
    targets = [np.empty(len(segment.starts) - 1, np.int64) for segment in segments]
    streams = [_numbered(segment, place) for place, segment in enumerate(segments)]

    def terms() -> Iterator[str]:
        for number, (term, same) in enumerate(groupby(heapq.merge(*streams), key=itemgetter(0))):
            for _, place, local in same:
                targets[place][local] = number
            yield term.decode("utf-8", "surrogatepass")

    write_strings(path, "terms", terms())
    return targets


def _numbered(segment: Segment, place: int) -> Iterator[tuple[bytes, int, int]]:
    for local, term in enumerate(read_strings(segment.path, "terms").to_list()):
        yield term.encode("utf-8", "surrogatepass"), place, local


def _write_starts(
    segments: Sequence[Segment], renumber: Sequence[Longs], targets: Sequence[Longs], path: Path
) -> Longs:
    terms = max((int(target[-1]) + 1 for target in targets if len(target)), default=0)
    counts = np.zeros(terms, np.int64)
    for segment, numbers, target in zip(segments, renumber, targets):
        segment.check()
        counts[target] += count_live(segment.starts, segment.docs, numbers)
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    npy.save(path / "starts.npy", starts)
    return starts


def _write_postings(
    segments: Sequence[Segment],
    renumber: Sequence[Longs],
    targets: Sequence[Longs],
    starts: Longs,
    path: Path,
) -> None:
    kind = max((segment.tf.dtype for segment in segments), key=lambda dtype: dtype.itemsize)
    docs = _map(path / "docs.npy", np.dtype(np.int32), int(starts[-1]))
    tf = _map(path / "tf.npy", kind, int(starts[-1]))
    heads = starts[:-1].copy()
    for segment, numbers, target in zip(segments, renumber, targets):
        copy_postings(segment.starts, segment.docs, segment.tf, numbers, target, heads, docs, tf)


def _map(path: Path, kind: np.dtype[Any], size: int) -> NDArray[Any]:
    """A memory-mapped file to write into; an empty one cannot be mapped."""
    if size == 0:
        npy.save(path, np.zeros(0, kind))
        return np.zeros(0, kind)
    mapped = np.asarray(np.lib.format.open_memmap(path, "w+", kind, (size,)))
    with path.open(
        "r+b"
    ) as file:  # a full disk is an error here; while the map is written it would be a SIGBUS
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
        else:  # macOS and Windows
            file.seek(npy.HEADER)
            for begin in range(0, mapped.nbytes, BLOCK):
                file.write(bytes(min(BLOCK, mapped.nbytes - begin)))
    return mapped


def _live(segments: Sequence[Segment], strings: Sequence[Any]) -> Iterator[str]:
    for segment, row in zip(segments, strings):
        for number in np.flatnonzero(segment.live).tolist():
            yield row[number]
