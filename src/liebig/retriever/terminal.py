"""`liebig search FOLDER "question"`: what a retriever answers, in the terminal, by the system that its build chose.

The same search as `Retriever.search`; each hit says where BM25 and the vectors had it, where both were asked.
"""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console

from liebig.lexical.analysis import Analyzer
from liebig.records import Passage
from liebig.retriever.retriever import DEPTH, Result, Retriever
from liebig.search.terminal import check_question, hit, new_table


def search_retriever(
    folder: Path, question: str, *, k: int = 5, system: str | None = None, console: Console | None = None
) -> None:
    """Ask a retriever's folder and print what it answers."""
    check_question(question)
    retriever = Retriever.from_folder(folder)
    retriever.search(question, 1, system)  # loads the model and compiled code, which is no part of a search
    began = time.perf_counter()
    results = retriever.search(question, k, system)
    took = time.perf_counter() - began
    console = console or Console()
    if not results:
        console.print("Nothing was found.")
        return
    bm25 = retriever.opened.bm25
    analyzer = bm25.settings.analyzer if bm25 is not None else Analyzer()
    table = new_table(question)
    table.add_column(f"{system or retriever.system} ({took * 1e3:.0f} ms)", ratio=1)
    for result in results:
        passage = Passage(result.id, result.text, result.title, result.doc)
        table.add_row(hit(result.rank, passage, result.score, _ranks(result), question, analyzer))
    console.print(table)


def _ranks(result: Result) -> str:
    """Where each part of a hybrid had it."""
    if len(result.ranks) < 2:
        return ""
    return "".join(
        f", {name} {rank}" if rank is not None else f", {name} > {DEPTH}"
        for name, rank in result.ranks.items()
    )
