"""The logs of runs, as `liebig pretrain` leaves them, and kept in one small file.

A line of a log is the mean of the steps since the line before, so the first is one step with the weights of the
start, and the end is here the mean of the last lines that are at least `ENDING` steps together.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import fsum
from pathlib import Path
from typing import Any

Line = Mapping[str, Any]
ENDING = 20


@dataclass
class Run:
    """One objective's log, and its speeds."""

    name: str
    log: list[Line] = field(default_factory=list)
    speeds: list[float] = field(default_factory=list)

    @property
    def steps(self) -> list[Line]:
        return [line for line in self.log if "loss" in line]

    @property
    def held_out(self) -> Mapping[str, float]:
        """The last evaluation."""
        found: list[Mapping[str, float]] = [line["evaluation"] for line in self.log if "evaluation" in line]
        return found[-1] if found else {}

    @property
    def seconds(self) -> float:
        """Of all steps: each line's tokens at its speed."""
        tokens = pairwise([0, *(line["tokens"] for line in self.steps)])
        return fsum((b - a) / speed for (a, b), speed in zip(tokens, self.speeds, strict=True))

    def end(self, name: str, most: int = ENDING) -> float:
        """Mean of a value over the last lines, weighted by their steps, until there are `most` steps or more."""
        starts = [0, *(line["step"] for line in self.steps)]
        total, steps = 0.0, 0
        for before, line in reversed(list(zip(starts, self.steps))):
            covered = line["step"] - before
            total, steps = total + covered * values(line)[name], steps + covered
            if steps >= most:
                break
        return total / steps


def values(line: Line) -> dict[str, float]:
    """Everything a line of the log measures, by its name."""
    return {"loss": line["loss"], **line["losses"], **line["metrics"]}


def read_folder(folder: Path) -> list[Run]:
    """The stages of a run."""
    found = []
    for stage in (path.parent for path in folder.glob("*/log.jsonl")):
        timed = lines(stage / "timing.jsonl")
        speeds = [line["tokens_per_second"] for line in timed if "tokens_per_second" in line]
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
