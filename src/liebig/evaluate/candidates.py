"""The ABS paper's development protocol: one positive and 99 others of a query's first 1,000 hits, ranked by RR@100.

The others are drawn from a run by a function of the seed and the query's place, judged passages left out. A query
without a positive, or with fewer hits than asked for, keeps what it has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from liebig.measures.judgements import Judgements
from liebig.records import Group
from liebig.rng import key, permute


def draw_groups(
    ranked: Mapping[str, Sequence[str]], judgements: Judgements, *, count: int, seed: int
) -> Iterator[Group]:
    """One group a judged query that has a positive: the first positive, and `count` others."""
    for place, query in enumerate(judgements.queries):
        grades = judgements.grades(query)
        positives = sorted(passage for passage, grade in grades.items() if grade > 0)
        others = [passage for passage in ranked.get(query, ()) if passage not in grades]
        if positives:
            order = permute(np.arange(len(others)), max(len(others), 1), key(seed, place)) if others else []
            yield Group(query, (positives[0],), tuple(others[i] for i in list(order)[:count]))
