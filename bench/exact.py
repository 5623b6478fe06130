"""Exact search against FAISS Flat, in one run; its memory; a corpus larger than memory; and the GPU.

    python bench/exact.py                  1 M x 384, 1,000 queries, top 100, two cores: ratio to FAISS Flat
    python bench/exact.py --large          a 3 GiB corpus written and searched: peak anonymous memory
    python bench/exact.py --gpu            8.8 M x 768 fp16 on a GPU: share of the memory or matrix bound

Vectors are half clustered, half Gaussian, unit length. Each system runs in a process of its own with the same number
of threads. The two take turns, and the lowest CPU time of each counts, because other work on the machine only ever adds
time; threads that wait do not spin. The bare matrix product of the same tiles is timed beside ours: it bounds both.
The last line is `ratio: X`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

ROWS = 50_000  # vectors made at once


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("-k", type=int, default=100)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2, help="turns of each side")
    parser.add_argument("--type", default="fp32", choices=["fp32", "fp16", "int8"])
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--folder", type=Path, help="where the vectors go; a temporary folder otherwise")
    parser.add_argument("--only", choices=["ours", "faiss", "large"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.only:
        print(json.dumps({"ours": ours, "faiss": flat, "large": large}[args.only](args)))
    elif args.gpu:
        gpu(args)
    else:
        with tempfile.TemporaryDirectory(dir=args.folder) as folder:
            args.folder = Path(folder)
            compare_large(args) if args.large else compare(args)


def compare(args: argparse.Namespace) -> None:
    write(args)
    turns = [(child(args, "ours"), child(args, "faiss")) for _ in range(args.rounds)]
    mine, theirs = ({**side[0], **lowest(side)} for side in zip(*turns))
    size = sum(f.stat().st_size for f in args.folder.rglob("vectors.npy")) / 2**20
    print(
        f"{args.count:,} x {args.width} {args.type}, {args.queries:,} queries, top {args.k}, {args.threads} threads"
    )
    for name, side in (("ours", mine), ("FAISS", theirs)):
        rate = args.queries / side["cpu"]
        print(
            f"{name:6} {side['cpu']:.2f} CPU-s, {rate:.0f} queries per CPU-s, {side['seconds']:.2f} s of wall time"
        )
    print(
        f"the matrix product alone {mine['product']:.2f} CPU-s, {mine['product'] / mine['cpu']:.2f} of ours"
    )
    print(f"one query alone: ours {mine['one'] * 1e3:.1f} CPU-ms, FAISS {theirs['one'] * 1e3:.1f} CPU-ms")
    print(f"memory past the start of the process {mine['memory']:.0f} MB, shards in use {size:.0f} MB,")
    print(
        f"beyond them {mine['memory'] - size:.0f} MB (at most 300); anonymous {mine['anonymous']:.0f} MB in all"
    )
    same = np.mean([len(set(a) & set(b)) / args.k for a, b in zip(mine["numbers"], theirs["numbers"])])
    print(f"the same passages in the top {args.k}: {same:.4f}")
    print(f"ratio: {theirs['cpu'] / mine['cpu']:.2f}")


def lowest(found: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The lowest of each time over the turns."""
    names = [name for name in ("seconds", "cpu", "one", "product") if name in found[0]]
    return {name: min(turn[name] for turn in found) for name in names}


def compare_large(args: argparse.Namespace) -> None:
    args.count, args.type = 3 * 2**30 // (4 * args.width), "fp32"
    found = child(args, "large")
    print(
        f"{args.count:,} x {args.width} fp32 = {found['size']:.2f} GiB written and opened, {args.queries:,} queries"
    )
    print(f"in {found['seconds']:.1f} s; peak anonymous memory {found['anonymous']:.0f} MB")
    print(f"ratio: {1024 / found['anonymous']:.2f}")


def child(args: argparse.Namespace, which: str) -> dict[str, Any]:
    words = [
        f"--{name}={getattr(args, name)}"
        for name in ("count", "width", "queries", "threads", "type", "folder")
    ]
    command = [sys.executable, __file__, "--only", which, "-k", str(args.k), *words]
    quiet = os.environ | {"OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": str(args.threads)}
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True, env=quiet).stdout)


