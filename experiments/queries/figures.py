"""The arms with their intervals, as they come from pre-training and after tuning.

    python experiments/queries/figures.py experiments/queries/results.json experiments/queries

writes arms.svg.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt

STATES = ("zero-shot", "tuned")
COLOURS = {"start": "0.45", "cocondenser": "C0", "cotmae": "C1"}


def arms(lines: Sequence[dict], out: Path) -> None:
    """A panel a state and test; filled where p against the objective's spans is under .05 after Holm."""
    tests = list(dict.fromkeys(line["test"] for line in lines))
    figure, panels = plt.subplots(len(STATES), len(tests), figsize=(10, 4.6), squeeze=False, sharey=True)
    for row, state in zip(panels, STATES):
        for panel, test in zip(row, tests):
            own = [line for line in lines if (line["state"], line["test"]) == (state, test)]
            for y, line in enumerate(reversed(own)):
                colour, told = COLOURS[line["arm"].partition("-")[0]], line.get("p_holm", 1) < 0.05
                panel.plot((line["low"], line["high"]), (y, y), color=colour)
                panel.plot(line["means"][0], y, "o", color=colour, mfc=colour if told else "white")
            panel.set_yticks(range(len(own)), [line["arm"] for line in reversed(own)])
            panel.set_title(f"{test}, {state}", fontsize=9)
            panel.tick_params(labelsize=8)
            panel.spines[["top", "right"]].set_visible(False)
            panel.locator_params(axis="x", nbins=5)
    figure.supxlabel("nDCG@10, 95 % intervals over three seeds and documents; axes differ", fontsize=9)
    figure.tight_layout()
    figure.savefig(out, metadata={"Date": None})


def main(words: Sequence[str]) -> None:
    plt.rcParams |= {"svg.hashsalt": "liebig", "svg.fonttype": "none"}
    arms(json.loads(Path(words[0]).read_text(encoding="utf-8")), Path(words[1]) / "arms.svg")


if __name__ == "__main__":
    main(sys.argv[1:])
