"""Adaptive batch scheduling against the plain greedy of the paper, on wiki headings and the paragraphs below them.

    python bench/abs.py --data WIKI [--pairs 20000] [--batch 64] [--levels 12 | --whole]
    python bench/abs.py --gpu          (500,000 pairs, batch 2,048, ours alone: seconds, and hardness over random)

Vectors are hashed bags of words under a random projection, so that no model is needed and near texts are near. The
plain greedy evaluates every pair left against every member at every swap (Eq. 3-4), in numpy's matrix products. A
second form of it keeps the sums up to date: it makes the same batches much quicker, and so gives the hardness of the
whole epoch, and the pool as it is after any number of batches. The plain form is timed at `--levels` batches of that
epoch, evenly spread, and its time for all of them is read off the straight lines between; `--whole` times every one.
Times are processor seconds of one thread. The ratio is that of the plain form's time to ours.
"""

# ruff: noqa: E402 (the number of threads is fixed before numpy is there)
from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import argparse
import json
import lzma
import re
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray

from liebig.methods.abs.hardness import VectorSimilarity
from liebig.methods.abs.sampler import random_hardness
from liebig.methods.abs.schedule import Schedule, schedule

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Longs = NDArray[np.int64]
WORD = re.compile(r"\w+")
BUCKETS = 1 << 15
BUDGET = 180


@dataclass(frozen=True)
class Bags:
    """Texts as words hashed to buckets: all of them in one row, and where each text begins."""

    words: NDArray[np.int32]
    starts: Longs

    @classmethod
    def of(cls, rows: list[list[int]]) -> Bags:
        ends = np.cumsum([len(row) for row in rows])
        words = np.fromiter((w for row in rows for w in row), np.int32, int(ends[-1]) if len(ends) else 0)
        return cls(words, np.concatenate(([0], ends[:-1])).astype(np.int64))

    @classmethod
    def joined(cls, parts: list[Bags]) -> Bags:
        before = np.cumsum([0, *(len(part.words) for part in parts[:-1])])
        return cls(
            np.concatenate([part.words for part in parts]),
            np.concatenate([part.starts + b for part, b in zip(parts, before)]),
        )


