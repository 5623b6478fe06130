"""`liebig search`: the answers to a question in the terminal, with the words that matched marked.

A retriever's folder answers with the system its build chose, and each hit says where BM25 and the vectors had it.
Indexes are named instead to look at them alone: one gives a list; two (BM25 and dense) stand side by side, each hit
with its rank in the other. Times are those of the search alone, the question's encoding included: models are loaded and
code is compiled before. Everything is plain text where standard output is not a terminal.

Folders are opened once, then asked: one question of the command line, or many, of a prompt or of a pipe.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from liebig.base import workspace
from liebig.base.errors import DataError, LiebigError, RecipeError
from liebig.base.json_output import print_json, printable
from liebig.base.machine import prefer_numpy
from liebig.base.progress import say, visible
from liebig.base.records import UNITS, Passage
from liebig.search.query_language import HELP
from liebig.search.retriever_folder import is_retriever, is_small, is_unfinished

if TYPE_CHECKING:  # imported where it is used, so that a mistake in the arguments is answered at once
    from liebig.bm25.analysis import Analyzer
    from liebig.bm25.search import BM25
    from liebig.search.answer import DocumentResults, Result
    from liebig.search.filters import Filters
    from liebig.search.systems import Hits, System

Texts = Callable[[str], Passage]  # looks up the text of a hit


def texts_of(systems: Sequence[System], path: Path | None) -> Texts:
    """The texts of a collection or BM25 index, else of a BM25 index among the systems, else ids alone."""
    from liebig.bm25.search import BM25
    from liebig.collection import Collection
    from liebig.search.systems import Lexical

    if path is not None:
        return _from_index(BM25.open(path)) if _is_bm25(path) else Collection(path).passage
    for system in systems:
        if (
            isinstance(system, Lexical)
            and system.index.segments
            and system.index.segments[0].texts is not None
        ):
            return _from_index(system.index)
    return ids_alone


def ids_alone(id: str) -> Passage:
    """A passage of which nothing is known but its id."""
    return Passage(id, "")


def _is_bm25(path: Path) -> bool:
    from liebig.bm25.search import SUMMARY
    from liebig.collection import is_collection

    if is_collection(path):
        return False
    return SUMMARY in workspace.read_manifest(path).outputs


def _from_index(index: BM25) -> Texts:
    from liebig.vectors import document_of

    def passage(id: str) -> Passage:
        number = index.find(id)
        if number is None:
            number = index.find(document_of(id))
        if number is None:
            raise LiebigError(f"there is no passage {id!r} in the BM25 index")
        return index.passage(number)

    return passage


RANK_DEPTH = 100  # how far the rank of a hit in the other system is looked for


Ask = Callable[[str], None]  # answers one question, on standard output


def ask_indexes(
    indexes: Sequence[Path],
    *,
    k: int = 5,
    model: str | None = None,
    texts: Path | None = None,
    json: bool = False,
    console: Console | None = None,
) -> Ask:
    """Open one index, or two to be shown side by side, to be asked questions."""
    from liebig.bm25.analysis import Analyzer
    from liebig.search.systems import Lexical, open_system

    if json and len(indexes) > 1:
        raise RecipeError("--json has the answers of one index", fix="name one index, or a retriever")
    console = console or Console()
    systems = [open_system(path, model=model) for path in indexes]
    lookup = texts_of(systems, texts)
    analyzer = next((s.index.settings.analyzer for s in systems if isinstance(s, Lexical)), Analyzer())
    loaded = False

    def ask(question: str) -> None:
        nonlocal loaded
        check_question(question)
        answers, seconds = [], []
        for system in systems:
            if not loaded:
                system.ask(question, 1)  # loads the model and compiled code, which is no part of a search
            began = time.perf_counter()
            answers.append(system.ask(question, max(k, RANK_DEPTH)))
            seconds.append(time.perf_counter() - began)
        loaded = True
        if json:
            rows = [
                {"id": id, "rank": rank, "score": score, **_text(lookup, id)}
                for rank, (id, score) in enumerate(answers[0][:k], 1)
            ]
            print_json(
                {"query": question, "system": systems[0].name, "took_ms": _ms(seconds[0]), "results": rows}
            )
            return
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

    return ask


def _text(lookup: Texts, id: str) -> dict[str, str]:
    """Title, text and document of a hit, where they are known."""
    try:
        passage = lookup(id)
    except LiebigError:
        return {}
    return {"title": passage.title, "text": passage.text, "doc": passage.doc}


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 2)


def check_question(question: str) -> None:
    """Refuse a question without a word."""
    if not question.strip():
        raise RecipeError("the question is empty", fix='liebig search INDEX "the question"')


def new_table(question: str) -> Table:
    """A table under the question, a column to be added for each system."""
    return Table(show_lines=True, expand=True, title=Text(visible(question)), title_justify="left")


def _others(answers: Sequence[Hits], mine: int) -> dict[str, int] | None:
    """Ranks of the other system, where there are two."""
    if len(answers) != 2:
        return None
    return {id: rank for rank, (id, _) in enumerate(answers[1 - mine], 1)}


def _cell(
    found: Hits, place: int, question: str, lookup: Texts, analyzer: Analyzer, others: dict[str, int] | None
) -> Text:
    if place >= len(found):
        return Text("")
    id, score = found[place]
    try:
        passage = lookup(id)
    except LiebigError:
        return Text(f"{place + 1}. ", style="bold").append(visible(id))
    rank = "" if others is None else f", other {others[id]}" if id in others else f", other > {RANK_DEPTH}"
    return hit(place + 1, replace(passage, id=id), score, rank, question, analyzer)


def hit(rank: int, passage: Passage, score: float, note: str, question: str, analyzer: Analyzer) -> Text:
    """A passage as it is shown: its title, where it stands, and its text with the question's words marked."""
    cell = Text(f"{rank}. ", style="bold")
    cell.append(visible(passage.title or passage.id), style="bold")
    cell.append(f"  {score:.3f}  {visible(passage.id)}{note}\n", style="dim")
    return cell.append_text(marked(passage.text, question, analyzer))


