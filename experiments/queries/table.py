"""The table of the comparison: means over seeds, each arm against spans (`experiments/results.py` has the statistics).

Questions of one document (an article of SQuAD, a document of MedQuAD) count together.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from arms import ARMS, START

sys.path.append(str(Path(__file__).parents[1]))

import results
from results import Line, Values

STATES = ("zero-shot", "zero-shot-dot", "tuned")


@dataclass(frozen=True)
class Arm:
    """The runs of an arm: values by `state|test` (seeds x questions x measures), and what is said of the first."""

    values: dict[str, Values]
    facts: dict[str, Any]

    @classmethod
    def of(cls, paths: Sequence[Path]) -> Arm:
        return cls(results.load(paths), json.loads(paths[0].read_text(encoding="utf-8")))


def read(out: Path) -> dict[str, Arm]:
    """The arms that have runs."""
    facts = {arm: sorted((out / "results").glob(f"{arm}-[0-9]*.json")) for arm in (*ARMS, START)}
    return {arm: Arm.of(paths) for arm, paths in facts.items() if paths}


def baseline(arm: str) -> str | None:
    """What an arm is held against."""
    base = f"{arm.partition('-')[0]}-spans"
    return None if arm in (base, START) else base


def lines(found: Mapping[str, Arm]) -> list[Line]:
    """Every arm, state and test."""
    names = [name for one in islice(found.values(), 1) for name in one.values]
    names.sort(key=lambda name: STATES.index(name.split("|")[0]))
    made = [_line(name, arm, found) for name in names for arm in found]
    results.correct(made)
    return made


def _line(name: str, arm: str, found: Mapping[str, Arm]) -> Line:
    state, test = name.split("|")
    values, documents = found[arm].values[name], np.array(found[arm].facts["documents"][test])
    seen = found[arm].facts["labels"]["tuned" if state == "tuned" else "zero-shot"]
    line = {"state": state, "test": test, "arm": arm, **results.levels(values, documents)}
    line["labels"] = "; ".join(seen) or "none"
    base = baseline(arm)
    if base in found:
        line |= results.against(values[:, :, 0], found[base].values[name][:, :, 0], documents)
    return line


def arms_rows(out: Path) -> Iterator[str]:
    """Steps, tokens and seconds of the pre-trainings; seconds with other runs beside them."""
    yield "| run | steps | tokens | tokens a pair | seconds | tuning, s | testing, s |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    for path in sorted((out / "results").glob("*.json")):
        about = json.loads(path.read_text(encoding="utf-8"))
        made = about["pretraining"]
        if made:
            yield (
                f"| {path.stem} | {made['steps']:,} | {made['tokens']:,} | {made['tokens_an_example']} | "
                f"{made['seconds']} | {about['tuning']['seconds']} | {about['testing']} |"
            )


def write(out: Path) -> None:
    """results.json and results.md, printed too."""
    made = lines(read(out))
    results.write(out, made, [*results.table(made, "state", "arm", "spans"), "", *arms_rows(out)])