def read_pairs(folder: Path, n: int, piece: int) -> tuple[Bags, Bags, Longs]:
    """Queries (title and heading), passages (a piece of a paragraph), and numbers that are equal for equal passages."""
    paths = sorted(folder.glob("articles-*.jsonl.xz"))
    if not paths:
        raise SystemExit(f"no articles-*.jsonl.xz in {folder}: give --data")
    paths = paths[: max(1, -(-n // 50_000))]
    share = -(-n // len(paths))
    with ProcessPoolExecutor(min(len(paths), os.cpu_count() or 1)) as pool:
        read = list(pool.map(_part, paths, [share] * len(paths), [piece] * len(paths)))
    queries, passages = Bags.joined([part[0] for part in read]), Bags.joined([part[1] for part in read])
    same = np.concatenate([part[2] for part in read])
    kept = slice(0, n)
    twin = np.unique(same[kept], return_inverse=True)[1]
    return _cut(queries, n), _cut(passages, n), twin


def _cut(bags: Bags, n: int) -> Bags:
    if len(bags.starts) <= n:
        return bags
    return Bags(bags.words[: bags.starts[n]], bags.starts[:n])


def _part(path: Path, n: int, piece: int) -> tuple[Bags, Bags, Longs]:
    """The pairs of one file, hashed."""
    known: dict[str, int] = {}

    def hashed(text: str) -> list[int]:
        found = set()
        for word in WORD.findall(text.lower()):
            number = known.get(word)
            if number is None:
                number = known[word] = crc32(word.encode()) % BUCKETS
            found.add(number)
        return sorted(found) or [0]

    queries, passages, same = [], [], []
    for above, text in islice(_pieces(path, piece), n):
        queries.append(hashed(above))
        passages.append(hashed(text))
        same.append(crc32(text.encode()) << 16 | len(text) & 0xFFFF)
    return Bags.of(queries), Bags.of(passages), np.array(same, np.int64)


def _pieces(path: Path, piece: int) -> Iterator[tuple[str, str]]:
    """Title and heading, and pieces of so many characters of the paragraphs below."""
    with lzma.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            article = json.loads(line)
            for section in article["sections"]:
                for paragraph in section["p"]:
                    for start in range(0, len(paragraph), piece):
                        if len(paragraph) - start > 100:
                            yield f"{article['title']} {section['h']}", paragraph[start : start + piece]


def embed(sides: tuple[Bags, Bags], width: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Hashed words, each a fixed random vector, damped by how common it is; length 1."""
    counts = sum(np.bincount(side.words, minlength=BUCKETS) for side in sides)
    total = sum(len(side.starts) for side in sides)
    rows = np.random.default_rng(0).standard_normal((BUCKETS, width))
    rows *= np.log1p(total / (1 + counts))[:, None]
    table = torch.from_numpy(rows.astype(np.float32)).to(device)
    one, two = (
        torch.nn.functional.embedding_bag(
            torch.from_numpy(side.words).long().to(device),
            table,
            torch.from_numpy(side.starts).to(device),
            mode="mean",
        )
        for side in sides
    )
    return torch.nn.functional.normalize(one, dim=1), torch.nn.functional.normalize(two, dim=1)


@dataclass
class Plain:
    """The paper's greedy, on the pairs of `left`."""

    q: Floats
    p: Floats
    twin: Longs
    batch: int

    def plainly(self, left: Longs) -> tuple[float, Longs]:
        """One batch, everything evaluated anew at every swap: its hardness and what is left."""
        q, p, twin = self.q, self.p, self.twin
        inside, outside = left[: self.batch].copy(), left[self.batch :].copy()
        while True:
            scores = q[inside] @ p[inside].T
            scores[twin[inside][:, None] == twin[inside][None, :]] = 0
            adds = scores.sum(axis=0) + scores.sum(axis=1)
            out = int(adds.argmin())
            if not len(outside):
                return float(scores.sum()), outside
            kept = np.delete(inside, out)
            both = q[outside] @ p[kept].T + p[outside] @ q[kept].T
            both[twin[outside][:, None] == twin[kept][None, :]] = 0
            gains = both.sum(axis=1)
            come = int(gains.argmax())
            if gains[come] <= adds[out] + 1e-6 * (1 + abs(scores.sum())):
                return float(scores.sum()), outside
            inside[out], outside[come] = outside[come], inside[out]

    def with_sums(self, left: Longs) -> tuple[float, Longs]:
        """The same batch with what every pair adds kept up to date: two products of a matrix and a vector a swap."""
        own, twin, order = np.concatenate((self.q[left], self.p[left]), axis=1), self.twin[left], left.copy()
        half = own.shape[1] // 2

        def column(i: int) -> Floats:
            found = own @ np.concatenate((own[i, half:], own[i, :half]))
            found[twin == twin[i]] = 0
            return found

        place = np.arange(len(left))
        sums: Doubles = np.sum([column(i) for i in range(self.batch)], axis=0, dtype=np.float64)
        while True:
            inside, outside = place[: self.batch], place[self.batch :]
            out = int(sums[inside].argmin())
            value = sums[inside].sum() / 2
            leaves = column(inside[out])
            gains = (sums - leaves)[outside]
            come = int(gains.argmax()) if len(outside) else -1
            if come < 0 or gains[come] <= sums[inside[out]] + 1e-6 * (1 + abs(value)):
                return float(value), order[outside]
            sums += column(outside[come]) - leaves
            place[out], place[self.batch + come] = outside[come], inside[out]


@dataclass(frozen=True)
class Measured:
    """Hardness of the whole epoch, seconds of the plain form and of that with sums, and how the first came about."""

    total: float
    plain: float
    sums: float
    how: str


def plain_epoch(greedy: Plain, levels: int | None) -> Measured:
    """A whole epoch with sums, and the plain form timed at some of its batches, or at all of them."""
    left = np.random.default_rng(0).permutation(len(greedy.q))
    batches = len(left) // greedy.batch
    timed = range(batches) if levels is None else np.unique(np.linspace(0, batches - 1, levels).astype(int))
    total, sums, places, seconds = 0.0, 0.0, [], []
    for number in range(batches):
        if number in timed:
            began = time.process_time()
            value, _ = greedy.plainly(left)
            places.append(number)
            seconds.append(time.process_time() - began)
        began = time.process_time()
        found, left = greedy.with_sums(left)
        sums += time.process_time() - began
        total += found
        if places and places[-1] == number and abs(value - found) > 1e-3 * abs(found):
            print(f"batch {number}: plain {value:.2f}, with sums {found:.2f}: a tie went another way")
    every = np.interp(np.arange(batches), places, seconds).sum()
    how = "measured" if levels is None else f"from {len(places)} batches spread over the epoch"
    return Measured(total, float(every), sums, how)


def ours(q: torch.Tensor, p: torch.Tensor, twin: Longs, batch: int) -> tuple[Schedule, float, float, float]:
    """Our schedule, its wall and processor seconds, and the hardness of a random batch."""
    similarity = VectorSimilarity.of(q, p, torch.from_numpy(twin))
    schedule(similarity.take(torch.arange(4 * batch, device=q.device)), batch)  # kernels are compiled here
    wall, cpu = time.monotonic(), time.process_time()
    found = schedule(similarity, batch)
    if q.is_cuda:
        torch.cuda.synchronize()
    wall, cpu = time.monotonic() - wall, time.process_time() - cpu
    return found, wall, cpu, random_hardness(similarity, batch, 0)


def arguments() -> Any:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data",
        type=Path,
        required=True,
        help="folder with articles-*.jsonl.xz: rows with title and sections [{h, p}]",
    )
    parser.add_argument("--pairs", type=int, help="20,000; with --gpu 500,000")
    parser.add_argument("--batch", type=int, help="64; with --gpu 2,048")
    parser.add_argument("--width", type=int, default=128, help="numbers of a vector")
    parser.add_argument("--piece", type=int, help="characters of a passage: 600; with --gpu 240")
    parser.add_argument("--levels", type=int, default=12, help="batches at which the plain greedy is timed")
    parser.add_argument("--whole", action="store_true", help="time all batches of the plain greedy (minutes)")
    parser.add_argument("--gpu", action="store_true", help="ours alone, at the larger sizes")
    parser.add_argument("--device", help="with --gpu: cuda, or cpu to try it at a small size")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    pairs, batch = args.pairs or (500_000 if args.gpu else 20_000), args.batch or (2048 if args.gpu else 64)
    device = (args.device or "cuda") if args.gpu else "cpu"
    torch.set_num_threads(1)
    began = time.monotonic()
    queries, passages, twin = read_pairs(args.data, pairs, args.piece or (240 if args.gpu else 600))
    read = time.monotonic()
    q, p = embed((queries, passages), args.width, device)
    made = time.monotonic()
    print(f"pairs {len(q):,}, batch {batch:,}, width {args.width}, {device}")
    if len(q) < pairs:
        print(f"{pairs:,} pairs were asked for: give more parts in --data, or a smaller --piece")
    print(f"reading {read - began:.1f} s, vectors {made - read:.1f} s", flush=True)
    found, wall, cpu, usual = ours(q, p, twin, batch)
    mean = found.total / len(found.batches)
    print(f"ours: {wall:.1f} s, {cpu:.1f} processor s; {len(found.batches):,} batches")
    print(
        f"hardness of a batch {mean:.1f}, of a random one {usual:.1f}: {mean / usual:.2f} times", flush=True
    )
    if args.gpu:
        print(f"budget: {BUDGET} s; used {wall:.1f} s ({'met' if wall < BUDGET else 'not met'})")
        print(f"ratio: {BUDGET / wall:.1f}")
        return
    plain = plain_epoch(Plain(q.numpy(), p.numpy(), twin, batch), None if args.whole else args.levels)
    print(
        f"plain greedy: {plain.plain:.1f} processor s ({plain.how}); with sums kept up to date {plain.sums:.1f}"
    )
    print(f"hardness of the whole epoch: ours {found.total:.0f}, plain {plain.total:.0f}", end=" ")
    print(f"({found.total / plain.total:.4f} of it)")
    print(f"against the form with sums: {plain.sums / cpu:.1f} times")
    print(f"ratio: {plain.plain / cpu:.1f}")


if __name__ == "__main__":
    main()
