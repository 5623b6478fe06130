"""Fine-tuning compared on real data, from one encoder: batches, negatives, labels, optimisers.

    python experiments/finetuning/run.py --data data --out runs/finetuning [--encoder FOLDER] [--minutes 6]
    python experiments/finetuning/run.py --data data --out runs/try --most 60 --distractors 300 --seeds 2 --epochs 1

Each row is trained with several seeds; its settings are chosen on dev with the first of them. What is there already
is not done again, so the same command goes on where the time was up. `--minutes` starts no run that would not end in
time. At the end results.md, results.json and queries.npz (values of every test question, in ten thousandths) are
written to --out, and the table is printed. Intervals are 95 % bootstrap intervals over seeds and questions;
differences are paired, over the means of seeds, with p by randomisation, corrected after Holm over all rows.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from methods import MEASURES, Bench, Plan, Result, Settings, averaged, candidates, fine_tune, teach
from numpy.typing import NDArray
from sets import read

from liebig import encoders
from liebig.statistics import compare, holm, over_seeds

FEW = 500
TEACHER_EPOCHS = 2
ROWS = {
    "scifact": ("random", "asam", "abs-greedy", "abs-beam", "abs-bm25", "mined", "soft", "average"),
    "wiki-few": ("random", "asam", "average"),
    "medquad-few": ("random", "asam", "average"),
    "wiki": ("random", "abs-greedy", "mined", "soft", "abs-bm25", "abs-beam"),
    "medquad": ("random", "abs-greedy", "mined", "soft", "abs-bm25", "abs-beam"),
}


@dataclass
class Clock:
    """How much time is left, and how long a run of each set takes."""

    end: float
    longest: dict[str, float]

    def enough(self, name: str) -> bool:
        return time.monotonic() + 1.2 * self.longest.get(name, 0.0) < self.end


def main() -> None:
    args = arguments()
    args.out.mkdir(parents=True, exist_ok=True)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    folder = args.encoder or encoders.folder()
    work = args.work or args.out / "work"
    work.mkdir(parents=True, exist_ok=True)
    clock = Clock(time.monotonic() + 60 * args.minutes, {})
    plan = Plan(folder, args.epochs, args.batch, device, work)
    try:
        run_all(args, plan, clock)
    finally:  # a signal ends the run under way; the table of the others is written all the same
        write(args.out, args.seeds)


def run_all(args: argparse.Namespace, plan: Plan, clock: Clock) -> None:
    """Every set, as long as there is time."""
    sets = {}
    for name in args.sets or ROWS:
        source = name.removesuffix("-few")
        if not clock.enough(name):
            continue
        if source not in sets:
            began = time.monotonic()
            sets[source] = read(source, args.data, plan.work, args.distractors, args.most)
            print(f"{source}: read in {time.monotonic() - began:.1f} s", flush=True)
        data = sets[source].limited(min(FEW, args.train) if name.endswith("-few") else args.train)
        run_set(Bench(data, plan, name), args.seeds, args.out, clock)


def run_set(bench: Bench, seeds: int, out: Path, clock: Clock) -> None:
    """All rows of a set that the time allows."""
    said = ", ".join(f"{len(split.queries)} {name}" for name, split in bench.data.tests.items())
    print(
        f"{bench.name}: {len(bench.data.passages):,} passages; questions: {len(bench.data.train.queries):,} train, "
        f"{len(bench.data.dev.queries):,} dev, test {said}",
        flush=True,
    )
    base: Settings | None = Settings()
    for method in ROWS[bench.name]:
        if method == "average":
            average_row(bench, seeds, out)
            continue
        if method == "soft" and not taught(bench, clock):
            continue
        chosen = choose(bench, method, base or Settings(), out, clock)
        if chosen is None:
            continue
        base = chosen if method == "random" else base
        for seed in range(1, seeds + 1):
            one_run(bench, method, chosen, seed, out, clock)


def taught(bench: Bench, clock: Clock) -> bool:
    """Is there a teacher, or time to make one?"""
    if not clock.enough(bench.name):
        return False
    began = time.monotonic()
    teach(bench, 2e-4, TEACHER_EPOCHS)
    print(f"{bench.name}: teacher in {time.monotonic() - began:.1f} s", flush=True)
    return True


def choose(bench: Bench, method: str, base: Settings, out: Path, clock: Clock) -> Settings | None:
    """The settings that are best on dev with the first seed; nothing where time ran out before one was tried."""
    tried = []
    for settings in candidates(method, base):
        dev = one_run(bench, method, settings, 1, out, clock)
        if dev is not None:
            tried.append((dev, settings))
    return max(tried, key=lambda one: one[0])[1] if tried else None


def one_run(
    bench: Bench, method: str, settings: Settings, seed: int, out: Path, clock: Clock
) -> float | None:
    """Dev's value of a run, which is made unless it is there; nothing if there is no time left for it."""
    path = result_path(out, bench.name, method, settings, seed)
    if path.exists():
        return float(json.loads(path.read_text())["dev"])
    if not clock.enough(bench.name):
        return None
    began = time.monotonic()
    keep = bench.plan.work / "models" / f"{bench.name}-{method}-{seed}"
    made = bench.plan.work / "models" / "new"
    result = fine_tune(bench, method, settings, seed, made)
    if is_best(out, bench.name, method, seed, result.dev):
        replace_folder(made, keep)
    seconds = time.monotonic() - began
    clock.longest[bench.name] = max(seconds, clock.longest.get(bench.name, 0.0))
    store(path, bench.name, method, settings, seed, result, seconds)
    means = {name: round(float(v[:, 0].mean()), 4) for name, v in result.tests.items()}
    print(
        f"{bench.name} {method} seed {seed} ({settings}): dev {result.dev:.4f}, {MEASURES[0]} {means}, {seconds:.1f} s",
        flush=True,
    )
    return result.dev


