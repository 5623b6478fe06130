"""The runs of `objectives.toml` as two tables and one figure: losses, speed, and whether vectors collapse.

    liebig run experiments/pretraining/objectives.toml --out runs/objectives
    python experiments/pretraining/summary.py runs/objectives --out experiments/pretraining

reads each stage's `log.jsonl` and `timing.jsonl`; writes `objectives.md`, `objectives.png` and `logs.jsonl.xz`, from
which both can be made again (`--logs logs.jsonl.xz` instead of a folder of runs). Order and batch sizes are those of
the recipe beside this file, whenever a stage was run.
"""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from curves import draw
from logs import Run, keep, read_folder, read_kept, values

RECIPE = Path(__file__).with_name("objectives.toml")
RUNS = (
    "objective", "steps", "M tokens", "seconds of steps", "k tokens a step", "M tokens/s", "spread", "uniformity",
)  # fmt: skip
TERMS = ("objective", "term", "loss", "held out", "accuracy", "held out")


def stages(recipe: Path = RECIPE) -> dict[str, Any]:
    """The recipe's stages, in its order."""
    found: dict[str, Any] = tomllib.loads(recipe.read_text(encoding="utf-8"))["stages"]
    return found


def in_order(runs: Sequence[Run], names: Sequence[str]) -> list[Run]:
    """As the recipe has them; a stage that it does not have comes last."""
    return sorted(runs, key=lambda run: names.index(run.name) if run.name in names else len(names))


def candidates(stage: Mapping[str, Any]) -> int | None:
    """Among how many vectors a partner is looked for; None where nothing is contrasted."""
    kind, batch = stage["objective"]["kind"], stage["loop"].get("batch", 0)
    return {
        "cocondenser": 2 * batch - 1,  # every other span of the batch
        "simclr": batch,
        "moco": stage["objective"].get("queue", 0) + 1,
    }.get(kind)


def table(header: Sequence[str], rows: Iterable[Sequence[str]], words: int = 1) -> str:
    """As Markdown; columns after the first `words` are numbers."""
    rule = ["---"] * words + ["---:"] * (len(header) - words)
    return "".join(f"| {' | '.join(row)} |\n" for row in (header, rule, *rows))


def run_row(run: Run) -> list[str]:
    """Size and speed of a run, and its vectors where it makes any."""
    last = run.steps[-1]
    return [
        run.name,
        f"{last['step']:,}",
        f"{last['tokens'] / 1e6:,.1f}",
        f"{run.seconds:.1f}",
        f"{last['tokens'] / last['step'] / 1e3:,.0f}",
        f"{median(run.speeds) / 1e6:.2f}",
        change(run, "spread"),
        change(run, "uniformity"),
    ]


def term_rows(run: Run) -> Iterator[list[str]]:
    """Every term of the loss with its accuracy: of masked tokens, or of partners."""
    for name in run.steps[-1]["losses"]:
        if name.endswith("accuracy"):
            continue
        accuracy = "partner_accuracy" if name == "contrast" else f"{name}_accuracy"
        measured = [(change(run, key), held_out(run, key)) for key in (name, accuracy)]
        yield [run.name, name, *measured[0], *measured[1]]


def change(run: Run, name: str) -> str:
    """First step and end; nothing where it is not measured."""
    first = values(run.steps[0]).get(name)
    return "" if first is None else f"{first:.3f} -> {run.end(name):.3f}"


def held_out(run: Run, name: str) -> str:
    return f"{run.held_out[name]:.3f}" if name in run.held_out else ""


def report(runs: Sequence[Run]) -> str:
    """Both tables."""
    terms = [row for run in runs for row in term_rows(run)]
    return table(RUNS, map(run_row, runs)) + "\n" + table(TERMS, terms, words=2)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=Path, nargs="?")
    parser.add_argument("--logs", type=Path, help="kept logs instead of runs")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    if (asked.runs is None) == (asked.logs is None):
        parser.error("give a folder of runs, or --logs")
    made = stages()
    runs = in_order(read_folder(asked.runs) if asked.runs else read_kept(asked.logs), list(made))
    asked.out.mkdir(parents=True, exist_ok=True)
    keep(runs, asked.out / "logs.jsonl.xz")
    text = report(runs)
    (asked.out / "objectives.md").write_text(text, encoding="utf-8")
    draw(runs, {name: candidates(stage) for name, stage in made.items()}, asked.out / "objectives.png")
    print(text)


if __name__ == "__main__":
    main()
