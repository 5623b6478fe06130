"""Stages of a recipe by name, two rows of them side by side: what `liebig run` does, where minutes count.

    python experiments/encoders/run.py RECIPE --out RUNS --stages collection tokenizer --beside wiki squad nq

runs two rows of stages at the same time (each in order, what is up to date skipped), so that processors cut texts
while the GPU trains. `--set KEY=VALUE ...` overrides the recipe, as for `liebig run`. Each stage prints its minutes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import beside

from liebig.base import pipeline
from liebig.stages import STAGES


def row(
    recipe: Path, out: Path, names: Sequence[str], overrides: Sequence[str], last: str | None = None
) -> None:
    """Run the named stages in the recipe's order; `last` is another folder for the last one."""
    planned = {item.name: item for item in pipeline.plan(STAGES, recipe, list(overrides), out)}
    for name in names:
        began, item = time.monotonic(), planned[name]
        if last is not None and name == names[-1]:
            item = replace(item, out=out / last)
        if item.up_to_date:
            print(f"{name}: up to date", flush=True)
            continue
        pipeline.run_stage(item.stage, item.config, item.out)
        print(f"{name}: {(time.monotonic() - began) / 60:.2f} minutes", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--stages", nargs="+", required=True)
    parser.add_argument("--beside", nargs="+", default=[])
    parser.add_argument("--as", dest="last", help="another folder for the last stage")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", dest="overrides")
    asked = parser.parse_args()
    rows = [(asked.stages, asked.last), (asked.beside, None)]
    calls = [(asked.recipe, asked.out, names, asked.overrides, last) for names, last in rows if names]
    beside.run_and_exit(row, calls)


if __name__ == "__main__":
    main()
