"""How often the floor of `search/floor.py` leaves out an answer: questions to their own corpus, to others, nonsense.

    python experiments/floor.py --data DATA --out runs/floor

Every set is cut to the passages that its questions need and a random rest; the bundled encoder makes the vectors. Each
corpus is asked its own questions, those of the other sets, and nonsense that is not among the floor's own.
"""

from __future__ import annotations

import argparse
import json
import lzma
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from liebig import encoders
from liebig.base import pipeline
from liebig.search.retriever import Retriever
from liebig.search.retriever_folder import RetrieverDescription, write
from liebig.stages import STAGES

SETS = ("cranfield", "scifact", "squad", "cosqa", "medquad", "vaswani", "trec-dl21")


def rows(path: Path) -> Iterator[dict[str, Any]]:
    with lzma.open(path, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def judged(folder: Path) -> dict[str, list[str]]:
    """The relevant passages of every question."""
    relevant: dict[str, list[str]] = {}
    for path in sorted((folder / "qrels").glob("*.tsv*")):
        with lzma.open(path, "rt") if path.suffix == ".xz" else path.open() as file:
            for query, passage, grade in (line.split("\t")[:3] for line in list(file)[1:]):
                if float(grade) > 0:
                    relevant.setdefault(query, []).append(passage)
    return relevant


def prepared(data: Path, out: Path, size: int, questions: int) -> list[str]:
    """Build a retriever of a part of a set, unless it is there; its questions."""
    rng, texts = random.Random(0), {row["_id"]: row["text"] for row in rows(data / "queries.jsonl.xz")}
    relevant = {query: ids for query, ids in judged(data).items() if query in texts}
    chosen = rng.sample(sorted(relevant), min(questions, len(relevant)))
    needed = {id for query in chosen for id in relevant[query]}
    corpus = list(rows(data / "corpus.jsonl.xz"))
    rest = [row for row in corpus if row["_id"] not in needed]
    kept = [row for row in corpus if row["_id"] in needed][:size]
    kept += rng.sample(rest, max(0, min(len(rest), size - len(kept))))
    there = {row["_id"] for row in kept}
    if not (out / "retriever.json").is_file():
        (out / "collection").mkdir(parents=True, exist_ok=True)
        with (out / "collection" / "passages.jsonl").open("w", encoding="utf-8") as file:
            for row in kept:
                passage = {"id": row["_id"], "title": row.get("title", ""), "text": row["text"], "doc": ""}
                file.write(json.dumps(passage) + "\n")
        recipe = {
            "bm25": {"collection": str(out / "collection")},
            "index": {
                "kind": "encode",
                "source": str(out / "collection"),
                "model": f"liebig:{encoders.DEFAULT}",
            },
        }
        pipeline.run(pipeline.plan_stages(STAGES, recipe, out), lambda line: None)
        (out / "model").symlink_to(encoders.folder())
        write(out, RetrieverDescription(1, "hybrid", "collection", "bm25", "index", "model", weight=0.5))
    return [texts[query] for query in chosen if there.intersection(relevant[query])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--passages", type=int, default=700)
    parser.add_argument("--questions", type=int, default=60)
    told = parser.parse_args()
    asked = {
        name: prepared(told.data / name, told.out / name, told.passages, told.questions) for name in SETS
    }
    rng = random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyz"
    asked["nonsense"] = [
        " ".join("".join(rng.choices(letters, k=rng.randint(4, 9))) for _ in range(rng.choice((1, 3))))
        for _ in range(40)
    ]
    left_out, total = Counter[str](), Counter[str]()
    for name in SETS:
        retriever = Retriever.from_folder(told.out / name, verify=False, light=True)
        for other, questions in asked.items():
            kind = "own" if other == name else other if other == "nonsense" else "other"
            found = retriever.search_many(questions, 1, "hybrid")
            total[kind] += len(found)
            left_out[kind] += sum(not results for results in found)
    for kind, count in total.items():
        print(f"{kind}: {left_out[kind]} of {count} left out ({left_out[kind] / count:.1%})")


if __name__ == "__main__":
    main()
