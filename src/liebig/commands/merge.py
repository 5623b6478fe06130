"""`liebig merge`: the parts of a stage, made with --part, become the folder that one run would have written."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from liebig.base.parts import merge
from liebig.stages import STAGES


def command(
    parts: Annotated[list[Path], typer.Argument(help="Folders of all parts, in any order.")],
    out: Annotated[Path, typer.Option(help="The folder to write.")],
) -> None:
    """Put the parts of a stage together; the files are those of one run.

    Example:

        liebig merge runs/vectors.parts/* --out runs/vectors
    """
    merge(STAGES, parts, out)
