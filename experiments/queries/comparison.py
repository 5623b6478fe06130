"""The paper's main comparison at equal tokens: pre-training on spans against passages with generated queries.

    python experiments/queries/comparison.py prepare PREPARED --data data          no GPU, no queries: once
    python experiments/queries/comparison.py run PREPARED --queries runs/queries/wiki --out runs/comparison --jobs 6
    python experiments/queries/comparison.py speed PREPARED --queries runs/queries/wiki --out runs/comparison
    python experiments/queries/comparison.py table runs/comparison                 no GPU

Every arm starts from one encoder (`--start`, as a rule what `liebig run recipes/encoders/mini-v0.toml` makes, masked
words alone) and sees the same number of tokens of the same articles: coCondenser and CoT-MAE on two spans, on a passage
and one of its five queries, on its one query, and on both kinds. Each is tested as it is and after tuning on the same
labels (SQuAD and MedQuAD, those that the generator has seen), with several seeds. A run leaves
OUT/results/ARM-SEED.npz (values of every test question, in ten thousandths) and then .json; what is there is not done
again. `table` averages seeds and tests the arms against spans, document by document.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parents[1]))

import pool
import results

Tree = dict[str, Any]
BEGIN = Path("runs/mini-v0/model/model")
SPEED = ("cocondenser-spans", "cocondenser-queries", "cotmae-spans", "cotmae-queries")


def prepare(given: argparse.Namespace) -> None:
    """Articles as a store, labelled collections as arrays."""
    import tasks

    from liebig.base import pipeline
    from liebig.bm25.search import BM25
    from liebig.collection import Collection
    from liebig.stages import STAGES
    from liebig.text.tokenizer import Tokenizer

    out, data, made = given.prepared, given.data, given.prepared / "made"
    articles: Tree = {"kind": "init", "paths": [str(data / "wiki" / "articles-0.jsonl.xz")]}
    stages: dict[str, Tree] = {
        "articles": articles | ({"limit": given.most} if given.most else {}),
        "store": {"kind": "prepare", "collection": "@articles", "tokenizer": str(given.start)},
        **{name: {"kind": "init", "paths": [str(data / name)]} for name in ("squad", "medquad", "scifact")},
        "labelled": {"kind": "init", "paths": [str(data / "squad"), str(data / "medquad")]},
        "bm25": {"collection": "@labelled"},
    }
    pipeline.run(pipeline.plan_stages(STAGES, stages, made), say)
    tokenizer = Tokenizer.from_folder(given.start)
    sets = {name: Collection(made / name) for name in ("squad", "medquad", "scifact")}
    both = {name: sets[name] for name in ("squad", "medquad")}
    tasks.save(tasks.make(both, BM25.open(made / "bm25"), tokenizer, given.most), out / "labelled.npz")
    tasks.save(tasks.make({"scifact": sets["scifact"]}, None, tokenizer, given.most), out / "scifact.npz")
    shutil.rmtree(out / "store", ignore_errors=True)
    (made / "store").rename(out / "store")
    shutil.rmtree(made)


def pairs(given: argparse.Namespace) -> None:
    """Passages and their queries as arrays, once for each file of queries."""
    import arms

    from liebig.queries.labelled_pairs import labels_of
    from liebig.text.tokenizer import Tokenizer

    if given.queries is None:
        return
    began, path, generated = time.monotonic(), given.prepared / arms.PAIRS, given.queries / "generated.jsonl"
    made_of = hashlib.sha256(generated.read_bytes()).hexdigest()
    if path.exists() and arms.made_of(path) == made_of:
        return
    tokenizer = Tokenizer.from_folder(given.start)
    passages = given.passages or given.queries / "passages.jsonl"
    found = arms.read_pairs(passages, generated, tokenizer)
    arms.save_pairs(found, path, made_of, labels_of(given.queries) or ["labels not known"])
    say(f"{len(found):,} passages with {found.n_queries:,} queries in {time.monotonic() - began:.1f} s")


def run(given: argparse.Namespace) -> None:
    """All runs that are not there yet, seed after seed, on several processes."""
    there = given.out / "results"
    there.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    pairs(given)
    wanted = [f"{arm}-{seed}" for seed in given.seeds for arm in given.arms]

    def ready(failed: Iterable[str]) -> list[str]:
        return [job for job in wanted if not (there / f"{job}.json").exists()]

    for name in ("OMP_NUM_THREADS", "TORCHINDUCTOR_COMPILE_THREADS"):
        os.environ[name] = str(max(1, (os.cpu_count() or 1) // given.jobs))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    command = [sys.executable, *sys.argv[:1], "work", *sys.argv[2:]]
    jobs = pool.run(command, ready, given.jobs, given.out, given.minutes - (time.monotonic() - began) / 60)
    say(
        f"not run for lack of time: {', '.join(jobs.left()) or 'none'}; failed: {', '.join(jobs.failed) or 'none'}"
    )
    say(f"{time.monotonic() - began:.1f} s")


def work(given: argparse.Namespace) -> None:
    """One of the processes of `run`."""
    import arms

    name = f"process-{os.getpid()}"

    def begin() -> Callable[[str], str]:
        bench = new_bench(given, name)

        def one(job: str) -> str:
            arm, _, seed = job.rpartition("-")
            began = time.monotonic()
            gc.collect()  # moments of the run before, which others on this device may need the memory of
            about, values = arms.one_run(bench, arm, int(seed))
            about |= {"settings": asdict(bench.settings), "run_seconds": round(time.monotonic() - began, 2)}
            results.store(given.out / "results" / f"{job}.json", values, about)
            return f"nDCG@10 { ({name: round(float(x[:, 0].mean()), 4) for name, x in values.items()}) }"

        return one

    try:
        pool.work(begin)
    finally:
        shutil.rmtree(home(given, name), ignore_errors=True)


def new_bench(given: argparse.Namespace, name: str) -> Any:
    """What a process needs to run arms."""
    import arms
    import torch

    told = {one.name: getattr(given, one.name) for one in fields(arms.Settings)}
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    folder = home(given, name)
    folder.mkdir(parents=True, exist_ok=True)
    return arms.Bench(given.start, given.prepared, folder, arms.Settings(**told), device)


def home(given: argparse.Namespace, name: str) -> Path:
    """Where a process has its logs and checkpoints under way."""
    return Path(given.work or given.out / "work") / name


def speed(given: argparse.Namespace) -> None:
    """Pre-training timed with nothing beside it: the arms in turn, round after round, the median round of each."""
    pairs(given)
    given.out.mkdir(parents=True, exist_ok=True)
    bench = new_bench(given, "speed")
    rounds: dict[str, list[Tree]] = {arm: [] for arm in given.arms if arm in SPEED}
    for _ in range(given.rounds):
        for arm, made in rounds.items():
            made.append(timed(bench, arm, given.steps))
            say(f"{arm}: {made[-1]}")
    found = {
        arm: {name: float(np.median([one[name] for one in made])) for name in made[0]}
        for arm, made in rounds.items()
    }
    for arm in found:
        spans = f"{arm.partition('-')[0]}-spans"
        if arm != spans and spans in found:
            for name in ("ms_a_step", "processor_ms_a_step"):
                found[arm][f"spans_{name}_over_these"] = round(found[spans][name] / found[arm][name], 2)
    (given.out / "speed.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    shutil.rmtree(bench.work, ignore_errors=True)


def timed(bench: Any, arm: str, steps: int) -> Tree:
    """Tokens, pairs and steps a second, without the first third of the steps; processor time is of all threads."""
    import arms

    first = arms.pretrain(bench, arm, 1, steps=3).about  # compiles, and fills caches
    about = arms.pretrain(bench, arm, 1, steps=steps).about
    lines = [line for line in about["timing"] if line["step"] > steps // 3]
    per_step = float(np.mean([line["seconds_per_step"] for line in lines]))
    processor = (about["processor_seconds"] - first["processor_seconds"]) / (steps - 3)
    return {
        "tokens_an_example": about["tokens_an_example"],
        "ms_a_step": round(1000 * per_step, 2),
        "processor_ms_a_step": round(1000 * processor, 2),
        "pairs_a_second": round(bench.settings.batch / per_step, 1),
        "tokens_a_second": round(about["tokens"] / steps / per_step),
        "waiting": round(float(np.mean([line["waiting"] for line in lines])), 3),
    }


def say(said: str) -> None:
    print(said, file=sys.stderr, flush=True)


def main() -> None:
    given = arguments()
    if "start" in given and not (given.start / "config.json").exists():
        raise SystemExit(
            f"{given.start} is no encoder's folder: `liebig run recipes/encoders/mini-v0.toml` makes {BEGIN}, "
            "and --start names another"
        )
    given.does(given)


def add_start(one: argparse.ArgumentParser) -> None:
    one.add_argument(
        "--start", type=Path, default=BEGIN, help="the encoder that all begin with [%(default)s]"
    )


def arguments() -> argparse.Namespace:
    from arms import ARMS, START, Settings
    from table import write

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("prepare")
    one.add_argument("prepared", type=Path)
    one.add_argument("--data", type=Path, default=Path("data"))
    one.add_argument(
        "--most", type=int, help="articles and questions of a split at the most, to try things out"
    )
    one.set_defaults(does=prepare)
    add_start(one)
    for name, does in (("run", run), ("work", work), ("speed", speed)):
        one = commands.add_parser(name)
        one.set_defaults(does=does)
        one.add_argument("prepared", type=Path)
        add_start(one)
        one.add_argument(
            "--queries", type=Path, help="folder of `liebig queries generate`; not needed for spans"
        )
        one.add_argument("--passages", type=Path, help="[default: passages.jsonl of the queries' folder]")
        one.add_argument("--out", type=Path, required=True)
        one.add_argument("--work", type=Path, help="logs and checkpoints under way [default: work in --out]")
        one.add_argument("--arms", nargs="+", choices=[*ARMS, START], default=[*ARMS, START])
        one.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
        one.add_argument("--jobs", type=int, default=1, help="processes on one device")
        one.add_argument("--minutes", type=float, default=1e9, help="start no run that would end later")
        one.add_argument("--steps", type=int, default=60, help="of `speed`, a third of them to warm up")
        one.add_argument("--rounds", type=int, default=1, help="of `speed`")
        one.add_argument("--no-compile", dest="compile", action="store_false")
        for field in fields(replace(Settings())):
            if field.name != "compile":
                kind = type(field.default)
                one.add_argument("--" + field.name.replace("_", "-"), type=kind, default=field.default)
    one = commands.add_parser("table")
    one.add_argument("out", type=Path)
    one.set_defaults(does=lambda given: write(given.out))
    return parser.parse_args()


if __name__ == "__main__":
    main()
