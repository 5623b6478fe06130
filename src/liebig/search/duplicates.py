"""Texts that are the same, or nearly: false negatives that judgements do not know of.

The same: equal letters and digits, whatever the case and the spaces. Nearly: the shorter text shares at least a given
share of its word triples with the other, which also finds a passage cut a little differently. Cost: the words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

WORD = re.compile(r"\w+")
Triples = frozenset[tuple[str, ...]]


def words(text: str) -> list[str]:
    """The words of a text in one case."""
    return WORD.findall(text.casefold())


def triples(found: Sequence[str]) -> Triples:
    """Three words in a row, all of them; of fewer words those there are."""
    if len(found) < 3:
        return frozenset([tuple(found)]) if found else frozenset()
    return frozenset(zip(found, found[1:], found[2:]))


def shared(a: Triples, b: Triples) -> float:
    """The share of the smaller set that is in the other; 0 where one is empty."""
    smaller = min(len(a), len(b))
    return len(a & b) / smaller if smaller else 0.0


def nearly(found: Sequence[str], other: Triples, share: float) -> bool:
    """Whether the triples of these words and the others share so much; most share so few that a count says no."""
    most = sum(map(other.__contains__, zip(found, found[1:], found[2:])))
    least = min(len(set(found)) - 2, len(other))  # every word but the last two begins a triple of its own
    if most < share * least - 1e-9:
        return False
    return shared(triples(found), other) >= share
