"""The papers' claims on one GPU: a start, pre-trainings from it, fine-tunings of those, verdicts.

    python experiments/claims/run.py prepare --data data --prepared runs/prepared   # no GPU: once, 20 MB
    python experiments/claims/run.py store --data data   # no GPU: tokens for pre-training
    python experiments/claims/run.py start --minutes 9   # again and again, until it is done
    python experiments/claims/run.py pretrain --claims 1 2 --minutes 9 --beside 2
    python experiments/claims/run.py tune --claims 1 2 --minutes 9 --jobs 8
    python experiments/claims/run.py page   # no GPU: verdicts of what is there

All read and write --out (runs/claims): stores, `start`, `models/ARM@RUNG-SEED`, `results/` (a run's values and
facts). README.md has the plan. What is there is not made again, so the same command goes on where the time was up.
`--claims all` stands for all of ladder.toml.
"""

from __future__ import annotations

import argparse
import gc
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # processes take the cores, not threads

HERE = Path(__file__).parent
for folder in (HERE.parent, HERE.parent / "finetuning"):
    sys.path.append(str(folder))

TOKENIZER = "liebig:mini-v3"
STORES = ("wiki", "other", "wiki_store", "other_store")
SECTIONS = {"test": 3_000, "dev": 1_000, "train": 20_000}
STOPPED = 130  # exit code of a training that was told to stop
LAST_STEP = 60  # seconds in which a training that is told to stop has stored itself


def prepare(given: argparse.Namespace) -> None:
    """Labelled sets as tokens and numbers, BM25's answers, STS-b and section triplets."""
    from liebig import encoders

    out, work = given.prepared, given.work or given.prepared.with_name(given.prepared.name + "-work")
    encoder = given.tokenizer or encoders.folder(TOKENIZER)
    common = ["--data", given.data, "--work", work, "--encoder", encoder, "--distractors", given.distractors]
    most = ["--most", given.most] if given.most else []
    sets = [*common, "--out", out, "--train", 5_000, "--sets", *given.sets, *most]
    call([HERE.parent / "finetuning" / "prepare.py", *sets])
    if not most:  # questions that were cut off are no longer those of the data
        known = [*common, "--prepared", out, "--out", out, "--sets", *given.sets, "--no-untuned"]
        call([HERE.parent / "finetuning" / "baselines.py", *known])
    texts(given.data, out, encoder, given.most)


def call(words: Sequence[object]) -> None:
    subprocess.run([sys.executable, *map(str, words)], check=True)


def texts(data: Path, out: Path, encoder: Path, most: int | None) -> None:
    """stsb.npz, and sections.npz of triplets built from Wikipedia; articles of a split are in no other."""
    import csv
    import lzma
    from itertools import islice

    import numpy as np
    from prepared import PASSAGE, digest, tokenised
    from tuned import save_texts

    from liebig.base.records import Document
    from liebig.evaluation.drawn_tasks import build, records
    from liebig.methods.text_similarity import PAIR, TRIPLET, TextTuples
    from liebig.text.tokenizer import Tokenizer

    tokenizer = Tokenizer.from_folder(encoder)
    pairs = {}
    for split in ("train", "dev", "test"):
        with lzma.open(data / "stsb" / f"{split}.csv.xz", "rt", encoding="utf-8", newline="") as file:
            rows = [row for row in islice(csv.reader(file), most) if len(row) == 3 and is_number(row[2])]
        columns = tuple(tokenised([row[i] for row in rows], tokenizer, PASSAGE) for i in range(2))
        pairs[split] = TextTuples(PAIR, columns, np.array([float(row[2]) / 5 for row in rows], np.float32))
    save_texts(out / "stsb.npz", pairs, digest(tokenizer))
    parts = sorted((data / "wiki").glob("articles-*.jsonl.xz"))
    articles = (one for path in parts for one in records(path) if isinstance(one, Document))
    triplets = {}
    for split, count in SECTIONS.items():
        wanted = min(count, most or count)
        found = list(build(articles, limit=wanted, seed=0))
        sides = ([t.anchor for t in found], [t.positive for t in found], [t.negatives[0] for t in found])
        triplets[split] = TextTuples(
            TRIPLET, tuple(tokenised(some, tokenizer, PASSAGE) for some in sides), None
        )
    save_texts(out / "sections.npz", triplets, digest(tokenizer))


