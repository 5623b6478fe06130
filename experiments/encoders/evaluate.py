"""Encoders against BM25 on the dev or test splits, zero-shot: alone, and fused with BM25.

    python experiments/encoders/evaluate.py --out DIR --data data mini=runs/mini/model/model teacher=models/minilm

Every passage is encoded as title and text, searched exactly, and fused three ways: by ranks (RRF, weight one half) and
by scores (min-max; BM25 with a weight of one half, and of .4). After every model DIR/results.json and
DIR/queries.jsonl.xz, the values of every query, are written; at the end DIR/results.md. Intervals are 95 % bootstrap
intervals over queries; those of the mean over sets resample each set. They take longer than the search on a GPU:
`--later` leaves them out, and the same command without models makes the table of the values that are there.
"""

from __future__ import annotations

import argparse
import json
import lzma
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.append(str(Path(__file__).parents[1]))

import splits

from liebig import encoders
from liebig.base import pipeline
from liebig.base.durable import atomic_write
from liebig.base.records import Passage, Query
from liebig.base.statistics import bootstrap
from liebig.bm25.search import BM25
from liebig.collection import Collection
from liebig.measures import parse
from liebig.measures.evaluator import (
    Judgements,
    block_from_mapping as from_mapping,
    evaluate,
    judgements_from_records as from_records,
)
from liebig.model.settings import Precision
from liebig.search.fusion import Hits, weighted_by
from liebig.stages import STAGES

SETS = ("medquad", "scifact", "cranfield", "squad")
HELD_OUT = ("medquad", "scifact", "cranfield")  # what an encoder of the package never saw
MEASURES = ("nDCG@10", "RR@10", "R@100")
DEPTH = 100
SAMPLES = 10_000
RRF = 60  # added to every rank


def by_ranks(lists: Sequence[Hits]) -> Hits:
    """Reciprocal rank fusion (Cormack et al. 2009): the sum of 1 / (60 + rank), ranks from 1."""
    total: dict[str, float] = {}
    for hits in lists:
        for rank, (id, _) in enumerate(hits, 1):
            total[id] = total.get(id, 0.0) + 1 / (RRF + rank)
    return sorted(total.items(), key=lambda hit: -hit[1])


FUSIONS = {
    "rrf": by_ranks,
    "scores": weighted_by(0.5, "minmax"),
    "scores, BM25 .4": weighted_by(0.4, "minmax"),
}
Values = NDArray[np.float64]  # queries x measures


@dataclass(frozen=True)
class Set:
    """A set's passages, the queries of a split, what is relevant, and what BM25 finds."""

    name: str
    passages: Sequence[Passage]
    queries: Sequence[Query]
    judgements: Judgements
    bm25: Sequence[Hits]


def read_set(data: Path, name: str, split: str, work: Path) -> Set:
    """Read a set, and ask BM25 its queries."""
    source = splits.folder(data, name, work / "splits")
    tree = {
        "collection": {"kind": "init", "paths": [str(source)]},
        "bm25": {"kind": "bm25", "collection": "@collection"},
    }
    planned = pipeline.plan_stages(STAGES, tree, work / name)
    pipeline.run(planned, lambda _: None)
    collection, index = Collection(planned[0].out), BM25.open(planned[1].out)
    judged = list(collection.judgements(split))
    asked = {judgement.query for judgement in judged}
    queries = [query for query in collection.queries() if query.id in asked]
    found = index.search([query.text for query in queries], DEPTH)
    named = [
        [(index.id(n), float(s)) for n, s in zip(numbers, scores) if n >= 0]
        for numbers, scores in zip(found.numbers.tolist(), found.scores.tolist())
    ]
    return Set(name, list(collection.passages()), queries, from_records(judged), named)


class Dense:
    """An encoder on a device."""

    def __init__(self, path: str, device: str, precision: Precision) -> None:
        from liebig.evaluation.encoders import ModelScorer

        folder = encoders.folder(path) if path.startswith(encoders.PREFIX) else Path(path)
        self.scorer = ModelScorer(folder, device, DEPTH, precision=precision)

    def search(self, one: Set) -> list[Hits]:
        """The best passages of every query, by exact search."""
        from liebig.vectors.topk import topk

        queries = self.scorer.embed([query.text for query in one.queries], "query")
        passages = self.scorer.passages.vectors(one.passages, "passage")
        scores, numbers = topk(queries, passages, DEPTH, device=self.scorer.device)
        ids = [passage.id for passage in one.passages]
        return [[(ids[n], s) for n, s in zip(*row)] for row in zip(numbers.tolist(), scores.tolist())]


def values_of(one: Set, found: Sequence[Hits]) -> Values:
    """Every measure for every judged query, in the order of the judgements."""
    run = {query.id: dict(hits) for query, hits in zip(one.queries, found)}
    return evaluate([from_mapping(run)], one.judgements, [parse(name) for name in MEASURES]).values


