"""`liebig search`: the answers to a question in the terminal, with the words that matched marked.

A retriever's folder answers with the system its build chose, and each hit says where BM25 and the vectors had it. Times
are those of the search alone, the question's encoding included: models are loaded and code is compiled before.
Everything is plain text where standard output is not a terminal.

The folder is opened once, then asked: one question of the command line, or many, of a prompt or of a pipe.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from liebig.base.errors import RecipeError
from liebig.base.json_output import print_json, printable
from liebig.base.machine import prefer_numpy
from liebig.base.progress import say, visible
from liebig.base.records import UNITS
from liebig.search.query_language import HELP
from liebig.search.retriever_folder import is_small

if TYPE_CHECKING:  # imported where it is used, so that a mistake in the arguments is answered at once
    from rich.console import Console
    from rich.text import Text

    from liebig.bm25.analysis import Analyzer
    from liebig.search.answer import DocumentResults, Result
    from liebig.search.filters import Filters

RANK_DEPTH = 100  # how deep the parts of a hybrid are asked
Ask = Callable[[str], None]  # answers one question, on standard output


def marked(text: str, question: str, analyzer: Analyzer) -> Text:
    """The part of a text that answers, with the question's words marked."""
    from rich.text import Text

    from liebig.search.explain import snippet

    pieces = snippet(text, question, analyzer)
    return Text.assemble(*((visible(piece.text), "bold yellow" if piece.marked else "") for piece in pieces))


def ask_retriever(
    folder: Path,
    *,
    k: int = 5,
    system: str | None = None,
    filters: Filters | None = None,
    group: bool = True,
    reranker: str | None = None,
    json: bool = False,
    console: Console | None = None,
) -> Ask:
    """Open a retriever's folder to be asked questions, as `Retriever.search` answers them."""
    if is_small(folder):
        prefer_numpy()
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from liebig.bm25.analysis import Analyzer
    from liebig.search.answer import NOTHING_FITS, by_document
    from liebig.search.retriever import Retriever

    # Sizes are compared, hashes are not: `liebig doctor` does that, and an answer should not wait for it.
    retriever = Retriever.from_folder(folder, reranker=reranker, verify=False, light=True)
    system = retriever.current.name_of(system, reranker)
    console = console or Console()
    terms = retriever.current.terms
    analyzer = terms.settings.analyzer if terms is not None else Analyzer()
    loaded = False

    def ask(question: str) -> None:
        nonlocal loaded
        if not question.strip():
            raise RecipeError("the question is empty", fix='liebig search RETRIEVER "the question"')
        if not loaded and system != "bm25":
            _ = retriever.current.embedder  # loading the model is no part of a search
        loaded = True
        began = time.perf_counter()
        answer = retriever.answer(question, k, system, filters=filters)
        took, results = time.perf_counter() - began, answer.results
        if json:
            head = {"query": question, "system": system, "generation": answer.generation}
            said = {"notes": answer.notes, "suggestion": answer.suggestion}
            print_json({**head, "took_ms": round(took * 1000, 2), **said, "results": results})
            return
        for note in answer.notes:
            console.print(visible(note), markup=False)
        if answer.suggestion is not None:
            console.print(f"Did you mean: {visible(answer.suggestion)}", markup=False)
        if not results:
            if NOTHING_FITS in answer.notes:
                console.print("To see the passages that have words of it: --system bm25")
            if not answer.notes:
                console.print("Nothing was found.")
            return
        table = Table(show_lines=True, expand=True, title=Text(visible(question)), title_justify="left")
        table.add_column(f"{system} ({took * 1e3:.0f} ms)", ratio=1)
        groups = by_document(results) if group else [by_document([result])[0] for result in results]
        for document in groups:
            table.add_row(document_cell(document, question, analyzer))
        console.print(table)

    return ask


PROMPT = "question> "


def questions_from(stream: TextIO) -> Iterator[str]:
    """The questions of a person at a prompt, until an empty line or Ctrl-D; those of a pipe, one per line."""
    if not stream.isatty():
        lines = (line.strip() for line in stream)
        yield from (line for line in lines if line)
        return
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  gives the prompt a history and keys to edit with

    say(f"Ask a question, which may have {HELP}; an empty line or Ctrl-D ends.")
    with contextlib.suppress(EOFError, KeyboardInterrupt):
        while question := _typed().strip():
            yield question


