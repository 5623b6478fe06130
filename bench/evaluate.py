"""From a model and a collection to measures, against sentence-transformers' InformationRetrievalEvaluator, in one run.

    python bench/evaluate.py --data DATA --passages 800 --queries 100     a part of SciFact on a CPU, in CPU time
    python bench/evaluate.py --data DATA --gpu --model FOLDER --wiki 100000      all of it among wiki passages

Both sides get the same model folder and the same BEIR folder: reading files, loading the model, encoding, searching and
measuring are part of both; ours also computes intervals and writes the values of every query. The peer runs at its best
batch size of those tried, on a GPU also at its best dtype. The sides take turns. On a CPU the lowest CPU time counts,
because other work on the machine only ever adds time; on a GPU it is wall time. What is imported or compiled is so
before the clock starts, by evaluating a few passages, on a GPU thousands. The last line is `ratio: X`, the peer's time
over ours.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import torch

from bm25 import cut, part
from liebig.base.hub import model_folder
from liebig.base.pipeline import Stage, run_stage
from liebig.stages.evaluate import EvaluateConfig, run

MEASURE = "nDCG@10"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with BEIR folders, and wiki")
    parser.add_argument("--set", default="scifact", help="the BEIR folder")
    parser.add_argument("--model", type=Path, help="a sentence-transformers folder [the bundled encoder]")
    parser.add_argument("--passages", type=int, help="how many of the set's [all]")
    parser.add_argument("--queries", type=int, help="how many of the set's [all]")
    parser.add_argument("--wiki", type=int, default=0, help="passages of the wiki to add")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument(
        "--precision", choices=("fp32", "int8"), default="fp32", help="of our passages on a CPU"
    )
    parser.add_argument("--gpu", action="store_true")
    args = parser.parse_args()
    os.environ.pop("TOKENIZERS_PARALLELISM", None)  # the peer tokenises with every core
    model = model_folder(args.model or "liebig:mini-v3")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fewer = {"passages": 20, "queries": 2, "wiki": 0}
        if args.gpu:  # kernels are compiled for each length of rows, so all of them have to come
            fewer = {"passages": 1000, "queries": args.queries, "wiki": min(args.wiki, 8000)}
        few = argparse.Namespace(**{**vars(args), **fewer})
        for part, options in (("few", few), ("all", args)):
            count = write(folder / part, options)
        print(f"{args.set}: {count[0]:,} passages, {count[1]:,} queries; {'GPU' if args.gpu else 'CPU'}")
        sides: dict[str, Callable[[Path], float]] = {"liebig": partial(ours, model, args.gpu, args.precision)}
        for dtype in (torch.bfloat16, torch.float16) if args.gpu else (torch.float32,):
            for size in (128, 512, 1024) if args.gpu else (8, 32):
                label = f"sentence-transformers, {str(dtype)[6:]}, batches of {size}"
                sides[label] = partial(theirs, model, args.gpu, dtype, size)
        seconds, values = in_turns(sides, folder, args.rounds, args.gpu)
    for label, took in seconds.items():
        print(f"{label:50} {took:8.2f} {'s' if args.gpu else 'CPU-s'}   {MEASURE} {values[label]:.4f}")
    peer = min(took for label, took in seconds.items() if label != "liebig")
    print(f"ratio: {peer / seconds['liebig']:.2f}")


def in_turns(
    sides: dict[str, Callable[[Path], float]], folder: Path, rounds: int, gpu: bool
) -> tuple[dict[str, float], dict[str, float]]:
    """The fewest seconds of each side, and the measure that it found."""
    clock, unit = (time.perf_counter, "s") if gpu else (time.process_time, "CPU-s")
    seconds, values = dict.fromkeys(sides, math.inf), {}
    for side in sides.values():
        side(folder / "few")
    for _ in range(rounds):
        for label, side in sides.items():
            start = clock()
            values[label] = side(folder / "all")
            took = clock() - start
            seconds[label] = min(seconds[label], took)
            print(f"{label}: {took:.2f} {unit}", flush=True)  # of a run that is cut off, too
    return seconds, values


def write(folder: Path, args: argparse.Namespace) -> tuple[int, int]:
    """A BEIR folder of some queries, the passages judged for them, and others up to the number."""
    passages, kept, judged = part(args.data / args.set, args.passages, args.queries)
    texts = [*passages, *islice(cut(args.data / "wiki"), args.wiki)]
    (folder / "qrels").mkdir(parents=True)
    jsonl(folder / "corpus.jsonl", ({"_id": p.id, "title": p.title, "text": p.text} for p in texts))
    jsonl(folder / "queries.jsonl", ({"_id": query, "text": text} for query, text in kept.items()))
    rows = [f"{query}\t{p}\t{grade}\n" for query in kept for p, grade in judged[query].items()]
    (folder / "qrels" / "test.tsv").write_text("".join(["query-id\tcorpus-id\tscore\n", *rows]))
    return len(texts), len(kept)


def jsonl(path: Path, rows: Iterable[dict[str, str]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def ours(model: Path, gpu: bool, precision: Literal["fp32", "int8"], folder: Path) -> float:
    out = folder / "results"
    shutil.rmtree(out, ignore_errors=True)
    device = "cuda" if gpu else "cpu"
    config = EvaluateConfig(system=model, collections=(folder,), device=device, precision=precision)
    run_stage(Stage("evaluate", EvaluateConfig, run, "", ""), config, out)
    results = json.loads((out / "results.json").read_text())
    return float(results["tasks"][0]["measures"][MEASURE]["mean"])


def theirs(model: Path, gpu: bool, dtype: torch.dtype, size: int, folder: Path) -> float:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.evaluation import InformationRetrievalEvaluator

    corpus = {row["_id"]: f"{row['title']} {row['text']}".strip() for row in read(folder / "corpus.jsonl")}
    queries = {row["_id"]: row["text"] for row in read(folder / "queries.jsonl")}
    relevant: dict[str, set[str]] = {}
    for line in (folder / "qrels" / "test.tsv").read_text().splitlines()[1:]:
        query, passage, _ = line.split("\t")
        relevant.setdefault(query, set()).add(passage)
    encoder = SentenceTransformer(str(model), device="cuda" if gpu else "cpu", model_kwargs={"dtype": dtype})
    evaluator = InformationRetrievalEvaluator(
        queries, corpus, relevant, batch_size=size, show_progress_bar=False, write_csv=False
    )
    found = evaluator(encoder)
    return float(max(value for name, value in found.items() if name.endswith("ndcg@10")))


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


if __name__ == "__main__":
    main()
