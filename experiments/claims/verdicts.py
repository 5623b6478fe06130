"""Verdicts from the runs on disk: every statement with its interval and test, every claim beside the paper's figure.

A statement is a line of ladder.toml with one measure: the mean of its differences over sets and numbers of labels. Its
interval resamples seeds and documents (those of a test at once for all numbers of labels), p is the share of samples
on the other side of zero, twice, corrected after Holm over the statements of a claim. `>` holds if the interval is
above zero and p under .05, and does not hold if a gain of the margin can be left out. `=` holds if the whole interval
is within the margin; `>=` if it is above minus the margin. Spearman's correlation is no mean over pairs: its samples
are of pairs and seeds.
"""

from __future__ import annotations

import html
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib import resources
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from ladder import BM25, Check, Claim, Ladder, Row, Runs, described
from numpy.typing import NDArray
from pretrained import ARMS, RUNGS
from tuned import Job, gold, measures

sys.path.append(str(Path(__file__).parents[1]))

import results

from liebig.base.statistics import ALPHA, holm
from liebig.evaluation.plots import Axes, Series, intervals, lines, write_svg
from liebig.measures.similarity import spearman

Values = NDArray[np.float64]
HOLDS, FAILS, OPEN, PART = "holds", "does not hold here", "undecided", "holds in part"
DRAWS = 2_000
CURVED = ("squad", "medquad")  # tests that have curves; NQ's is nearly noise


@dataclass(frozen=True)
class Line:
    """A check with what was measured; empty where runs are missing."""

    check: Check
    one: float = float("nan")
    other: float = float("nan")
    samples: Values | None = field(default=None, repr=False, compare=False)
    seeds: int = 0
    questions: int = 0

    @property
    def difference(self) -> Mapping[str, float] | None:
        return None if self.samples is None else asdict(results.interval(self.one - self.other, self.samples))


@dataclass(frozen=True)
class Statement:
    """Checks that speak together, and what the mean of their differences says."""

    lines: Sequence[Line]
    difference: Mapping[str, float] | None = None
    p: float = 1.0
    p_holm: float = 1.0
    verdict: str = OPEN

    @property
    def missing(self) -> int:
        """Checks without a run."""
        return sum(line.samples is None for line in self.lines)


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
            found = self.known.get(f"{row.set}|bm25|{test}")
            column = measures(row.set, row.method).index(measure)
            return None if found is None else found[None, :, column] / 10_000
        if row not in self.rows:
            done = [self.runs.path(job) for job in self.runs.jobs(row) if self.runs.done(job)]
            self.rows[row] = results.load(done) if done else {}
        values = self.rows[row].get(test)
        return None if values is None else values[:, :, measures(row.set, row.method).index(measure)]

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
        found = self.known.get(f"{row.set}|documents|{test}", ())
        return np.asarray(found) if len(found) == questions else np.arange(questions)


def measured(check: Check, runs: Measured) -> Line:
    """The difference of a check, with samples of it."""
    one = runs.side(check.one, check.test, check.measure)
    other = runs.side(check.other, check.test, check.measure)
    if one is None or other is None:
        return Line(check)
    seeds, questions = min(len(one), len(other)), one.shape[1]
    if check.measure == "Spearman":
        samples, means = correlations(one, other, gold(runs.prepared))
        return Line(check, *means, samples, seeds, questions)
    documents = runs.documents(check.one[0], check.test, questions)
    samples = results.differences(one, other, documents, results.seed_of(check.test))
    return Line(check, float(one.mean()), float(other.mean()), samples, seeds, questions)


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


def stated(lines: Sequence[Line]) -> Statement:
    """The mean over checks, before correction; nothing where one of them has no run."""
    samples = [line.samples for line in lines if line.samples is not None]
    if len(samples) < len(lines):
        return Statement(lines)
    mean, p = results.together([line.one - line.other for line in lines], samples)
    return Statement(lines, asdict(mean), p)


def decided(said: Statement, margin: float) -> str:
    """What the interval and the corrected p say."""
    if said.difference is None:
        return OPEN
    low, high = said.difference["low"], said.difference["high"]
    beyond, sign = said.p_holm <= ALPHA and (low > 0 or high < 0), said.lines[0].check.sign
    if sign == ">":
        return HOLDS if beyond and low > 0 else FAILS if high < margin else OPEN
    if sign == ">=":
        return HOLDS if low > -margin else FAILS if high < -margin else OPEN
    return HOLDS if -margin < low and high < margin else FAILS if beyond else OPEN


def groups(claim: Claim) -> list[list[Check]]:
    """The checks of each statement; where a claim speaks of some sets, every check is one."""
    found: dict[object, list[Check]] = {}
    for check in claim.checks:
        found.setdefault(check if claim.one_is_enough else (check.line, check.measure), []).append(check)
    return list(found.values())


