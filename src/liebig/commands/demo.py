"""`liebig demo`: `liebig build stdlib: --minutes 2`, then judged questions that come with the package.

The build is the one that everybody's folder gets, and prints the same. Afterwards 156 questions that it has not seen
are asked of BM25, of the untrained hybrid, and of what it chose (`liebig/demo`).
"""

from __future__ import annotations

import time
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from liebig.base.progress import announce, duration
from liebig.builder.build_config import BuildConfig
from liebig.commands.build import build_and_report

SOURCE = "stdlib:"
MINUTES = 2.0  # of training; all of the demo ends within about seven minutes on two cores


def run(out: Path, *, show: bool = False, source: str = SOURCE, minutes: float = MINUTES) -> None:
    """Build, ask the judged questions, and say what comes next."""
    began = time.monotonic()
    report = build_and_report(BuildConfig(sources=(source,), minutes=minutes), out)
    from liebig.demo import judge

    for line in [
        "",
        *judge(out).lines(),
        "",
        f"{duration(time.monotonic() - began)} in all. Next:",
        f'  liebig search {out} "merge two sorted lists"',
        f"  liebig serve {out}",
        "  liebig build YOUR_FOLDER --out runs/mine",
    ]:
        announce(line)
    if show:
        webbrowser.open(report.resolve().as_uri())


def command(
    out: Annotated[Path, typer.Option(help="The folder to write.")] = Path("runs/demo"),
    show: Annotated[bool, typer.Option("--open", help="Open the page in a browser at the end.")] = False,
) -> None:
    """Build a search engine for your Python's documentation and evaluate it on judged questions, in about 7 minutes.

    The same as `liebig build stdlib: --minutes 2`; then 156 questions that the build has not seen are asked of BM25, of
    the untrained hybrid and of what the build chose. It leaves a page and a folder for `liebig serve`. If interrupted,
    run it again to resume.

    Example:

        liebig demo --open
    """
    run(out, show=show)
