"""`liebig export`: a retriever's folder, or a model's, written for other software, whole or not at all."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, get_args

import typer

from liebig.base import workspace
from liebig.base.config import nearest
from liebig.base.errors import RecipeError
from liebig.base.progress import say
from liebig.export import Target

Kind = Literal["sentence-transformers", "onnx", "milvus", "pgvector", "opensearch", "parquet"]
KINDS: tuple[Kind, ...] = get_args(Kind)
CARDED: Kind = "sentence-transformers"
MODELS = (CARDED, "onnx")
NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")


def export(
    source: Path,
    kind: str,
    out: Path,
    *,
    name: str = "passages",
    int8: bool = False,
    width: int | None = None,
    uri: str | None = None,
    evaluations: Sequence[Path] = (),
) -> str:
    """Write an export into a folder of its own; gives a sentence about it."""
    if kind not in KINDS:
        raise RecipeError(f"there is no export to {kind!r}", fix=nearest(kind, KINDS))
    if not NAME.fullmatch(name):
        raise RecipeError(
            f"{name!r} is not a valid name for a table, index or collection", fix="use a-z, 0-9 and _"
        )
    if int8 and kind != "onnx":
        raise RecipeError(f"--int8 is for onnx, not for {kind}", fix="leave --int8 out")
    if width is not None and kind not in MODELS:
        raise RecipeError(
            f"--width is for {' and '.join(MODELS)}, not for {kind}",
            fix="export the model with it, and encode the passages with that",
        )
    if uri is not None and kind != "milvus":
        raise RecipeError(f"--uri is for milvus, not for {kind}", fix="leave --uri out")
    if evaluations and kind != CARDED:
        raise RecipeError(f"--evaluation is for {CARDED}, not for {kind}", fix=f"use --to {CARDED}")
    if evaluations and width is not None:
        raise RecipeError(
            "the evaluation is of vectors of full width",
            fix="export with --width first, evaluate what comes out, and export that with --evaluation",
        )
    target = Target.of(source)
    recipe = {"to": kind, "name": name, "int8": int8, "width": width, "uri": uri}
    inputs = target.inputs(rows=kind not in MODELS)
    inputs |= {f"evaluation.{number}": path for number, path in enumerate(evaluations)}
    with workspace.stage(out, kind="export", recipe=recipe, inputs=inputs, resume=False) as folder:
        said = _write(target, kind, folder.path, name, int8, width, uri, evaluations)
    return said


def _write(
    target: Target,
    kind: str,
    path: Path,
    name: str,
    int8: bool,
    width: int | None,
    uri: str | None,
    evaluations: Sequence[Path],
) -> str:
    """The writer of a kind is imported when it is wanted."""
    if kind == "sentence-transformers":
        from liebig.export.models import to_sentence_transformers

        return to_sentence_transformers(target, path, width, evaluations)
    if kind == "onnx":
        from liebig.export.models import to_onnx

        return to_onnx(target, path, width, int8=int8)
    from liebig.export import databases

    if kind == "milvus":
        return databases.to_milvus(target, path, name, uri)
    writers = {
        "pgvector": databases.to_pgvector,
        "parquet": databases.to_parquet,
        "opensearch": databases.to_opensearch,
    }
    return writers[kind](target, path, name)


def command(
    source: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of a retriever or of a model.")],
    to: Annotated[str, typer.Option(help=f"One of {', '.join(KINDS)}.")],
    out: Annotated[
        Path | None,
        typer.Option(
            help="The folder to write [default: for onnx the retriever's own, where search without torch finds it]."
        ),
    ] = None,
    name: Annotated[str, typer.Option(help="Name of the table, index, collection or file.")] = "passages",
    int8: Annotated[bool, typer.Option(help="Quantise the weights of an ONNX graph to int8.")] = False,
    width: Annotated[
        int | None,
        typer.Option(help="Keep only this many leading dimensions of each vector (Matryoshka).", min=1),
    ] = None,
    uri: Annotated[
        str | None, typer.Option(help="Address of a Milvus server [default: embedded in a file].")
    ] = None,
    evaluation: Annotated[
        list[Path] | None,
        typer.Option(help="What liebig evaluate wrote about this model, for its card; may be repeated."),
    ] = None,
) -> None:
    """Write a retriever for other software: its model with a card, or its passages with their vectors.

    Example:

        liebig export runs/articles --to pgvector --out runs/pgvector
    """
    if out is None and (to != "onnx" or width is not None):
        raise RecipeError("there is no folder to write", fix="add --out DIR")
    if out is None:
        from liebig.export.models import add_onnx

        say(add_onnx(source, int8=int8))
        return
    said = export(source, to, out, name=name, int8=int8, width=width, uri=uri, evaluations=evaluation or ())
    say(f"{out}: {said}")
