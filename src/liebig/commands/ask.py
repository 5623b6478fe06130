"""`liebig ask`: the answer of a language model from the passages of a retriever, with checked citations."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from liebig.base.errors import DataError, RecipeError
from liebig.base.json_output import print_json, printable
from liebig.base.machine import prefer_numpy
from liebig.base.progress import say, visible
from liebig.search.retriever_folder import is_small


def command(
    folder: Annotated[Path, typer.Argument(help="A retriever folder, made by liebig build.")],
    question: Annotated[str, typer.Argument(help="The question.")],
    llm: Annotated[
        str,
        typer.Option(metavar="URL", help="A server that speaks the OpenAI API; nothing is sent elsewhere."),
    ],
    model: Annotated[str, typer.Option(help="The model's name on that server.")],
    tokens: Annotated[int, typer.Option(help="Tokens of passages that the model gets.", min=1)] = 2000,
    system: Annotated[
        str | None,
        typer.Option(help="hybrid, dense, bm25 or reranked [default: the one the build chose]."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the answer as one line of JSON.")] = False,
) -> None:
    """Answer a question from the documents: a language model reads the best passages and cites them.

    The question may use the query language of liebig search. A key is taken from the environment variable
    LIEBIG_LLM_KEY and is stored nowhere. A citation of a source that does not exist is refused: exit code 2.

    Example:

        liebig ask runs/articles "what limits the growth of barley?" --llm http://localhost:11434/v1 --model llama3.2
    """
    if not question.strip():
        raise RecipeError("the question is empty", fix='liebig ask RETRIEVER "the question"')
    if is_small(folder):
        prefer_numpy()
    from liebig.integrations.ask import ChatModel, CitationCheck, messages_of
    from liebig.search.retriever import Retriever

    chat = ChatModel(llm, model)
    context = Retriever.from_folder(folder, verify=False, light=True).context(
        printable(question), tokens, system
    )
    for note in context.notes:
        say(visible(note))
    if not context.sources:
        what = "there is no passage to answer from, so the model was not asked"
        raise DataError(what, fix="ask in other words, or give more --tokens")
    check = CitationCheck(context.sources)
    parts = []
    for part in check.checked(chat.stream(messages_of(context))):
        parts.append(part)
        if not json:
            sys.stdout.write(visible(part))
            sys.stdout.flush()
    cited = [source for source in context.sources if source.number in check.cited]
    if json:
        row = {
            "question": question,
            "answer": "".join(parts),
            "sources": cited,
            "unknown": sorted(check.unknown),
        }
        print_json(row)
    else:
        sys.stdout.write("\n" + "".join(f"\n{visible(source.label)}" for source in cited) + "\n")
    if check.problem:
        raise DataError(check.problem.rstrip("."))
    if not check.cited:
        say("The answer cites no source.")
