"""What the ladder compares, and which runs it takes: rows, the settings that dev chose for each, and open jobs.

A row is an arm at a rung on a set, with a number of labels and a method. Pooling and rate are chosen on dev with
the first seed of one pre-training (`Arm.tuned_in`) at the ladder's rung: four trials for every arm and set, with
`random` and a thousand labels (or all, where there are fewer), whatever the row; the trial that was chosen is also
that row's first seed. Other rungs and pre-trainings take the same settings, and so do arms that are another arm
with one thing changed (`Arm.tuned_as`), the start (those of masked words continued) and `far` (those of `wiki`). What
is there is not done again, so which jobs are ready follows from the results on disk.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from pretrained import ARMS, START, chain, has
from tuned import FAR, TEXTS, ZERO_SHOT, Job

POOLINGS, RATES = ("cls", "mean"), (1e-4, 3e-4)
TEXT_RATES = (2e-5, 1e-4)
CHOICE = 1000
ALL = {"wiki": 5000, "far": 5000, "medquad": 5000, "scifact": 651, "stsb": 5749, "sections": 20_000}
BM25 = "bm25"
CHOSEN_ON = {FAR: "wiki"}
TESTS = {FAR: ("squad-far", *ZERO_SHOT)}


@dataclass(frozen=True, order=True)
class Row:
    """An arm at a rung, a set, labels and a method."""

    arm: str
    rung: str
    set: str
    labels: int
    method: str = "random"
    pretraining: int = 1  # its seed

    @property
    def model(self) -> str:
        if self.arm == START:
            return START if self.pretraining == 1 else f"{START}-{self.pretraining}"
        return f"{self.arm}@{self.rung}-{self.pretraining}"

    def __str__(self) -> str:
        name = self.arm if self.arm in (START, BM25) else f"{self.arm}@{self.rung}"
        name += "" if self.pretraining == 1 else f"-{self.pretraining}"
        return name + ("" if self.method == "random" else f", {self.method}")


@dataclass(frozen=True)
class Check:
    """A comparison: each side is a row, or a row less another."""

    claim: str
    one: tuple[Row, ...]
    other: tuple[Row, ...]
    sign: str  # what is expected: > better, = equal up to the effect
    test: str
    measure: str
    effect: float | None = None  # the paper's own difference
    line: str = ""  # of the ladder, and its rung: checks of one line and measure speak together

    @property
    def rows(self) -> tuple[Row, ...]:
        return (*self.one, *self.other)

    def sides(self) -> Iterator[str]:
        """Both sides; labels are named where they are not those of the first row."""
        labels = self.one[0].labels
        for side in (self.one, self.other):
            yield " less ".join(
                str(row) + (f", {row.labels:,} labels" if row.labels != labels else "") for row in side
            )

    def __str__(self) -> str:
        where = self.one[0]
        return f"{f' {self.sign} '.join(self.sides())} | {self.test} | {where.labels:,} | {self.measure}"


@dataclass(frozen=True)
class Claim:
    """A claim, the paper's figure, its checks, and what was measured of it elsewhere."""

    number: str
    says: str
    paper: str
    checks: tuple[Check, ...]
    elsewhere: str = ""


@dataclass(frozen=True)
class Ladder:
    """The claims, how often each row is run, and the rung of rows that name none, where settings are tried."""

    claims: tuple[Claim, ...]
    seeds: int
    rung: str
    all: Mapping[str, int]

    def claim(self, number: str) -> Claim:
        found = next((claim for claim in self.claims if claim.number == number), None)
        if found is None:
            names = ", ".join(claim.number for claim in self.claims)
            raise SystemExit(f"there is no claim {number!r}; there are {names}")
        return found

    def rows(self, numbers: Sequence[str]) -> list[Row]:
        """What claims need, each once, in their order."""
        checks = [check for number in numbers for check in self.claim(number).checks]
        return list(dict.fromkeys(row for check in checks for row in check.rows))