def make(rng: np.random.Generator, count: int, width: int, centres: np.ndarray) -> np.ndarray:
    x = rng.standard_normal((count, width), dtype=np.float32)
    half = count // 2
    x[:half] = centres[rng.integers(0, len(centres), half)] + 0.5 * x[:half]
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return x


def centres(args: argparse.Namespace) -> np.ndarray:
    return np.random.default_rng(7).standard_normal((2000, args.width), dtype=np.float32)


def queries(args: argparse.Namespace) -> np.ndarray:
    return make(np.random.default_rng(8), args.queries, args.width, centres(args))


def write(args: argparse.Namespace) -> list[str]:
    from liebig.vectors import write_shard

    names: list[str] = []
    around = centres(args)
    for start in range(0, args.count, ROWS):
        name = f"{len(names):05d}"
        size = min(ROWS, args.count - start)
        x = make(np.random.default_rng(start), size, args.width, around)
        write_shard(args.folder / name, [str(start + i) for i in range(size)], x, args.type)
        names.append(name)
    return names


def shards(args: argparse.Namespace) -> list[Any]:
    from liebig.vectors import Shard

    return [
        Shard.open(path, args.type, args.width) for path in sorted(args.folder.iterdir()) if path.is_dir()
    ]


def ours(args: argparse.Namespace) -> dict[str, Any]:
    from liebig.indexes.exact_cpu import search

    x, parts = queries(args), shards(args)
    search(x[:2], parts[:1], args.k, threads=args.threads)
    before = status("VmRSS")
    times = [timed(lambda: search(x, parts, args.k, threads=args.threads)) for _ in range(2)]
    one = min(timed(lambda: search(x[:1], parts, args.k, threads=args.threads))[1] for _ in range(2))
    product = timed(lambda: products(x, parts))[1]
    numbers = times[0][2].numbers.tolist()
    best = min(times, key=lambda t: t[1])
    peak = status("VmHWM") - before
    return {
        "seconds": best[0],
        "cpu": best[1],
        "one": one,
        "product": product,
        "numbers": numbers,
        "memory": peak,
        "anonymous": anonymous,
    }


def products(x: np.ndarray, parts: list[Any]) -> None:
    """All scores, tile by tile, and nothing else."""
    rows = 8192
    buffer = np.empty((len(x), rows), np.float32)
    for part in parts:
        for start in range(0, len(part), rows):
            values = part.vectors[start : start + rows].decode()
            np.matmul(x, values.T, out=buffer[:, : len(values)] if len(values) == rows else None)


def flat(args: argparse.Namespace) -> dict[str, Any]:
    """FAISS at the better of one thread and all: its threads cost it CPU time, and one may waste a core."""
    import faiss

    index = faiss.IndexFlatIP(args.width)
    for shard in shards(args):
        index.add(shard.vectors.decode())
    x = queries(args)
    index.search(x[:2], args.k)
    times, ones = [], []
    for threads in sorted({1, args.threads}):
        faiss.omp_set_num_threads(threads)
        times += [timed(lambda: index.search(x, args.k)) for _ in range(2)]
        ones += [timed(lambda: index.search(x[:1], args.k))[1] for _ in range(2)]
    best = min(times, key=lambda t: t[1])
    seconds = min(time[0] for time in times)
    return {"seconds": seconds, "cpu": best[1], "one": min(ones), "numbers": best[2][1].tolist()}


def large(args: argparse.Namespace) -> dict[str, Any]:
    from liebig.indexes.exact_cpu import search

    start = time.perf_counter()
    write(args)
    note()
    parts = shards(args)
    search(queries(args), parts, args.k, threads=args.threads)
    note()
    size = sum(f.stat().st_size for f in args.folder.rglob("vectors.npy")) / 2**30
    return {"seconds": time.perf_counter() - start, "anonymous": anonymous, "size": size}


def timed(function: Callable[[], Any]) -> tuple[float, float, Any]:
    wall, cpu = time.perf_counter(), time.process_time()
    result = function()
    took = time.perf_counter() - wall, time.process_time() - cpu
    note()
    return (*took, result)


