"""Verdicts of the papers' claims from checks.csv, whose lines are differences between two arms with their intervals.

    python experiments/claims/verdicts.py      # writes claims.md, in seconds, from what is stored
    python experiments/claims/run.py page      # makes checks.csv anew from the runs on disk, then the same

An interval of a check resamples seeds and documents, and says nothing about another start. How much a difference
varies from start to start is fitted from all pairs of starts that ran the same check: the variance of their
differences beyond what seeds explain, since both starts were asked the same documents. A statement is the mean over
its sets, numbers of labels and starts, each start with what it ran; every set and number of labels has to be there
from some start. Its interval adds the variance between starts. More starts make that part and the seeds' smaller, and
not the documents'. It *holds* above zero; *paper's size excluded* means that the paper's own difference lies above
the interval; else it is *undecided*. With labels, sets on which an arm has .9 already are left out: they have no room
for the paper's difference. Spearman's correlation is no mean over pairs: its samples are of pairs and seeds.
"""

from __future__ import annotations

import csv
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
from ladder import BM25, Check, Claim, Ladder, Row, Runs, described, read
from numpy.typing import NDArray
from pretrained import ARMS, RUNGS
from scipy.stats import t as student
from tuned import RISE, Job, gold, measures

sys.path.append(str(Path(__file__).parents[1]))

import results

from liebig.evaluation.plots import Axes, Series, lines, write_svg
from liebig.measures.similarity import spearman

HERE = Path(__file__).parent
Values = NDArray[np.float64]
HOLDS, FAILS, EXCLUDED = "holds", "does not hold", "paper's size excluded"
OPEN, UNTESTED = "undecided", "not tested yet"
DRAWS = 2_000
RANKING = ("RR@10", "nDCG@10", "R@100")
FULL = 0.9  # with labels, a set on which an arm has this much has no headroom
WIDTH = 2 * 1.96  # standard errors in an interval of 95 %
COLUMNS = (
    "check",
    "test",
    "labels",
    "measure",
    "seeds",
    "one",
    "other",
    "difference",
    "low",
    "high",
    "documents",
)
HEAD = """# The papers' claims

`python experiments/claims/verdicts.py` makes this page from checks.csv; README.md says how a claim is decided.

| | claim | compared | difference [95 %, start included] | the paper's size | verdict |
| --- | --- | --- | ---: | ---: | --- |"""
STARTS = """## How much a difference varies from start to start

| measures | test | labels | standard deviation | pairs of starts |
| --- | --- | --- | ---: | ---: |"""
CURVED = ("squad", "medquad")  # tests that have curves; NQ's is nearly noise


@dataclass(frozen=True)
class StoredCheck:
    """A line of checks.csv."""

    check: str
    test: str
    labels: int
    measure: str
    seeds: int
    one: float
    other: float
    difference: float
    low: float
    high: float
    documents: float  # standard error by documents alone

    @property
    def seed_error(self) -> float:
        """Standard error by seeds: what documents leave of the interval."""
        return max(0.0, ((self.high - self.low) / WIDTH) ** 2 - self.documents**2) ** 0.5

    @property
    def kinds(self) -> tuple[tuple[str, str, bool], ...]:
        """What is fitted together: measures that are alike, with labels or without, on one test or on all."""
        family = "ranking" if self.measure in RANKING else self.measure
        return (family, self.test, self.labels > 0), (family, "all", self.labels > 0)

    @property
    def full(self) -> bool:
        return self.labels > 0 and self.measure in RANKING and max(self.one, self.other) >= FULL


Stored = Mapping[tuple[str, str, int, str], StoredCheck]  # by check, test, labels and measure
Spread = Mapping[tuple[str, str, bool], tuple[float, int]]


@dataclass(frozen=True)
class Statement:
    """A mean over checks, with an interval that includes the start."""

    says: str
    mean: float = float("nan")
    low: float = float("nan")
    high: float = float("nan")
    starts: tuple[int, ...] = ()
    tests: tuple[str, ...] = ()
    effect: float | None = None
    verdict: str = UNTESTED


