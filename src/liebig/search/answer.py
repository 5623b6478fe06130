"""What a generation answers to a query: results, what was not understood, a suggestion, counts for filters.

A query is parsed (`query_language`); its conditions and the filters of the request become the passages that may be
given (`matching`, `filters`); a system ranks those (`systems`). Queries without conditions are asked together, so that
their vectors are made in one batch. A query of conditions alone lists the first passage of every document that meets
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from liebig.base.errors import RecipeError
from liebig.base.records import UNITS, Query
from liebig.search.filters import Facets, Filters, dated
from liebig.search.generation import Generation
from liebig.search.query_language import ParsedQuery, parse
from liebig.search.retriever_folder import SystemName
from liebig.search.systems import Answer

Sort = Literal["best", "newest"]
NEWEST_OF = 100  # best passages that "newest" puts in the order of their dates
NEWEST_EACH = 3  # best passages of a document there: one long log leaves room for older documents
WORDS_DECIDE = 0.75  # weight of BM25 in the hybrid that a folder serves
NOTHING_FITS = "Nothing here seems to fit the question."


@dataclass(frozen=True, slots=True)
class Result:
    """A passage found. `ranks` says where each system asked had it; None where it was not among its best."""

    id: str
    score: float
    rank: int
    title: str
    text: str
    doc: str
    metadata: Mapping[str, str] = field(default_factory=dict, hash=False)
    ranks: Mapping[str, int | None] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class DocumentResults:
    """The results of one document, best first."""

    doc: str
    title: str
    metadata: Mapping[str, str] = field(hash=False)
    results: tuple[Result, ...]


def by_document(results: Iterable[Result]) -> list[DocumentResults]:
    """Results under the document each is from; documents in the order of their best passages.

    A passage that names no document stands for itself.
    """
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(result.doc or result.id, []).append(result)
    return [
        DocumentResults(
            doc,
            group[0].title,
            {name: value for name, value in group[0].metadata.items() if name not in UNITS},
            tuple(group),
        )
        for doc, group in groups.items()
    ]


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """The answer to one query: its results by each system asked, and what else there is to say."""

    generation: int
    lists: tuple[list[Result], ...]
    notes: tuple[str, ...] = ()
    suggestion: str | None = None
    facets: Facets = field(default_factory=dict, hash=False)

    @property
    def results(self) -> list[Result]:
        """Those of the first system."""
        return self.lists[0]


@dataclass(frozen=True)
class SearchOptions:
    """How queries are answered, beside their text."""

    k: int = 10
    systems: tuple[str | None, ...] = (None,)
    filters: Filters | None = None
    sort: Sort = "best"
    facets: tuple[str, ...] = ()  # fields whose values are counted
    floor: bool = True  # leave out an answer that fits nothing
    suggest: bool = True

    def __post_init__(self) -> None:
        if self.k < 1:
            raise RecipeError(f"k must be at least 1, got {self.k}")
        if self.sort not in ("best", "newest"):
            raise RecipeError(f"sort = {self.sort!r} is not an order", fix="use best or newest")


def answers(generation: Generation, texts: Sequence[str], options: SearchOptions) -> list[SearchAnswer]:
    names = [generation.name_of(system) for system in options.systems]
    queries = [parse(text) for text in texts]
    made: dict[int, SearchAnswer] = {}
    plain = [place for place, query in enumerate(queries) if not query.restricts]
    passing = generation.passing(options.filters) if options.filters and plain else None
    for places, some in ((plain, passing), *(([i], None) for i, q in enumerate(queries) if q.restricts)):
        if places:
            asked = [queries[place] for place in places]
            made.update(zip(places, _together(generation, asked, names, options, some)))
    return [made[place] for place in range(len(texts))]


def _together(
    generation: Generation,
    queries: Sequence[ParsedQuery],
    names: Sequence[SystemName],
    options: SearchOptions,
    passing: Any,
) -> list[SearchAnswer]:
    """Answers to queries without conditions, or to a single one with conditions."""
    first, notes = queries[0], [list(query.notes) for query in queries]
    texts = [query.text for query in queries]
    if first.restricts:
        passing, said = generation.conditions(first, options.filters)
        prefixes = [word.text for word in first.words if word.kind == "prefix" and not word.excluded]
        texts = [" ".join([first.text, *(t for p in prefixes for t in generation.expanded(p))])]
        notes[0] += said
    if first.restricts and not texts[0].strip():
        assert passing is not None, "its conditions were evaluated"
        lists = [
            with_texts(
                generation, Answer([generation.listed(passing, options.k, options.sort == "newest")], {})
            )
        ] * len(names)
    else:
        table = generation.systems(passing)
        depth = min(max(options.k, NEWEST_OF if options.sort == "newest" else 1), generation.total)
        asked = [Query(str(place), text) for place, text in enumerate(texts)]
        ranked = [table[name].answer(asked, depth) for name in names]
        judged = [answer for answer in ranked if "dense" in answer.parts]
        if options.floor and passing is None and judged:
            nearest = [hits[0][1] if hits else -np.inf for hits in judged[0].parts["dense"]]
            for place, (text, best) in enumerate(zip(texts, nearest)):
                if not generation.floor.fits(text, best):
                    # In languages that the encoder cannot tell from nonsense words have the say, here too.
                    words = generation.description.weight >= WORDS_DECIDE
                    unfit = [
                        one for one in judged if not (words and one.parts.get("bm25", {place: ()})[place])
                    ]
                    notes[place] += [NOTHING_FITS] * bool(unfit)
                    for answer in unfit:
                        answer.hits[place] = []
        lists = [with_texts(generation, answer) for answer in ranked]
    return [
        SearchAnswer(
            generation.description.generation,
            tuple(_ordered(part[place], options) for part in lists),
            tuple(notes[place]),
            generation.suggestion(query) if options.suggest else None,
            generation.facets(query, options.facets, options.filters),
        )
        for place, query in enumerate(queries)
    ]


def _ordered(results: list[Result], options: SearchOptions) -> list[Result]:
    if options.sort == "newest":
        groups: dict[str, list[Result]] = {}
        for result in results:
            groups.setdefault(result.doc or result.id, []).append(result)
        results = [result for group in groups.values() for result in group[:NEWEST_EACH]]
        results.sort(key=lambda result: -dated(result.metadata)[0])
        results = [replace(result, rank=rank) for rank, result in enumerate(results, 1)]
    return results[: options.k]


def with_texts(generation: Generation, answer: Answer) -> list[list[Result]]:
    """The hits of every question with what the collection knows of them, and their ranks in each part."""
    generation.look_up(id for hits in answer.hits for id, _ in hits)
    ranks = {
        name: [{id: rank for rank, (id, _) in enumerate(hits, 1)} for hits in lists]
        for name, lists in answer.parts.items()
    }
    return [
        [
            _result(generation, id, score, rank, {name: by[q].get(id) for name, by in ranks.items()})
            for rank, (id, score) in enumerate(hits, 1)
        ]
        for q, hits in enumerate(answer.hits)
    ]


def _result(
    generation: Generation, id: str, score: float, rank: int, ranks: Mapping[str, int | None]
) -> Result:
    passage = generation.passage(id)
    metadata = generation.metadata(passage)
    return Result(passage.id, score, rank, passage.title, passage.text, passage.doc, metadata, ranks)
