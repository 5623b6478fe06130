"""Hits of several queries as flat arrays: what the measures read, whatever the run came from.

A block holds whole queries. Ids are ranges of one byte array, so a block cut out of a run file shares the file's
bytes, and a block from a matrix of passage numbers shares the packed ids of the collection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from liebig.errors import DataError
from liebig.measures.arrays import Hits, Longs
from liebig.measures.strings import pack, unpack


@dataclass(frozen=True, eq=False, slots=True)
class Block:
    """Whole queries and their hits; the ranks are those written in the run, from 1."""

    queries: tuple[bytes, ...]
    hits: Hits

    def passages(self, query: int) -> list[str]:
        """The ids found for the block's query, in the order of the run."""
        hits = self.hits
        rows = range(int(hits.segments[query]), int(hits.segments[query + 1]))
        return [unpack(hits.data, int(hits.starts[i]), int(hits.ends[i])) for i in rows]


def from_mapping(run: Mapping[str, Mapping[str, float]]) -> Block:
    """A run as {query: {passage: score}}; the given rank is the place in the mapping."""
    segments = _segments([len(hits) for hits in run.values()])
    data, offsets = pack(passage for hits in run.values() for passage in hits)
    scores = np.fromiter((score for hits in run.values() for score in hits.values()), dtype=np.float64)
    hits = Hits(segments, data, offsets[:-1], offsets[1:], as_float32(scores), _places(segments))
    return Block(tuple(query.encode() for query in run), hits)


def from_matrix(
    queries: Sequence[str],
    ids: Sequence[str],
    passages_QK: NDArray[np.integer],
    scores_QK: NDArray[np.floating],
) -> Block:
    """A run as the output of a top-k search: numbers of passages (negative: no hit) and scores, best first."""
    data, offsets = pack(ids)
    kept = passages_QK >= 0
    segments = _segments(kept.sum(axis=1))
    numbers = passages_QK[kept]
    scores = as_float32(scores_QK[kept])
    hits = Hits(segments, data, offsets[numbers], offsets[numbers + 1], scores, _places(segments))
    return Block(tuple(query.encode() for query in queries), hits)


def regroup(blocks: Sequence[Block]) -> Block:
    """One block in which the hits of a query lie together, from blocks in which they may not; order is kept."""
    order = {
        query: i
        for i, query in enumerate(dict.fromkeys(query for block in blocks for query in block.queries))
    }
    owner = np.concatenate(
        [
            np.repeat([order[query] for query in block.queries], np.diff(block.hits.segments))
            for block in blocks
        ]
    )
    shift = np.cumsum([0] + [block.hits.data.size for block in blocks])
    rows = np.argsort(owner, kind="stable")
    data = np.concatenate([block.hits.data for block in blocks])
    data.setflags(write=False)
    hits = Hits(
        segments=_segments(np.bincount(owner, minlength=len(order))),
        data=data,
        starts=np.concatenate([block.hits.starts + at for block, at in zip(blocks, shift)])[rows],
        ends=np.concatenate([block.hits.ends + at for block, at in zip(blocks, shift)])[rows],
        scores=np.concatenate([block.hits.scores for block in blocks])[rows],
        ranks=np.concatenate([block.hits.ranks for block in blocks])[rows],
    )
    return Block(tuple(order), hits)


def as_float32(scores: NDArray[np.floating]) -> NDArray[np.float32]:
    """Scores as trec_eval holds them; what is too large for float32 becomes infinite there too."""
    if np.isnan(scores).any():
        raise DataError("a score of the run is not a number", fix="score every passage with a finite number")
    with np.errstate(over="ignore"):
        return scores.astype(np.float32)


def _segments(counts: Sequence[int] | NDArray[np.integer]) -> Longs:
    segments = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=segments[1:])
    return segments


def _places(segments: Longs) -> NDArray[np.int32]:
    places = np.arange(1, segments[-1] + 1) - np.repeat(segments[:-1], np.diff(segments))
    return places.astype(np.int32)
