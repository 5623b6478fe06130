"""The figure of `summary.py`: masked terms above, contrastive losses below them, vectors and speed at the bottom.

All curves run over millions of tokens. Masked terms share one axis, contrastive losses another, with log(candidates),
the loss of an encoder that cannot tell them apart, as a line. The objectives that make vectors keep their colours
throughout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import log
from pathlib import Path
from statistics import median
from typing import Any

from logs import Run, values

COLUMNS = 4
INK, GREY = "#222222", "#8a8a8a"
TERMS = ("#444444", "#c9962a")
VECTORS = ("#6a3d9a", "#1f5f8b", "#2e8b57", "#b3541e")
MEASURES = {
    "partner_accuracy": ("own partner has the best score", (0, 1.02)),
    "spread": ("spread (0: one point, 1: random)", (0, 1.02)),
    "uniformity": ("uniformity (0: one point, −4: even)", (-4, 0)),
}


def draw(runs: Sequence[Run], candidates: Mapping[str, int | None], path: Path) -> None:
    """Three rows of panels as one PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    masked = [run for run in runs if masked_terms(run)]
    contrasted = [run for run in runs if "contrast" in run.steps[0]["losses"]]
    pyplot.rcParams.update({"font.size": 8, "axes.titlesize": 9, "text.color": INK, "axes.edgecolor": GREY})
    figure, axes = pyplot.subplots(3, COLUMNS, figsize=(11, 7.6), layout="constrained")
    longest = max(run.steps[-1]["tokens"] for run in runs) / 1e6
    for panel in axes.flat[:-1]:
        panel.set(xlim=(-0.02 * longest, 1.02 * longest), xlabel="M tokens")
    row(axes[0], [(run, partial(masked_panel, run=run)) for run in masked], "masked-token loss", bottom=3)
    panels = [
        (run, partial(contrast_panel, run=run, many=candidates.get(run.name), colour=colour))
        for run, colour in zip(contrasted, VECTORS)
    ]
    row(axes[1], panels, "contrastive loss")
    for panel, (name, (title, limits)) in zip(axes[2], MEASURES.items()):
        measure_panel(panel, contrasted, name)
        panel.set(title=title, ylim=limits)
    speed_panel(axes[2, 3], runs)
    for panel in axes.flat:
        panel.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)


def row(panels: Any, drawn: Sequence[tuple[Run, Any]], label: str, bottom: float = 0) -> None:
    """A panel a run, all with the same vertical axis; what is left over stays empty."""
    assert len(drawn) <= len(panels), f"{len(drawn)} runs do not fit into a row"
    used = panels[: len(drawn)]
    for panel, (run, draw_on) in zip(used, drawn):
        draw_on(panel)
        panel.set_title(run.name)
    top = max((panel.get_ylim()[1] for panel in used), default=1)
    for panel in used:
        panel.set_ylim(bottom, top)
    for panel in panels[len(drawn) :]:
        panel.set_axis_off()
    panels[0].set_ylabel(label)


def masked_terms(run: Run) -> list[str]:
    return [name for name in run.steps[0]["losses"] if name != "contrast" and "accuracy" not in name]


def masked_panel(panel: Any, run: Run) -> None:
    """Each masked term with its name and its end."""
    for name, colour in zip(masked_terms(run), TERMS):
        curve(panel, run, name, colour, f"{name}, {run.end(name):.2f} at the end")
    panel.legend(frameon=False, loc="upper right")


def contrast_panel(panel: Any, run: Run, many: int | None, colour: str) -> None:
    """The contrastive loss, and what it is for an encoder that cannot tell its candidates apart."""
    curve(panel, run, "contrast", colour, f"{run.end('contrast'):.2f} at the end")
    if many is not None:
        panel.axhline(
            log(many), color=GREY, linestyle="--", linewidth=1, label=f"log({many:,}) = {log(many):.2f}"
        )
    panel.legend(frameon=False, loc="upper right")


def measure_panel(panel: Any, runs: Sequence[Run], name: str) -> None:
    """One measure of all objectives with vectors."""
    for run, colour in zip(runs, VECTORS):
        curve(panel, run, name, colour, run.name)
    if name == "spread":  # the panel with room for it
        panel.legend(frameon=False, loc="center right", bbox_to_anchor=(1, 0.62))


def curve(panel: Any, run: Run, name: str, colour: str, label: str) -> None:
    tokens = [line["tokens"] / 1e6 for line in run.steps]
    found = [values(line)[name] for line in run.steps]
    panel.plot(tokens, found, color=colour, linewidth=1.4, label=label)


def speed_panel(panel: Any, runs: Sequence[Run]) -> None:
    """A bar an objective, the first on top."""
    speeds = [median(run.speeds) / 1e6 for run in runs]
    bars = panel.barh([run.name for run in runs], speeds, color="#9db8c9", height=0.7)
    panel.bar_label(bars, fmt="%.1f", padding=3)
    panel.invert_yaxis()
    panel.set(title="M tokens/s (median)", xlim=(0, 1.15 * max(speeds)))