def _typed() -> str:
    if sys.stdout.isatty():
        return input(PROMPT)
    sys.stderr.write(PROMPT)  # standard output is read by a program
    sys.stderr.flush()
    return input()


def document_cell(document: DocumentResults, question: str, analyzer: Analyzer) -> Text:
    """Title and path of a document, and below them its passages, each with its rank, score and ranks elsewhere."""
    from rich.text import Text

    from liebig.search.filters import dated

    cell = Text(visible(document.title or document.doc), style="bold")
    about = [document.metadata.get("author", ""), dated(document.metadata)[1][:10]]
    facts = "".join(f", {visible(fact)}" for fact in about if fact)
    copies = document.metadata.get("also_in")
    facts += f", also in {visible(copies)}" if copies else ""
    cell.append(f"  {visible(document.doc) if document.title else ''}{facts}", style="dim")
    for result in document.results:
        cell.append(f"\n{result.rank}.", style="bold")
        cell.append(
            f"  {result.score:.3f}  {visible(result.id)}{_place(result)}{_ranks(result)}\n", style="dim"
        )
        cell.append_text(marked(result.text, question, analyzer))
    return cell


def _place(result: Result) -> str:
    """Where the passage begins: a page, a slide, or a line in the way in which editors open one."""
    path, line = result.metadata.get("path"), result.metadata.get("line")
    if path and line:
        return f", {visible(f'{path}:{line}')}"
    return "".join(f", {unit} {visible(result.metadata[unit])}" for unit in UNITS if unit in result.metadata)


def _ranks(result: Result) -> str:
    if len(result.ranks) < 2:
        return ""
    return "".join(
        f", {name} {rank}" if rank is not None else f", {name} > {RANK_DEPTH}"
        for name, rank in result.ranks.items()
    )


def command(
    retriever: Annotated[Path, typer.Argument(help="A retriever's folder.")],
    question: Annotated[str | None, typer.Argument(help="The question [default: asked for].")] = None,
    k: Annotated[int, typer.Option(help="Passages to show.", min=1)] = 5,
    system: Annotated[
        str | None,
        typer.Option(
            help="hybrid, dense, bm25 or reranked "
            "[default: the one its build chose; reranked with --reranker]."
        ),
    ] = None,
    reranker: Annotated[
        str | None,
        typer.Option(help="A cross-encoder for reranked [default: the folder's own]."),
    ] = None,
    filter: Annotated[
        list[str] | None,
        typer.Option(help="Metadata that documents must have, as name=value; may be repeated."),
    ] = None,
    group: Annotated[
        bool,
        typer.Option("--group/--no-group", help="Show passages of one document together."),
    ] = True,
    json: Annotated[
        bool,
        typer.Option("--json", help="Print the answer as one line of JSON; docs/json.md has the fields."),
    ] = False,
) -> None:
    """Ask a retriever a question in the terminal.

    The question may have "exact phrase", -word, title:, path:, type:, lang:, before:, after: and word*. Without a
    question it opens a prompt; from a pipe it takes one question per line.

    Example:

        liebig search runs/articles "how do I merge two sorted lists"
    """
    filters = filters_of(filter or [])
    ask = ask_retriever(
        retriever, k=k, system=system, filters=filters, group=group, reranker=reranker, json=json
    )
    is_empty = True
    for one in questions_from(sys.stdin) if question is None else [question]:
        ask(printable(one))
        is_empty = False
    if is_empty and not sys.stdin.isatty():
        raise RecipeError("there is no question on standard input", fix=f"liebig search {retriever} QUESTION")


def filters_of(pairs: Sequence[str]) -> dict[str, list[str]]:
    """Filters as they are written on a command line; a name that is repeated accepts each of its values."""
    filters: dict[str, list[str]] = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not (name and sign):
            raise RecipeError(f"the filter {pair!r} has no value", fix="--filter name=value")
        filters.setdefault(name, []).append(value)
    return filters
