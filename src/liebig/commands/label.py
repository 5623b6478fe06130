"""`liebig label`: options only; what it runs is imported when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from liebig.commands.serve import HOST, PORT, Host, Port, Token


def command(
    folder: Annotated[Path, typer.Argument(help="A retriever folder, made by liebig build.")],
    questions: Annotated[
        Path | None,
        typer.Option(help="Questions to judge [default: those of the last build that nobody has judged]."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The file of judgements [default: judgements.jsonl in the folder].")
    ] = None,
    host: Host = HOST,
    port: Port = PORT,
    token: Token = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Judge in a browser which passages answer your questions, with single keys; every judgement is saved at once.

    The passages of all systems are pooled. The file that comes out is one that `liebig build --questions` reads.

    Example:

        liebig label runs/articles --questions questions.txt --open
    """
    from liebig.serve.label import Labelling, label_routes
    from liebig.serve.server import serve

    labelling = Labelling.open(folder, questions, out)
    for note in labelling.notes:
        typer.echo(note, err=True)
    serve(
        folder, host=host, port=port, token=token, open_page=open_page, page="/label",
        more=lambda engine: label_routes(engine, labelling), say=lambda line: typer.echo(line, err=True),
    )  # fmt: skip
    if labelling.file.is_file():
        said = f"Judgements are in {labelling.file}. Next: liebig build ... --questions {labelling.file}"
    else:
        said = "Nothing was judged."
    typer.echo(said, err=True)
