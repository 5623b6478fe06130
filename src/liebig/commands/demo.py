"""`liebig demo`: a search engine for the documentation of your own Python, evaluated on questions that come with it.

BM25, the bundled encoder before training, the same after a minute of training on the corpus, and both together; a
table with intervals and tests, a page, and a folder that `liebig serve` opens. Cost: about four minutes on two cores,
in which the corpus is encoded twice and the encoder trained for one minute; a second run does only what is missing.
"""

from __future__ import annotations

import time
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from liebig import encoders
from liebig.base import pipeline
from liebig.base.json_output import without_text
from liebig.base.pipeline import Planned, Stage
from liebig.base.progress import Whole, announce, duration, is_verbose
from liebig.commands import STAGES
from liebig.commands.plan import known_seconds
from liebig.demo import recipe, results
from liebig.search.retriever_folder import write
from liebig.train.log import warnings_of

Say = Callable[[str], None]


def run(
    table: Mapping[str, Stage],
    out: Path,
    say: Say,
    *,
    tell: Say = print,
    show: bool = False,
    source: str = "stdlib:",
    minutes: float = recipe.MINUTES,
) -> None:
    """Run the stages with a line for each, print the results, and write a retriever and a page."""
    began, stages = time.monotonic(), {**table, **recipe.OWN}
    first = recipe.first_half(source, minutes)
    with Whole(recipe.LINES, say, _seconds(pipeline.plan_stages(stages, first, out)), ["model"]) as whole:
        run_stages(whole, pipeline.plan_stages(stages, first, out))
        choice = results.choose(out)
        second = recipe.second_half(choice.found)
        planned = pipeline.plan_stages(stages, {**first, **second}, out)
        run_stages(whole, planned[len(first) :])
    write(out, choice.description())
    page = out / "report" / "report.html"
    short = warnings_of(out / "model")
    for line in ["", *results.lines(out, choice), *short, *closing(out, page, time.monotonic() - began)]:
        tell(line)
    if show:
        webbrowser.open(page.resolve().as_uri())


def run_stages(whole: Whole, planned: Sequence[Planned]) -> None:
    """Run stages without what they print as commands."""
    with without_text(not is_verbose()):
        pipeline.run_within(whole, planned)


def _seconds(planned: Sequence[Planned]) -> Callable[[str], float | None]:
    """How long the stages up to the rankings take; those after them take seconds."""
    known, by_name = known_seconds(), {item.name: item for item in planned}
    short = {"found", "found-before"}
    return lambda name: known(by_name[name]) if name in by_name and name not in short else 0.0


def closing(out: Path, page: Path, seconds: float) -> list[str]:
    """Where things are, and the next three commands."""
    return [
        "",
        f"{duration(seconds)} in all. Questions won and lost, with their texts: {page}",
        "",
        "Next:",
        f'  liebig search {out} "merge two sorted lists"',
        f"  liebig serve {out}",
        "  liebig build YOUR_FOLDER --out runs/mine",
        "",
        encoders.ADVICE,
    ]


def command(
    out: Annotated[Path, typer.Option(help="The folder to write.")] = Path("runs/demo"),
    show: Annotated[bool, typer.Option("--open", help="Open the page in a browser at the end.")] = False,
) -> None:
    """Build a search engine for your Python's documentation and evaluate it on 309 questions, in about five minutes.

    BM25, the bundled encoder before training, the same after a minute of training on the corpus, and both together: a
    table with intervals and tests, a page, and a folder for `liebig serve`. If interrupted, run it again to resume.

    Example:

        liebig demo --open
    """
    run(STAGES, out, announce, show=show)
