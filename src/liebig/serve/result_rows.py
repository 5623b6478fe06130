"""What a search answers: rows of results, the words that matched marked, ranks in the other system, and why nothing.

Everything here is plain values made from results; it runs beside the event loop where it costs more than a moment.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from difflib import SequenceMatcher
from typing import Any

from liebig.base.records import Document, Passage
from liebig.search.explain import WORD, snippet
from liebig.search.retriever import Result, Retriever
from liebig.serve.engine import Word, analyzer_of

# Where a passage stands in its document: character ranges of the paragraphs it was cut from.
#
# A passage is whole sentences with single spaces between them, perhaps with a heading before, so words are
# compared, not characters: first the whole passage, else the longest run of its words. Cost: one pass over
# the document's words.

MARK_WORD = re.compile(r"\S+")
FEWEST = 3  # words of a run that counts as found


@dataclass(frozen=True)
class Mark:
    """Characters of a paragraph."""

    paragraph: int
    start: int
    end: int


def locate(passage: str, paragraphs: Sequence[str]) -> list[Mark]:
    """The parts of paragraphs that a passage covers; none where it is not found."""
    places = [
        (m.group(), p, m.start(), m.end())
        for p, text in enumerate(paragraphs)
        for m in MARK_WORD.finditer(text)
    ]
    first, count = _find(passage.split(), [word for word, *_ in places])
    marks: dict[int, Mark] = {}
    for _, paragraph, start, end in places[first : first + count]:
        begin = marks[paragraph].start if paragraph in marks else start
        marks[paragraph] = Mark(paragraph, begin, end)
    return list(marks.values())


def _find(wanted: list[str], words: list[str]) -> tuple[int, int]:
    """First word and number of words of the passage, or of its longest run."""
    if not wanted:
        return 0, 0
    text, needle = f" {' '.join(words)} ", f" {' '.join(wanted)} "
    at = text.find(needle)
    if at >= 0:
        return text.count(" ", 0, at + 1) - 1, len(wanted)
    run = SequenceMatcher(None, wanted, words, autojunk=False).find_longest_match()
    return (run.b, run.size) if run.size >= min(FEWEST, len(wanted)) else (0, 0)


SHOWN = 260  # characters of a snippet
NAMES = {"bm25": "BM25", "dense": "Dense", "hybrid": "Hybrid"}


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


def with_snippets(retriever: Retriever, question: str, results: Sequence[Result]) -> list[dict[str, Any]]:
    """Results with the part of the text that has the question's words, those marked."""
    analyzer = analyzer_of(retriever)
    rows = []
    for result in results:
        pieces = snippet(result.text, question, analyzer, _window(result.text))
        title = snippet(result.title, question, analyzer, len(result.title))
        marked = {"snippet": [asdict(p) for p in pieces], "title_marks": [asdict(p) for p in title]}
        rows.append(row(result) | marked)
    return rows


def _window(text: str) -> int:
    """Words of a snippet of about SHOWN characters: many where the text is code, whose signs are words too."""
    words = sum(1 for _ in WORD.finditer(text))
    return max(8, round(SHOWN * words / max(len(text), 1)))


def side_by_side(
    retriever: Retriever, question: str, systems: Sequence[str], found: Sequence[Sequence[Result]], k: int
) -> list[dict[str, Any]]:
    """A list for each system; each result with its rank in the other, None where that did not find it."""
    ranks = [{result.id: result.rank for result in results} for results in found]
    lists = []
    for place, (system, results) in enumerate(zip(systems, found)):
        rows = with_snippets(retriever, question, results[:k])
        for item in rows:
            item["other"] = ranks[1 - place].get(item["id"]) if len(systems) == 2 else None
        lists.append({"system": system, "found": len(results), "results": rows})
    return lists


def why_nothing(system: str, words: Sequence[Word], filtered: bool) -> str:
    """One or two sentences for a person."""
    if filtered:
        return "No passage passes the filters and matches. Take a filter away to see more."
    known = [word.text for word in words if word.passages]
    terms = [word for word in words if word.term]
    if system == "bm25" and not terms:
        return "BM25 looks for words, and these are all stop words, or too short. Add a word that names the thing."
    if system == "bm25" and not known:
        names = ", ".join(f"“{word.text}”" for word in terms)
        advice = "Check the spelling, or ask the dense system, which needs no shared word."
        return f"No passage has the {'words' if len(terms) > 1 else 'word'} {names}. {advice}"
    return f"{NAMES[system]} found no passage."


def document_view(document: Document | None, passage: Passage) -> dict[str, Any]:
    """A whole document with the passage's place in it; the passage alone where there is no document."""
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