def marked(text: str, question: str, analyzer: Analyzer) -> Text:
    """The part of a text that answers, with the question's words marked."""
    from liebig.search.explain import snippet

    pieces = snippet(text, question, analyzer)
    return Text.assemble(*((visible(piece.text), "bold yellow" if piece.marked else "") for piece in pieces))


def _nothing(question: str, systems: Sequence[System], analyzer: Analyzer) -> str:
    from liebig.bm25.analysis import untagged
    from liebig.search.systems import Lexical

    terms = dict.fromkeys(map(untagged, analyzer.terms(question)))
    if not any(isinstance(system, Lexical) for system in systems):
        return "Nothing was found: the index is empty."
    if not terms:
        return "Nothing was found: the question has no words but stop words."
    return f"Nothing was found for the terms {', '.join(terms)} in {', '.join(system.name for system in systems)}."


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
    from liebig.bm25.analysis import Analyzer
    from liebig.search.answer import by_document
    from liebig.search.retriever import Retriever

    # Sizes are compared, hashes are not: `liebig doctor` does that, and an answer should not wait for it.
    retriever = Retriever.from_folder(folder, reranker=reranker, verify=False, light=True)
    system = retriever.current.name_of(system, reranker)
    console = console or Console()
    bm25 = retriever.current.bm25
    analyzer = bm25.settings.analyzer if bm25 is not None else Analyzer()
    loaded = False

    def ask(question: str) -> None:
        nonlocal loaded
        check_question(question)
        if not loaded and system != "bm25":
            _ = retriever.current.embedder  # loading the model is no part of a search
        loaded = True
        began = time.perf_counter()
        answer = retriever.answer(question, k, system, filters=filters)
        took, results = time.perf_counter() - began, answer.results
        if json:
            head = {"query": question, "system": system, "generation": answer.generation}
            said = {"notes": answer.notes, "suggestion": answer.suggestion}
            print_json({**head, "took_ms": _ms(took), **said, "results": results})
            return
        for note in answer.notes:
            console.print(visible(note), markup=False)
        if answer.suggestion is not None:
            console.print(f"Did you mean: {visible(answer.suggestion)}", markup=False)
        if not results:
            if not answer.notes:
                console.print("Nothing was found.")
            return
        table = new_table(question)
        table.add_column(f"{system} ({took * 1e3:.0f} ms)", ratio=1)
        groups = by_document(results) if group else [by_document([result])[0] for result in results]
        for document in groups:
            table.add_row(_document_cell(document, question, analyzer))
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


def _document_cell(document: DocumentResults, question: str, analyzer: Analyzer) -> Text:
    """Title and path of a document, and below them its passages, each with its rank, score and ranks elsewhere."""
    cell = Text(visible(document.title or document.doc), style="bold")
    about = [document.metadata.get("author", ""), document.metadata.get("modified", "")[:10]]
    facts = "".join(f", {visible(fact)}" for fact in about if fact)
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
    """Where each part of a hybrid had it."""
    if len(result.ranks) < 2:
        return ""
    return "".join(
        f", {name} {rank}" if rank is not None else f", {name} > {RANK_DEPTH}"
        for name, rank in result.ranks.items()
    )


