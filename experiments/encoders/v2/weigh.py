"""How much each teacher should count: every mixture of a small grid, judged on the dev splits.

    python experiments/encoders/v2/weigh.py --data data --texts runs/v2/texts/passages.jsonl --out runs/v2/weights \
        minilm=models/minilm bge=models/bge-small e5=models/e5-small

The similarity of two texts is the weighted mean of the teachers' cosines, after each teacher's mean vector over some
of the training texts was subtracted: what `teacher_weights` and `center` of a source do. A mixture is
judged by nDCG@10 over MedQuAD, SciFact and Cranfield, alone and fused with BM25 by scores; the mean of both decides
among mixtures of two teachers or more.
OUT/weights.json has the best mixture, and the words that put it into the recipe; OUT/results.json all of them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.append(str(Path(__file__).parents[1]))

import evaluate as judge
from liebig.base.machine import chosen
from liebig.evaluation.encoders import ModelScorer
from liebig.vectors.topk import topk

Floats = NDArray[np.float32]
TEXTS = 8192
GRID = (
    (1, 0, 0),
    (0, 1, 0),
    (0, 0, 1),
    (1, 1, 0),
    (1, 2, 0),
    (0, 1, 1),
    (0, 2, 1),
    (1, 1, 1),
    (1, 2, 1),
    (2, 2, 1),
)
FUSED = "scores"


def unit(vectors: Floats) -> Floats:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def vectors_of(
    folder: str, sets: Sequence[judge.Set], texts: Sequence[str], device: str
) -> list[tuple[Floats, Floats]]:
    """A teacher's vectors of the queries and passages of every set, less its mean over some texts."""
    scorer = ModelScorer(Path(folder), device, judge.DEPTH)
    mean = scorer.embed(texts, "passage").mean(axis=0)
    return [
        (
            unit(scorer.embed([query.text for query in one.queries], "query") - mean),
            unit(scorer.embed(one.passages, "passage") - mean),
        )
        for one in sets
    ]


def score(
    one: judge.Set, sides: Sequence[tuple[Floats, Floats]], weights: Sequence[float], device: str
) -> tuple[float, float]:
    """nDCG@10 of a mixture, alone and fused with BM25."""
    scaled = [
        np.concatenate([side[i] * np.float32(weight**0.5) for side, weight in zip(sides, weights)], axis=1)
        for i in (0, 1)
    ]
    scores, numbers = topk(scaled[0], scaled[1], judge.DEPTH, device=device)
    ids = [passage.id for passage in one.passages]
    hits = [[(ids[n], s) for n, s in zip(*row)] for row in zip(numbers.tolist(), scores.tolist())]
    named = {name: values[:, 0].mean() for name, values in judge.systems("", one, hits)}
    return float(named[""]), float(named[f" + bm25 ({FUSED})"])


def mean(values: Mapping[str, tuple[float, float]]) -> float:
    """What decides."""
    return float(np.mean([values[name] for name in judge.HELD_OUT]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("teachers", nargs="+", metavar="NAME=FOLDER")
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=list(judge.SETS))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="auto")
    args = parser.parse_args()
    sets = [judge.read_set(args.data, name, "dev", args.out / "work") for name in args.sets]
    with args.texts.open(encoding="utf-8") as file:
        texts = [json.loads(line)["text"] for line in islice(file, TEXTS)]
    given = dict(pair.split("=", 1) for pair in args.teachers)
    encoded = [vectors_of(folder, sets, texts, args.device) for folder in given.values()]
    device = chosen(None if args.device == "auto" else args.device)
    rows = []
    for weights in (w for w in GRID if not any(w[len(given) :]) and any(w[: len(given)])):
        values = {
            one.name: score(one, [sides[place] for sides in encoded], weights[: len(given)], device)
            for place, one in enumerate(sets)
        }
        rows.append({"weights": dict(zip(given, weights)), "values": values, "mean": mean(values)})
        print(
            weights[: len(given)],
            {name: f"{a:.3f} {b:.3f}" for name, (a, b) in values.items()},
            f"{rows[-1]['mean']:.4f}",
            flush=True,
        )
    best = max(
        (row for row in rows if len(given) - list(row["weights"].values()).count(0) > 1),
        key=lambda row: row["mean"],
    )
    kept = {name: weight for name, weight in best["weights"].items() if weight}
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "results.json").write_text(json.dumps(rows, indent=1) + "\n")
    (args.out / "weights.json").write_text(json.dumps(kept) + "\n")
    names = ",".join(f'"@{name}"' for name in kept)
    weights = list(map(float, kept.values()))
    words = "".join(
        f"stages.{stage}.source.vectors=[{names}]\nstages.{stage}.source.teacher_weights={weights}\n"
        for stage in ("first", "model")
    )
    (args.out / "words.txt").write_text(words)
    print("best:", kept)


if __name__ == "__main__":
    main()