class Measured:
    """The values of rows, read once."""

    def __init__(self, runs: Runs, prepared: Path) -> None:
        self.runs, self.prepared = runs, prepared
        path = prepared / "baselines.npz"
        self.known: Mapping[str, NDArray[Any]] = dict(np.load(path)) if path.exists() else {}
        self.rows: dict[Row, Mapping[str, Values]] = {}

    def of(self, row: Row, test: str, measure: str) -> Values | None:
        """Seeds x questions; None if there is no run."""
        if row.arm == BM25:
            found = self.baseline(row, "bm25", test)
            column = measures(row.set, row.method).index(measure)
            return None if found is None else found[None, :, column] / 10_000
        if row not in self.rows:
            done = [self.runs.path(job) for job in self.runs.jobs(row) if self.runs.done(job)]
            self.rows[row] = results.load(done) if done else {}
        values = self.rows[row].get(test)
        if values is None:
            return None
        column = values[:, :, measures(row.set, row.method).index(measure)]
        return 2 * column - 1 if test == RISE else column

    def baseline(self, row: Row, what: str, test: str) -> NDArray[Any] | None:
        """What `prepare` stored of a test, under the row's set or, if it is another set's, under that."""
        return self.known.get(f"{row.set}|{what}|{test}", self.known.get(f"{test}|{what}|{test}"))

    def side(self, rows: Sequence[Row], test: str, measure: str) -> Values | None:
        """A row, or the first less the second, seed by seed."""
        found = [self.of(row, test, measure) for row in rows]
        if any(values is None for values in found):
            return None
        first, *less = [values for values in found if values is not None]
        for values in less:
            seeds = min(len(first), len(values))
            first = first[:seeds] - values[:seeds]
        return first

    def documents(self, row: Row, test: str, questions: int) -> NDArray[np.int64]:
        found = self.baseline(row, "documents", test)
        return np.arange(questions) if found is None or len(found) != questions else np.asarray(found)


def measured(check: Check, runs: Measured) -> StoredCheck | None:
    """The difference of a check with its interval; None where runs are missing."""
    one = runs.side(check.one, check.test, check.measure)
    other = runs.side(check.other, check.test, check.measure)
    if one is None or other is None:
        return None
    if check.measure == "Spearman":
        samples, (first, second) = correlations(one, other, gold(runs.prepared))
        by_documents = samples  # of pairs and seeds
    else:
        documents, seed = (
            runs.documents(check.one[0], check.test, one.shape[1]),
            results.seed_of(check.test),
        )
        samples = results.differences(one, other, documents, seed)
        means = (values.mean(axis=0, keepdims=True) for values in (one, other))
        by_documents = results.differences(*means, documents, seed)
        first, second = float(one.mean()), float(other.mean())
    found, alone = (results.interval(first - second, some) for some in (samples, by_documents))
    seeds, labels = min(len(one), len(other)), check.one[0].labels
    values = (first, second, found.mean, found.low, found.high, (alone.high - alone.low) / WIDTH)
    return StoredCheck(sides(check), check.test, labels, check.measure, seeds, *values)


def correlations(
    one: Values, other: Values, scores: NDArray[np.float32]
) -> tuple[Values, tuple[float, float]]:
    """Samples of the difference of two correlations, and both, means over seeds."""

    def of(values: Values, pairs: NDArray[np.int64], seeds: NDArray[np.int64]) -> float:
        found = [spearman(values[seed, pairs], scores[pairs]) for seed in seeds]
        return float(np.mean(np.nan_to_num(found)))  # not a number where all vectors are one

    n, drawn = len(scores), []
    draw, draw_seeds = np.random.default_rng(0), np.random.default_rng(1)
    for _ in range(DRAWS):
        pairs = draw.integers(n, size=n)
        seeds = [draw_seeds.integers(len(values), size=len(values)) for values in (one, other)]
        drawn.append(of(one, pairs, seeds[0]) - of(other, pairs, seeds[1]))
    first, second = (of(values, np.arange(n), np.arange(len(values))) for values in (one, other))
    return np.array(drawn), (first, second)


