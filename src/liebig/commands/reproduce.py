"""`liebig reproduce`: the tables of the papers, listed, planned and run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from liebig.base.json_output import print_json


def command(
    name: Annotated[
        str | None,
        typer.Argument(
            help="PAPER, PAPER/TABLE or PAPER/TABLE/ROW; `all` for everything [default: list them]."
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[STAGE.KEY=VALUE]...", help="Changes of all runs, as model.loop.epochs=8."),
    ] = None,
    data: Annotated[
        Path, typer.Option(help="Folder with the data sets; docs/data.md says what lies where.")
    ] = Path("data"),
    out: Annotated[
        Path, typer.Option(help="Where stages have their folders; stages that rows share are run once.")
    ] = Path("runs/papers"),
    only_plan: Annotated[
        bool, typer.Option("--plan", help="Print data, stages, GPU hours and cost, and run nothing.")
    ] = False,
    price: Annotated[float, typer.Option(help="Price of an hour of one H200, for --plan.", min=0)] = 3.0,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Two steps of every training, to see that all stages run.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the plan as one line of JSON.")] = False,
) -> None:
    """List, plan or run the tables and figures of the five papers, beside what the papers print.

    Example:

        liebig reproduce cocondenser/table-5 --plan
    """
    from liebig.base import pipeline
    from liebig.base.progress import announce
    from liebig.commands.run import in_words
    from liebig.reproduce import Reproduction, beside_paper, listing, paper_rows, select
    from liebig.stages import STAGES

    if name is None:
        typer.echo("\n".join(listing()))
        return
    rows = [row for row in paper_rows() if row.runs] if name == "all" else select(name)
    work = Reproduction(STAGES, out, data, smoke, overrides or ())
    for row in rows:
        work.add(row)
    if only_plan or json:
        from liebig.paper_plan import plan_papers

        plan = plan_papers(list(work.made.values()), price)
        if json:
            sources = {source: path.exists() for source, path in {**work.sources, **work.left_out}.items()}
            print_json({"data": sources, **plan.document})
            return
        for source, path in {**work.sources, **work.left_out}.items():
            use = "" if source in work.sources else ", evaluation only: left out"
            typer.echo(f"{source}: {'there' if path.exists() else f'missing ({path}){use}'}")
        typer.echo("\n".join(["", *plan.lines]))
        return
    stages = work.stages()
    for source, path in work.left_out.items():
        announce(f"NOT EVALUATED: {source}, because {path} is not there.")
    pipeline.run(stages, announce, in_words)
    page = beside_paper(rows, work.shown)
    typer.echo(page)
    (out / f"{name.replace('/', '-')}.md").write_text(page, encoding="utf-8")
