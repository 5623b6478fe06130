"""Loss and held-out quality against tokens, from the logs of runs, as one SVG.

    python experiments/encoders/figures.py OUT.svg mlm=experiments/encoders/start.log.jsonl mini=...

One panel for the training loss, one for each held-out measure; a line for each log that has it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib.pyplot as plt

Points = list[tuple[float, float]]


def read(path: Path) -> dict[str, Points]:
    """Values by name, each with the millions of tokens seen by then."""
    found: dict[str, Points] = {}
    tokens = 0.0
    for line in map(json.loads, path.read_text().splitlines()):
        tokens = line.get("tokens", tokens * 1e6) / 1e6
        values = {"loss": line["loss"]} if "loss" in line else {}
        values |= {f"held out: {name}": value for name, value in line.get("evaluation", {}).items()}
        for name, value in values.items():
            found.setdefault(name, []).append((tokens, value))
    return found


def draw(runs: Mapping[str, Mapping[str, Points]], out: Path) -> None:
    """One panel a measure."""
    names = list(dict.fromkeys(name for found in runs.values() for name in found))
    figure, panels = plt.subplots(1, len(names), figsize=(3.4 * len(names), 2.8), squeeze=False)
    for panel, name in zip(panels[0], names):
        for run, found in runs.items():
            if name in found:
                panel.plot(*zip(*found[name]), label=run, marker="o" if len(found[name]) < 20 else None, ms=3)
        panel.set(xlabel="M tokens", title=name)
        panel.legend(frameon=False, fontsize=8)
        panel.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(out, metadata={"Date": None})


def main(words: Sequence[str]) -> None:
    named = dict(word.split("=", 1) for word in words[1:])
    plt.rcParams["svg.hashsalt"] = "liebig"
    draw({name: read(Path(path)) for name, path in named.items()}, Path(words[0]))


if __name__ == "__main__":
    main(sys.argv[1:])
