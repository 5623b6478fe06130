"""The runs of `objectives.toml` as one table and one figure: losses, speed, and whether vectors collapse.

    liebig run experiments/pretraining/objectives.toml --out runs/objectives
    python experiments/pretraining/summary.py runs/objectives --out experiments/pretraining

reads each stage's `log.jsonl` and `timing.jsonl`; writes `objectives.md`, `objectives.png` and `logs.jsonl.xz`, from
which both can be made again (`--logs logs.jsonl.xz` instead of a folder of runs).
"""

from __future__ import annotations

import argparse
import json
import lzma
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

Line = Mapping[str, Any]


@dataclass
class Run:
    """One objective's log, and its speeds."""

    name: str
    log: list[Line] = field(default_factory=list)
    speeds: list[float] = field(default_factory=list)

    @property
    def steps(self) -> list[Line]:
        return [line for line in self.log if "loss" in line]


def read_folder(folder: Path) -> list[Run]:
    """The stages of a run, oldest first."""
    found = []
    stages = [path.parent for path in folder.glob("*/log.jsonl")]
    for stage in sorted(stages, key=lambda path: (path / "manifest.json").stat().st_mtime):
        speeds = [
            line["tokens_per_second"] for line in lines(stage / "timing.jsonl") if "tokens_per_second" in line
        ]
        found.append(Run(stage.name, lines(stage / "log.jsonl"), speeds))
    return found


def lines(path: Path) -> list[Line]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def read_kept(path: Path) -> list[Run]:
    with lzma.open(path, "rt", encoding="utf-8") as file:
        return [Run(**json.loads(line)) for line in file]


def keep(runs: Sequence[Run], path: Path) -> None:
    """All logs in one small file."""
    with lzma.open(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps({"name": r.name, "log": r.log, "speeds": r.speeds}) + "\n" for r in runs)


def table(runs: Sequence[Run]) -> Iterator[str]:
    """A row an objective; vectors' measures only where the objective makes vectors."""
    yield "| objective | steps | M tokens | M tokens/s | loss | terms at the end | spread | uniformity | accuracy |"
    yield "| --- | ---: | ---: | ---: | --- | --- | --- | --- | ---: |"
    for run in runs:
        first, last = run.steps[0], run.steps[-1]
        terms = ", ".join(f"{name} {value:.3f}" for name, value in last["losses"].items())
        measured = [change(first, last, name) for name in ("spread", "uniformity")]
        accuracy = last["metrics"].get("accuracy")
        ends = f"{first['loss']:.3f} -> {last['loss']:.3f}"
        cells = [
            run.name, f"{last['step']:,}", f"{last['tokens'] / 1e6:,.0f}", f"{median(run.speeds) / 1e6:.2f}",
            ends, terms, *measured, "" if accuracy is None else f"{accuracy:.3f}",
        ]  # fmt: skip
        yield f"| {' | '.join(cells)} |"


def change(first: Line, last: Line, name: str) -> str:
    if name not in last["metrics"]:
        return ""
    return f"{first['metrics'][name]:.3f} -> {last['metrics'][name]:.3f}"


def draw(runs: Sequence[Run], path: Path) -> None:
    """Loss over tokens, one panel an objective, with the spread of the vectors below it where there are any."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, len(runs), figsize=(2.3 * len(runs), 4.2), sharex="col", squeeze=False)
    for column, run in enumerate(runs):
        tokens = [line["tokens"] / 1e6 for line in run.steps]
        above, below = axes[:, column]
        above.plot(tokens, [line["loss"] for line in run.steps], color="#1f5f8b", linewidth=1.3)
        above.set_title(run.name, fontsize=9)
        spread = [line["metrics"].get("spread") for line in run.steps]
        if any(value is not None for value in spread):
            below.plot(tokens, spread, color="#b3541e", linewidth=1.3)
            below.set_ylim(0, 1)
        else:
            below.text(
                0.5, 0.5, "no vectors", ha="center", va="center", transform=below.transAxes, fontsize=8
            )
            below.set_yticks([])
        below.set_xlabel("M tokens", fontsize=8)
        for panel in (above, below):
            panel.tick_params(labelsize=7)
            panel.spines[["top", "right"]].set_visible(False)
    axes[0, 0].set_ylabel("loss", fontsize=8)
    axes[1, 0].set_ylabel("spread of the vectors", fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=130)


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
    runs = read_folder(asked.runs) if asked.runs else read_kept(asked.logs)
    asked.out.mkdir(parents=True, exist_ok=True)
    if asked.runs:
        keep(runs, asked.out / "logs.jsonl.xz")
    text = "\n".join(table(runs)) + "\n"
    (asked.out / "objectives.md").write_text(text, encoding="utf-8")
    draw(runs, asked.out / "objectives.png")
    print(text)


if __name__ == "__main__":
    main()
