"""The table of the comparison, from the values of all test questions: means over seeds, each arm against spans.

Intervals are 95 % bootstrap intervals over seeds and questions. Differences are paired, over the means of seeds, with p
by randomisation, corrected after Holm over all rows of the table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from arms import ARMS, START
from numpy.typing import NDArray
from tasks import MEASURES

from liebig.statistics import compare, holm, over_seeds

STATES = ("zero-shot", "zero-shot-dot", "tuned")
Values = dict[str, NDArray[np.float64]]  # `state|test` -> seeds x questions x measures


def read(out: Path) -> dict[str, Values]:
    """The values of each arm that has runs."""
    found: dict[str, Values] = {}
    for arm in (*ARMS, START):
        facts = sorted((out / "results").glob(f"{arm}-[0-9]*.json"))
        opened = [np.load(path.with_suffix(".npz")) for path in facts]
        if opened:
            found[arm] = {name: np.stack([one[name] for one in opened]) / 10_000 for name in opened[0].files}
    return found


def baseline(arm: str) -> str | None:
    """What an arm is held against."""
    base = f"{arm.partition('-')[0]}-spans"
    return None if arm in (base, START) else base


def lines(found: dict[str, Values]) -> list[dict[str, Any]]:
    """Every arm, state and test."""
    made = []
    names = list(next(iter(found.values()), {}))
    for name in sorted(names, key=lambda name: STATES.index(name.split("|")[0])):
        for arm, values in found.items():
            made.append(_line(name, arm, values[name], found))
    told = [line for line in made if "p" in line]
    for line, p in zip(told, holm([line["p"] for line in told])):
        line["p_holm"] = p
    return made


def _line(name: str, arm: str, values: NDArray[np.float64], found: dict[str, Values]) -> dict[str, Any]:
    over = over_seeds(values[:, :, 0])
    state, test = name.split("|")
    line = {
        "state": state, "test": test, "arm": arm, "runs": len(values), "questions": values.shape[1],
        "means": dict(zip(MEASURES, values.mean(axis=(0, 1)).tolist())), "of_seeds": list(over.means),
        "low": over.interval.low, "high": over.interval.high, "deviation": over.deviation,
    }  # fmt: skip
    base = baseline(arm)
    if base in found:
        against = compare(values[:, :, 0].mean(axis=0), found[base][name][:, :, 0].mean(axis=0))
        line |= {
            "difference": asdict(against.difference),
            "p": against.p_randomisation,
            "effect": against.effect,
        }
    return line


def rows(made: list[dict[str, Any]]) -> Iterator[str]:
    """The table in Markdown."""
    yield "| state | test | arm | runs | nDCG@10 [95 %] | RR@10 | R@100 | against spans [95 %] | p (Holm) |"
    yield "| --- | --- | --- | ---: | --- | ---: | ---: | --- | ---: |"
    for line in made:
        ndcg, rr, recall = line["means"].values()
        against, p = "", ""
        if "difference" in line:
            d = line["difference"]
            against, p = f"{d['mean']:+.4f} [{d['low']:+.4f}, {d['high']:+.4f}]", f"{line['p_holm']:.4f}"
        yield (
            f"| {line['state']} | {line['test']} ({line['questions']}) | {line['arm']} | {line['runs']} | "
            f"{ndcg:.4f} [{line['low']:.4f}, {line['high']:.4f}] ±{line['deviation']:.4f} | {rr:.4f} | {recall:.4f} | "
            f"{against} | {p} |"
        )


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
    text = "\n".join([*rows(made), "", *arms_rows(out)])
    (out / "results.json").write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    (out / "results.md").write_text(text + "\n", encoding="utf-8")
    print(text)