def store(ladder: Ladder, runs: Measured, path: Path) -> None:
    """Write checks.csv anew from the runs on disk."""
    made = (measured(check, runs) for claim in ladder.claims for check in claim.checks)
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(COLUMNS)
        for line in dict.fromkeys(line for line in made if line is not None):
            values = [getattr(line, name) for name in COLUMNS]
            rows.writerow([f"{value:.4f}" if isinstance(value, float) else value for value in values])


def load(path: Path) -> Stored:
    """The lines of checks.csv by check, test, labels and measure."""
    with path.open(encoding="utf-8", newline="") as file:
        _, *cells = csv.reader(file)
    rows = [
        StoredCheck(check, test, int(labels), measure, int(seeds), *map(float, values))
        for check, test, labels, measure, seeds, *values in cells
    ]
    return {(row.check, row.test, row.labels, row.measure): row for row in rows}


def between_starts(checks: Sequence[StoredCheck]) -> Spread:
    """Standard deviation of a difference from start to start, and the pairs it is fitted from, by kind of check."""
    same: dict[tuple[str, ...], list[StoredCheck]] = {}
    for check in checks:
        if not check.full:
            name = re.sub(r"(@\w+)-\d", r"\1", check.check)
            same.setdefault((name, check.test, str(check.labels), check.measure), []).append(check)
    excess: dict[tuple[str, str, bool], list[float]] = {}
    for a, b in (pair for group in same.values() for pair in combinations(group, 2)):
        beyond = (a.difference - b.difference) ** 2 - a.seed_error**2 - b.seed_error**2
        for kind in a.kinds:
            excess.setdefault(kind, []).append(beyond / 2)
    return {kind: (max(0.0, float(np.mean(some))) ** 0.5, len(some)) for kind, some in excess.items()}


def of_kind(spread: Spread, check: StoredCheck) -> tuple[float, int]:
    """That of the check's test, else of all tests, else of ranking measures; twice its variance for two differences."""
    kinds = (*check.kinds, ("ranking", "all", check.labels > 0))
    deviation, pairs = next((spread[kind] for kind in kinds if kind in spread), (0.0, 1))
    return deviation * (2**0.5 if " less " in check.check else 1), pairs


def stated(line: Sequence[Check], stored: Stored, spread: Spread) -> Statement:
    """What the checks of one line of the ladder come to."""
    first = line[0]
    found = [stored.get((sides(check), check.test, check.one[0].labels, check.measure)) for check in line]
    missing = {(check.test, check.one[0].labels) for check in line}
    missing -= {(one.test, one.labels) for one in found if one is not None}
    if missing:
        return Statement(title(line), effect=first.effect)
    used = [
        (check.one[0].pretraining, one) for check, one in zip(line, found) if one is not None and not one.full
    ]
    if not used:
        return Statement(title(line), effect=first.effect, verdict=f"{OPEN}: no set has headroom")
    starts = tuple(sorted({start for start, _ in used}))
    documents, seeds, means, deviations, pairs = [], [], [], [], []
    for start in starts:
        mine = [one for at, one in used if at == start]
        # Numbers of labels share a test's questions, so their errors are added; tests do not.
        per_test = [
            sum(one.documents for one in mine if one.test == test) for test in {one.test for one in mine}
        ]
        documents.append(np.linalg.norm(per_test) / len(mine))
        seeds.append(np.linalg.norm([one.seed_error for one in mine]) / len(mine))
        means.append(np.mean([one.difference for one in mine]))
        known = [of_kind(spread, one) for one in mine]
        deviations.append(np.mean([sd for sd, _ in known]))
        pairs.append(min(n for _, n in known))
    mean = float(np.mean(means))
    # All starts are asked the same documents, so their errors do not average out.
    each = np.mean(np.square(seeds)) + np.mean(np.square(deviations))
    half = float(student.ppf(0.975, min(pairs)) * np.sqrt(np.mean(documents) ** 2 + each / len(starts)))
    low, high = mean - half, mean + half
    tests = tuple(dict.fromkeys(one.test for _, one in used))
    verdict = decided(first.sign, low, high, first.effect)
    return Statement(title(line), mean, low, high, starts, tests, first.effect, verdict)


