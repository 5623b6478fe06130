"""Adaptive batch scheduling against the plain greedy of the paper, on wiki headings and their paragraphs.

    python bench/abs.py [--data ../shared/data/wiki] [--pairs 20000] [--batch 64] [--width 128] [--whole]
    python bench/abs.py --gpu          # 500,000 pairs, batch 2,048, ours alone

Vectors are hashed bags of words under a random projection, so that no model is needed and near texts are near. The
plain greedy evaluates every pair left against every member at every swap (Eq. 3-4), in numpy's matrix products. It runs
on the same pairs; unless `--whole` is given only its first batches are made, and its time for all of them is put
together from those, each batch costing in proportion to the pairs left. Times are processor seconds of one thread.
"""

from __future__ import annotations

import argparse
import json
import lzma
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray

from liebig.finetune.adaptive import random_hardness
from liebig.finetune.hardness import Vectors
from liebig.finetune.schedule import schedule

Floats = NDArray[np.float32]
WORD = re.compile(r"\w+")
BUCKETS = 1 << 15


def read_pairs(folder: Path, n: int) -> tuple[list[str], list[str]]:
    """Title and heading, and a paragraph below it."""
    queries, passages = [], []
    for title, heading, paragraph in _paragraphs(folder):
        queries.append(f"{title} {heading}")
        passages.append(paragraph[:600])
        if len(queries) == n:
            break
    return queries, passages


def _paragraphs(folder: Path) -> Iterator[tuple[str, str, str]]:
    for path in sorted(folder.glob("articles-*.jsonl.xz")):
        with lzma.open(path, "rt", encoding="utf-8") as file:
            for line in file:
                article = json.loads(line)
                for section in article["sections"]:
                    for paragraph in section["p"]:
                        if len(paragraph) > 100:
                            yield article["title"], section["h"], paragraph


def embed(texts: list[str], width: int) -> Floats:
    """Hashed words, each a fixed random vector, damped by how common it is; length 1."""
    counts = np.zeros(BUCKETS)
    hashed = []
    for text in texts:
        ids = np.unique([crc32(word.encode()) % BUCKETS for word in WORD.findall(text.lower())] or [0])
        counts[ids] += 1
        hashed.append(ids)
    rows = (
        np.random.default_rng(0).standard_normal((BUCKETS, width))
        * np.log1p(len(texts) / (1 + counts))[:, None]
    )
    out = np.stack([rows[ids].mean(axis=0) for ids in hashed]).astype(np.float32)
    return out / np.linalg.norm(out, axis=1, keepdims=True)


def plain_greedy(
    q: Floats, p: Floats, twin: NDArray[Any], batch: int, most: int | None
) -> tuple[float, float, int]:
    """Total hardness, processor seconds and batches of the paper's greedy; time is that of all batches."""
    left = np.random.default_rng(0).permutation(len(q))
    total, weight, done, began = 0.0, 0.0, 0, time.process_time()
    everything = sum(len(q) - i * batch for i in range(len(q) // batch))
    while len(left) >= batch and (most is None or done < most):
        weight += len(left)
        value, left = _plain_batch(q, p, twin, left, batch)
        total, done = total + value, done + 1
    return total, (time.process_time() - began) * everything / weight, done


def _plain_batch(
    q: Floats, p: Floats, twin: NDArray[Any], left: NDArray[Any], batch: int
) -> tuple[float, NDArray[Any]]:
    inside, outside = left[:batch].copy(), left[batch:].copy()
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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data/wiki"))
    parser.add_argument("--pairs", type=int)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--plain", type=int, default=10, help="batches of the plain greedy")
    parser.add_argument("--whole", action="store_true", help="all batches of the plain greedy")
    parser.add_argument("--gpu", action="store_true")
    args = parser.parse_args()
    pairs, batch = args.pairs or (500_000 if args.gpu else 20_000), args.batch or (2048 if args.gpu else 64)
    queries, passages = read_pairs(args.data, pairs)
    vectors = embed([*queries, *passages], args.width)
    q, p = vectors[: len(queries)], vectors[len(queries) :]
    twin = np.unique(passages, return_inverse=True)[1]
    device = "cuda" if args.gpu else "cpu"
    if not args.gpu:
        torch.set_num_threads(1)
    similarity = Vectors.of(
        torch.from_numpy(q).to(device), torch.from_numpy(p).to(device), torch.from_numpy(twin)
    )
    wall, cpu = time.monotonic(), time.process_time()
    found = schedule(similarity, batch)
    wall, cpu = time.monotonic() - wall, time.process_time() - cpu
    usual = random_hardness(similarity, batch, 0)
    mean = found.total / len(found.batches)
    print(f"pairs {len(q)}, batch {batch}, width {args.width}, {device}")
    print(
        f"ours: {wall:.1f} s, hardness of a batch {mean:.1f}, of a random one {usual:.1f} ({mean / usual:.2f} times)"
    )
    if args.gpu:
        return
    total, seconds, done = plain_greedy(q, p, twin, batch, None if args.whole else args.plain)
    same = sum(found.hardness[:done])
    what = "measured" if args.whole else f"from {done} batches"
    print(f"plain greedy: {seconds:.1f} processor s ({what}); ours {cpu:.1f}")
    print(f"hardness of the first {done} batches: ours {same:.1f}, plain {total:.1f} (x{same / total:.3f})")
    print(f"ratio {seconds / cpu:.1f}")


if __name__ == "__main__":
    main()
