"""The table of the comparison, made of the runs on disk (`experiments/results.py` has their form and the statistics).

A run is `results/SET_METHOD_LR_RHO_HARD_SEED.json` with its values beside it; what is there is not run again.
Intervals and tests count by document where `baselines.npz` says which question is of which. Without that file every
question is a document of its own.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from methods import Result, Settings
from numpy.typing import NDArray

sys.path.append(str(Path(__file__).parents[1]))

import results

BASELINES = ("bm25", "untuned")

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
    """A run, whole or not at all."""
    facts = {
        "set": name, "method": method, "settings": asdict(settings), "seed": seed, "dev": result.dev,
        "curve": list(result.curve), "seconds": round(seconds, 1),
    }  # fmt: skip
    results.store(path, result.tests, facts)


@dataclass(frozen=True)
class Row:
    """A method's runs with the settings that dev chose."""

    name: str
    method: str
    settings: dict[str, float]
    tried: list[dict]  # settings and dev's value of the first seed
    curves: list[list[float]]  # dev of each seed
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
            tried = [{"settings": f["settings"], "dev": f["dev"]} for f in first]
            yield Row(name, method, chosen, tried, [facts[p]["curve"] for p in paths], results.load(paths))


def write(out: Path, seeds: int) -> None:
    """The table, printed and written."""
    path = out / "baselines.npz"
    known = dict(np.load(path)) if path.exists() else {}
    found = list(rows(out, seeds))
    lines = list(_lines(found, known))
    results.correct(lines)
    table = results.table(lines, "set", "method", "random")
    np.savez_compressed(out / "queries.npz", **_values(found, known))
    results.write(out, lines, [*table, *_apart(lines), "", *_settings(found)])


def _lines(found: Sequence[Row], known: Mapping[str, NDArray]) -> Iterator[dict]:
    """One for each test of each row; BM25 and the encoder as it was before the first row of a set."""
    base = {row.name: row for row in found if row.method == "random"}
    for row in found:
        if row.method == "random":
            yield from _baselines(row.name, known)
        for test, values in row.runs.items():
            about = About.of(known, row.name, test, values.shape[1])
            line = {"set": row.name, "test": test, "method": row.method, "settings": row.settings}
            line |= {**_levels(values, about), "dev": row.curves}
            if row.method != "random" and row.name in base:
                _hold_against(line, values[:, :, 0], base[row.name].runs[test][:, :, 0], about)
            yield line


@dataclass(frozen=True)
class About:
    """Of each question of a test: its document, and whether its passage was a positive in training, if known."""

    documents: NDArray[np.integer]
    seen: NDArray[np.bool_] | None

    @classmethod
    def of(cls, known: Mapping[str, NDArray], name: str, test: str, questions: int) -> About:
        documents = known.get(f"{name.removesuffix('-few')}|documents|{test}", np.arange(questions))
        return cls(documents, known.get(f"{name}|seen|{test}"))


def _baselines(name: str, known: Mapping[str, NDArray]) -> Iterator[dict]:
    for method in BASELINES:
        for key in known:
            if key.startswith(f"{name}|{method}|"):
                values, test = known[key][None] / 10_000, key.split("|")[2]
                levels = _levels(values, About.of(known, name, test, values.shape[1]))
                yield {"set": name, "test": test, "method": method, "settings": {}, **levels}


def _levels(values: NDArray[np.float64], about: About) -> dict:
    """What `results` says of the values, and what of questions whose passages training showed."""
    made = results.levels(values, about.documents)
    if about.seen is not None:
        made["seen"] = _seen(values[:, :, 0], about.seen)
    return made


def _hold_against(line: dict, a: NDArray[np.float64], b: NDArray[np.float64], about: About) -> None:
    """Put A less B into a line: over all questions, and over those whose passages training did not show."""
    line |= results.against(a, b, about.documents)
    if about.seen is not None and not about.seen.all():
        new = ~about.seen
        line["seen"]["difference"] = asdict(
            results.over_documents(a[:, new], b[:, new], about.documents[new])
        )


def _seen(values: NDArray[np.float64], shown: NDArray[np.bool_]) -> dict:
    """The mean where a relevant passage was a positive in training, and where none was."""
    means = {
        "seen": values[:, shown].mean() if shown.any() else None,
        "new": None if shown.all() else values[:, ~shown].mean(),
    }
    return {"questions": int(shown.sum()), **means}


def _values(found: Sequence[Row], known: Mapping[str, NDArray]) -> dict[str, NDArray]:
    """nDCG@10 of every test question, seed by seed, in ten thousandths, and the questions' documents."""
    made = {
        f"{row.name}|{row.method}|{test}": results.in_short(v[:, :, 0])
        for row in found
        for test, v in row.runs.items()
    }
    return made | {key: v if v.ndim == 1 else np.ascontiguousarray(v[None, :, 0]) for key, v in known.items()}


def _apart(lines: Sequence[dict]) -> Iterator[str]:
    """Questions whose passages were positives in training, and the others."""
    told = [line for line in lines if "seen" in line]
    if told:
        yield "\n| set | test | method | seen | nDCG@10 | others | nDCG@10 | others, against random [95 %] |"
        yield "| --- | --- | --- | ---: | ---: | ---: | ---: | --- |"
    for line in told:
        own, beside = line["seen"], ""
        if d := own.get("difference"):
            beside = results.difference(d)
        shown, new = ("" if own[part] is None else f"{own[part]:.4f}" for part in ("seen", "new"))
        yield (
            f"| {line['set']} | {line['test']} | {line['method']} | {own['questions']} | {shown} | "
            f"{line['questions'] - own['questions']} | {new} | {beside} |"
        )


def _settings(found: Sequence[Row]) -> Iterator[str]:
    """What dev chose from, where there was a choice."""
    yield "| set | method | what was tried: nDCG@10 on dev, first seed | chosen |"
    yield "| --- | --- | --- | --- |"
    for row in found:
        if len(row.tried) > 1:
            moved = [key for key in row.settings if len({one["settings"][key] for one in row.tried}) > 1]

            def said(settings: Mapping[str, float], moved: Sequence[str] = moved) -> str:
                return ", ".join(f"{key} {settings[key]:g}" for key in moved)

            tried = "; ".join(f"{said(one['settings'])}: {one['dev']:.4f}" for one in row.tried)
            yield f"| {row.name} | {row.method} | {tried} | {said(row.settings)} |"
