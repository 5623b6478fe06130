"""The table of the comparison: means over seeds, each arm against spans (`experiments/results.py` has the statistics).

Questions of one document (an article of SQuAD, a document of MedQuAD) count together. Runs are read from OUT/results,
a pair of files each.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
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
BESIDE = (
    ("cocondenser-queries", "cocondenser-one-query"),
    ("cocondenser-mixed", "cocondenser-queries"),
    ("cotmae-queries", "cocondenser-queries"),
    ("cocondenser-spans", START),
    ("cocondenser-queries", START),
    ("cotmae-spans", START),
    ("cotmae-queries", START),
)
"""What else one may ask: the first arm against the second, without correction."""


@dataclass(frozen=True)
class Arm:
    """The runs of an arm: values by `state|test` (seeds x questions x measures), and what is said of each run."""

    values: Mapping[str, Values]
    facts: list[dict[str, Any]]


def read(out: Path) -> dict[str, Arm]:
    """The arms that have runs."""
    found = {arm: sorted((out / "results").glob(f"{arm}-[0-9]*.json")) for arm in (*ARMS, START)}
    return {
        arm: Arm(results.load(paths), [json.loads(path.read_text(encoding="utf-8")) for path in paths])
        for arm, paths in found.items()
        if paths
    }


def baseline(arm: str) -> str | None:
    """What an arm is held against."""
    base = f"{arm.partition('-')[0]}-spans"
    return None if arm in (base, START) else base


def lines(found: Mapping[str, Arm]) -> list[Line]:
    """Every arm, state and test."""
    made = [_line(name, arm, found) for name in _names(found) for arm in found]
    results.correct(made)
    return made


def _names(found: Mapping[str, Arm]) -> list[str]:
    """`state|test` in order."""
    names = [name for one in islice(found.values(), 1) for name in one.values]
    return sorted(names, key=lambda name: STATES.index(name.split("|")[0]))


def _line(name: str, arm: str, found: Mapping[str, Arm]) -> Line:
    state, test = name.split("|")
    facts = found[arm].facts[0]
    values, documents = found[arm].values[name], np.array(facts["documents"][test])
    seen = facts["labels"]["tuned" if state == "tuned" else "zero-shot"]
    line = {"state": state, "test": test, "arm": arm, **results.levels(values, documents)}
    line["labels"] = "; ".join(seen) or "none"
    base = baseline(arm)
    if base in found:
        line |= results.against(values[:, :, 0], found[base].values[name][:, :, 0], documents)
    return line


def beside_rows(found: Mapping[str, Arm]) -> Iterator[str]:
    """Other differences in nDCG@10."""
    names = _names(found)
    yield f"| not corrected | {' | '.join(name.replace('|', ': ') for name in names)} |"
    yield "| --- |" + " --- |" * len(names)
    for one, other in BESIDE:
        if one in found and other in found:
            cells = (_difference(name, found[one], found[other]) for name in names)
            yield f"| {one} less {other} | {' | '.join(cells)} |"


def _difference(name: str, one: Arm, other: Arm) -> str:
    documents = np.array(one.facts[0]["documents"][name.split("|")[1]])
    made = results.against(one.values[name][:, :, 0], other.values[name][:, :, 0], documents)
    return f"{results.difference(made['difference'])}, p {made['p']:.4f}"


def arms_rows(found: Mapping[str, Arm]) -> Iterator[str]:
    """Steps, tokens and seconds of the pre-trainings; seconds with other runs beside them."""
    yield "| run | steps | tokens | tokens a pair | seconds | tuning, s | testing, s |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    for about in (facts for one in found.values() for facts in one.facts if facts["pretraining"]):
        run, made = f"{about['arm']}-{about['seed']}", about["pretraining"]
        yield (
            f"| {run} | {made['steps']:,} | {made['tokens']:,} | {made['tokens_an_example']} | "
            f"{made['seconds']} | {about['tuning']['seconds']} | {about['testing']} |"
        )


def write(out: Path) -> None:
    """results.json and results.md, printed too."""
    found = read(out)
    made = lines(found)
    table = results.table(made, "state", "arm", "spans")
    results.write(out, made, [*table, "", *beside_rows(found), "", *arms_rows(found)])