def all_statements(ladder: Ladder, runs: Measured) -> dict[str, list[Statement]]:
    """The statements of every claim, decided; p is corrected over those of one claim."""
    lines = {check: measured(check, runs) for claim in ladder.claims for check in claim.checks}

    def final(claim: Claim) -> list[Statement]:
        made = [stated([lines[check] for check in some]) for some in groups(claim)]
        told = [said for said in made if said.difference is not None]
        corrected = dict(zip(map(id, told), holm([said.p for said in told])))
        both = [replace(said, p_holm=corrected.get(id(said), 1.0)) for said in made]
        return [replace(said, verdict=decided(said, claim.margin)) for said in both]

    return {claim.number: final(claim) for claim in ladder.claims}


def verdict(claim: Claim, found: Sequence[Statement]) -> str:
    """Of all statements together: a claim that says several things does not hold once one of them does not."""
    counts = Counter(said.verdict for said in found)
    if claim.one_is_enough:
        return HOLDS if counts[HOLDS] else OPEN if counts[OPEN] else FAILS
    if counts[FAILS]:
        return PART if counts[HOLDS] else FAILS
    return OPEN if counts[OPEN] else HOLDS


def reason(found: Sequence[Statement]) -> str:
    """What each statement came to."""
    return "; ".join(f"{title(said)} {outcome(said)}" for said in found)


def outcome(said: Statement) -> str:
    if said.difference is None:
        return (
            "was not run"
            if said.missing == len(said.lines)
            else f"has {said.missing} checks that were not run"
        )
    return results.difference(said.difference)


def title(said: Statement) -> str:
    """The sides, measure and labels of a statement."""
    check = said.lines[0].check
    counts = dict.fromkeys(f"{line.check.one[0].labels:,}" for line in said.lines)
    tests = dict.fromkeys(line.check.test for line in said.lines)
    labels = "no labels" if list(counts) == ["0"] else f"{' / '.join(counts)} labels"
    seeds = dict.fromkeys(line.check.one[0].pretraining for line in said.lines)
    several = f", pre-trainings {' and '.join(map(str, seeds))}" if len(seeds) > 1 else ""
    return f"{sides(check)} ({check.measure}, {', '.join(tests)}, {labels}{several})"


def sides(check: Check) -> str:
    return f" {check.sign} ".join(" less ".join(map(str, side)) for side in (check.one, check.other))


def claim_rows(ladder: Ladder, found: Mapping[str, Sequence[Statement]]) -> Iterator[str]:
    """One table of all claims."""
    yield "| | claim | verdict | what was measured, difference [95 %] | the paper |"
    yield "| --- | --- | --- | --- | --- |"
    for claim in ladder.claims:
        if claim.paper:
            mine = found[claim.number]
            yield f"| {claim.number} | {claim.says} | **{verdict(claim, mine)}** | {reason(mine)} | {claim.paper} |"


def statement_rows(found: Sequence[Statement]) -> Iterator[str]:
    """One table of a claim's statements."""
    yield "| statement | mean difference [95 %] | p (Holm) | verdict |"
    yield "| --- | --- | ---: | --- |"
    for said in found:
        p = "" if said.difference is None else f"{said.p_holm:.4f}"
        yield f"| {title(said)} | {outcome(said)} | {p} | {said.verdict} |"


def check_rows(found: Sequence[Statement]) -> Iterator[str]:
    """One table of a claim's checks."""
    yield "| check | test | labels | measure | seeds | one | other | difference [95 %] |"
    yield "| --- | --- | ---: | --- | ---: | ---: | ---: | --- |"
    for line in (line for said in found for line in said.lines):
        check, d = line.check, line.difference
        start = f"| {sides(check)} | {check.test} | {check.one[0].labels:,} | {check.measure} |"
        if d is None:
            yield f"{start} 0 | | | not run |"
        else:
            yield f"{start} {line.seeds} | {line.one:.4f} | {line.other:.4f} | {results.difference(d)} |"


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


def figures(
    ladder: Ladder, runs: Measured, found: Mapping[str, Sequence[Statement]], out: Path
) -> dict[str, str]:
    """Figures by name: those of the long comparison for each test, and the differences of every claim of a paper."""
    made = {}
    for test, curve in product(CURVED, CURVES):
        drawn = series(ladder, runs, test, "RR@10", curve)
        if any(np.size(one.x) > 1 for one in drawn):  # one point is no curve
            name = f"{curve.name}-{test}"
            made[name] = lines(name, drawn, Axes(curve.axis, f"RR@10, {test}", log_x=True))
    for claim in ladder.claims:
        if not claim.paper:  # of the long comparison, which has curves
            continue
        rows = [
            (f"{line.check.one[0]} {line.check.test} {line.check.one[0].labels} {line.check.measure}",
             d["mean"], d["low"], d["high"])
            for said in found[claim.number] for line in said.lines if (d := line.difference)
        ]  # fmt: skip
        if rows:
            made[f"claim-{claim.number}"] = intervals(f"claim-{claim.number}", rows, Axes("difference", ""))
    for name, svg in made.items():
        write_svg(out / "figures" / f"{name}.svg", svg)
    return made


