"""Stages of a recipe by name, two rows of them side by side: what `liebig run` does, where minutes count.

    python experiments/encoders/run.py RECIPE --out RUNS --stages collection tokenizer --beside wiki squad nq

runs two rows of stages at the same time (each in order, what is up to date skipped), so that processors cut texts
while the GPU trains. `--set KEY=VALUE ...` overrides the recipe, as for `liebig run`. Each stage prints its minutes.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from liebig import pipeline
from liebig.stages import STAGES


def row(recipe: Path, out: Path, names: Sequence[str], overrides: Sequence[str]) -> None:
    """Run the named stages in the recipe's order."""
    planned = {item.name: item for item in pipeline.plan(STAGES, recipe, list(overrides), out)}
    for name in names:
        began = time.monotonic()
        if planned[name].up_to_date:
            print(f"{name}: up to date", flush=True)
            continue
        pipeline.run_stage(planned[name].stage, planned[name].config, planned[name].out)
        print(f"{name}: {(time.monotonic() - began) / 60:.2f} minutes", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--stages", nargs="+", required=True)
    parser.add_argument("--beside", nargs="+", default=[])
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", dest="overrides")
    asked = parser.parse_args()
    spawn = multiprocessing.get_context("spawn")
    rows = [names for names in (asked.stages, asked.beside) if names]
    running = [spawn.Process(target=row, args=(asked.recipe, asked.out, r, asked.overrides)) for r in rows]
    for process in running:
        process.start()
    for process in running:
        process.join()
    sys.exit(max(abs(process.exitcode or 0) for process in running))


if __name__ == "__main__":
    main()
