"""Runs of several ways with several seeds, as files, and the lines of a table that holds each way against one of them.

A run is NAME.npz, the measures of every test question in ten thousandths, and then NAME.json, what there is to say
about it: a file of facts says that the run is whole. Intervals resample seeds and documents (questions of one document
count together), p comes from random signs of documents over the means of seeds, and Holm's rule runs over all
differences of the table.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liebig.base.statistics import Interval, holm, randomisation_test

Line = dict[str, Any]
Values = NDArray[np.float64]
Documents = NDArray[np.integer]
SAMPLES, PARTS = 10_000, 10


def store(path: Path, values: Mapping[str, Values], facts: Mapping[str, Any]) -> None:
    """A run: its values (questions x measures) under their names, then its facts at `path`, whole."""
    path.parent.mkdir(exist_ok=True)
    partial = path.with_suffix(
        f".{os.getpid()}.partial"
    )  # a process left over from a killed run may do the same job
    with partial.open("wb") as file:
        np.savez_compressed(file, **{name: in_short(v) for name, v in values.items()})
    partial.replace(path.with_suffix(".npz"))
    partial.write_text(json.dumps(facts), encoding="utf-8")
    partial.replace(path)


def load(runs: Sequence[Path]) -> dict[str, Values]:
    """The values of runs by the paths of their facts, seeds x questions x measures."""
    opened = [np.load(path.with_suffix(".npz")) for path in runs]
    return {name: np.stack([one[name] for one in opened]) / 10_000 for name in opened[0].files}


def in_short(values: Values) -> NDArray[np.uint16]:
    """In ten thousandths."""
    return np.rint(values * 10_000).astype(np.uint16)


def levels(values: Values, documents: Documents) -> Line:
    """The means over seeds and questions, the interval of the first measure, and each seed's mean of it."""
    found = interval(float(values[:, :, 0].mean()), _drawn(values[:, :, 0], documents, 0))
    return {
        "runs": len(values), "questions": values.shape[1], "means": values.mean(axis=(0, 1)).tolist(),
        "low": found.low, "high": found.high, "seeds": values[:, :, 0].mean(axis=1).tolist(),
    }  # fmt: skip


def against(a: Values, b: Values, documents: Documents) -> Line:
    """A less B, both seeds x questions: the difference with its interval, p, and how many documents there are."""
    sums = np.bincount(documents, weights=a.mean(axis=0) - b.mean(axis=0))
    return {
        "difference": asdict(over_documents(a, b, documents)),
        "p": randomisation_test(sums, samples=SAMPLES),
        "documents": len(sums),
    }


def over_documents(a: Values, b: Values, documents: Documents, seed: int = 0) -> Interval:
    """The difference of means; seeds of each are drawn by themselves, documents for both at once."""
    return interval(float(a.mean() - b.mean()), differences(a, b, documents, seed))


def interval(mean: float, samples: Values) -> Interval:
    """The middle 95 % of samples."""
    low, high = np.quantile(samples, (0.025, 0.975))
    return Interval(mean, float(low), float(high))


def differences(a: Values, b: Values, documents: Documents, seed: int = 0) -> Values:
    """Samples of the difference; the same `seed` draws the same documents for whatever else is compared on them."""
    return _drawn(a, documents, seed, 1) - _drawn(b, documents, seed, 2)


def seed_of(test: str) -> int:
    """A seed for the documents of a test."""
    return zlib.crc32(test.encode())


def together(means: Sequence[float], samples: Sequence[Values]) -> tuple[Interval, float]:
    """The mean of several differences, and p: the share of its samples on the other side of zero, twice."""
    drawn = np.mean(samples, axis=0)
    beyond = min(float(np.mean(drawn <= 0)), float(np.mean(drawn >= 0)))
    return interval(float(np.mean(means)), drawn), min(1.0, 2 * (beyond + 1 / len(drawn)))


def _drawn(values: Values, documents: Documents, seed: int, runs_seed: int = 0) -> Values:
    """Means of samples: runs and documents drawn with replacement, documents by `seed` alone."""
    documents = np.unique(documents, return_inverse=True)[1]
    runs, n = len(values), int(documents.max()) + 1
    sums = np.stack([np.bincount(documents, weights=run) for run in [*values, np.ones(len(documents))]])
    chosen = np.random.default_rng((seed, runs_seed)).multinomial(runs, np.full(runs, 1 / runs), SAMPLES)
    means = []
    for part, times in zip(np.array_split(chosen, PARTS), _times(seed, n)):
        drawn = times.astype(np.float64) @ sums.T
        means.append((drawn[:, :-1] * part).sum(axis=1) / runs / drawn[:, -1])
    return np.concatenate(means)


@lru_cache(maxsize=4)
def _times(seed: int, n: int) -> list[NDArray[np.uint16]]:
    """How often each of n documents is drawn in every sample, part by part: most of the time of a page."""
    random = np.random.default_rng(seed)
    return [
        random.multinomial(n, np.full(n, 1 / n), SAMPLES // PARTS).astype(np.uint16) for _ in range(PARTS)
    ]


def correct(lines: Sequence[Line]) -> None:
    """Put p after Holm's rule over all differences into the lines."""
    told = [line for line in lines if "p" in line]
    for line, p in zip(told, holm([line["p"] for line in told])):
        line["p_holm"] = p


def table(lines: Sequence[Line], kind: str, way: str, base: str) -> Iterator[str]:
    """The table in Markdown; `kind` and `way` name the lines' first and third column, `base` what is held against.

    Lines that say which labels they have seen end with a column of that.
    """
    seen = any("labels" in line for line in lines)
    head = f"| {kind} | test | {way} | runs | nDCG@10 [95 %] | RR@10 | R@100 | against {base} [95 %] | p (Holm) |"
    yield head + " labels |" * seen
    yield "| --- | --- | --- | ---: | --- | ---: | ---: | --- | ---: |" + " --- |" * seen
    for line in lines:
        ndcg, rr, recall = line["means"]
        beside, p = "", ""
        if "difference" in line:
            beside, p = difference(line["difference"]), f"{line['p_holm']:.4f}"
        yield (
            f"| {line[kind]} | {line['test']} ({line['questions']}) | {line[way]} | {line['runs']} | "
            f"{ndcg:.4f} [{line['low']:.4f}, {line['high']:.4f}] | {rr:.4f} | {recall:.4f} | {beside} | {p} |"
            + (f" {line['labels']} |" if "labels" in line else "")
        )


def difference(d: Mapping[str, float]) -> str:
    """A difference with its interval."""
    return f"{d['mean']:+.4f} [{d['low']:+.4f}, {d['high']:+.4f}]"


def write(out: Path, lines: Sequence[Line], text: Sequence[str]) -> None:
    """results.json and results.md, printed too."""
    (out / "results.json").write_text(json.dumps(lines, indent=1) + "\n", encoding="utf-8")
    (out / "results.md").write_text("\n".join(text) + "\n", encoding="utf-8")
    print("\n".join(text))
