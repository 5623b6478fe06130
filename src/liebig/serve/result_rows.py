"""Search results as JSON: rows, snippets with matching words marked, two systems side by side, whole documents.

Pure functions from results to plain values. The routes run the slower ones in threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from liebig.base.records import Document, Passage
from liebig.search.explain import WORD, locate, snippet
from liebig.search.retriever import Result, Retriever, by_document
from liebig.serve.engine import Word, analyzer_of

SHOWN = 260  # characters in a snippet
NAMES = {"bm25": "BM25", "dense": "Dense", "hybrid": "Hybrid", "reranked": "Reranked"}


def row(result: Result) -> dict[str, Any]:
    """A result as JSON."""
    return {
        "id": result.id,
        "rank": result.rank,
        "score": result.score,
        "title": result.title,
        "text": result.text,
        "doc": result.doc,
        "metadata": dict(result.metadata),
        "ranks": dict(result.ranks),
    }


def document_rows(results: Sequence[Result], rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of results under their documents."""
    by_id = {item["id"]: item for item in rows}
    return [
        {
            "doc": document.doc,
            "title": document.title,
            "metadata": dict(document.metadata),
            "results": [by_id[result.id] for result in document.results],
        }
        for document in by_document(results)
    ]


def with_snippets(retriever: Retriever, question: str, results: Sequence[Result]) -> list[dict[str, Any]]:
    """Results with a snippet of the text around the question's words, which are marked."""
    analyzer = analyzer_of(retriever)
    rows = []
    for result in results:
        pieces = snippet(result.text, question, analyzer, _window(result.text))
        title = snippet(result.title, question, analyzer, len(result.title))
        marked = {"snippet": [asdict(p) for p in pieces], "title_marks": [asdict(p) for p in title]}
        rows.append(row(result) | marked)
    return rows


def _window(text: str) -> int:
    """How many words make about SHOWN characters; more in code, where symbols count as words."""
    words = sum(1 for _ in WORD.finditer(text))
    return max(8, round(SHOWN * words / max(len(text), 1)))


def side_by_side(
    retriever: Retriever, question: str, systems: Sequence[str], found: Sequence[Sequence[Result]], k: int
) -> list[dict[str, Any]]:
    """One list per system; each result has its rank in the other, None if it is not there."""
    ranks = [{result.id: result.rank for result in results} for results in found]
    lists = []
    for place, (system, results) in enumerate(zip(systems, found)):
        rows = with_snippets(retriever, question, results[:k])
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
        return "BM25 ignores stop words and very short words, and the question has no others. Add a more specific word."
    if system == "bm25" and not known:
        names = ", ".join(f"“{word.text}”" for word in terms)
        advice = "Check the spelling, or try the dense system, which needs no shared words."
        return f"No passage contains the {'words' if len(terms) > 1 else 'word'} {names}. {advice}"
    return f"{NAMES[system]} found no passage."


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
