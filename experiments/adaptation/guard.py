"""Does the check of `liebig build` take what people's questions would take, and what does a wrong decision cost?

    python guard.py builds.jsonl.xz --recipes default "teacher and start" --split test --present

Reads what `builds.py` wrote: for every build, each system that its check compared with the untrained hybrid, whether
the check would take it, and its true difference on judged questions, with the fusion that a build uses for both. The
guard is right where it takes what is better and leaves what is worse. Beside that, what each build chose in the end is
held against every other system that it compared: the choice is right where it is the better of both.

Builds of earlier versions took encoders that were trained on the corpus unless they did harm, and those trained on a
user's questions only where they were better beyond chance. --present decides these comparisons anew by the rules of
today, as far as a row tells: whether one kind of question loses beyond chance is not in it.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from builds import rows

from liebig.builder.check import formatted
from liebig.builder.judge import LABELS, Difference
from liebig.builder.questions import OWN

POINT = 0.01  # true differences below this are not worth a dispute


@dataclass(frozen=True)
class Comparison:
    """A system against the untrained hybrid: as the check has it, and as judged questions have it."""

    build: str
    system: str
    taken: bool
    predicted: Difference
    true: Difference

    @property
    def by_present_rules(self) -> Comparison:
        """The same comparison as a build decides it today."""
        if self.system.startswith(f"BM25 + {LABELS['trained']}"):
            return replace(self, taken=self.predicted.significant)
        if self.system.startswith(f"BM25 + {LABELS[OWN]}"):
            return replace(self, taken=self.predicted.high >= 0)
        return self

    @property
    def between_hybrids(self) -> bool:
        """Whether both systems have BM25 and vectors."""
        return self.system.startswith("BM25 + ")

    @property
    def agrees(self) -> bool:
        """Whether the guard takes what is better and leaves what is worse."""
        return self.taken == (self.true.mean > 0)

    @property
    def counts(self) -> bool:
        """Whether the true difference is worth a decision."""
        return abs(self.true.mean) > POINT

    @property
    def cost(self) -> float:
        """What a wrong decision loses."""
        return 0.0 if self.agrees else abs(self.true.mean)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("builds", nargs="+", type=Path, help="files written by builds.py")
    parser.add_argument("--recipes", nargs="+", help="of the builds, as builds.jsonl.xz names them [all]")
    parser.add_argument("--split", help="of the questions that were asked [all]")
    parser.add_argument("--present", action="store_true", help="decide by the rules of today")
    parser.add_argument("--without", help="leave out systems whose names have these words")
    given = parser.parse_args()
    every = (row for file in given.builds for row in rows(file) if "compared" in row)
    builds = [row for row in every if given.split in (None, row["split"])]
    builds = [row for row in builds if given.recipes is None or row.get("recipe") in given.recipes]
    compared = [one for row in builds for one in comparisons(row)]
    compared = [one.by_present_rules for one in compared] if given.present else compared
    compared = [one for one in compared if given.without is None or given.without not in one.system]
    print(table(compared, builds))


def comparisons(row: Mapping[str, Any]) -> list[Comparison]:
    """Every system of a build against the untrained hybrid."""
    name = f"{row['set']}, {row['split']}, {row['arm']}, seed {row['seed']}"
    return [
        Comparison(
            name, one["system"], one["taken"], Difference(**one["predicted"]), Difference(**one["true"])
        )
        for one in row["compared"]
    ]


def summary(compared: Sequence[Comparison], builds: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Agreement over comparisons that count, costs, and what the choices are worth."""
    counted = [one for one in compared if one.counts]
    hybrids = [one for one in counted if one.between_hybrids]
    kept = [one for one in compared if one.taken]
    gains = [build["gain"] for build in builds]
    short = [max(build["systems"].values()) - build["value"] for build in builds]
    return {
        "comparisons": len(compared),
        "beyond_a_point": len(counted),
        "agreement": float(np.mean([one.agrees for one in counted])) if counted else float("nan"),
        "hybrids": len(hybrids),
        "agreement_of_hybrids": float(np.mean([one.agrees for one in hybrids])) if hybrids else float("nan"),
        "mean_cost": float(np.mean([one.cost for one in counted])) if counted else 0.0,
        "worst_cost": max((one.cost for one in counted), default=0.0),
        "taken": len(kept),
        "taken_and_worse": sum(one.true.mean < 0 for one in kept),
        "gain_over_baseline": float(np.mean(gains)),
        "worst_gain": float(min(gains)),
        "short_of_the_best": float(np.mean(short)),
    }


def rivals(build: Mapping[str, Any]) -> list[float]:
    """By how much what a build answers with beats each other system, where the difference is worth a decision."""
    others = {name: value for name, value in build["systems"].items() if name != build["chosen"]}
    differences = [build["value"] - value for value in others.values()]
    return [one for one in differences if abs(one) > POINT]


def table(compared: Sequence[Comparison], builds: Sequence[Mapping[str, Any]]) -> str:
    """The result, then every build and every comparison."""
    told = summary(compared, builds)
    agreement = f" Between hybrids it agrees in {told['agreement_of_hybrids']:.0%} of {told['hybrids']}."
    between = agreement if told["hybrids"] else ""
    beaten = np.array([one for build in builds for one in rivals(build)] or [np.nan])
    rows = [
        f"The guard agrees with judged questions in {told['agreement']:.0%} of the {told['beyond_a_point']} "
        f"comparisons whose true difference exceeds one point (of {told['comparisons']}). A wrong decision costs "
        f"{told['mean_cost']:.4f} nDCG@10 on average over them, {told['worst_cost']:.4f} at worst. Of {told['taken']} "
        f"systems that it would take, {told['taken_and_worse']} are worse than the untrained hybrid.{between}",
        "",
        f"What the {len(builds)} builds chose gains {told['gain_over_baseline']:+.4f} over the untrained hybrid on "
        f"average, {told['worst_gain']:+.4f} at worst, and is {told['short_of_the_best']:.4f} below the best system. "
        f"It is better than the other system in {np.mean(beaten > 0):.0%} of the {len(beaten)} pairs that differ by "
        f"more than a point.",
        "",
        "| build | chosen | nDCG@10 | gain | best |",
        "| --- | --- | ---: | ---: | --- |",
    ]
    for build in builds:
        best, value = max(build["systems"].items(), key=lambda item: item[1])
        rows.append(
            f"| {build['set']}, {build['arm']}, seed {build['seed']} | {build['chosen']} | {build['value']:.4f} | "
            f"{build['gain']:+.4f} ± {1.96 * build['error']:.4f} | {best} {value:.4f} |"
        )
    rows += [
        "",
        "| build | system | predicted | true | taken | right |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for one in compared:
        right = ("yes" if one.agrees else f"no, costs {one.cost:.3f}") if one.counts else "within a point"
        rows.append(
            f"| {one.build} | {one.system} | {formatted(one.predicted)} | {formatted(one.true)} | "
            f"{'yes' if one.taken else 'no'} | {right} |"
        )
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    main()
