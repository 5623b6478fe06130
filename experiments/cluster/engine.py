"""A retriever's folder and the same retriever in Milvus-lite, asked every question of some sets.

    python experiments/cluster/engine.py --data DATA [--sets scifact cosqa] [--k 20] [--sentences] [--model MODEL]

Makes a hybrid of each set's corpus by the stages, pushes it, and asks both all questions of all splits
with every system. Counts the questions whose k hits are the same in the same order, those that differ only where scores
of the folder are within --near of each other, and the largest difference of a score. A question
with a condition that an engine cannot evaluate is counted apart. It ends with exit code 1 where a
question differs otherwise. Results go to results.json.
"""

from __future__ import annotations

import argparse
import json
import lzma
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_name("results.json")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=["scifact", "cosqa"])
    parser.add_argument("--model", type=Path, help="the encoder's folder [default: the bundled one]")
    parser.add_argument("--sentences", action="store_true", help="the hybrid has vectors of sentences, too")
    parser.add_argument("--k", type=int, default=20)
    parser.add_argument("--near", type=float, default=1e-4, help="scores that rounding may order either way")
    parser.add_argument("--work", type=Path, default=Path("runs/engine"))
    args = parser.parse_args()
    rows = {
        name: compared(args.data / name, args.work / name, args.k, args.near, args.model, args.sentences)
        for name in args.sets
    }
    about = {"k": args.k, "near": args.near, "sentences": args.sentences}
    about["model"] = "bundled" if args.model is None else args.model.name
    keep("engine", {name: {**about, "systems": row} for name, row in rows.items()})
    if any(row["differ"] for systems in rows.values() for row in systems.values()):
        sys.exit("some questions have other hits")


def keep(name: str, value: Any) -> None:
    """Write some of the results."""
    results = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    results[name] = results.get(name, {}) | value
    RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")


def compared(
    data: Path, work: Path, k: int, near: float, model: Path | None, sentences: bool
) -> dict[str, dict[str, Any]]:
    """A row per system."""
    from liebig.search.answer import SearchOptions
    from liebig.search.retriever import Retriever

    folder, out = work / "folder", work / "out"
    if not (folder / "retriever.json").is_file():
        make(data, folder, model, sentences)
    if not (out / "retriever.json").is_file():
        liebig("push", folder, "--to", "milvus", "--uri", work / "engine.db", "--out", out)
    with lzma.open(data / "queries.jsonl.xz", "rt", encoding="utf-8") as lines:
        questions = [json.loads(line)["text"] for line in lines]
    ours, theirs = Retriever.from_folder(folder), Retriever.from_folder(out)
    rows = {}
    for system in ours.systems:
        options = SearchOptions(k=k, systems=(system,), suggest=False)
        taken, lists, notes = list[float](), list[Any](), list[Any]()
        for retriever in (ours, theirs):
            start = cpu()
            answers = retriever.answers(questions, options)
            taken.append(cpu() - start)
            lists.append([[(r.id, r.score) for r in a.results] for a in answers])
            notes.append([a.notes for a in answers])
        row: dict[str, Any] = {"questions": len(questions), "same": 0, "near": 0, "differ": 0}
        row["condition_left_out"] = 0
        row["passages"], row["largest_difference"] = len(ours), 0.0
        for mine, other, said, answered in zip(*lists, *notes):
            if (
                said != answered
            ):  # the engine has no conditions on words, such as a phrase in quotes, and says so
                row["condition_left_out"] += 1
                continue
            row["largest_difference"] = max(
                [
                    row["largest_difference"],
                    *(abs(a - b) / max(1.0, abs(a)) for (_, a), (_, b) in zip(mine, other)),
                ]
            )
            row[verdict(mine, other, near)] += 1
        row["cpu_ms_per_question"] = [round(1000 * t / len(questions), 2) for t in taken]
        print(data.name, system, row, flush=True)
        rows[system] = row
    return rows


def make(data: Path, folder: Path, model: Path | None, sentences: bool) -> None:
    """A retriever's folder, in int8 by the bundled encoder."""
    from liebig import encoders
    from liebig.base import pipeline
    from liebig.search.retriever_folder import RetrieverDescription, write
    from liebig.stages import STAGES

    precision = "int8" if model is None else "fp32"
    model = model or encoders.folder()
    recipe = {
        "collection": {"kind": "init", "paths": [str(data / "corpus.jsonl.xz")]},
        "bm25": {"collection": "@collection"},
        "index": {
            "kind": "encode", "source": "@collection", "model": str(model), "precision": precision,
            "sentences": sentences,
        },
    }  # fmt: skip
    pipeline.run(pipeline.plan_stages(STAGES, recipe, folder), print)
    shutil.copytree(model, folder / "model")
    parts = ("collection", "bm25", "index", "model")
    write(
        folder,
        RetrieverDescription(
            1, "hybrid", *parts, sentences="index/sentences" if sentences else None, norm="spread", spread=0.2
        ),
    )


def verdict(mine: list[tuple[str, float]], other: list[tuple[str, float]], near: float) -> str:
    """`near`: at every place the two hits have scores that rounding may swap."""
    if [id for id, _ in mine] == [id for id, _ in other]:
        return "same"
    alike = len(mine) == len(other) and all(
        a == b or abs(x - y) <= near * max(1.0, abs(x)) for (a, x), (b, y) in zip(mine, other)
    )
    return "near" if alike else "differ"


def liebig(*words: object) -> None:
    subprocess.run([sys.executable, "-m", "liebig", *map(str, words)], check=True)


def cpu() -> float:
    """Of this process; milvus-lite's server is another."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