def command(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="INDEX... QUESTION", help="A retriever, or one or two indexes; and the question."
        ),
    ],
    k: Annotated[int, typer.Option(help="Passages to show.", min=1)] = 5,
    system: Annotated[
        str | None,
        typer.Option(
            help="Of a retriever: hybrid, dense, bm25 or reranked "
            "[default: the one its build chose; reranked with --reranker]."
        ),
    ] = None,
    reranker: Annotated[
        str | None,
        typer.Option(help="Of a retriever: a cross-encoder for reranked [default: the folder's own]."),
    ] = None,
    filter: Annotated[
        list[str] | None,
        typer.Option(
            help="Of a retriever: metadata that documents must have, as name=value; may be repeated."
        ),
    ] = None,
    group: Annotated[
        bool,
        typer.Option("--group/--no-group", help="Of a retriever: show passages of one document together."),
    ] = True,
    model: Annotated[
        str | None, typer.Option(help="Of an index: model of the question [default: the index's own].")
    ] = None,
    texts: Annotated[
        Path | None, typer.Option(help="A collection with the texts, where no index has them.")
    ] = None,
    json: Annotated[
        bool,
        typer.Option("--json", help="Print the answer as one line of JSON; docs/json.md has the fields."),
    ] = False,
) -> None:
    """Ask a question in the terminal: a retriever, by the system its build chose, or one or two indexes side by side.

    The question may have "exact phrase", -word, title:, path:, type:, lang:, before:, after: and word*. Without a
    question it opens a prompt; from a pipe it takes one question per line.

    Example:

        liebig search runs/articles "how do I merge two sorted lists"
    """
    indexes, question = split_question(words)
    paths = [Path(index) for index in indexes]
    of_retriever = system is not None or bool(filter) or reranker is not None
    folder = retriever_of(paths, of_retriever=of_retriever, of_index=model is not None or texts is not None)
    if folder is None:
        ask = ask_indexes(paths, k=k, model=model, texts=texts, json=json)
    else:
        filters = filters_of(filter or [])
        ask = ask_retriever(
            folder, k=k, system=system, filters=filters, group=group, reranker=reranker, json=json
        )
    asked = False
    for one in questions_from(sys.stdin) if question is None else [question]:
        ask(printable(one))
        asked = True
    if not asked and not sys.stdin.isatty():
        raise RecipeError("there is no question on standard input", fix=f"liebig search {words[0]} QUESTION")


def retriever_of(paths: Sequence[Path], *, of_retriever: bool, of_index: bool) -> Path | None:
    """The retriever's folder, None for indexes; refused with the other's options, or with an index beside it."""
    folder = next((path for path in paths if is_retriever(path) or is_unfinished(path)), None)
    if folder is None and of_retriever:
        raise RecipeError(
            "only a retriever has systems, filters and a reranker",
            fix="leave out --system, --filter and --reranker",
        )
    if folder is not None and len(paths) > 1:
        raise RecipeError(
            "a retriever is asked alone", file=folder, fix="name indexes to see them side by side"
        )
    if folder is not None and of_index:
        raise RecipeError(
            "a retriever has a model and texts of its own", file=folder, fix="leave out --model and --texts"
        )
    return folder


def split_question(words: Sequence[str]) -> tuple[Sequence[str], str | None]:
    """Folders, and the question behind them; None where the last word is a folder that Liebig wrote."""
    last = Path(words[-1])
    if is_retriever(last) or is_unfinished(last) or (last / workspace.MANIFEST).is_file():
        return words, None
    if len(words) == 1:
        if last.exists():
            raise DataError(
                "is not a retriever or an index", file=last, fix="name a folder that liebig wrote"
            )
        raise RecipeError("there is no index, or no question", fix='liebig search INDEX "the question"')
    return words[:-1], words[-1]


def filters_of(pairs: Sequence[str]) -> dict[str, list[str]]:
    """Filters as they are written on a command line; a name that is repeated accepts each of its values."""
    filters: dict[str, list[str]] = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not (name and sign):
            raise RecipeError(f"the filter {pair!r} has no value", fix="--filter name=value")
        filters.setdefault(name, []).append(value)
    return filters