def decided(sign: str, low: float, high: float, effect: float | None) -> str:
    """A verdict from an interval and the paper's own difference."""
    if sign == "=":
        assert effect is not None, "equality has a size"
        return HOLDS if -effect < low and high < effect else FAILS if low > effect or high < -effect else OPEN
    if low > 0:
        return HOLDS if effect is None or high >= effect else f"{HOLDS}, smaller than the paper's"
    if high < 0:
        return EXCLUDED if effect else FAILS
    return EXCLUDED if effect is not None and high < effect else OPEN


def statements(claim: Claim, stored: Stored, spread: Spread) -> list[Statement]:
    """A statement for each line of a claim; one that says so where it has none."""
    by_line: dict[str, list[Check]] = {}
    for check in claim.checks:
        by_line.setdefault(check.line, []).append(check)
    return [stated(line, stored, spread) for line in by_line.values()] or [Statement("")]


def title(line: Sequence[Check]) -> str:
    """The sides, measure and labels of a statement."""
    check = line[0]
    counts = dict.fromkeys(f"{one.one[0].labels:,}" for one in line)
    tests = dict.fromkeys(one.test for one in line)
    labels = "no labels" if list(counts) == ["0"] else f"{' / '.join(counts)} labels"
    return f"{sides(check).replace(' > ', f' {check.sign} ')} ({check.measure}, {', '.join(tests)}, {labels})"


def sides(check: Check) -> str:
    """Both sides; a difference is the same whatever is expected of it."""
    return " > ".join(check.sides())


def page(ladder: Ladder, stored: Stored) -> str:
    """claims.md."""
    spread, counts = between_starts(list(stored.values())), Counter[str]()
    text = [HEAD]
    for claim in ladder.claims:
        name, says = claim.number, f"{claim.says}. The paper: {claim.paper}"
        for said in statements(claim, stored, spread) if claim.paper else ():
            counts[re.split("[,:]", said.verdict)[0]] += 1
            size = "" if np.isnan(said.mean) else f"{said.mean:+.4f} [{said.low:+.4f}, {said.high:+.4f}]"
            starts = f"start{'s' * (len(said.starts) > 1)} {', '.join(map(str, said.starts))}"
            where = f"; on {', '.join(said.tests)}; {starts}" if said.tests else ""
            effect = "" if said.effect is None else f"{'±' if ' = ' in said.says else '+'}{said.effect:.3f}"
            seen = f"elsewhere: {claim.elsewhere}" if name and claim.elsewhere else ""
            compared = "; ".join(filter(None, (f"{said.says}{where}", seen)))
            text.append(f"| {name} | {says} | {compared} | {size} | {effect} | **{said.verdict}** |")
            name = says = ""
    told = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
    text += ["", f"Of {counts.total()} statements: {told}.", "", STARTS]
    rows = sorted(spread.items())
    text += [
        f"| {kind} | {test} | {'yes' if labels else 'none'} | {sd:.4f} | {n} |"
        for (kind, test, labels), (sd, n) in rows
    ]
    return "\n".join([*text, ""])


def level_rows(runs: Measured) -> Iterator[tuple[Job, str, int, list[float]]]:
    """Every run that is there: its job, the test, the questions, and the means of its measures."""
    for path in sorted((runs.runs.out / "results").glob("*.json")):
        job = Job.of(json.loads(path.read_text(encoding="utf-8"))["job"])
        for test, values in results.load([path]).items():
            yield job, test, values.shape[1], values.mean(axis=(0, 1)).tolist()


