"""Draw a part of MS MARCO of the ABS paper's size, which does not publish its own.

    python recipes/draw_abs.py data/msmarco-passage data/msmarco-abs

100,000 training queries, 1,500 for dev and 4,980 for the full ranking, all from the judged training queries, since the
paper names no other source; their positives, and passages at random up to 3,128,597. The same seed gives the same draw.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from liebig.base.records import Judgement, Passage, Query
from liebig.formats import detect
from liebig.formats.items import Options

SPLITS = {"train": 100_000, "dev": 1_500, "test": 4_980}
PASSAGES = 3_128_597


def draw(source: Path, out: Path, splits: dict[str, int], passages: int, seed: int) -> None:
    """Write the draw as a BEIR folder. Texts are streamed twice; ids are held in memory."""
    ids, positives = [], dict[str, list[str]]()
    for item in records(source):
        if isinstance(item.record, Passage):
            ids.append(item.record.id)
        elif isinstance(item.record, Judgement) and item.split == "train" and item.record.relevance > 0:
            positives.setdefault(item.record.query, []).append(item.record.passage)
    random = np.random.default_rng(seed)
    wanted = sum(splits.values())
    if len(positives) < wanted:
        raise SystemExit(
            f"{source} has {len(positives):,} judged training queries, fewer than the {wanted:,} to draw"
        )
    queries = random.permutation(sorted(positives))[:wanted].tolist()
    kept = {passage for query in queries for passage in positives[query]}
    others = random.permutation([name for name in ids if name not in kept])
    kept |= set(others[: max(0, passages - len(kept))].tolist())
    (out / "qrels").mkdir(parents=True)
    start = 0
    for split, count in splits.items():
        rows = [
            f"{query}\t{passage}\t1\n"
            for query in queries[start : start + count]
            for passage in positives[query]
        ]
        (out / "qrels" / f"{split}.tsv").write_text(
            "query-id\tcorpus-id\tscore\n" + "".join(rows), encoding="utf-8"
        )
        start += count
    chosen = set(queries)
    with (
        (out / "corpus.jsonl").open("w", encoding="utf-8") as corpus,
        (out / "queries.jsonl").open("w", encoding="utf-8") as asked,
    ):
        for item in records(source):
            record = item.record
            if isinstance(record, Passage) and record.id in kept:
                corpus.write(
                    json.dumps({"_id": record.id, "title": record.title, "text": record.text}) + "\n"
                )
            elif isinstance(record, Query) and record.id in chosen:
                asked.write(json.dumps({"_id": record.id, "text": record.text}) + "\n")


def records(source: Path):
    """Everything in a folder, file by file."""
    return (item for one in detect(source) for item in one.items(Options()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    draw(given.source, given.out, SPLITS, PASSAGES, given.seed)
