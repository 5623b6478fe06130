"""Several segments into one, without reading the passages again; what was deleted is left out.

Terms are merged in order, postings copied term by term behind each other: numbers only go up, so the result is what
indexing the remaining passages would have given. Memory: the terms, and one number per passage; postings are mapped.
"""

from __future__ import annotations

import heapq
import shutil
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liebig.data import npy
from liebig.data.ids import all_strings, index_ids, read_strings, write_strings
from liebig.lexical.kernels import Longs, copy_postings, count_live
from liebig.lexical.segment import Segment


def merge_segments(segments: Sequence[Segment], path: Path) -> None:
    """Write one segment that holds what the given ones hold."""
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
    """The number each passage gets; -1 where it is deleted."""
    numbers, start = [], 0
    for segment in segments:
        count = np.cumsum(segment.live)
        numbers.append(np.where(segment.live, start + count - 1, -1))
        start += int(count[-1]) if len(count) else 0
    return numbers


def _merge_terms(segments: Sequence[Segment], path: Path) -> list[Longs]:
    """Write all terms in order; gives the new number of each term of each segment."""
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
    for local, term in enumerate(all_strings(read_strings(segment.path, "terms"))):
        yield term.encode("utf-8", "surrogatepass"), place, local


def _write_starts(
    segments: Sequence[Segment], renumber: Sequence[Longs], targets: Sequence[Longs], path: Path
) -> Longs:
    terms = max((int(target[-1]) + 1 for target in targets if len(target)), default=0)
    counts = np.zeros(terms, np.int64)
    for segment, numbers, target in zip(segments, renumber, targets):
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
    """A file to write into; an empty one cannot be mapped."""
    if size == 0:
        npy.save(path, np.zeros(0, kind))
        return np.zeros(0, kind)
    return np.asarray(np.lib.format.open_memmap(path, "w+", kind, (size,)))


def _live(segments: Sequence[Segment], strings: Sequence[Any]) -> Iterator[str]:
    for segment, row in zip(segments, strings):
        for number in np.flatnonzero(segment.live).tolist():
            yield row[number]


def link_tree(source: Path, target: Path) -> None:
    """The same files under another folder, without a copy where the file system allows it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(source, target, copy_function=_link)


def _link(source: str, target: str) -> None:
    try:
        Path(target).hardlink_to(source)
    except OSError:
        shutil.copy2(source, target)
