"""What ten million to a billion passages take, and how well `--on ray` uses its workers when some are slow or lost.

    python experiments/cluster/scale.py table [--gpu-dollars 3 --core-dollars .05] [--write docs/scaling.md]
    python experiments/cluster/scale.py simulate
    python experiments/cluster/scale.py real [--workers 1 2 4 8]      starts a local Ray cluster
    python experiments/cluster/scale.py late
    python experiments/cluster/scale.py killed [--texts 200000 --model MODEL]

`table` multiplies measured rates; where each was measured stands beside it. `simulate` plays the schedule of `--on ray`
event by event: parts wait in a queue, a worker that fails loses what its part did since its last whole piece, another
takes the part up, and the failed worker comes back later. `real` makes the same parts on a Ray cluster of this machine
and beside it says what the simulation says of them. Its parts wait instead of computing, so that eight workers
on two cores are eight workers: it is a test of the schedule, not of the machine. Half of the workers' processes are
killed once with SIGKILL.

`late` is a cluster of two nodes (on this machine), of which the second joins while parts are made.

`killed` encodes texts in one process, and again on four local workers of which two are killed while they encode. The
bytes must be the same. One share is the CPU time of the one process over that of all workers, the other the same over
their time and number (or that of the cores, if there are fewer); starts, lost work and the merge are included.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import random
import signal
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

# For a busy machine; Ray reads them when it is imported.
os.environ.setdefault("RAY_raylet_start_wait_time_s", "300")
os.environ.setdefault("RAY_agent_register_timeout_ms", "300000")
os.environ.setdefault(
    "RAY_worker_niceness", "0"
)  # by default workers give way to everything else on the machine

from engine import keep

from liebig.base.config import Config
from liebig.base.parts import in_pieces
from liebig.base.pipeline import Stage
from liebig.base.workspace import Folder

SIZES = {"10 M": 10**7, "100 M": 10**8, "1 B": 10**9}
MACHINES = {"10 M": (1, 16), "100 M": (8, 128), "1 B": (32, 512)}  # GPUs, cores
# Passages a second on one GPU or core, or of the one process that a stage has; passages have 100 words.
RATES = (
    ("collection from JSON, 600 bytes per passage", "process", 64.7e6 / 600, "`bench/folder.py`"),
    ("token store", "core", 1e6 / 84.6, "`bench/growth.py`, at 1 M"),
    ("BM25 index", "process", 7300, "`bench/bm25.py --wiki`"),
    ("encode, BERT-base", "GPU", 20_669, "`bench/encode.py --gpu`"),
    ("encode, bundled encoder without a GPU", "core", 1e4 / 163.4, "`bench/growth.py`, fp32"),
    ("five queries per passage", "GPU", 1683.9, "`bench/generate.py --gpu`"),
)
SEARCH = (
    1024 / 0.02997 * 8.8e6
)  # queries times passages a second, exact, 768 numbers, 1,024 at once: bench/exact.py --gpu
MINED = 500_000  # queries
WORKERS = 4  # of `killed`
DISK = (
    ("vectors, 768 in fp16", 1536), ("vectors, 768 in int8", 772),
    ("BM25 with texts", 850), ("IVF, PQ64, in memory", 72),
)  # fmt: skip
WORDS = [
    f"{a}{b}"
    for a in ("bar", "so", "wa", "li", "fer", "mo")
    for b in ("ley", "il", "ter", "me", "n", "ss", "ra")
]
BEGIN, END = (
    "<!-- written by experiments/cluster/scale.py -->",
    "<!-- end of what experiments/cluster/scale.py wrote -->",
)


@dataclass(frozen=True)
class Cluster:
    """Workers and what happens to them; times in seconds."""

    workers: int
    start: float = 60.0  # of a worker's first part: imports, the model
    again: float = 5.0  # of its next ones: the model
    restart: float | None = None  # of the part that a killed worker left, where it is not `start`
    failures: float = 0.01  # of a worker, an hour
    replaced: float = 600.0  # until a lost worker is back
    piece: float = 60.0  # what a lost worker loses at most
    slow: float = 0.05  # share of workers that are stragglers
    factor: float = 2.0  # times as long as others


def makespan(
    parts: Sequence[float], cluster: Cluster, chance: random.Random, kills: Sequence[float] = ()
) -> tuple[float, int]:
    """When all parts are made, and how many were lost; `kills` are times at which the oldest part's worker dies."""
    waiting = list(reversed(parts))  # a stack, so that a lost part comes next
    slow = [cluster.factor if chance.random() < cluster.slow else 1.0 for _ in range(cluster.workers)]
    begins = [cluster.start] * cluster.workers
    running: dict[int, tuple[float, float]] = {}  # worker -> begin, work left at the beginning
    # What happens next: a worker is there, its part is made, or it fails. Times of failures have no memory.
    events = [(0.0, worker, "there", 0.0) for worker in range(cluster.workers)]
    events += [(at, -1, "killed", 0.0) for at in kills]
    heapq.heapify(events)
    now, lost, done, idle = 0.0, 0, 0, list[int]()
    while done < len(parts):
        now, worker, kind, begun = heapq.heappop(events)
        if kind == "killed":
            if running:
                worker = min(running, key=lambda each: running[each][0])
                begun = running[worker][0]
        elif kind != "there" and running.get(worker, (None,))[0] != begun:
            continue  # of a part that was lost
        if worker in running and kind != "there":
            begin, left = running.pop(worker)
            if kind == "made":
                done += 1
                idle.append(worker)
            else:
                made = max(0.0, now - begin - begins[worker]) / slow[worker]
                waiting.append(left - made // cluster.piece * cluster.piece)
                lost += 1
                begins[worker] = cluster.start if cluster.restart is None else cluster.restart
                heapq.heappush(events, (now + cluster.replaced * (kind == "failed"), worker, "there", 0.0))
                continue
            begins[worker] = cluster.again
        elif kind == "there":
            idle.append(worker)
        while idle and waiting:
            worker, left = idle.pop(), waiting.pop()
            running[worker] = now, left
            end = begins[worker] + left * slow[worker]
            failure = chance.expovariate(cluster.failures / 3600) if cluster.failures else float("inf")
            heapq.heappush(
                events, (now + min(end, failure), worker, "made" if end <= failure else "failed", now)
            )
    return now, lost


def drawn(total: float, count: int, chance: random.Random, spread: float = 0.2) -> list[float]:
    """Parts of a work, of lengths that differ."""
    lengths = [chance.lognormvariate(0, spread) for _ in range(count)]
    return [total * length / sum(lengths) for length in lengths]


def simulate() -> dict[str, Any]:
    """A billion passages encoded by 4 to 256 GPUs."""
    work, rows = SIZES["1 B"] / 20_669, {}
    for workers in (4, 8, 16, 32, 64, 128, 256):
        row: dict[str, Any] = {}
        for each in (4, 16, 64):
            runs = []
            for seed in range(max(5, 80 // workers)):
                chance = random.Random(f"{seed} {workers} {each}")
                runs.append(makespan(drawn(work, each * workers, chance), Cluster(workers), chance))
            row[str(each)] = {
                "hours": round(statistics.mean(time for time, _ in runs) / 3600, 3),
                "share_of_ideal": round(statistics.mean(work / workers / time for time, _ in runs), 3),
                "lost_parts": round(statistics.mean(lost for _, lost in runs), 2),
            }
        rows[str(workers)] = row
        print(workers, row)
    return rows


class WaitConfig(Config):
    """Parts that wait."""

    pieces: int
    seconds: float


def ray_node() -> str:
    import ray

    return ray.get_runtime_context().get_node_id()


def wait(config: WaitConfig, folder: Folder) -> None:
    def make(block: list[int]) -> dict[str, Iterable[str]]:
        time.sleep(config.seconds)
        return {"lines": map(str, block), "node": [ray_node()]}

    in_pieces(folder, range(config.pieces), 1, make)


WAIT = Stage("wait", WaitConfig, wait, "")


def real(counts: Sequence[int], seconds: float, pieces: int) -> dict[str, Any]:
    """Four parts a worker of `pieces` pieces; half of the workers are killed once, at known times."""
    import ray

    from liebig import on_ray

    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    rows: dict[str, Any] = {}
    for workers in counts:
        ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False, logging_level="error")
        parts, kills = 4 * workers, [(1.2 + place) * pieces * seconds for place in range(workers // 2)]
        config = WaitConfig(pieces=pieces * parts, seconds=seconds)
        with tempfile.TemporaryDirectory() as folder:
            begun = time.monotonic()
            warm = WaitConfig(pieces=workers, seconds=2)
            on_ray._make_all(
                ray, WAIT, warm, Path(folder) / "0", workers, False
            )  # processes start and import
            start = time.monotonic() - begun - 2
            begun = time.monotonic()
            killed = threading.Thread(target=kill, args=(begun, kills), daemon=True)
            killed.start()
            on_ray._make_all(ray, WAIT, config, Path(folder) / "parts", parts, False)
            taken = time.monotonic() - begun
            killed.join()
        ray.shutdown()
        # Processes that replace killed ones start one at a time, as the single one of the first row did.
        start = rows[min(rows, key=int)]["start"] if rows else start
        cluster = Cluster(workers, start=0, again=0, failures=0, restart=start, slow=0, piece=seconds)
        expected, lost = makespan([pieces * seconds] * parts, cluster, random.Random(0), kills)
        ideal = 4 * pieces * seconds
        row = {
            "seconds": round(taken, 2),
            "simulated": round(expected, 2),
            "killed": lost,
            "start": round(start, 2),
        }
        rows[str(workers)] = row | {"share_of_ideal": round(ideal / taken, 3), "cores": os.cpu_count()}
        print(workers, rows[str(workers)], flush=True)
    return rows


def late(seconds: float = 4.0) -> dict[str, Any]:
    """A cluster of one node; another joins while parts are made, and the first is told apart by its node's name."""
    import ray
    from ray.cluster_utils import Cluster as Nodes

    from liebig import on_ray

    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    nodes = Nodes(initialize_head=True, head_node_args={"num_cpus": 1})
    ray.init(address=nodes.address, log_to_driver=False, logging_level="error")
    with tempfile.TemporaryDirectory() as folder:
        config = WaitConfig(pieces=16, seconds=seconds)
        make = partial(on_ray._make_all, ray, WAIT, config, Path(folder) / "parts", 16, False)
        with ThreadPoolExecutor(1) as driver:
            making = driver.submit(make)
            time.sleep(seconds)
            nodes.add_node(num_cpus=1)
            parts = making.result()
        made = [next(part.rglob("node")).read_text().strip() for part in parts]
    ray.shutdown()
    nodes.shutdown()
    row = {"parts": len(made), "of_each_node": sorted(Counter(made).values(), reverse=True)}
    print(row)
    return row


def killed(
    texts: int, model: str, precision: str, parts: int, work: Path, alone_only: bool
) -> dict[str, Any]:
    """One process, and four workers of which two are killed."""
    import ray

    from liebig import on_ray
    from liebig.base import pipeline
    from liebig.stages import STAGES

    work.mkdir(parents=True, exist_ok=True)
    source, chance = work / "texts.jsonl", random.Random(0)
    with source.open("w") as file:  # the same texts each time
        for number in range(texts):
            words = " ".join(chance.choice(WORDS) for _ in range(24))
            file.write(json.dumps({"_id": f"p{number}", "title": "", "text": words}) + "\n")
    encode = {
        "kind": "encode",
        "source": "@collection",
        "model": model,
        "precision": precision,
        "device": "cpu",
    }
    recipe = {
        "collection": {"kind": "init", "paths": [str(source)]},
        "one process": encode | {"shard": max(1, texts // 128)},
        "four workers": encode | {"shard": max(1, texts // 128)},
    }
    collection, one, many = pipeline.plan_stages(STAGES, recipe, work)
    if not collection.up_to_date:
        pipeline.run_stage(collection.stage, collection.config, collection.out)
    times = work / "one process.json"
    if not one.up_to_date:
        begun, used = time.monotonic(), time.process_time()
        pipeline.run_stage(one.stage, one.config, one.out)
        times.write_text(json.dumps({"seconds": time.monotonic() - begun, "cpu": time.process_time() - used}))
    alone = json.loads(times.read_text())
    if alone_only:
        return {}
    ray.init(num_cpus=WORKERS, include_dashboard=False, log_to_driver=False, logging_level="error")
    cpu, victims, over = dict[int, float](), list[int](), threading.Event()

    def watch() -> None:
        while not over.wait(0.2):
            for pid in at_a_part():
                with suppress(OSError, IndexError):
                    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                    cpu[pid] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
            shards = list(many.out.parent.glob("four workers.parts/*/shards/*"))
            for pid in at_a_part():  # the first after a few shards, the second later
                if len(victims) < 2 and len(shards) > 16 + 32 * len(victims) and pid not in victims:
                    os.kill(pid, signal.SIGKILL)
                    victims.append(pid)
                    break

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    begun = time.monotonic()
    on_ray.run_on_ray(many.stage, many.config, many.out, "ray", parts)
    taken = time.monotonic() - begun
    over.set()
    watcher.join()
    ray.shutdown()
    assert len(victims) == 2, "too fast to be killed"
    same = [vectors(folder) for folder in (one.out, many.out)]
    assert same[0] == same[1], "other bytes"
    spent, cores = sum(cpu.values()), len(os.sched_getaffinity(0))
    row = {
        "texts": texts, "model": Path(model).name, "precision": precision, "parts": parts, "cores": cores,
        "killed": len(victims), "files": len(same[0]), "one_process": alone,
        "workers": {"seconds": taken, "cpu": spent}, "share_of_cpu": alone["cpu"] / spent,
        "share_of_speed": alone["cpu"] / min(WORKERS, cores) / taken,
    }  # fmt: skip
    print(row)
    return row


def small(folder: Path) -> Path:
    """A random encoder of two layers with the bundled one's width and tokens, so that 200,000 texts take minutes."""
    from liebig import encoders
    from liebig.model.backbone import Backbone
    from liebig.model.encoder import Encoder
    from liebig.text.tokenizer import Tokenizer

    if not folder.is_dir():
        tokens = Tokenizer.from_folder(encoders.folder())
        backbone = Backbone.create(2, 384, 6, tokens.vocab_size, max_positions=512, dropout=0.0, seed=0)
        Encoder(backbone, tokens, pooling="mean").save(folder)
    return folder


def vectors(folder: Path) -> dict[str, str]:
    """Hashes of all files but the manifest, which has times."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "manifest.json")
    return {str(path.relative_to(folder)): sha256(path.read_bytes()).hexdigest() for path in files}


def kill(begun: float, times: Sequence[float]) -> None:
    """Kill, at each time, the process that has been at its part for longest."""
    for at in times:
        time.sleep(max(0.0, begun + at - time.monotonic()))
        while not (pids := at_a_part()):
            time.sleep(0.01)
        os.kill(pids[0], signal.SIGKILL)


def at_a_part() -> list[int]:
    """Ray's processes that make a part."""
    named = [
        path for path in Path("/proc").glob("[0-9]*/cmdline") if _reads(path).startswith(b"ray::make_part")
    ]
    return sorted(int(path.parent.name) for path in named)


def _reads(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def table(gpu: float, core: float) -> str:
    """The table of docs/scaling.md."""
    head = " | ".join(f"{name}: {g} GPU{'s' * (g > 1)}, {c} cores" for name, (g, c) in MACHINES.items())
    rows = [f"| stage | rate of one, where measured | {head} |", "| --- | --- | --- | --- | --- |"]
    for name, unit, rate, source in RATES:
        cells = [_cell(count / rate, unit, MACHINES[size], gpu, core) for size, count in SIZES.items()]
        rows.append(f"| {name} | {rate:,.0f}/s and {unit}, {source} | {' | '.join(cells)} |")
    mined = [_cell(MINED * count / SEARCH, "GPU", MACHINES[size], gpu, core) for size, count in SIZES.items()]
    rows.append(
        f"| negatives for {MINED:,} queries, exact | {SEARCH / 1e9:,.0f} G scores/s and GPU, "
        f"`bench/exact.py --gpu` | {' | '.join(mined)} |"
    )
    for name, size in DISK:
        cells = [f"{count * size / 1e9:,.0f} GB" for count in SIZES.values()]
        rows.append(f"| {name} | {size:,} bytes | {' | '.join(cells)} |")
    rows.append(
        "| memory of a worker | 0.6 GB (`bench/growth.py`) and the model | the same | the same | the same |"
    )
    note = f"A cell is time and dollars, at {gpu:g} dollars per GPU and hour and {core:g} per core."
    return "\n".join([note, "", *rows])


def _cell(seconds: float, unit: str, machines: tuple[int, int], gpu: float, core: float) -> str:
    count, price = {"GPU": (machines[0], gpu), "core": (machines[1], core), "process": (1, core)}[unit]
    hours = seconds / 3600
    time_ = f"{hours / count:,.1f} h" if hours / count >= 1 else f"{60 * hours / count:,.1f} min"
    return f"{time_}, ${hours * price:,.2f}" if hours * price < 10 else f"{time_}, ${hours * price:,.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("table", "simulate", "real", "late", "killed"))
    parser.add_argument("--gpu-dollars", type=float, default=3.0)
    parser.add_argument("--core-dollars", type=float, default=0.05)
    parser.add_argument("--write", type=Path, help="put the table into this page")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--seconds", type=float, default=0.5, help="of a piece")
    parser.add_argument("--pieces", type=int, default=8, help="of a part")
    parser.add_argument("--texts", type=int, default=200_000)
    parser.add_argument("--model", help="[default: a small random one]")
    parser.add_argument("--precision", default="int8", help="that the model computes with")
    parser.add_argument("--parts", type=int, default=16)
    parser.add_argument(
        "--alone", action="store_true", help="of `killed` the one process only, which is kept"
    )
    parser.add_argument("--work", type=Path, default=Path("runs/killed"))
    args = parser.parse_args()
    if args.what == "table":
        text = table(args.gpu_dollars, args.core_dollars)
        print(text)
        if args.write:
            page = args.write.read_text(encoding="utf-8")
            before, after = page.partition(BEGIN)[0], page.partition(END)[2]
            args.write.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")
    elif args.what == "simulate":
        keep("simulated", simulate())
    elif args.what == "late":
        keep("late", late())
    elif args.what == "killed":
        model = args.model or str(small(args.work / "small"))
        row = killed(args.texts, model, args.precision, args.parts, args.work, args.alone)
        if row:
            keep("killed", row)
    else:
        keep("real", real(args.workers, args.seconds, args.pieces))


if __name__ == "__main__":
    main()
