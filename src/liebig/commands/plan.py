"""`liebig plan`: options only; the planner, which knows every method, is imported when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from liebig.base.json_output import print_json


def command(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RECIPE [KEY=VALUE]... | SOURCE...]",
            help="A recipe (.toml), or documents as for liebig build [default: three corpora].",
        ),
    ] = None,
    machine: Annotated[
        str, typer.Option(help="h200, cpu2, or calibrate to measure this machine.")
    ] = "calibrate",
    devices: Annotated[int, typer.Option(help="Number of machines.", min=1)] = 1,
    price: Annotated[float | None, typer.Option(help="Price of one machine per hour.", min=0)] = None,
    passages: Annotated[
        int, typer.Option(help="Number of passages to assume for data that does not exist yet.", min=1)
    ] = 1_000_000,
    tokens: Annotated[float, typer.Option(help="Number of tokens per passage to assume.", min=1)] = 100.0,
    model: Annotated[
        str | None,
        typer.Option(
            help="Model to plan for [default: BERT-base for the table, the bundled encoder for a build]."
        ),
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Minutes of training in the build [default: no training].", min=0)
    ] = None,
    json: Annotated[
        bool,
        typer.Option("--json", help="Print the estimates as one line of JSON; docs/json.md has the fields."),
    ] = False,
) -> None:
    """Estimate time, memory, disk and cost of a recipe or a build on a machine; without either, of three corpora.

    Example:

        liebig plan ~/articles --minutes 10
    """
    from liebig.base.hub import model_folder
    from liebig.builder.build_config import BuildConfig
    from liebig.methods.machines import Corpus, find_machine
    from liebig.planner import plan_build, plan_recipe, plan_table
    from liebig.stages import STAGES

    chosen = find_machine(machine).at(price, devices)
    first, *others = words or [""]
    if not first:
        made = plan_table(None if model is None else model_folder(model), chosen)
    elif first.endswith(".toml"):
        made = plan_recipe(STAGES, Path(first), others, chosen, Corpus(passages, tokens))
    else:
        config = BuildConfig(sources=(first, *others), model=model, minutes=minutes)
        made = plan_build(config, chosen)
    if json:
        print_json(made.document)
    else:
        typer.echo("\n".join(made.lines))