def read(
    path: Path, rung: str | None = None, seeds: int | None = None, all: Mapping[str, int] | None = None
) -> Ladder:
    """The ladder in a file; `rung` and `seeds` replace its own, `all` the sizes of sets."""
    tree = tomllib.loads(path.read_text(encoding="utf-8"))
    at, sizes = rung or tree["rung"], {**ALL, **(all or {})}
    claims = []
    named = {one["number"]: one for one in tree["claim"]}
    for one in (({**named[one["like"]], **one} if "like" in one else one) for one in tree["claim"]):
        # 1,000 labels and all are one check where there are fewer than that.
        checks = tuple(
            dict.fromkeys(
                check
                for level in one.get("rungs", [at])
                for text in one["checks"]
                for seed in one.get("pretrainings", [1])
                for check in parse(one["number"], text, level, sizes, seed)
                if not [row for row in check.rows if not has(row.arm, row.rung)]
            )
        )
        claims.append(Claim(one["number"], one["says"], one["paper"], checks, one.get("elsewhere", "")))
    return Ladder(tuple(claims), seeds or tree["seeds"], tree["rung"], sizes)


def parse(claim: str, text: str, rung: str, all: Mapping[str, int], pretraining: int = 1) -> Iterator[Check]:
    """The comparisons of a line, in one pre-training."""
    try:
        sides, sets, labels, measures, *effects = (part.strip() for part in text.split("|"))
        one, sign, other = re.split(r"\s+(>|=)\s+", sides)
        effect = float(effects[0]) if effects else None
    except ValueError:
        raise SystemExit(
            f"claim {claim}: {text!r} is not `ONE > OTHER | SETS | LABELS | MEASURES | EFFECT`"
        ) from None
    for where, count, measure in product(sets.split(), labels.split(), measures.split()):
        name, _, named = where.partition(":")
        number = all[name] if count == "all" else min(int(count), all[name])

        def side(words: str, name: str = name, number: int = number) -> tuple[Row, ...]:
            return tuple(row(word.strip(), name, number, rung, pretraining) for word in words.split(" - "))

        for test in [named] if named else TESTS.get(name, (name,)):
            yield Check(claim, side(one), side(other), sign, test, measure, effect, f"{text} at {rung}")


def row(word: str, name: str, labels: int, rung: str, pretraining: int = 1) -> Row:
    """ARM with, in this order, @RUNG, #LABELS of its own and /METHOD."""
    arm, _, method = word.partition("/")
    arm, _, own = arm.partition("#")
    arm, _, at = arm.partition("@")
    return Row(
        arm, at or rung, name, int(own or labels), method or "random", 1 if arm == BM25 else pretraining
    )


