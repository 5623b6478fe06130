"""Does the check of `liebig build` choose what real questions would choose, and what does a wrong choice cost?

    python experiments/guard/run.py data/medquad:test data/scifact:test --models runs/models --out runs/guard

Each corpus is a BEIR folder with a split of judged questions. `--models` is a folder of encoders: `NAME/` is asked on
every corpus, `CORPUS/NAME/` on that one (models trained on it by `liebig build`, which holds the same documents out). A
model that is a hub name or lies elsewhere is given as `--model NAME=FOLDER`. The start is the bundled encoder, or
`--start`.

For every corpus the questions of the check are made from its documents alone and asked as a build asks them; the judged
questions are asked against the whole corpus. Each system is compared with the untrained hybrid by both. The guard is
right where it takes what is better, and leaves what is not. Written: `guard.json` (every comparison, with the values of
every question), `guard.md` (a table), `guard.svg` (predicted and true differences). Cost: each corpus is encoded twice
by every model, once with titles and once, as a pool of some thousand passages, without.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from liebig import encoders
from liebig.base.hub import model_folder
from liebig.builder import check
from liebig.builder.build import BuildConfig, Builder, encode_passages, read_collection
from liebig.builder.check import BASELINE, Choice, Difference, Judge
from liebig.builder.questions import Question, read as read_questions
from liebig.commands import STAGES
from liebig.evaluation.plots import Axes, Series, lines, write_svg
from liebig.search.retriever_folder import exclusive
from liebig.search.systems import open_system

POINT = 0.01  # true differences below this are not worth a dispute
WHOLE = 10**9  # passages of a pool: all


@dataclass(frozen=True)
class Comparison:
    """A system against the untrained hybrid: as the check has it, and as judged questions have it."""

    corpus: str
    system: str
    taken: bool
    predicted: Difference
    true: Difference

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
    parser.add_argument("corpora", nargs="+", help="BEIR folders, each with a split: data/medquad:test")
    parser.add_argument("--models", type=Path, help="a folder of encoders: NAME/ and CORPUS/NAME/")
    parser.add_argument("--model", action="append", default=[], metavar="NAME=FOLDER")
    parser.add_argument("--start", type=Path, default=None, help="the untrained encoder [default: bundled]")
    parser.add_argument("--most", type=int, default=600, help="judged questions of a corpus at most")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    start = given.start or encoders.folder()
    named = {name: model_folder(folder) for name, _, folder in (item.partition("=") for item in given.model)}
    compared: list[Comparison] = []
    chosen: list[dict[str, Any]] = []
    values: dict[str, Any] = {}
    for corpus in given.corpora:
        folder, _, split = corpus.partition(":")
        name = Path(folder).name
        models = {check.START: start, **named, **models_of(given.models, name, given.corpora)}
        made, real = judges(Path(folder), split or "test", models, given.out / name, given.most)
        compared += comparisons(name, made, real)
        chosen.append(decision(name, made, real))
        values[name] = {
            system.name: {"check": made.values(system).tolist(), "judged": real.values(system).tolist()}
            for system in systems(made)
        }
    rows = [asdict(one) | {"agrees": one.agrees, "cost": one.cost} for one in compared]
    result = {"summary": summary(compared, chosen), "chosen": chosen, "comparisons": rows, "values": values}
    (given.out / "guard.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    text = table(compared, chosen)
    (given.out / "guard.md").write_text(text, encoding="utf-8")
    write_svg(given.out / "guard.svg", figure(compared))
    print(text)


def models_of(home: Path | None, corpus: str, corpora: Sequence[str]) -> dict[str, Path]:
    """The encoders of a folder that are asked on a corpus: those for all, and its own."""
    if home is None:
        return {}
    others = {Path(item.partition(":")[0]).name for item in corpora}
    shared = {path.name: path for path in sorted(home.iterdir()) if path.is_dir() and path.name not in others}
    own = sorted((home / corpus).iterdir()) if (home / corpus).is_dir() else []
    return shared | {path.name: path for path in own if path.is_dir()}


def judges(folder: Path, split: str, models: Mapping[str, Path], out: Path, most: int) -> tuple[Judge, Judge]:
    """The questions that a build makes, and the judged ones, with the hits of every model for both."""
    out.mkdir(parents=True, exist_ok=True)
    with exclusive(out):
        builder = Builder(STAGES, out, print)
        corpus = next(iter(sorted(folder.glob("corpus.jsonl*"))))
        config = BuildConfig(sources=(str(corpus),), minutes=0)
        collection = read_collection(builder, config, models[check.START])
        asked = builder.work("questions", {"collection": str(collection)})
        judged = builder.work(
            "given",
            {
                "file": str(folder / "qrels" / f"{split}.tsv"),
                "collection": str(collection),
                "pool": WHOLE,
            },
        )
        made = check.enough(read_questions(asked))
        return (
            asking(builder, "check", asked, made, models),
            asking(builder, "judged", judged, read_questions(judged)[:most], models),
        )


def asking(
    builder: Builder, name: str, pool: Path, questions: Sequence[Question], models: Mapping[str, Path]
) -> Judge:
    """A judge that has asked BM25 and every model."""
    judge = Judge(questions)
    words = builder.work(f"{name}-bm25", {"kind": "bm25", "collection": str(pool)})
    judge.ask("bm25", open_system(words))
    for model, path in models.items():
        judge.ask(model, open_system(encode_passages(builder, f"{name}-{model}", pool, path)))
    return judge


def systems(judge: Judge) -> list[Choice]:
    """Everything a build could choose, plain."""
    hybrids = [Choice(name) for name in judge.encoders]
    return [Choice(system="bm25"), *(replace(one, system="dense") for one in hybrids), *hybrids]


def comparisons(corpus: str, made: Judge, real: Judge) -> list[Comparison]:
    """Every system against the untrained hybrid."""
    found = []
    for system in systems(made):
        if system == BASELINE:
            continue
        margin = 0.0 if system.system == "hybrid" else check.DOUBT
        predicted, true = (
            judge.difference(judge.values(system), judge.values(BASELINE), judge.every)
            for judge in (made, real)
        )
        taken = made.better(made.values(system), made.values(BASELINE), made.every, margin)
        found.append(Comparison(corpus, system.name, taken, predicted, true))
    return found


def decision(corpus: str, made: Judge, real: Judge) -> dict[str, Any]:
    """What a build with all these models chooses, what that is worth, and what the best would have been."""
    choice = made.choose(made.every)
    worth = {system: float(real.values(system).mean()) for system in {*systems(made), choice}}
    best = max(worth, key=lambda system: worth[system])
    return {
        "corpus": corpus,
        "questions": {"check": len(made.questions), "judged": len(real.questions)},
        "chosen": choice.name,
        "value": worth[choice],
        "baseline": worth[BASELINE],
        "best": best.name,
        "best_value": worth[best],
    }


def summary(compared: Sequence[Comparison], chosen: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Agreement over comparisons that count, costs, and what the choices are worth."""
    counted = [one for one in compared if one.counts]
    kept = [one for one in compared if one.taken]
    return {
        "comparisons": len(compared),
        "beyond_a_point": len(counted),
        "agreement": float(np.mean([one.agrees for one in counted])) if counted else float("nan"),
        "mean_cost": float(np.mean([one.cost for one in counted])) if counted else 0.0,
        "worst_cost": max((one.cost for one in counted), default=0.0),
        "taken": len(kept),
        "taken_and_worse": sum(one.true.mean < 0 for one in kept),
        "gain_over_baseline": float(np.mean([one["value"] - one["baseline"] for one in chosen])),
        "short_of_the_best": float(np.mean([one["best_value"] - one["value"] for one in chosen])),
    }


