"""`liebig search INDEX... "question"`: what indexes found, in the terminal, with the words that matched marked.

One system gives a list; two (BM25 and dense) stand side by side, each hit with its rank in the other. Times are
those of the search alone, the question's encoding included: models are loaded and code is compiled before.
Everything is plain text where standard output is no terminal.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from liebig.errors import LiebigError, RecipeError
from liebig.lexical.analysis import Analyzer
from liebig.records import Passage
from liebig.search.fold import Folded
from liebig.search.snippets import snippet
from liebig.search.systems import Dense, Found, Lexical, System, open_system
from liebig.search.texts import Texts, ids_alone, texts_of

DEPTH = 100  # how far the rank of a hit in the other system is looked for


def search_here(
    indexes: Sequence[Path],
    question: str,
    *,
    k: int = 5,
    model: str | None = None,
    texts: Path | None = None,
    console: Console | None = None,
) -> None:
    """Ask one index, or two side by side, and print what they find."""
    check_question(question)
    console = console or Console()
    systems = [_folded(open_system(path, model=model)) for path in indexes]
    answers, seconds = [], []
    for system in systems:
        system.ask(question, 1)  # loads the model and compiled code, which is no part of a search
        began = time.perf_counter()
        answers.append(system.ask(question, max(k, DEPTH)))
        seconds.append(time.perf_counter() - began)
    lookup = texts_of(systems, texts)
    analyzer = next((s.index.settings.analyzer for s in systems if isinstance(s, Lexical)), Analyzer())
    table = new_table(question)
    for system, took in zip(systems, seconds):
        table.add_column(f"{system.name} ({took * 1e3:.0f} ms)", ratio=1)
    for place in range(min(k, max(map(len, answers)))):
        cells = [
            _cell(found, place, question, lookup, analyzer, _others(answers, i))
            for i, found in enumerate(answers)
        ]
        table.add_row(*cells)
    if not any(answers):
        console.print(_nothing(question, systems, analyzer), markup=False)
    else:
        console.print(table)
    if any(answers) and lookup is ids_alone:
        console.print("Texts are shown with --texts COLLECTION, or with a BM25 index beside this one.")


def check_question(question: str) -> None:
    """Refuse a question without a word."""
    if not question.strip():
        raise RecipeError("the question is empty", fix='liebig search INDEX "the question"')


def new_table(question: str) -> Table:
    """A table under the question, a column to be added for each system."""
    return Table(show_lines=True, expand=True, title=Text(question), title_justify="left")


def _folded(system: System) -> System:
    """Texts in the place of their pieces, where a text has several vectors."""
    several = isinstance(system, Dense) and system.index.about.get("pieces")
    return Folded(system, "max") if several else system


def _others(answers: Sequence[Found], mine: int) -> dict[str, int] | None:
    """Ranks of the other system, where there are two."""
    if len(answers) != 2:
        return None
    return {id: rank for rank, (id, _) in enumerate(answers[1 - mine], 1)}


def _cell(
    found: Found, place: int, question: str, lookup: Texts, analyzer: Analyzer, others: dict[str, int] | None
) -> Text:
    if place >= len(found):
        return Text("")
    id, score = found[place]
    try:
        passage = lookup(id)
    except LiebigError:
        return Text(f"{place + 1}. ", style="bold").append(id)
    rank = "" if others is None else f", other {others[id]}" if id in others else f", other > {DEPTH}"
    return hit(place + 1, replace(passage, id=id), score, rank, question, analyzer)


def hit(rank: int, passage: Passage, score: float, note: str, question: str, analyzer: Analyzer) -> Text:
    """A passage as it is shown: its title, where it stands, and its text with the question's words marked."""
    cell = Text(f"{rank}. ", style="bold")
    cell.append(passage.title or passage.id, style="bold")
    cell.append(f"  {score:.3f}  {passage.id}{note}\n", style="dim")
    for piece in snippet(passage.text, question, analyzer):
        cell.append(piece.text, style="bold yellow" if piece.marked else "")
    return cell


def _nothing(question: str, systems: Sequence[System], analyzer: Analyzer) -> str:
    terms = analyzer.terms(question)
    if not any(isinstance(system, Lexical) for system in systems):
        return "Nothing was found: the index is empty."
    if not terms:
        return "Nothing was found: the question has no words but stop words."
    return f"Nothing was found for the terms {', '.join(terms)} in {', '.join(system.name for system in systems)}."
