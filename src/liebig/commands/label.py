"""`liebig label`: options only; what it runs is imported when it runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from liebig.base.errors import RecipeError
from liebig.base.progress import Progress
from liebig.commands.serve import HOST, PORT, Host, Port, Token

if TYPE_CHECKING:
    from liebig.serve.label import Labelling


def command(
    folder: Annotated[Path, typer.Argument(help="A retriever folder, made by liebig build.")],
    questions: Annotated[
        Path | None,
        typer.Option(help="Questions to judge [default: those of the last build that nobody has judged]."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The file of judgements [default: judgements.jsonl in the folder].")
    ] = None,
    judge: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="A server that speaks the OpenAI API, whose model grades all passages."
        ),
    ] = None,
    model: Annotated[str | None, typer.Option(help="The model's name on that server.")] = None,
    key: Annotated[
        str | None, typer.Option("--judge-key", help="Its key, if it needs one.", envvar="LIEBIG_LLM_KEY")
    ] = None,
    host: Host = HOST,
    port: Port = PORT,
    token: Token = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Judge in a browser which passages answer your questions, with single keys; every judgement is saved at once.

    The passages of all systems are pooled. The file that comes out is one that `liebig build --questions` reads.
    With --judge a language model grades the passages of all questions first (0 to 3, in a file of its own); then judge
    some questions yourself, which come in random order, and systems are compared by both.

    Example:

        liebig label runs/articles --questions questions.txt --open
    """
    from liebig.serve.label import Labelling, label_routes
    from liebig.serve.server import serve

    if (judge is None) != (model is None):
        raise RecipeError("a language model needs both --judge and --model", fix="name both, or none")
    labelling = Labelling.open(folder, questions, out)
    for note in labelling.notes:
        typer.echo(note, err=True)
    compared = None if judge is None or model is None else _judge(folder, labelling, judge, model, key)
    serve(
        folder, host=host, port=port, token=token, open_page=open_page, page="/label",
        more=lambda engine: label_routes(engine, labelling), say=lambda line: typer.echo(line, err=True),
    )  # fmt: skip
    if compared is not None:
        compared()
    if labelling.file.is_file():
        said = f"Judgements are in {labelling.file}. Next: liebig build ... --questions {labelling.file}"
    else:
        said = "Nothing was judged."
    typer.echo(said, err=True)


def _judge(folder: Path, labelling: Labelling, url: str, name: str, key: str | None) -> Callable[[], None]:
    """Let a model grade all passages; returns what compares the systems by its grades and those of people."""
    from liebig.search.retriever import Retriever
    from liebig.serve import model_judge

    if not labelling.questions:
        raise RecipeError("there are no questions to judge", fix="name a file of them with --questions")
    client = model_judge.client_of(url, name, key)
    retriever = Retriever.from_folder(folder)
    model = model_judge.ModelGrades.open(labelling.file, name)
    labelling.questions = model_judge.in_random_order(labelling.questions)
    passages, _ = model_judge.pools(retriever, labelling.questions)
    with Progress("judging", total=sum(map(len, passages)), unit="passages") as bar:
        ungraded = model_judge.judge_pools(client, model, labelling.questions, passages, bar.advance)
    typer.echo(f"The grades of {name} are in {model.file}.", err=True)
    if ungraded:
        typer.echo(f"{name} gave no grade for {ungraded:,} passages; their questions are left out.", err=True)

    def compare() -> None:
        comparison = model_judge.compare_systems(retriever, labelling, model)
        for line in () if comparison is None else model_judge.sentences(comparison):
            typer.echo(line, err=True)

    compare()
    return compare