def is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def planned(given: argparse.Namespace) -> dict[str, Any]:
    """The stages of start.toml."""
    from liebig.base import pipeline
    from liebig.stages import STAGES

    paths = [
        f"stages.wiki.paths=[{given.data}/wiki]",
        f"stages.other.paths=[{given.data}/novels,{given.data}/win32]",
    ]
    return {
        item.name: item
        for item in pipeline.plan(STAGES, HERE / "start.toml", [*paths, *given.set], given.out)
    }


def store(given: argparse.Namespace) -> None:
    """Collections and token stores, Wikipedia beside the others."""
    halves = [[name for name in STORES if name.startswith(start)] for start in ("wiki", "other")]
    words = ["--data", given.data, "--out", given.out, *(["--set", *given.set] if given.set else [])]
    running = [
        subprocess.Popen([sys.executable, __file__, "stages", *map(str, words), "--stages", *half])
        for half in halves
    ]
    sys.exit(max(abs(process.wait()) for process in running))


def stages(given: argparse.Namespace) -> None:
    """Some stages of start.toml in this process."""
    from liebig.base import pipeline

    known = planned(given)
    try:
        pipeline.run([known[name] for name in given.stages], lambda said: print(said, flush=True))
    except KeyboardInterrupt as stopped:  # what was done is stored
        print(stopped, flush=True)
        sys.exit(STOPPED)


def start(given: argparse.Namespace) -> None:
    """The start for some minutes; the same command goes on with it."""
    words = ["--data", given.data, "--out", given.out, *(["--set", *given.set] if given.set else [])]
    code = limited([sys.executable, __file__, "stages", *map(str, words), "--stages", "start"], given.minutes)
    log = next(
        (
            given.out / name / "log.jsonl"
            for name in ("start", "start.partial")
            if (given.out / name).exists()
        ),
        None,
    )
    if log is not None and log.exists():
        print("\n".join(log.read_text().splitlines()[-3:]))
    print("the start is done" if code == 0 else "stopped and stored: the same command goes on")


def limited(command: Sequence[str], minutes: float) -> int:
    """Run a training; after the minutes it is told to stop, and stores itself. Its exit code."""
    process = subprocess.Popen(list(command))
    try:
        return process.wait(timeout=60 * minutes)
    except subprocess.TimeoutExpired:
        process.terminate()  # not SIGINT, which a process in the background of a script ignores
        process.wait(timeout=LAST_STEP)
        return process.returncode or STOPPED


def pretrain(given: argparse.Namespace) -> None:
    """Models that claims need (or that are named), each after what it is trained from, some side by side."""
    runs, places = the_runs(given), the_places(given)
    names = list(given.models) or runs.models(runs.ladder.rows(given.claims), places.rungs)
    names = [name for one in names for name in chain_of(one, places)]
    names = [name for name in dict.fromkeys(names) if not (places.model(name) / "config.json").exists()]
    share_gpu()
    end, lock, taken, running = time.monotonic() + 60 * given.minutes, Lock(), set[str](), set[str]()

    def next_one() -> str | None:
        """The first whose start is there; nothing while it is still being made."""
        from pretrained import before

        with lock:
            for name in names:
                if name not in taken and (places.model(before(name, places.rungs)) / "config.json").exists():
                    taken.add(name)
                    running.add(name)
                    return name
            return None

    def row() -> None:
        while (left := end - time.monotonic()) > 5 and len(taken) < len(names):
            name = next_one()
            if name is None:
                if not running:  # what the others begin with failed
                    return
                time.sleep(1)
                continue
            began = time.monotonic()
            words = [sys.executable, __file__, "arm", *given.words, "--models", name]
            code = limited(words, left / 60)
            running.discard(name)
            print(
                f"{name}: {'done' if code == 0 else f'left with {code}'}, {time.monotonic() - began:.0f} s",
                flush=True,
            )

    with ThreadPoolExecutor(given.beside) as threads:
        for done in [threads.submit(row) for _ in range(min(given.beside, max(1, len(names))))]:
            done.result()
    missing = [name for name in names if not (places.model(name) / "config.json").exists()]
    print(f"{len(names) - len(missing)} models made, not made: {', '.join(missing) or 'none'}")


