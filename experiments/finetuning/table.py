"""The results of runs on disk, and the table made of them.

A run is `results/SET_METHOD_LR_RHO_HARD_SEED.json` with its values beside it; what is there is not run again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from methods import Result, Settings
from numpy.typing import NDArray

from liebig.statistics import compare, holm, over_seeds

ROWS = {
    "scifact": ("random", "asam", "abs-greedy", "abs-beam", "abs-bm25", "mined", "soft", "average"),
    "wiki-few": ("random", "asam", "average"),
    "medquad-few": ("random", "asam", "average"),
    "wiki": ("random", "abs-greedy", "mined", "soft", "abs-bm25", "abs-beam"),
    "medquad": ("random", "abs-greedy", "mined", "soft", "abs-bm25", "abs-beam"),
}


def result_path(out: Path, name: str, method: str, settings: Settings, seed: int) -> Path:
    return out / "results" / f"{name}_{method}_{settings.lr:g}_{settings.rho:g}_{settings.hard:g}_{seed}.json"


def store(
    path: Path, name: str, method: str, settings: Settings, seed: int, result: Result, seconds: float
) -> None:
    """The values first, the facts last: a file of facts says that the run is whole."""
    path.parent.mkdir(exist_ok=True)
    values = {test: np.rint(v * 10_000).astype(np.uint16) for test, v in result.tests.items()}
    np.savez_compressed(path.with_suffix(".npz"), **values)
    facts = {
        "set": name, "method": method, "settings": asdict(settings), "seed": seed, "dev": result.dev,
        "curve": list(result.curve), "seconds": round(seconds, 1),
    }  # fmt: skip
    path.write_text(json.dumps(facts))


@dataclass(frozen=True)
class Row:
    """A method's runs with the settings that dev chose."""

    name: str
    method: str
    settings: dict[str, float]
    runs: dict[str, NDArray[np.float64]]  # test -> seeds x questions x measures


def rows(out: Path, seeds: int) -> Iterator[Row]:
    """The rows that have runs, those of the settings chosen on dev with the first seed."""
    facts = {path: json.loads(path.read_text()) for path in sorted((out / "results").glob("*.json"))}
    for name, methods in ROWS.items():
        for method in methods:
            mine = {p: f for p, f in facts.items() if (f["set"], f["method"]) == (name, method)}
            first = [f for f in mine.values() if f["seed"] == 1]
            if not first:
                continue
            chosen = max(first, key=lambda f: f["dev"])["settings"]
            paths = [p for p, f in mine.items() if f["settings"] == chosen and f["seed"] <= seeds]
            opened = [np.load(path.with_suffix(".npz")) for path in paths]
            runs = {t: np.stack([one[t] for one in opened]) / 10_000 for t in opened[0].files}
            yield Row(name, method, chosen, runs)


def write(out: Path, seeds: int) -> None:
    """The table, printed and written."""
    found = list(rows(out, seeds))
    base = {row.name: row for row in found if row.method == "random"}
    lines, ps, told = [], [], []
    for row in found:
        for test, values in row.runs.items():
            over = over_seeds(values[:, :, 0])
            line = {
                "set": row.name, "test": test, "method": row.method, "settings": row.settings,
                "runs": len(values), "questions": values.shape[1], "means": values.mean(axis=(0, 1)).tolist(),
                "low": over.interval.low, "high": over.interval.high, "deviation": over.deviation,
            }  # fmt: skip
            if row.method != "random" and row.name in base:
                against = base[row.name].runs[test][:, :, 0].mean(axis=0)
                one = compare(values[:, :, 0].mean(axis=0), against)
                line |= {"difference": asdict(one.difference), "p": one.p_randomisation}
                ps.append(one.p_randomisation)
                told.append(line)
            lines.append(line)
    for line, p in zip(told, holm(ps)):
        line["p_holm"] = p
    table = "\n".join(_table(lines))
    (out / "results.json").write_text(json.dumps(lines, indent=1))
    (out / "results.md").write_text(table + "\n")
    np.savez_compressed(
        out / "queries.npz",
        **{
            f"{row.name}|{row.method}|{test}": np.rint(v[:, :, 0] * 10_000).astype(np.uint16)
            for row in found
            for test, v in row.runs.items()
        },
    )
    print(table)


def _table(lines: list[dict]) -> Iterator[str]:
    yield "| set | test | method | runs | nDCG@10 [95 %] | RR@10 | R@100 | against random [95 %] | p (Holm) |"
    yield "| --- | --- | --- | ---: | --- | ---: | ---: | --- | ---: |"
    for line in lines:
        ndcg, rr, recall = line["means"]
        against, p = "", ""
        if "difference" in line:
            d = line["difference"]
            against, p = f"{d['mean']:+.4f} [{d['low']:+.4f}, {d['high']:+.4f}]", f"{line['p_holm']:.4f}"
        yield (
            f"| {line['set']} | {line['test']} ({line['questions']}) | {line['method']} | {line['runs']} | "
            f"{ndcg:.4f} [{line['low']:.4f}, {line['high']:.4f}] | {rr:.4f} | {recall:.4f} | {against} | {p} |"
        )
