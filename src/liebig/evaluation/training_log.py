"""Training as the report shows it: loss and evaluation by step, events, speed and memory, from a stage's logs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from liebig.base.progress import quantity
from liebig.evaluation.plots import Axes, Series, lines
from liebig.evaluation.stage_runs import StageRun

POINTS = 400  # most points of a training curve
FEWEST = 3  # with fewer, a curve is a sentence


@dataclass(frozen=True)
class Training:
    """One training run: its plots by title, the events of its log, and its speed."""

    name: str
    plots: Sequence[tuple[str, str]]
    events: Sequence[str]
    speed: Sequence[tuple[str, str]]


def training_of(stage: StageRun, title: str) -> Training | None:
    """The training run of a stage, under a title; None if it has no log."""
    log = stage.lines("log.jsonl")
    if not log:
        return None
    events = _few_losses(log)
    events += [f"step {line['step']}: {line['event']}" for line in log if "event" in line]
    events += _single_evaluation(log)
    return Training(title, _plots(stage.name, log), events, speed_of(stage.lines("timing.jsonl")))


def _few_losses(log: Sequence[dict[str, Any]]) -> list[str]:
    """One or two logged losses as sentences, because they make no curve."""
    steps = [line for line in log if "loss" in line]
    return [f"step {line['step']}: loss {line['loss']:.4g}" for line in steps] if len(steps) < FEWEST else []


def _single_evaluation(log: Sequence[dict[str, Any]]) -> list[str]:
    """A single evaluation as a sentence, because one point makes no plot."""
    measured = [line for line in log if "evaluation" in line]
    if len(measured) != 1:
        return []
    values = ", ".join(f"{term} {value:.4g}" for term, value in measured[0]["evaluation"].items())
    return [f"step {measured[0]['step']}: evaluation {values}"]


def _plots(name: str, log: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    steps = [line for line in log if "loss" in line]
    measured = [line for line in log if "evaluation" in line]
    plots = []
    if len(steps) >= FEWEST:
        terms = _columns(steps, "losses")
        series = [_thin("loss", [line["step"] for line in steps], [line["loss"] for line in steps])]
        series += [_thin(term, x, y) for term, (x, y) in terms.items() if len(terms) > 1]
        plots.append(("Loss", lines(f"loss-{name}", series, Axes("step", "loss"), markers=False)))
    if len(measured) > 1:
        series = [Series(term, x, y) for term, (x, y) in _columns(measured, "evaluation").items()]
        plots.append(("Evaluation while training", lines(f"dev-{name}", series, Axes("step", "value"))))
    return plots


def _columns(log: Sequence[dict[str, Any]], key: str) -> dict[str, tuple[list[int], list[float]]]:
    """The series under a key: steps and values by name."""
    columns: dict[str, tuple[list[int], list[float]]] = {}
    for line in log:
        for name, value in line.get(key, {}).items():
            steps, values = columns.setdefault(name, ([], []))
            steps.append(line["step"])
            values.append(value)
    return columns


def _thin(name: str, steps: Sequence[float], values: Sequence[float]) -> Series:
    """A series of at most POINTS points; neighbours are averaged."""
    x, y = np.asarray(steps, dtype=np.float64), np.asarray(values, dtype=np.float64)
    if len(x) > POINTS:
        bins = np.array_split(np.arange(len(x)), POINTS)
        x, y = (np.array([column[part].mean() for part in bins]) for column in (x, y))
    return Series(name, x, y)


RATES: dict[str, tuple[str, Callable[[Sequence[float]], Any], Callable[[float], str]]] = {
    "tokens_per_second": ("tokens per second (median)", np.median, quantity),
    "seconds_per_step": ("seconds per step (median)", np.median, "{:.3g}".format),
    "waiting": ("share of time waiting for data", np.mean, "{:.1%}".format),
    "peak_gib": ("peak memory of the device", np.max, "{:.1f} GiB".format),
}


def speed_of(timing: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    """Rates and peak memory over the lines that have them."""
    columns = {key: [line[key] for line in timing if key in line] for key in RATES}
    return [
        (name, in_words(float(over(columns[key]))))
        for key, (name, over, in_words) in RATES.items()
        if columns[key]
    ]
