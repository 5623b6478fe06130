"""Fine-tuning compared on real data, from one encoder: batches, negatives, labels, optimisers.

    python experiments/finetuning/run.py --prepared runs/prepared --out runs/finetuning --jobs 8 [--minutes 6]
    python experiments/finetuning/run.py --prepared runs/small --out runs/try --seeds 2 --epochs 1

`prepare.py` makes the folder it begins with. Each row is trained with several seeds; its settings are chosen on dev
with the first of them. --jobs runs go side by side, each in a process of its own, on one GPU. What is there already is
not done again, so the same command goes on where the time was up. `--minutes` starts no run that would not end in time;
`--minutes 0` writes the table of what is there, `--no-table` leaves it (a minute) to such a call elsewhere.
At the end results.md, results.json and queries.npz (nDCG@10 of every test question, in ten thousandths) are written to
--out, and the table is printed. Where `baselines.py` was run with the same --out, the table has rows of BM25 and of the
encoder as it was, and counts by document. Intervals are 95 % bootstrap intervals over seeds and documents;
differences are paired, with p by randomisation over the means of seeds, corrected after Holm over all rows.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # processes take the cores, not threads

import torch
from jobs import Task, do_all, work
from methods import Plan
from table import ROWS, write

from prepare import START


def main() -> None:
    args = arguments()
    began = time.monotonic()
    home = args.work or args.out / "work"
    for folder in (args.out, home):
        folder.mkdir(parents=True, exist_ok=True)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    plan = Plan(args.encoder, args.epochs, args.batch, device, home)
    task = Task(args.prepared, args.out, plan, tuple(args.sets or ROWS), args.seeds, args.train)
    if args.worker:
        work(task)
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    failed = {}
    try:
        failed = do_all(task, [sys.executable, *sys.argv, "--worker"], args.jobs, args.minutes)
    finally:  # a signal ends the runs under way; the table of the others is written all the same
        shutil.rmtree(home / "training", ignore_errors=True)
        print(f"runs in {time.monotonic() - began:.1f} s", flush=True)
        if not args.no_table:
            began = time.monotonic()
            write(args.out, args.seeds)
            print(f"table in {time.monotonic() - began:.1f} s", flush=True)
    left = task.open_jobs(set(failed))
    print(f"{len(failed)} failed; {len(left)} and what follows from them not begun")
    for job, reason in failed.items():
        print(f"FAILED {job}: {reason}", file=sys.stderr)
    sys.exit(1 if failed else 0)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--prepared", type=Path, required=True, help="what prepare.py wrote")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--work", type=Path, help="weights and teachers: 5 GB [default: work in --out]")
    parser.add_argument("--encoder", type=Path, default=START, help="a model folder [default: %(default)s]")
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side")
    parser.add_argument("--minutes", type=float, default=1e9, help="start no run that would end later")
    parser.add_argument("--no-table", action="store_true", help="only the runs")
    parser.add_argument("--sets", nargs="*", choices=ROWS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=3, help="more where there are few labels")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--train", type=int, default=4_000, help="training questions of a set at the most")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