@dataclass(frozen=True)
class Runs:
    """The results on disk, and what follows from them."""

    out: Path
    ladder: Ladder

    def path(self, job: Job) -> Path:
        return self.out / "results" / job.file

    def done(self, job: Job) -> bool:
        return self.path(job).exists()

    def facts(self, job: Job) -> dict[str, Any]:
        return json.loads(self.path(job).read_text(encoding="utf-8"))

    def trials(self, row: Row) -> list[Job]:
        """What dev chooses from."""
        where = CHOSEN_ON.get(row.set, row.set)
        labels = min(CHOICE, self.ladder.all[where])
        rates = TEXT_RATES if row.set in TEXTS else RATES
        arm = ARMS[row.arm].tuned_as if row.arm in ARMS else "mlm"
        name = arm or row.arm
        pretraining = ARMS[name].tuned_in if name in ARMS else 1
        model = replace(row, arm=name, rung=self.ladder.rung, pretraining=pretraining).model
        return [Job(model, where, labels, "random", pooling, lr, 1) for pooling in POOLINGS for lr in rates]

    def chosen(self, row: Row) -> tuple[str, float] | None:
        """Pooling and rate that are best on dev; None before all were tried."""
        tried = self.trials(row)
        if not all(map(self.done, tried)):
            return None
        if row.method == "entropy":  # of CLS, so CLS has to be what was tuned
            tried = [job for job in tried if job.pooling == "cls"]
        best = max(tried, key=lambda job: self.facts(job)["dev"])
        return best.pooling, best.lr

    def jobs(self, row: Row) -> list[Job]:
        """The runs of a row, seed by seed; none before its settings are chosen."""
        if row.arm == BM25:
            return []
        if row.labels == 0:  # nothing is trained
            return [Job(row.model, row.set, 0, "random", "-", 0.0, row.pretraining)]
        settings, method = self.chosen(row), row.method
        if settings is None:
            return []
        seeds = range(1, self.ladder.seeds + 1)
        made = [Job(row.model, row.set, row.labels, method, *settings, seed) for seed in seeds]
        if not method.startswith("mined-by:"):
            return made
        other = self.chosen(miner_of(row))
        if other is None:
            return []
        name = f"mined-by:{miner_of(row).model}:{other[0]}:{other[1]:g}"
        return [replace(job, method=name) for job in made]

    def needed(self, rows: Sequence[Row]) -> Iterator[Job]:
        """All runs of the rows that are known by now, trials first."""
        trained = [r for r in with_miners(rows) if r.arm != BM25]
        yield from (job for r in trained if r.labels for job in self.trials(r))
        # Later seeds come last, so that time that runs out costs seeds and not rows.
        runs = [self.jobs(r) for r in rows]
        for place in range(self.ladder.seeds):
            yield from (some[place] for some in runs if place < len(some))

    def open(self, rows: Sequence[Row], there: Collection[str], failed: Collection[str]) -> list[str]:
        """Jobs that could begin now: their models are there and their results are not."""
        wanted = dict.fromkeys(self.needed(rows))
        waiting = {job for job in wanted if not self.done(job) and str(job) not in failed}
        return [
            str(job)
            for job in wanted
            if job in waiting
            and (job.model in there or job.model.partition("-")[0] in there)
            and waiting.isdisjoint(earlier(job))
        ]

    def models(self, rows: Sequence[Row], rungs: Mapping[str, float]) -> list[str]:
        """The models that rows need, each after what it is trained from."""
        trained = [r for r in with_miners(rows) if r.arm not in (BM25, START)]
        return list(dict.fromkeys(name for r in trained for name in chain(r.model, rungs)))


def miner_of(row: Row) -> Row:
    """The row whose model mines the negatives of a row with `mined-by`."""
    return replace(row, arm=row.method.partition(":")[2], method="random")


def with_miners(rows: Sequence[Row]) -> list[Row]:
    """Rows, and those that mine for them."""
    return list(dict.fromkeys((*rows, *(miner_of(row) for row in rows if ":" in row.method))))


def earlier(job: Job) -> list[Job]:
    """Runs that leave what a job would otherwise make for itself: weights, or a teacher's scores."""
    if job.method == "soft":
        return [replace(job, seed=1)] if job.seed > 1 else []
    methods = {"mined": ("random",), "entropy": ("random",), "neighbours": ("random", "mined")}.get(
        job.method, ()
    )
    first = [replace(job, method=method) for method in methods]
    if job.method.startswith("mined-by:"):
        _, model, pooling, lr = job.method.split(":")
        first.append(replace(job, model=model, method="random", pooling=pooling, lr=float(lr)))
    return first


def described(job: Job) -> Row:
    """The row that a run belongs to."""
    arm, _, rest = job.model.partition("@")
    rung, _, seed = rest.rpartition("-")
    if not rest:
        arm, _, seed = arm.partition("-")
    method = job.method
    if method.startswith("mined-by:"):
        method = "mined-by:" + method.split(":")[1].partition("@")[0]
    return Row(arm, rung, job.set, job.labels, method, int(seed or 1))