def share_gpu() -> None:
    """Let processes that begin from now on use a GPU side by side, where CUDA's MPS is there, instead of in turns."""
    if shutil.which("nvidia-cuda-mps-control"):
        # Silent, because it may be running already.
        subprocess.run(["nvidia-cuda-mps-control", "-d"], check=False, capture_output=True)


def chain_of(name: str, places: Any) -> list[str]:
    from pretrained import chain

    return chain(name, places.rungs)


def arm(given: argparse.Namespace) -> None:
    """One pre-training in this process."""
    import pretrained

    for name in given.models:
        try:
            pretrained.train(name, the_places(given))
        except KeyboardInterrupt as stopped:
            print(stopped, flush=True)
            sys.exit(STOPPED)


def tune(given: argparse.Namespace) -> None:
    """The runs of claims, on several processes, and a table of what is there."""
    import pool
    import verdicts

    runs, places = the_runs(given), the_places(given)
    (given.out / "results").mkdir(parents=True, exist_ok=True)

    def ready(failed: Collection[str]) -> list[str]:
        there = {
            path.name
            for path in (given.out / "models").glob("*")
            if (path / "model" / "config.json").exists()
        }
        there |= {"start"} if places.start.exists() else set()
        # One claim after the other, so that time that runs out leaves whole ones.
        rows = (runs.ladder.rows([number]) for number in given.claims)
        found = (
            runs.open([row for row in some if row.set in (given.only or [row.set])], there, failed)
            for some in rows
        )
        return list(dict.fromkeys(job for some in found for job in some))

    share_gpu()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    command = [sys.executable, __file__, "work", *given.words]
    began = time.monotonic()
    done = pool.run(command, ready, given.jobs, given.out, given.minutes)
    shutil.rmtree(given.out / "work" / "training", ignore_errors=True)
    print(
        f"{time.monotonic() - began:.0f} s; {len(done.left())} ready and not begun; {len(done.failed)} failed"
    )
    for job, why in done.failed.items():
        print(f"FAILED {job}: {why}", file=sys.stderr)
    print("\n".join(verdicts.table(runs)))


def work(given: argparse.Namespace) -> None:
    """One of the processes of `tune`."""
    import pool

    def begin() -> Callable[[str], str]:
        import results
        import torch
        from tuned import Job, Worker

        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        worker = Worker(the_places(given), given.prepared, device, given.epochs, given.batch)

        def one(line: str) -> str:
            job = Job.of(line)
            gc.collect()
            done = worker.do(job)
            facts = {"job": line, "dev": done.dev, **{k: v for k, v in done.about.items() if k != "dev"}}
            results.store(given.out / "results" / job.file, done.tests, facts)
            means = ", ".join(f"{name} {values[:, 0].mean():.4f}" for name, values in done.tests.items())
            return f"dev {done.dev:.4f}, {means}"

        return one

    pool.work(begin)


def page(given: argparse.Namespace) -> None:
    """checks.csv from the runs on disk, the page of verdicts from it, and curves."""
    import verdicts

    target = given.page or given.out / "page"
    if not (given.prepared / "baselines.npz").exists():
        raise SystemExit(f"{given.prepared} has no baselines.npz: run `prepare` first, or name --prepared")
    target.mkdir(parents=True, exist_ok=True)
    runs = the_runs(given)
    ladder = replace(runs.ladder, claims=tuple(map(runs.ladder.claim, given.claims)))
    read = verdicts.Measured(runs, given.prepared)
    verdicts.store(ladder, read, target / "checks.csv")
    (target / "claims.md").write_text(
        verdicts.page(ladder, verdicts.load(target / "checks.csv")), encoding="utf-8"
    )
    verdicts.figures(ladder, read, target)


