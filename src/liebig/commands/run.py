"""`liebig run`: the stages of a recipe in order."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from liebig.base import machine, pipeline, workspace
from liebig.base.errors import RecipeError, WorkspaceError
from liebig.base.pipeline import Planned
from liebig.base.progress import announce
from liebig.stages import STAGES, does


def in_words(item: Planned) -> str:
    """A stage as it is shown while it runs: its name, and what its command does."""
    return f"{item.name}: {does(item.stage.name)}"


TIMES = ("timing.jsonl", "report.html")  # files that say how long something took


def compare_runs(planned: Sequence[Planned], first: Path, second: Path) -> str:
    """Hold the second of two runs in one place against the first, which is then removed; or say what differs."""
    files, differ = 0, list[str]()
    for item in planned:
        one, two = (workspace.verify(run / item.name).outputs for run in (first, second))
        names = sorted(name for name in {**one, **two} if Path(name).name not in TIMES)
        files += len(names)
        differ += [f"{item.name}/{name}" for name in names if one.get(name) != two.get(name)]
    if differ:
        raise WorkspaceError(
            f"the two runs differ in {len(differ):,} of {files:,} files, the first of them {differ[0]}",
            file=second,
            fix=f"compare it with {first}; docs/reliability.md says what may differ on a GPU",
        )
    shutil.rmtree(first)
    return f"Both runs gave the same bytes in all of {files:,} files."


def command(
    recipe: Annotated[
        Path, typer.Argument(help="A pipeline recipe (.toml), or the name of a packaged one: smoke/mlm.")
    ],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Overrides with dotted keys.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Where the stages' folders go [default: runs/RECIPE].")
    ] = None,
    only_plan: Annotated[
        bool, typer.Option("--plan", help="Print the stages and exit without running them.")
    ] = False,
    twice: Annotated[
        bool, typer.Option("--twice", help="Run everything a second time and compare the bytes of all files.")
    ] = False,
) -> None:
    """Run a recipe's stages in order; skip what is up to date, resume what was interrupted.

    Example:

        liebig run recipes/smoke/mlm.toml stages.model.loop.steps=20
    """
    if machine.process_count() > 1:
        fix = "run its stages one by one, and those that train or encode under torchrun"
        raise RecipeError("a pipeline runs in one process", file=recipe, fix=fix)
    folder = out if out is not None else Path("runs") / recipe.stem
    planned = pipeline.plan(STAGES, recipe, overrides or [], folder)
    if not only_plan:
        from liebig.planner import known_seconds

        if twice and folder.exists():
            raise RecipeError(
                "--twice runs everything anew", file=folder, fix="give an --out that does not exist"
            )
        pipeline.run(planned, announce, in_words, known_seconds)
        if twice:
            first = folder.with_name(f"{folder.name}.first")
            folder.rename(first)
            pipeline.run(planned, announce, in_words, known_seconds)
            announce(compare_runs(planned, first, folder))
        announce(f"Done. Every stage has its folder in {folder}.")
    for item in planned if only_plan else ():
        typer.echo(f"{item.name}: liebig {item.stage.name}")
    if only_plan:
        typer.echo(f"Time, memory and disk of every stage: liebig plan {recipe}")
