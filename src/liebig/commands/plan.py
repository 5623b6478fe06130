"""`liebig plan`: options only; the planner, which knows every stage, is imported when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from liebig.base.json_output import print_json


def command(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="RECIPE [KEY=VALUE]... | SOURCE...",
            help="A recipe (.toml), or documents as for liebig build.",
        ),
    ],
    passages: Annotated[
        int, typer.Option(help="Number of passages to assume for data that does not exist yet.", min=1)
    ] = 1_000_000,
    tokens: Annotated[float, typer.Option(help="Number of tokens per passage to assume.", min=1)] = 100.0,
    model: Annotated[
        str | None,
        typer.Option(help="Model of the build [default: the bundled encoder]."),
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Minutes of training in the build [default: no training].", min=0)
    ] = None,
    json: Annotated[
        bool,
        typer.Option("--json", help="Print the estimates as one line of JSON; docs/json.md has the fields."),
    ] = False,
) -> None:
    """Estimate time, memory and disk of a recipe or a build on this machine.

    Time is measured on the first texts and a few steps of each training, so it needs the data.

    Example:

        liebig plan ~/articles --minutes 10
    """
    from liebig.builder.build_config import BuildConfig
    from liebig.planner import CorpusSize, plan_build, plan_recipe
    from liebig.stages import STAGES

    first, *others = words
    if first.endswith(".toml"):
        made = plan_recipe(STAGES, Path(first), others, CorpusSize(passages, tokens))
    else:
        made = plan_build(BuildConfig(sources=(first, *others), model=model, minutes=minutes))
    if json:
        print_json(made.document)
    else:
        typer.echo("\n".join(made.lines))
