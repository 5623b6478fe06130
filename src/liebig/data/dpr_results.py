"""DPR's results with texts, and Pyserini's: one JSON file of questions and the contexts found for them.

DPR: an array of {"question", "answers", "ctxs": [{"id", "title", "text", "score", "has_answer"}]}, scores being
strings; Pyserini: {id: {"question", "answers", "contexts": [{"docid", "score", …}]}}. Both are read, DPR's is
written. An id prefix such as `wiki:` is taken off when told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from liebig.data import json_input
from liebig.data.containers import container_of
from liebig.data.dpr import question_prefix
from liebig.data.fields import as_id, as_list, as_row, as_score, as_text, as_texts, field
from liebig.data.items import Item, Options, Where
from liebig.data.sources import Source
from liebig.data.trec import by_query, digits
from liebig.records import Hit, Passage, Query


def read_results(source: Source, options: Options) -> Iterator[Item]:
    """For every question: itself, then its hits in the order of the file."""
    prefix = question_prefix(source)
    for count, (where, key, value) in enumerate(_entries(source)):
        row = as_row(value, where, "an element")
        given = key or row.get("query_id", row.get("id", row.get("qid")))
        name = f"{prefix}-{count}" if given in (None, "") else as_id(given, where)
        text = as_text(field(row, ("question",), where), where, "question")
        yield Item(Query(name, text, as_texts(row.get("answers"), where, "answers")), where)
        found = as_list(field(row, ("ctxs", "contexts"), where), where, "ctxs")
        for rank, entry in enumerate(found, 1):
            yield Item(_hit(name, entry, rank, where, options.id_prefix), where)


def _entries(source: Source) -> Iterator[tuple[Where, str, Any]]:
    if container_of(source) == "json lines":
        return ((where, "", value) for where, value in json_input.json_lines(source))
    return json_input.elements(source)


def _hit(query: str, entry: Any, rank: int, where: Where, prefix: str) -> Hit:
    row = as_row(entry, where, "a context")
    name = as_id(field(row, ("id", "docid", "passage_id", "psg_id"), where), where)
    return Hit(query, name.removeprefix(prefix) or name, as_score(field(row, ("score",), where), where), rank)


def result_rows(
    hits: Iterable[Hit],
    query: Callable[[str], Query],
    passage: Callable[[str], Passage],
    has_answer: Callable[[Query, Passage], bool],
    prefix: str = "",
) -> Iterator[dict[str, Any]]:
    """The elements of DPR's results, queries in the order of the hits."""
    for group in by_query(hits):
        asked = query(group[0].query)
        contexts = []
        for hit in group:
            found = passage(hit.passage)
            row = {
                "id": prefix + found.id,
                "title": found.title,
                "text": found.text,
                "score": digits(hit.score),
            }
            contexts.append(row | {"has_answer": has_answer(asked, found)})
        yield {"query_id": asked.id, "question": asked.text, "answers": list(asked.answers), "ctxs": contexts}