def page(ladder: Ladder, runs: Runs, prepared: Path, out: Path) -> dict[str, list[Statement]]:
    """claims.md, claims.html, claims.json and the figures."""
    read = Measured(runs, prepared)
    found = all_statements(ladder, read)
    drawn = figures(ladder, read, found, out)
    table = list(claim_rows(ladder, found))
    text = ["# The papers' claims", "", *table, ""]
    for claim in ladder.claims:
        mine = found[claim.number]
        text += [f"## {claim.number}. {claim.says}", ""]
        text += [
            f"{verdict(claim, mine).capitalize()}. {beside(claim)}".strip(),
            "",
            *statement_rows(mine),
            "",
        ]
        text += [*check_rows(mine), ""]
        names = {f"claim-{claim.number}": claim.says}
        names |= {
            f"{curve.name}-{test}": f"RR@10 of {test} over {curve.axis}"
            for curve in CURVES if curve.claims[-1] == claim.number for test in CURVED
        }  # fmt: skip
        text += [f"![{shows}](figures/{name}.svg)\n" for name, shows in names.items() if name in drawn]
    (out / "claims.md").write_text("\n".join(text), encoding="utf-8")
    (out / "claims.html").write_text(as_html(ladder, found, drawn), encoding="utf-8")
    told = {
        claim.number: {
            "says": claim.says,
            "paper": claim.paper,
            "margin": claim.margin,
            "verdict": verdict(claim, found[claim.number]),
            "statements": [as_json(said) for said in found[claim.number]],
        }
        for claim in ladder.claims
    }
    (out / "claims.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    print("\n".join(table))
    return found


def beside(claim: Claim) -> str:
    """The paper's figure, and what counts as a difference."""
    paper = f"The paper: {claim.paper}. " if claim.paper else ""
    return f"{paper}A difference of less than {claim.margin:g} counts as none."


def as_json(said: Statement) -> dict[str, Any]:
    checks = [
        {
            "check": str(line.check), "one": line.one, "other": line.other, "difference": line.difference,
            "seeds": line.seeds, "questions": line.questions,
        }
        for line in said.lines
    ]  # fmt: skip
    numbers = {"difference": said.difference, "p": said.p, "p_holm": said.p_holm}
    return {"says": title(said), "verdict": said.verdict, **numbers, "checks": checks}


def as_html(ladder: Ladder, found: Mapping[str, Sequence[Statement]], drawn: Mapping[str, str]) -> str:
    """One page without a request, in the dress of `liebig report`."""
    css = resources.files("liebig.evaluation").joinpath("report.css").read_text(encoding="utf-8")
    body = ["<h1>The papers' claims</h1>", as_table(list(claim_rows(ladder, found)))]
    body += [f"<figure>{svg}</figure>" for name, svg in drawn.items() if not name.startswith("claim-")]
    for claim in ladder.claims:
        mine = found[claim.number]
        body.append(f"<h2>{html.escape(f'{claim.number}. {claim.says}')}</h2>")
        body.append(f"<p><strong>{verdict(claim, mine)}</strong>. {html.escape(beside(claim))}</p>")
        body.append(as_table(list(statement_rows(mine))))
        body.append(f"<figure>{drawn.get(f'claim-{claim.number}', '')}</figure>")
        body.append(as_table(list(check_rows(mine))))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>The papers\' claims</title>'
        f"<style>{css}</style></head><body><main>{''.join(body)}</main></body></html>\n"
    )


def as_table(rows: Sequence[str]) -> str:
    """A Markdown table as HTML."""
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    head, _, *others = cells

    def row(words: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(word.strip('*'))}</{tag}>" for word in words) + "</tr>"

    return f"<table><thead>{row(head, 'th')}</thead><tbody>{''.join(row(one, 'td') for one in others)}</tbody></table>"


def table(runs: Runs) -> Iterator[str]:
    """The rows that are there, means over seeds, for a look before there are verdicts; trials are left out."""
    found: dict[tuple[Row, str], list[list[float]]] = {}
    for job, test, _, means in level_rows(Measured(runs, runs.out)):
        row = described(job)
        if job in runs.jobs(row):
            found.setdefault((row, test), []).append(means)
    yield "| row | test | labels | settings | seeds | means |"
    yield "| --- | --- | ---: | --- | ---: | --- |"
    for (row, test), means in sorted(found.items()):
        pooling, lr = runs.chosen(row) or ("", 0.0)
        names = measures(row.set, row.method)
        values = ", ".join(f"{n} {v:.4f}" for n, v in zip(names, np.mean(means, axis=0)) if n != "Spearman")
        yield f"| {row} | {test} | {row.labels} | {pooling} {lr:g} | {len(means)} | {values} |"
