"""Speed of the measures: nDCG@10, RR@10 and R@1000 of one run, by Liebig, by plain Python, and by ranx where installed.

    python bench/measures.py [--queries 6980] [--hits 1000] [--skip ranx]
    python bench/measures.py --memory --queries 200000 --hits 10

Makes a run file of the size of MS MARCO's small dev set (made-up ids and scores, one to three relevant passages a
query), then times each way from the file to the three numbers, in CPU seconds of one process, the best of three calls
(two for ranx, one for plain Python). The last line is the ratio of the best other way to Liebig.

With `--memory`, `liebig evaluate` runs in a process of its own on a run and judgements of that size (one relevant
passage a query), and the largest memory it had is printed.
"""

from __future__ import annotations

import argparse
import math
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from liebig.evaluation.runs import read_blocks
from liebig.measures import evaluator as judgements, parse_all
from liebig.measures.evaluator import evaluate

NAMES = ("nDCG@10", "RR@10", "R@1000")


def make(folder: Path, queries: int, hits: int) -> tuple[Path, Path, dict[str, dict[str, int]]]:
    """A run and judgements: 8.8 M passage numbers as ids, scores with six decimals, relevant passages anywhere."""
    rng = np.random.default_rng(0)
    run, qrels, grades = folder / "run.trec", folder / "qrels.trec", {}
    with run.open("w") as out:
        for query in range(queries):
            ids = rng.choice(8_841_823, size=hits, replace=False)
            scores = np.sort(rng.normal(80, 5, size=hits))[::-1]
            name = str(1_000_000 + query)
            out.writelines(
                f"{name} Q0 {p} {i + 1} {s:.6f} bench\n" for i, (p, s) in enumerate(zip(ids, scores))
            )
            found = rng.choice(hits, size=int(rng.integers(1, 4)), replace=False)
            grades[name] = {str(ids[i]): 1 for i in found} | {"unfound": 1}
    qrels.write_text("".join(f"{q} 0 {p} {g}\n" for q, of in grades.items() for p, g in of.items()))
    return run, qrels, grades


def by_liebig(run: Path, grades: dict[str, dict[str, int]]) -> dict[str, float]:
    """From the file, streaming."""
    return evaluate(read_blocks(run), judgements.judgements_from_mapping(grades), parse_all(NAMES)).means()


def by_python(run: Path, grades: dict[str, dict[str, int]]) -> dict[str, float]:
    """From the file, with dictionaries and sorted(), ties as trec_eval breaks them."""
    found: dict[str, list[tuple[float, str]]] = {}
    with run.open() as lines:
        for line in lines:
            query, _, passage, _, score, _ = line.split()
            found.setdefault(query, []).append((float(np.float32(score)), passage))
    totals = dict.fromkeys(NAMES, 0.0)
    for query, relevant in grades.items():
        ranked = [passage for _, passage in sorted(found.get(query, ()), reverse=True)]
        ranks = [i for i, passage in enumerate(ranked, 1) if passage in relevant]
        ideal = sum(1 / math.log2(i + 1) for i in range(1, min(10, len(relevant)) + 1))
        totals["nDCG@10"] += sum(1 / math.log2(i + 1) for i in ranks if i <= 10) / ideal
        totals["RR@10"] += max((1 / i for i in ranks if i <= 10), default=0.0)
        totals["R@1000"] += sum(i <= 1000 for i in ranks) / len(relevant)
    return {name: total / len(grades) for name, total in totals.items()}


def by_ranx(run: Path, qrels: Path) -> dict[str, float]:
    """From the files, with ranx's own readers."""
    import ranx

    values = ranx.evaluate(
        ranx.Qrels.from_file(str(qrels), kind="trec"),
        ranx.Run.from_file(str(run), kind="trec"),
        ["ndcg@10", "mrr@10", "recall@1000"],
    )
    return dict(zip(NAMES, (values["ndcg@10"], values["mrr@10"], values["recall@1000"])))


def timed(label: str, call: Callable[[], dict[str, float]], calls: int = 3) -> float:
    """CPU seconds of the best of several calls; the first one may compile."""
    cpu = wall = float("inf")
    for _ in range(calls):
        cpu_start, wall_start = time.process_time(), time.perf_counter()
        values = call()
        cpu = min(cpu, time.process_time() - cpu_start)
        wall = min(wall, time.perf_counter() - wall_start)
    numbers = "  ".join(f"{name} {value:.4f}" for name, value in values.items())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{label:24s} {cpu:8.2f} CPU s  {wall:8.2f} s  {numbers}  (peak so far {peak:,.0f} MiB)", flush=True
    )
    return cpu


def memory(folder: Path, queries: int, hits: int) -> None:
    """The largest memory of `liebig evaluate`; every query has the hits of the first under its own name."""
    lines = b"".join(b"QUERY Q0 %d %d %.6f bench\n" % (7 * i, i + 1, 90 - i / 100) for i in range(hits))
    run, qrels = folder / "run.trec", folder / "qrels.trec"
    with run.open("wb") as out:
        out.writelines(lines.replace(b"QUERY", b"%d" % (1_000_000 + i)) for i in range(queries))
    with qrels.open("wb") as out:
        out.writelines(b"%d 0 %d 1\n" % (1_000_000 + i, 7 * (i % hits)) for i in range(queries))
    command = [sys.executable, "-m", "liebig", "evaluate", str(run), str(qrels), "--samples", "100"]
    subprocess.run([*command, "--out", str(folder / "out")], check=True, stdout=subprocess.DEVNULL)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    size = run.stat().st_size / 2**20
    print(
        f"{queries} queries × {hits} hits, run file of {size:,.0f} MiB: {used.ru_utime:.0f} CPU s", end=", "
    )
    print(f"peak {used.ru_maxrss / 1024:,.0f} MiB")


def main() -> None:
    """Time every way on one file."""
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--queries", type=int, default=6980)
    arguments.add_argument("--hits", type=int, default=1000)
    arguments.add_argument("--skip", action="append", default=[], choices=["ranx", "python"])
    arguments.add_argument("--memory", action="store_true")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.memory:
            memory(Path(folder), options.queries, options.hits)
            return
        run, qrels, grades = make(Path(folder), options.queries, options.hits)
        size = run.stat().st_size / 2**20
        print(f"{options.queries} queries × {options.hits} hits, run file of {size:,.0f} MiB")
        ours = timed("liebig, from the file", lambda: by_liebig(run, grades))
        blocks = list(read_blocks(run))
        table = judgements.judgements_from_mapping(grades)
        timed("liebig, from memory", lambda: evaluate(blocks, table, parse_all(NAMES)).means())
        blocks.clear()
        others = []
        if "python" not in options.skip:
            others.append(timed("plain Python", lambda: by_python(run, grades), calls=1))
        if "ranx" not in options.skip:
            try:
                import ranx  # noqa: F401
            except ImportError:
                print("ranx is not installed, left out")
            else:
                others.append(timed("ranx", lambda: by_ranx(run, qrels), calls=2))
        print(f"ratio: {min(others) / ours:.1f}" if others else "ratio: nothing to compare with")


if __name__ == "__main__":
    main()
