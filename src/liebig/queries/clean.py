"""Generated queries made fit for use: empty ones and repetitions of one passage are left out, and counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from liebig.queries.rouge import words


def clean(queries: Sequence[str], counts: Counter[str], *, duplicates: bool = False) -> list[tuple[int, str]]:
    """The queries that hold a word, each once, with their places; in case and punctuation only, two do not differ."""
    kept: dict[tuple[str, ...] | int, tuple[int, str]] = {}
    for number, query in enumerate(queries):
        text = " ".join(query.split())
        alike = tuple(words(text))
        if not alike:
            counts["empty"] += 1
        elif not duplicates and alike in kept:
            counts["duplicates"] += 1
        else:
            kept[number if duplicates else alike] = number, text
    counts["queries"] += len(kept)
    return list(kept.values())
