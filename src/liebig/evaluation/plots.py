"""Plots as SVG text, to stand in a page or a file: no pixels, no fonts inside, the colour of text taken from the page.

matplotlib draws; what it draws in the ink colour becomes `currentColor`, so a plot follows a light or dark page. The
same data gives the same bytes. Ids inside carry the plot's name, so many plots can stand in one page.
"""

from __future__ import annotations

import io
import logging
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

INK = "#1a2b3c"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a6d3b", "#7f7f7f")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
WIDTH, HEIGHT = 6.4, 3.6
LABEL = 30  # characters of a line of a row's name
MOST_INSIDE = 5  # names of lines that stand inside a plot; more would cover its points


@dataclass(frozen=True, eq=False)
class Series:
    """A line: its points, and a band around it where `low` and `high` are given."""

    name: str
    x: ArrayLike
    y: ArrayLike
    low: ArrayLike | None = None
    high: ArrayLike | None = None
    dashed: bool = False
    colour: int | None = None


@dataclass(frozen=True, slots=True)
class Axes:
    """What the axes say."""

    x: str
    y: str
    log_x: bool = False
    log_y: bool = False


def lines(name: str, series: Sequence[Series], axes: Axes, markers: bool = True) -> str:
    """Lines with markers and bands; every line has its own colour and marker, so that colour alone says nothing."""
    figure, plot = _figure()
    for i, line in enumerate(series):
        colour = COLOURS[(i if line.colour is None else line.colour) % len(COLOURS)]
        marker = MARKERS[i % len(MARKERS)] if markers else None
        plot.plot(
            np.asarray(line.x), np.asarray(line.y), label=line.name, color=colour, marker=marker,
            markersize=4, linewidth=1.6, linestyle="--" if line.dashed else "-",
        )  # fmt: skip
        if line.low is not None and line.high is not None:
            plot.fill_between(
                np.asarray(line.x),
                np.asarray(line.low),
                np.asarray(line.high),
                color=colour,
                alpha=0.18,
                lw=0,
            )
    return _finish(name, figure, plot, axes, legend=len(series) > 1)


def intervals(name: str, rows: Sequence[tuple[str, float, float, float]], axes: Axes) -> str:
    """Means with their intervals, one row each, the first on top: `rows` are name, mean, low and high."""
    names = [textwrap.fill(label, LABEL) for label, *_ in rows]
    most = max((name.count("\n") for name in names), default=0)
    figure, plot = _figure(height=max(1.6, (0.36 + 0.14 * most) * len(rows) + 0.9))
    places = np.arange(len(rows))[::-1]
    for place, (_, mean, low, high) in zip(places, rows):
        plot.plot([low, high], [place, place], color=COLOURS[0], linewidth=2.2, solid_capstyle="butt")
        plot.plot([mean], [place], color=COLOURS[0], marker="o", markersize=7)
        plot.annotate(
            f"{mean:.3f}", (mean, place), xytext=(0, 7), textcoords="offset points", ha="center", color=INK,
            fontsize=8.5,
        )  # fmt: skip
    plot.set_yticks(places, names)
    plot.set_ylim(-0.6, len(rows) - 0.3)
    return _finish(name, figure, plot, axes, legend=False)


def write_svg(path: Path, svg: str) -> None:
    """A plot as a file of its own; viewers take `currentColor` for black."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(svg, encoding="utf-8")


def _figure(height: float = HEIGHT) -> tuple[Any, Any]:
    logging.getLogger("matplotlib.font_manager").setLevel(
        logging.ERROR
    )  # it says that it makes a list of fonts
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    figure.patch.set_alpha(0)
    plot = figure.add_subplot()
    plot.patch.set_alpha(0)
    return figure, plot


def _finish(name: str, figure: Any, plot: Any, axes: Axes, legend: bool) -> str:
    plot.set_xlabel(axes.x, color=INK)
    plot.set_ylabel(axes.y, color=INK)
    outside = legend and len(plot.get_legend_handles_labels()[1]) > MOST_INSIDE
    if axes.log_x:
        _log_ticks(plot, most=6 if outside else 10)
    if axes.log_y:
        plot.set_yscale("log")
    plot.tick_params(colors=INK, which="both")
    plot.grid(alpha=0.25, color=INK, linewidth=0.6)
    plot.set_axisbelow(True)
    for side, spine in plot.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(INK)
    if outside:
        figure.legend(frameon=False, labelcolor=INK, loc="outside right center")
    elif legend:
        plot.legend(frameon=False, labelcolor=INK)
    return _svg(name, figure)


def _log_ticks(plot: Any, most: int) -> None:
    """A logarithmic axis whose ticks are the points themselves, about `most` of them, in plain numbers."""
    values = sorted({float(x) for line in plot.lines for x in line.get_xdata()})
    step = max(1.5, (values[-1] / values[0]) ** (1 / most)) if values else 1.5
    kept: list[float] = []
    for x in values:
        if not kept or x >= step * kept[-1]:
            kept.append(x)
    plot.set_xscale("log")
    plot.set_xticks(kept, [_short(x) for x in kept])
    plot.minorticks_off()


def _short(x: float) -> str:
    """300, 10k, 1M."""
    if x >= 1e6:
        return f"{x / 1e6:g}M"
    return f"{x / 1e3:g}k" if x >= 1e4 else f"{x:g}"


def _svg(name: str, figure: Any) -> str:
    import matplotlib as mpl

    buffer = io.StringIO()
    style = {"svg.fonttype": "none", "svg.hashsalt": name, "font.family": "sans-serif", "font.size": 10}
    with mpl.rc_context(style):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :].replace(INK, "currentColor")
    safe = re.sub(r"\W", "-", name)
    return re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{safe}-", text)