def the_places(given: argparse.Namespace) -> Any:
    from pretrained import RUNGS, Places

    return Places(given.out, numbers(given.rungs) or RUNGS, given.batches, given.length)


def the_runs(given: argparse.Namespace) -> Any:
    from ladder import Runs, read

    sizes = {name: int(size) for name, size in numbers(given.all).items()}
    ladder = read(given.ladder, given.rung, given.seeds, sizes)
    if given.claims == ["all"]:
        given.claims = [claim.number for claim in ladder.claims]
    return Runs(given.out, ladder)


def numbers(words: Sequence[str]) -> Mapping[str, float]:
    """NAME=NUMBER ..."""
    return {name: float(value) for name, _, value in (word.partition("=") for word in words)}


def arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    for does in (prepare, store, stages, start, pretrain, arm, tune, work, page):
        one = commands.add_parser(does.__name__, help=(does.__doc__ or "").splitlines()[0])
        one.set_defaults(does=does)
        one.add_argument("--out", type=Path, default=Path("runs/claims"))
        one.add_argument("--prepared", type=Path, default=Path("runs/prepared"), help="what `prepare` wrote")
        one.add_argument("--data", type=Path, default=Path("data"))
        one.add_argument("--minutes", type=float, default=1e5, help="start nothing that would end later")
        if does is prepare:
            one.add_argument("--work", type=Path, help="collections and BM25: large [PREPARED-work]")
            one.add_argument("--tokenizer", type=Path, help=f"a model folder [{TOKENIZER}]")
            one.add_argument(
                "--sets",
                nargs="+",
                default=["scifact", "medquad", "wiki", "far", "cosqa", "vaswani", "trec-dl21"],
            )
            one.add_argument("--distractors", type=int, default=50_000)
            one.add_argument("--most", type=int, help="questions of a split at the most, to try things out")
        elif does in (store, stages, start):
            one.add_argument(
                "--set", nargs="+", default=[], metavar="KEY=VALUE", help="changes of start.toml"
            )
            one.add_argument("--stages", nargs="+", default=list(STORES))
        else:
            one.add_argument("--claims", nargs="+", default=["all"])
            one.add_argument("--models", nargs="+", default=[], metavar="ARM@RUNG-SEED")
            one.add_argument(
                "--only", nargs="+", metavar="SET", help="what `tune` trains on [what claims name]"
            )
            one.add_argument("--ladder", type=Path, default=HERE / "ladder.toml")
            one.add_argument("--rung", help="of all rows that name none [that of the ladder]")
            one.add_argument("--seeds", type=int, help="[those of the ladder]")
            one.add_argument("--beside", type=int, default=1, help="pre-trainings side by side [%(default)s]")
            one.add_argument("--jobs", type=int, default=8, help="fine-tunings side by side [%(default)s]")
            one.add_argument("--epochs", type=int, default=3, help="more where there are few labels")
            one.add_argument("--batch", type=int, default=64, help="questions of a step")
            one.add_argument("--page", type=Path, help="where `page` writes [OUT/page]")
            one.add_argument(
                "--rungs", nargs="+", default=[], metavar="NAME=TOKENS", help="for a small trial"
            )
            one.add_argument("--all", nargs="+", default=[], metavar="SET=LABELS", help="for a small trial")
            one.add_argument(
                "--batches", type=float, default=1.0, help="share of each arm's batch, for a small trial"
            )
            one.add_argument("--length", type=int, default=128)
    given = parser.parse_args(words)
    given.words = list(words[1:])
    return given


def main() -> None:
    given = arguments(sys.argv[1:])
    given.does(given)


if __name__ == "__main__":
    main()
