"""`liebig export`: a retriever's folder, or a model's, written for other software, whole or not at all."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal, get_args

import typer

from liebig.base import workspace
from liebig.base.errors import RecipeError
from liebig.base.mistakes import nearest
from liebig.base.progress import say
from liebig.export import Target

Kind = Literal["sentence-transformers", "onnx", "parquet"]
KINDS: tuple[Kind, ...] = get_args(Kind)
MODELS = ("sentence-transformers", "onnx")
NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")


def export(
    source: Path,
    kind: str,
    out: Path,
    *,
    name: str = "passages",
    int8: bool = False,
) -> str:
    """Write an export into a folder of its own; gives a sentence about it."""
    if kind not in KINDS:
        raise RecipeError(f"there is no export to {kind!r}", fix=nearest(kind, KINDS))
    if not NAME.fullmatch(name):
        raise RecipeError(f"{name!r} is not a valid name for a table", fix="use a-z, 0-9 and _")
    if int8 and kind != "onnx":
        raise RecipeError(f"--int8 is for onnx, not for {kind}", fix="leave --int8 out")
    target = Target.of(source)
    recipe = {"to": kind, "name": name, "int8": int8}
    inputs = target.inputs(rows=kind not in MODELS)
    with workspace.stage(out, kind="export", recipe=recipe, inputs=inputs, resume=False) as folder:
        said = _write(target, kind, folder.path, name, int8)
    return said


def _write(target: Target, kind: str, path: Path, name: str, int8: bool) -> str:
    if kind == "sentence-transformers":
        from liebig.export.models import to_sentence_transformers

        return to_sentence_transformers(target, path)
    if kind == "onnx":
        from liebig.export.models import to_onnx

        return to_onnx(target, path, int8=int8)
    from liebig.export.parquet import to_parquet

    return to_parquet(target, path, name)


def command(
    source: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of a retriever or of a model.")],
    to: Annotated[str, typer.Option(help=f"One of {', '.join(KINDS)}.")],
    out: Annotated[
        Path | None,
        typer.Option(
            help="The folder to write [default: for onnx the retriever's own, where search without torch finds it]."
        ),
    ] = None,
    name: Annotated[str, typer.Option(help="Name of the file.")] = "passages",
    int8: Annotated[bool, typer.Option(help="Quantise the weights of an ONNX graph to int8.")] = False,
) -> None:
    """Write a retriever for other software: its model, or its passages with their vectors.

    Example:

        liebig export runs/articles --to parquet --out runs/parquet
    """
    if out is None and to != "onnx":
        raise RecipeError("there is no folder to write", fix="add --out DIR")
    if out is None:
        from liebig.export.models import add_onnx

        say(add_onnx(source, int8=int8))
        return
    said = export(source, to, out, name=name, int8=int8)
    say(f"{out}: {said}")
