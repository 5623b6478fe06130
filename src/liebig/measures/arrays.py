"""The arrays the compiled kernels share, bundled under names: hits of a block, judgements of a collection, measures.

They are named tuples because numba takes those as they are; the classes people use wrap them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Longs = NDArray[np.int64]
Grades = NDArray[np.int32]


class Hits(NamedTuple):
    """Hits `segments[s]:segments[s + 1]` belong to query s; the id of hit i is `data[starts[i]:ends[i]]`."""

    segments: Longs
    data: Bytes
    starts: Longs
    ends: Longs
    scores: NDArray[np.float32]
    ranks: NDArray[np.int32]


class Table(NamedTuple):
    """Judgements `first[q]:first[q + 1]` belong to query q, sorted by hash; `pool` holds its grades, descending."""

    first: Longs
    data: Bytes
    starts: Longs
    ends: Longs
    hashes: NDArray[np.uint64]
    grades: Grades
    pool: Grades


class Specs(NamedTuple):
    """The measures; a cut of 0 is no cut, `given` says that the rank written in the run counts."""

    codes: Longs
    cuts: Longs
    rels: Longs
    given: NDArray[np.bool_]


class Found(NamedTuple):
    """The judged hits of one query, best first: place by score, rank written in the run, grade."""

    places: Longs
    written: Longs
    grades: Grades