anonymous = 0.0


def note() -> None:
    """Remember the most anonymous memory seen; called where buffers are largest, from a thread too."""
    global anonymous
    anonymous = max(anonymous, status("RssAnon"))


def status(name: str) -> float:
    """A line of /proc/self/status, in MB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) / 1024
    return 0.0


def watch() -> None:
    """Look at the anonymous memory a hundred times a second."""
    import threading

    def look() -> None:
        while True:
            note()
            time.sleep(0.01)

    threading.Thread(target=look, daemon=True).start()


def gpu(args: argparse.Namespace) -> None:
    """Vectors made on the device; the bounds are rates measured in the same run."""
    import torch

    from liebig.indexes.exact_gpu import DeviceBlock, Scorer

    count, width = (8_800_000, 768) if args.count == 1_000_000 else (args.count, args.width)
    vectors = torch.empty(count, width, dtype=torch.float16, device="cuda")
    for start in range(0, count, 1 << 18):
        part = torch.randn(len(vectors[start : start + (1 << 18)]), width, device="cuda")
        vectors[start : start + (1 << 18)] = torch.nn.functional.normalize(part, dim=1).half()
    block = DeviceBlock(0, vectors, torch.zeros(0, dtype=torch.int64, device="cuda"))
    bandwidth, rate = memory_rate(vectors), matrix_rate(width)
    print(f"{count:,} x {width} fp16; measured {bandwidth / 1e12:.2f} TB/s, {rate / 1e12:.0f} TFLOP/s")
    shares = []
    for number in (1, 32, 1024, 4096):
        x = torch.nn.functional.normalize(torch.randn(number, width), dim=1).numpy()
        parts = [x[i : i + 1024] for i in range(0, len(x), 1024)]
        search = partial(in_parts, block, parts, args.k)
        seconds = min(device_time(search) for _ in range(3))
        bound = max(count * width * 2 / bandwidth, 2.0 * count * width * number / rate)
        shares.append(bound / seconds)
        print(
            f"{number:5d} queries: {seconds * 1e3:8.2f} ms, {number / seconds:9.0f} q/s, {bound / seconds:.2f} of bound"
        )
    torch.manual_seed(0)
    few = torch.nn.functional.normalize(torch.randn(4, width), dim=1)
    found = Scorer(block, few.numpy(), 1.0).search(args.k)
    true = torch.cat(
        [
            (few.cuda().double() @ vectors[i : i + (1 << 20)].double().T).float()
            for i in range(0, count, 1 << 20)
        ],
        1,
    )
    same = np.mean([len(set(row.topk(args.k).indices.tolist()) & set(found.numbers[i].tolist())) / args.k for i, row in enumerate(true)])  # fmt: skip  # noqa: E501
    print(f"the same passages as by float64: {same:.4f}")
    print(f"ratio: {shares[2]:.2f}")


def memory_rate(vectors: object) -> float:
    """Bytes a second when the vectors are read once."""
    return vectors.numel() * 2 / min(device_time(lambda: vectors.amax()) for _ in range(3))  # type: ignore[attr-defined]


def matrix_rate(width: int) -> float:
    """Operations a second of large products of the width at hand."""
    import torch

    a = torch.randn(1024, width, device="cuda", dtype=torch.float16)
    b = torch.randn(1 << 17, width, device="cuda", dtype=torch.float16)
    out = torch.empty(1024, 1 << 17, device="cuda", dtype=torch.float16)
    return (
        20
        * 2.0
        * 1024
        * (1 << 17)
        * width
        / min(device_time(lambda: [torch.mm(a, b.T, out=out) for _ in range(20)]) for _ in range(3))
    )


def in_parts(block: Any, parts: list[np.ndarray], k: int) -> None:
    from liebig.indexes.exact_gpu import Scorer

    for part in parts:
        Scorer(block, part, 1.0).search(k)


def device_time(function: Callable[[], Any]) -> float:
    import torch

    function()
    torch.cuda.synchronize()
    start = time.perf_counter()
    function()
    torch.cuda.synchronize()
    return time.perf_counter() - start


if __name__ == "__main__":
    watch()
    main()