def average_row(bench: Bench, seeds: int, out: Path) -> None:
    """The mean of the weights of random batches' seeds."""
    path = result_path(out, bench.name, "average", Settings(), 1)
    folders = [bench.plan.work / "models" / f"{bench.name}-random-{seed}" for seed in range(1, seeds + 1)]
    if path.exists() or not all(folder.is_dir() for folder in folders):
        return
    result = averaged(bench, folders, bench.plan.work / "models" / f"{bench.name}-average")
    store(path, bench.name, "average", Settings(), 1, result, 0.0)


def result_path(out: Path, name: str, method: str, settings: Settings, seed: int) -> Path:
    return out / "results" / f"{name}_{method}_{settings.lr:g}_{settings.rho:g}_{settings.hard:g}_{seed}.json"


def is_best(out: Path, name: str, method: str, seed: int, dev: float) -> bool:
    """Of the runs of this row and seed so far, is this the best on dev?"""
    found = (out / "results").glob(f"{name}_{method}_*_{seed}.json")
    return all(json.loads(path.read_text())["dev"] < dev for path in found)


def replace_folder(made: Path, keep: Path) -> None:
    """Put a folder in the place of another."""
    shutil.rmtree(keep, ignore_errors=True)
    made.rename(keep)


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


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, required=True, help="folder with squad, nq, wiki, medquad, scifact"
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--work", type=Path, help="collections, models, checkpoints: large [default: work in --out]"
    )
    parser.add_argument("--encoder", type=Path, help="a model folder [default: liebig:mini-v0]")
    parser.add_argument("--minutes", type=float, default=1e9, help="start no run that would end later")
    parser.add_argument("--sets", nargs="*", choices=ROWS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=3, help="more where there are few labels")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--train", type=int, default=4_000, help="training questions of a set at the most")
    parser.add_argument("--distractors", type=int, default=50_000, help="wiki passages beside SQuAD's")
    parser.add_argument("--most", type=int, help="questions of every split at the most, to try things out")
    return parser.parse_args()


if __name__ == "__main__":
    main()
