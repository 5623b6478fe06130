"""Was the system that `liebig build` chose the better one? Asked with questions it has never seen.

    liebig build data/medquad/corpus.jsonl.xz --minutes 30 --out runs/medquad
    python experiments/retriever/judge.py runs/medquad data/medquad --split test

The folder was built from documents alone; here each of its systems answers the judged questions of a BEIR folder, and
the one that was chosen is compared with the others question by question. Questions whose passages are not in the folder
(built from a part of the corpus) are left out, and counted.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from liebig import Retriever
from liebig.base.errors import DataError
from liebig.base.records import Judgement, Query
from liebig.base.statistics import bootstrap, compare
from liebig.formats import detect
from liebig.formats.items import Options
from liebig.measures import parse
from liebig.measures.evaluator import (
    block_from_mapping as run_of,
    evaluate,
    judgements_from_mapping as from_mapping,
)

MEASURE = parse("nDCG@10")


def judged(folder: Path, split: str) -> tuple[dict[str, str], dict[str, dict[str, int]]]:
    """Questions of a BEIR folder, and what is relevant to each of a split."""
    texts: dict[str, str] = {}
    grades: dict[str, dict[str, int]] = {}
    for found in detect(folder):
        for item in found.items(Options()):
            if isinstance(item.record, Query):
                texts[item.record.id] = item.record.text
            elif isinstance(item.record, Judgement) and item.split == split and item.record.relevance > 0:
                grades.setdefault(item.record.query, {})[item.record.passage] = item.record.relevance
    return texts, grades


def there(retriever: Retriever, ids: list[str]) -> bool:
    try:
        return all(retriever.passage(id) is not None for id in ids)
    except DataError:
        return False


def values(
    retriever: Retriever, system: str, texts: list[str], grades: dict[str, dict[str, int]]
) -> np.ndarray:
    found = retriever.search_many(texts, 10, system)
    ranked = {query: {r.id: -float(r.rank) for r in results} for query, results in zip(grades, found)}
    return evaluate([run_of(ranked)], from_mapping(grades), [MEASURE]).of(MEASURE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("retriever", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--split", default="test")
    given = parser.parse_args()
    retriever = Retriever.from_folder(given.retriever)
    texts, every = judged(given.data, given.split)
    grades = {query: of for query, of in every.items() if there(retriever, list(of))}
    print(
        f"{len(grades):,} of {len(every):,} questions of {given.split}, {len(retriever):,} passages, {MEASURE}:"
    )
    asked = [texts[query] for query in grades]
    found = {system: values(retriever, system, asked, grades) for system in retriever.systems}
    for system, of in found.items():
        interval = bootstrap(of)
        mark = "  <- chosen" if system == retriever.system else ""
        print(f"  {system:<7} {interval.mean:.4f} [{interval.low:.4f}, {interval.high:.4f}]{mark}")
    for system in retriever.systems:
        if system != retriever.system:
            c = compare(found[retriever.system], found[system])
            print(f"  {retriever.system} - {system}: {c.difference.mean:+.4f} "
                  f"[{c.difference.low:+.4f}, {c.difference.high:+.4f}], p = {c.p_randomisation:.4f}")  # fmt: skip


if __name__ == "__main__":
    main()
