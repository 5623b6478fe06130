"""Search results as JSON: rows, snippets with matching words marked, two systems side by side, whole documents.

Pure functions from results to plain values. The routes run the slower ones in threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from liebig.base.records import Document, Passage
from liebig.search.answer import Result, by_document
from liebig.search.explain import WORD, locate, snippet
from liebig.serve.engine import ServingEngine, Word, analyzer_of

SHOWN = 260  # characters in a snippet


def document_rows(results: Sequence[Result], rows: Sequence[Any]) -> list[dict[str, Any]]:
    by_id = {result.id: row for result, row in zip(results, rows)}
    return [
        {
            "doc": document.doc,
            "title": document.title,
            "metadata": dict(document.metadata),
            "results": [by_id[result.id] for result in document.results],
        }
        for document in by_document(results)
    ]


def with_snippets(engine: ServingEngine, question: str, results: Sequence[Result]) -> list[dict[str, Any]]:
    """Results with a snippet around the question's words, which are marked, and where the original file opens."""
    analyzer = analyzer_of(engine.retriever.current.terms)
    rows = []
    for result in results:
        pieces = snippet(result.text, question, analyzer, _window(result.text))
        title = snippet(result.title, question, analyzer, len(result.title))
        marked = {"snippet": [asdict(p) for p in pieces], "title_marks": [asdict(p) for p in title]}
        passage = Passage(result.id, result.text, result.title, result.doc)
        rows.append(
            asdict(result) | marked | {"original": engine.originals.address(passage, result.metadata)}
        )
    return rows


def _window(text: str) -> int:
    """How many words make about SHOWN characters; more in code, where symbols count as words."""
    words = sum(1 for _ in WORD.finditer(text))
    return max(8, round(SHOWN * words / max(len(text), 1)))


def side_by_side(
    engine: ServingEngine, question: str, systems: Sequence[str], rankings: Sequence[Sequence[Result]], k: int
) -> list[dict[str, Any]]:
    """One list per system; each result has its rank in the other, None if it is not there."""
    ranks = [{result.id: result.rank for result in results} for results in rankings]
    lists = []
    for place, (system, results) in enumerate(zip(systems, rankings)):
        rows = with_snippets(engine, question, results[:k])
        for item in rows:
            item["other"] = ranks[1 - place].get(item["id"]) if len(systems) == 2 else None
        lists.append({"system": system, "found": len(results), "results": rows})
    return lists


def why_nothing(system: str, words: Sequence[Word], filtered: bool) -> str:
    """Explain an empty list in one or two sentences."""
    if filtered:
        return "No matching passage passes the filters. Remove a filter to see more."
    known = [word.text for word in words if word.passages]
    terms = [word for word in words if word.term]
    if system == "bm25" and not terms:
        return "The question has only words that are too common or too short to search by. Add a more specific word."
    if system == "bm25" and not known:
        names = ", ".join(f"“{word.text}”" for word in terms)
        advice = "Check the spelling, or search by meaning (dense), which needs no shared words."
        return f"No passage contains the {'words' if len(terms) > 1 else 'word'} {names}. {advice}"
    return "No passage was found."


def document_view(document: Document | None, passage: Passage) -> dict[str, Any]:
    """A document with a passage marked in it; the passage alone if it has no document."""
    if document is None:
        return {
            "id": passage.doc or passage.id,
            "title": passage.title,
            "metadata": {},
            "sections": [{"heading": "", "paragraphs": [passage.text]}],
            "marks": [{"section": 0, "paragraph": 0, "start": 0, "end": len(passage.text)}],
        }
    places = [(s, p) for s, section in enumerate(document.sections) for p in range(len(section.paragraphs))]
    flat = [document.sections[s].paragraphs[p] for s, p in places]
    marks = [
        {
            "section": places[m.paragraph][0],
            "paragraph": places[m.paragraph][1],
            "start": m.start,
            "end": m.end,
        }
        for m in locate(passage.text, flat)
    ]
    return {
        "id": document.id,
        "title": document.title,
        "metadata": dict(document.metadata),
        "sections": [{"heading": s.heading, "paragraphs": list(s.paragraphs)} for s in document.sections],
        "marks": marks,
    }