def systems(name: str, one: Set, found: Sequence[Hits]) -> Iterator[tuple[str, Values]]:
    """A dense system alone, and together with BM25."""
    yield name, values_of(one, found)
    for kind, fuse in FUSIONS.items():
        together = [fuse(pair)[:DEPTH] for pair in zip(one.bm25, found)]
        yield f"{name} + bm25 ({kind})", values_of(one, together)


def mean_interval(values: Sequence[NDArray[np.float64]]) -> str:
    """The mean over sets of a measure's means, and its interval; each set is resampled by itself."""
    if not values:
        return "–"
    rng = np.random.default_rng(0)
    drawn = [rng.choice(v, (SAMPLES // 10, len(v))).mean(axis=1) for v in values]
    low, high = np.quantile(np.mean(drawn, axis=0), (0.025, 0.975))
    return f"{np.mean([v.mean() for v in values]):.3f} ({low:.3f}–{high:.3f})"


Results = Mapping[str, Mapping[str, Values]]  # system -> set -> values


def table(results: Results, split: str, measure: str) -> str:
    """A measure of every system on every set, and the mean over the held-out ones, as Markdown."""
    sets, column = list(next(iter(results.values()))), MEASURES.index(measure)
    held = [name for name in HELD_OUT if name in sets]
    lines = [
        f"| {measure}, {split} | "
        + " | ".join([*sets, *(["mean of " + ", ".join(held)] if held else [])])
        + " |",
        "| --- |" + " ---: |" * (len(sets) + bool(held)),
    ]
    for system, by_set in results.items():
        cells = [_cell(by_set[name][:, column]) for name in sets]
        if held:
            cells.append(mean_interval([by_set[name][:, column] for name in held]))
        lines.append(f"| {system} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(values: NDArray[np.float64]) -> str:
    found = bootstrap(values, samples=SAMPLES)
    return f"{found.mean:.3f} ({found.low:.3f}–{found.high:.3f})"


def save(results: Results, sets: Mapping[str, Sequence[str]], split: str, out: Path) -> None:
    """The means, and the values of every query; `sets` has the ids of each set's queries."""
    means = {
        system: {name: dict(zip(MEASURES, values.mean(axis=0).tolist())) for name, values in by_set.items()}
        for system, by_set in results.items()
    }
    lines = [
        {
            "set": name,
            "split": split,
            "system": system,
            "measures": MEASURES,
            "queries": dict(zip(queries, by_set[name].round(6).tolist())),
        }
        for name, queries in sets.items()
        for system, by_set in results.items()
    ]
    packed = lzma.compress("".join(json.dumps(line) + "\n" for line in lines).encode())
    atomic_write(out / "queries.jsonl.xz", packed)
    atomic_write(
        out / "results.json", (json.dumps({"split": split, "means": means}, indent=1) + "\n").encode()
    )


def read_back(out: Path) -> tuple[Results, str]:
    """The values that `save` wrote, and their split."""
    results: dict[str, dict[str, Values]] = {}
    split = ""
    with lzma.open(out / "queries.jsonl.xz", "rt", encoding="utf-8") as file:
        for row in map(json.loads, file):
            results.setdefault(row["system"], {})[row["set"]] = np.array(list(row["queries"].values()))
            split = row["split"]
    return results, split


def write_table(out: Path, measures: Sequence[str]) -> str:
    """The tables of the values in a folder."""
    results, split = read_back(out)
    text = "\n".join(table(results, split, measure) for measure in measures)
    (out / "results.md").write_text(text, encoding="utf-8")
    return text


def search_all(asked: argparse.Namespace) -> None:
    """Search every set with every model."""
    sets = [read_set(asked.data, name, asked.split, asked.out / "work") for name in asked.sets]
    named = {one.name: one.judgements.queries for one in sets}
    results: dict[str, dict[str, Values]] = {"bm25": {one.name: values_of(one, one.bm25) for one in sets}}
    for name, path in (given.split("=", 1) for given in asked.models):
        began, model = time.monotonic(), Dense(path, asked.device, asked.precision)
        for one in sets:
            for system, values in systems(name, one, model.search(one)):
                results.setdefault(system, {})[one.name] = values
        save(results, named, asked.split, asked.out)
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", metavar="NAME=FOLDER", help="a folder, or liebig:NAME")
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--split", default="dev")
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--measures", nargs="+", default=["nDCG@10"], choices=MEASURES)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="fp32", choices=("fp32", "int8"), help="of passages, on a CPU")
    parser.add_argument("--later", action="store_true", help="no table now")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    if asked.models:
        search_all(asked)
    if not asked.later:
        print(write_table(asked.out, asked.measures))


if __name__ == "__main__":
    main()