def table(compared: Sequence[Comparison], chosen: Sequence[Mapping[str, Any]]) -> str:
    """The result, then every comparison."""
    told = summary(compared, chosen)
    rows = [
        f"The guard agrees with judged questions in {told['agreement']:.0%} of the {told['beyond_a_point']} "
        f"comparisons whose true difference exceeds one point (of {told['comparisons']}). A wrong decision costs "
        f"{told['mean_cost']:.4f} nDCG@10 on average over them, {told['worst_cost']:.4f} at worst. Of {told['taken']} "
        f"systems that it takes, {told['taken_and_worse']} are worse than the untrained hybrid.",
        "",
        "| corpus | system | predicted | true | taken | right |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for one in compared:
        right = ("yes" if one.agrees else f"no, costs {one.cost:.3f}") if one.counts else "within a point"
        rows.append(
            f"| {one.corpus} | {one.system} | {check.shown(one.predicted)} | {check.shown(one.true)} | "
            f"{'yes' if one.taken else 'no'} | {right} |"
        )
    rows += [
        "",
        "| corpus | chosen of all | nDCG@10 | untrained hybrid | best |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in chosen:
        rows.append(
            f"| {row['corpus']} | {row['chosen']} | {row['value']:.3f} | {row['baseline']:.3f} | "
            f"{row['best']} {row['best_value']:.3f} |"
        )
    return "\n".join(rows) + "\n"


def figure(compared: Sequence[Comparison]) -> str:
    """Predicted differences by true ones, sorted; where both are on one side of zero, the guard sees what is so."""
    ordered = sorted(compared, key=lambda one: one.true.mean)
    sides = {"true": [one.true for one in ordered], "predicted": [one.predicted for one in ordered]}
    series = [
        Series(
            name,
            np.arange(len(side)),
            [one.mean for one in side],
            [one.low for one in side],
            [one.high for one in side],
        )
        for name, side in sides.items()
    ]
    axes = Axes("comparison, sorted by the true difference", "nDCG@10 to the untrained hybrid")
    return lines("guard", series, axes)


if __name__ == "__main__":
    main()