@dataclass(frozen=True)
class Curve:
    """A figure: rows of some claims with the same number of labels over tokens, or of the same rung over labels."""

    name: str
    axis: str
    claims: tuple[str, ...]
    labels: int | None = None
    rung: str | None = None

    def place(self, row: Row) -> float | None:
        """Where a row is drawn, if it is."""
        if row.method != "random" or row.arm not in ARMS:
            return None
        if self.rung is None:
            return RUNGS[row.rung] / 1e9 if row.labels == self.labels else None
        # None is drawn at ten, on an axis of logarithms.
        return float(max(row.labels, 10)) if row.rung == self.rung else None


CURVES = (
    Curve("tokens-untuned", "G tokens after the start, no labels", ("tokens",), labels=0),
    Curve("tokens", "G tokens after the start, 1,000 labels", ("tokens",), labels=1000),
    Curve("labels", "labels (none at 10), 300 M tokens", ("tokens", "labels"), rung="300M"),
    Curve("tokens-4-untuned", "G tokens after the fourth start, no labels", ("tokens-4",), labels=0),
    Curve("tokens-4", "G tokens after the fourth start, 1,000 labels", ("tokens-4",), labels=1000),
    Curve(
        "labels-4", "labels (none at 10), 300 M tokens, fourth start", ("tokens-4", "labels-4"), rung="300M"
    ),
    Curve("labels-100M", "labels (none at 10), 100 M tokens", ("1", "2", "2b", "8", "17"), rung="100M"),
)


def series(ladder: Ladder, runs: Measured, test: str, measure: str, curve: Curve) -> list[Series]:
    """A line for every arm, of means over seeds."""
    rows = ladder.rows([claim.number for claim in ladder.claims if claim.number in curve.claims])
    points: dict[str, dict[float, float]] = {}
    for row in rows:
        values, x = runs.of(row, test, measure), curve.place(row)
        if values is not None and x is not None:
            points.setdefault(row.arm, {})[x] = float(values.mean())
    return [
        Series(arm, sorted(at), [at[x] for x in sorted(at)])
        for arm, at in sorted(points.items(), key=lambda item: list(ARMS).index(item[0]))
    ]


def figures(ladder: Ladder, runs: Measured, out: Path) -> None:
    """The curves of the long comparison, for each test."""
    for test, curve in product(CURVED, CURVES):
        drawn = series(ladder, runs, test, "RR@10", curve)
        if any(np.size(one.x) > 1 for one in drawn):  # one point is no curve
            name = f"{curve.name}-{test}"
            write_svg(out / f"{name}.svg", lines(name, drawn, Axes(curve.axis, f"RR@10, {test}", log_x=True)))


def table(runs: Runs) -> Iterator[str]:
    """The rows that are there, means over seeds, for a look before there are verdicts; trials are left out."""
    found: dict[tuple[Row, str], list[list[float]]] = {}
    for job, test, _, means in level_rows(Measured(runs, runs.out)):
        row = described(job)
        if job in runs.jobs(row):
            found.setdefault((row, test), []).append(means)
    yield "| row | test | labels | settings | seeds | means |"
    yield "| --- | --- | ---: | --- | ---: | --- |"
    for (row, test), seeds in sorted(found.items()):
        pooling, lr = runs.chosen(row) or ("", 0.0)
        names = measures(row.set, row.method)
        values = ", ".join(f"{n} {v:.4f}" for n, v in zip(names, np.mean(seeds, axis=0)) if n != "Spearman")
        yield f"| {row} | {test} | {row.labels} | {pooling} {lr:g} | {len(seeds)} | {values} |"


if __name__ == "__main__":
    (HERE / "claims.md").write_text(
        page(read(HERE / "ladder.toml"), load(HERE / "checks.csv")), encoding="utf-8"
    )
