"""From passages to documents: several hits of one document become one.

| how   | score of a document                          |
| ----- | -------------------------------------------- |
| max   | of its best passage (MaxP)                   |
| first | of its first passage, if that was found (FirstP) |
| mean  | mean over its passages that were found       |

Passages are folded by the document they name, or, for vectors of long texts, by what stands before `#` in their
ids. The order of equal scores is that of the hits. Cost: one pass, and one look-up of all passages that were found.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from liebig.errors import DataError
from liebig.records import Query
from liebig.search.systems import Found, System

How = Literal["max", "first", "mean"]
Owners = Callable[[Iterable[str]], Mapping[str, str]]  # from passages, all at once, to their documents
PIECE = "#"
PLACES = re.compile(r"(?:[#-]\d+)*")  # behind a document's id: of pieces, of passages, of pieces of passages
MOST = 64  # how many times more passages than documents are looked for at the most


def document_of(id: str) -> str:
    """What stands before the last `#`; the id itself where there is none."""
    return id.rpartition(PIECE)[0] or id


def by_name(ids: Iterable[str]) -> dict[str, str]:
    """The documents that pieces are named after."""
    return {id: document_of(id) for id in ids}


def is_first(id: str, document: str) -> bool:
    """Whether a passage is the first of its document, by the numbers it has behind its id: d#0, d-0, d-0#0."""
    place = id.removeprefix(document)
    if PLACES.fullmatch(place) is None:
        raise DataError(
            f"the id {id!r} does not say which passage of {document!r} it is", fix="fold=max, or fold=mean"
        )
    return not place.strip("#-0")


def fold(hits: Found, k: int, how: How = "max", owner: Callable[[str], str] = document_of) -> Found:
    """The k best documents of the passages found."""
    scores: dict[str, list[float]] = {}
    for id, score in hits:
        document = owner(id)
        if how != "first" or is_first(id, document):
            scores.setdefault(document, []).append(score)
    combine: Callable[[Sequence[float]], float] = _mean if how == "mean" else max
    folded = [(document, combine(of_document)) for document, of_document in scores.items()]
    return sorted(folded, key=lambda pair: -pair[1])[:k]


def _mean(scores: Sequence[float]) -> float:
    return sum(scores) / len(scores)


class Folded(System):
    """A system whose passages are folded to documents; more are looked for until there are k documents."""

    def __init__(self, system: System, how: How = "max", owners: Owners = by_name) -> None:
        self.name, self._system, self._how, self._owners = system.name, system, how, owners

    def search(self, queries: Sequence[Query], k: int) -> list[Found]:
        found: list[Found] = [[] for _ in queries]
        rest, times = list(range(len(queries))), 4
        while rest:
            hits = self._system.search([queries[i] for i in rest], k * times)
            owners = self._owners({id for of_query in hits for id, _ in of_query})
            for i, of_query in zip(rest, hits):
                found[i] = fold(of_query, k, self._how, owners.__getitem__)
            more = [i for i, of_query in zip(rest, hits) if len(found[i]) < k and len(of_query) == k * times]
            rest, times = (more, times * 4) if times < MOST else ([], times)
        return found
