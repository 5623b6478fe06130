"""The commands around a retriever's folder: build, update, and what looks at it; their code is imported late."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from liebig.stages import STAGES

MINUTES = 30.0  # of training, where none are given
STRICT = "Refuse files that cannot be read, and everything suspicious [default: skip and list them]."


def _say(text: str) -> None:
    typer.echo(text, err=True)


def build(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="SOURCE...", help="Files and folders, in any format liebig init reads."),
    ],
    out: Annotated[Path, typer.Option(help="The folder of the retriever.")],
    minutes: Annotated[
        float, typer.Option(help="Minutes of training on the corpus; 0 takes the encoder as it comes.", min=0)
    ] = MINUTES,
    model: Annotated[
        str | None,
        typer.Option(help="The encoder to start from: a folder, or liebig:NAME [default: the bundled one]."),
    ] = None,
    language: Annotated[str, typer.Option(help="Language of the texts, by name or code.")] = "en",
    seed: Annotated[int, typer.Option(help="Everything random follows from it.")] = 0,
    strict: Annotated[bool, typer.Option("--strict", help=STRICT)] = False,
) -> None:
    """Build a retriever from documents without labels: passages, BM25, training, vectors, and a check of what is best.

    Interrupted, the same command goes on. It keeps the better encoder and the better system, and says by how much.

    Example:

        liebig build ~/articles --minutes 10 --out runs/articles
    """
    from liebig.retriever.build import Wish, build as run

    run(STAGES, Wish(tuple(sources), model, minutes, language, seed, strict), out, _say)
    _say(f"\nNext: liebig serve {out}")


def update(
    folder: Annotated[Path, typer.Argument(help="A retriever's folder.")],
    sources: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SOURCE]...", help="What it is now built from [default: as before]."),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help=STRICT)] = False,
) -> None:
    """Take new, changed and deleted documents into a retriever's indexes; a running server takes them over.

    Example:

        liebig update runs/articles
    """
    from liebig.retriever.update import update as run

    run(STAGES, folder, sources or [], _say, strict)


def export(
    source: Annotated[Path, typer.Argument(metavar="FOLDER", help="A retriever's folder, or a model's.")],
    to: Annotated[str, typer.Option(help="sentence-transformers, onnx, milvus, pgvector or opensearch.")],
    out: Annotated[Path, typer.Option(help="The folder to write.")],
    name: Annotated[str, typer.Option(help="Name of the table, index or collection.")] = "passages",
    int8: Annotated[bool, typer.Option(help="Round the weights of an ONNX graph to int8.")] = False,
    width: Annotated[
        int | None, typer.Option(help="Keep the first so many numbers of a vector (Matryoshka).", min=1)
    ] = None,
    uri: Annotated[
        str | None, typer.Option(help="Address of a Milvus server [default: embedded in a file].")
    ] = None,
) -> None:
    """Write a retriever for other software: its model with a card, or its passages with their vectors.

    Example:

        liebig export runs/articles --to pgvector --out runs/pgvector
    """
    from liebig.export.run import export as run

    _say(f"{out}: {run(source, to, out, name=name, int8=int8, width=width, uri=uri)}")


def doctor(
    folder: Annotated[
        Path | None, typer.Argument(help="A retriever's folder, or an index with --texts.")
    ] = None,
    texts: Annotated[Path | None, typer.Option(help="The collection an index was made of.")] = None,
    model: Annotated[
        Path | None, typer.Option(help="The model of an index [default: the one it names].")
    ] = None,
) -> None:
    """Look over this machine and a folder: hashes, counts, vectors encoded again, recall; exit code 1 if it is ill.

    Example:

        liebig doctor runs/articles
    """
    from liebig.doctor.run import doctor as run

    if not run(folder, texts, model, typer.echo):
        raise typer.Exit(1)


def plan(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RECIPE [KEY=VALUE]... | SOURCE...]",
            help="A recipe (.toml), or documents as for liebig build [default: three corpora].",
        ),
    ] = None,
    machine: Annotated[str, typer.Option(help="h200, cpu2, or calibrate for this one.")] = "calibrate",
    devices: Annotated[int, typer.Option(help="How many of them.", min=1)] = 1,
    price: Annotated[float | None, typer.Option(help="What an hour of one costs.", min=0)] = None,
    passages: Annotated[int, typer.Option(help="Passages of data that is not there yet.", min=1)] = 1_000_000,
    tokens: Annotated[float, typer.Option(help="Tokens of such a passage.", min=1)] = 100.0,
    model: Annotated[
        str | None,
        typer.Option(
            help="The model of the table [default: BERT-base], or that of the build [default: the bundled one]."
        ),
    ] = None,
    minutes: Annotated[float, typer.Option(help="Minutes of training of the build.", min=0)] = MINUTES,
) -> None:
    """Say what a recipe or a build takes on a machine: time, memory, disk, cost; without either, three corpora.

    Example:

        liebig plan ~/articles --minutes 10
    """
    from liebig.plan.estimates import Corpus
    from liebig.plan.folder import plan_build
    from liebig.plan.machines import machine as find
    from liebig.plan.run import plan_recipe, plan_table
    from liebig.retriever.build import Wish, model_folder

    chosen = find(machine).at(price, devices)
    first, *others = words or [""]
    if not first:
        lines = plan_table(None if model is None else model_folder(model), chosen)
    elif first.endswith(".toml"):
        lines = plan_recipe(STAGES, Path(first), others, chosen, Corpus(passages, tokens))
    else:
        wish = Wish((first, *others), model, minutes)
        lines = plan_build(wish, chosen)
    typer.echo("\n".join(lines))


COMMANDS = (build, update, export, doctor, plan)
