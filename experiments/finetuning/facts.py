"""What the README says beside its table: where dev was best, means over sets, beam and greedy, what `wiki` trains on.

    python experiments/finetuning/facts.py experiments/finetuning --data data --work runs/finetuning-work

reads `results.json` and `queries.npz`, and the set as `prepare.py` reads it. A minute.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
from prepared import drawn
from sets import read

sys.path.append(str(Path(__file__).parents[1]))

from results import difference, differences, over_documents, seed_of, together

from liebig.base.statistics import holm

TESTS = (("wiki", "squad"), ("medquad", "medquad"), ("scifact", "scifact"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path, help="folder with results.json and queries.npz")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="as for prepare.py")
    parser.add_argument("--distractors", type=int, default=50_000)
    args = parser.parse_args()
    tell_of_dev(json.loads((args.results / "results.json").read_text()))
    values = dict(np.load(args.results / "queries.npz"))
    tell_of_means(values)
    tell_of_beam(values)
    tell_of_training(args.data, args.work, args.distractors)


def tell_of_dev(lines: list[dict]) -> None:
    """Runs of the sets with all their training questions that were best on dev when they ended."""
    curves = {
        (line["set"], line["method"]): line["dev"]
        for line in lines
        if line["set"] in ("wiki", "medquad", "scifact")
        and line["method"] not in ("average", "bm25", "untuned")
    }
    for sets in (("wiki", "medquad"), ("scifact",)):
        runs = [curve for (name, _), some in curves.items() if name in sets for curve in some]
        last = sum(curve[-1] == max(curve) for curve in runs)
        print(f"{' and '.join(sets)}: {last} of {len(runs)} runs are best on dev at their last evaluation")


def tell_of_means(values: dict[str, np.ndarray]) -> None:
    """Differences over SQuAD, MedQuAD and SciFact together; p after Holm's rule over these four."""
    pairs = (("abs-greedy", "random"), ("abs-greedy", "abs-bm25"), ("mined", "random"), ("soft", "random"))
    found = []
    for one, other in pairs:
        drawn, means = [], []
        for name, test in TESTS:
            a, b = (values[f"{name}|{method}|{test}"] / 10_000 for method in (one, other))
            drawn.append(differences(a, b, values[f"{name}|documents|{test}"], seed_of(test)))
            means.append(float(a.mean() - b.mean()))
        found.append(together(means, drawn))
    for (one, other), (mean, _), p in zip(pairs, found, holm([p for _, p in found])):
        print(f"{one} less {other}: {difference(asdict(mean))}, p {p:.4f}")


def tell_of_beam(values: dict[str, np.ndarray]) -> None:
    for name, test in TESTS:
        beam, greedy = (values[f"{name}|abs-{how}|{test}"] / 10_000 for how in ("beam", "greedy"))
        found = over_documents(beam, greedy, values[f"{name}|documents|{test}"])
        print(f"{test}: beam less greedy {found.mean:+.3f} [{found.low:+.3f}, {found.high:+.3f}]")


def tell_of_training(data: Path, work: Path, distractors: int) -> None:
    found = read("wiki", data, work, distractors, None)
    for n in (4_000, 500):
        chosen = found.train.take(drawn(len(found.train.queries), 4_000, 0).tolist())
        chosen = chosen.take(drawn(len(chosen.queries), n, 0).tolist())
        asked = [q.id.startswith("nq") for q in chosen.queries]
        articles = {found.passages[row[0]].title for row, nq in zip(chosen.relevant, asked) if not nq}
        print(f"{n:,} training questions of wiki: {sum(asked)} of NQ, SQuAD's of {len(articles)} articles")


if __name__ == "__main__":
    main()
