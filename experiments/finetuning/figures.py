"""Two figures of the table: differences against random batches, and dev after every evaluation.

    python experiments/finetuning/figures.py experiments/finetuning/results.json experiments/finetuning

writes differences.svg and curves.svg.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

SHOWN = {"random": "0.45", "abs-greedy": "C0", "abs-beam": "C1", "abs-bm25": "C2", "asam": "C3"}
"""The methods whose curves are drawn: those that differ in batches or optimiser only."""


def differences(lines: Sequence[dict], out: Path) -> None:
    """A panel a set and test: each method's difference with its interval, filled where p after Holm is under .05."""
    tests = list(dict.fromkeys((line["set"], line["test"]) for line in lines))
    figure, panels = plt.subplots(2, -(-len(tests) // 2), figsize=(12, 5.2), squeeze=False)
    for panel, (name, test) in zip(panels.flat, tests):
        own = [one for one in lines if (one["set"], one["test"]) == (name, test) and "difference" in one]
        for y, line in enumerate(reversed(own)):
            told, d = line["p_holm"] < 0.05, line["difference"]
            panel.plot((d["low"], d["high"]), (y, y), color="C0")
            panel.plot(d["mean"], y, "o", color="C0", mfc="C0" if told else "white")
        panel.set_yticks(range(len(own)), [line["method"] for line in reversed(own)])
        base = next(
            one["means"][0]
            for one in lines
            if (one["set"], one["test"], one["method"]) == (name, test, "random")
        )
        title = name if name == test or name.startswith(test) else f"{name}: {test}"
        panel.set_title(f"{title} (random {base:.3f})", fontsize=9)
        panel.set_ylim(-0.6, len(own) - 0.4)
        panel.locator_params(axis="x", nbins=4)
        panel.axvline(0, color="0.7", lw=0.8, zorder=0)
        _plain(panel)
    for panel in panels.flat[len(tests) :]:
        panel.set_visible(False)
    figure.supxlabel(
        "nDCG@10 less that of random batches, 95 % intervals over seeds and documents", fontsize=9
    )
    _save(figure, out)


def curves(lines: Sequence[dict], out: Path) -> None:
    """A panel a set: dev after every evaluation, a thin line a seed."""
    names = list(dict.fromkeys(line["set"] for line in lines))
    figure, panels = plt.subplots(1, len(names), figsize=(12, 2.9), squeeze=False)
    for panel, name in zip(panels[0], names):
        own = {line["method"]: line["dev"] for line in lines if line["set"] == name and "dev" in line}
        for method in (method for method in SHOWN if method in own):
            mean = [sum(values) / len(values) for values in zip(*own[method])]
            places = range(1, len(mean) + 1)
            panel.plot(places, mean, color=SHOWN[method], label=method, lw=1.8, zorder=3)
            for values in own[method]:
                panel.plot(places, values, color=SHOWN[method], lw=0.5, alpha=0.6)
        panel.legend(frameon=False, fontsize=7)
        panel.set_title(name, fontsize=9)
        panel.set_xticks(list(places))
        _plain(panel)
    panels[0][0].set_ylabel("nDCG@10 on dev", fontsize=9)
    figure.supxlabel("evaluation (after equal numbers of epochs; the last at the end)", fontsize=9)
    _save(figure, out)


def _plain(panel: Axes) -> None:
    panel.tick_params(labelsize=8)
    panel.spines[["top", "right"]].set_visible(False)


def _save(figure: plt.Figure, out: Path) -> None:
    figure.tight_layout()
    figure.savefig(out, metadata={"Date": None})


def main(words: Sequence[str]) -> None:
    plt.rcParams["svg.hashsalt"] = "liebig"
    lines = json.loads(Path(words[0]).read_text())
    differences(lines, Path(words[1]) / "differences.svg")
    curves(lines, Path(words[1]) / "curves.svg")


if __name__ == "__main__":
    main(sys.argv[1:])
