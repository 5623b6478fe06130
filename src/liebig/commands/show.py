"""`liebig show`: a recipe as it will be run, or a recipe's schema."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from liebig.base import config as recipes, pipeline
from liebig.base.errors import RecipeError
from liebig.base.mistakes import nearest
from liebig.base.pipeline import Stage
from liebig.stages import STAGES


def command(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[RECIPE] [KEY=VALUE]...", help="A recipe.")
    ] = None,
    stage: Annotated[str | None, typer.Option(help="Command that a recipe without stages is for.")] = None,
    schema: Annotated[str | None, typer.Option(help="Print the JSON schema of a command's recipe.")] = None,
) -> None:
    """Print a recipe as it will be run: defaults filled in, overrides applied.

    Example:

        liebig show recipes/smoke/mlm.toml stages.model.loop.seed=2
    """
    if schema is not None:
        typer.echo(recipes.schema(_stage(schema).config), nl=False)
        return
    if not words:
        raise RecipeError("there is no recipe to show", fix="liebig show RECIPE.toml, or --schema STAGE")
    path, overrides = Path(words[0]), words[1:]
    if stage is not None:
        typer.echo(recipes.dump(recipes.load(_stage(stage).config, path, overrides)), nl=False)
        return
    for item in pipeline.plan(STAGES, path, overrides, Path("runs") / path.stem):
        typer.echo(f"# {item.name}: liebig {item.stage.name}, written to {item.out}")
        typer.echo(recipes.dump(item.config))


def _stage(name: str) -> Stage:
    if name not in STAGES:
        raise RecipeError(f"{name!r} is not a stage", fix=nearest(name, sorted(STAGES)))
    return STAGES[name]
