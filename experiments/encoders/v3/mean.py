"""The mean of the start's and of students' weights, and its projection with a flatter spectrum.

    python experiments/encoders/v3/mean.py --start FOLDER --students A B --shares 1 1 2 --texts FILE... --out OUT

The students have the same targets, and so projections that can be averaged; the start's is first fitted to what their
mean makes of 6,000 texts of all files. Then each weight is the mean of all by --shares, the start's first. At last each
principal direction of the projection is divided by its variance to the power --power: a few directions hold most of
the variance. Dev splits chose shares and power. Ten minutes of a core.
"""

from __future__ import annotations

import argparse
import random
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from judge import unit
from student import Batches, Student, fit_head, packaged, read_export
from texts import LONGEST, Views, read_rows, tokens_of

ROWS, LARGE, TEXTS = 1500, 2e6, 6000  # rows read of a file, bytes of a large file, texts in all
NORM = 0.84  # of the targets: what the start reaches of unit vectors


def sample(files: Sequence[Path]) -> list[str]:
    """Texts of every kind, as `train.py` has them."""
    rng, texts = random.Random(5), []
    for path in files:
        large = path.stat().st_size > LARGE
        views = Views(zlib.crc32(path.name.encode()))
        rows = read_rows(path.read_bytes(), path.name, 0, 4 if large else 1, views.rng)
        for _, (text, title, kind) in zip(range(ROWS), rows):
            views.row(text, title, kind, "python" in path.name)
        texts += views.rng.sample(views.texts, min(len(views.texts), 900 if large else 300))
    rng.shuffle(texts)
    return texts[:TEXTS]


def outputs(student: Student, batches: Batches, count: int) -> Any:
    """Vectors of all texts, as long as the projection makes them."""
    used, order = student.used(), np.argsort(batches.lengths, kind="stable")
    out = torch.empty(count, len(student.head_bias))
    with torch.no_grad():
        for begin in range(0, count, 256):
            rows = order[begin : begin + 256]
            out[torch.from_numpy(rows)] = student.project(student.pooled(*batches.get(rows), used))
    return out


def flatten(student: Student, vectors: Any, power: float) -> None:
    """Divide the principal directions of unit vectors by their variance to a power."""
    width, units = student.width, unit(vectors)
    mean = units.mean(0)
    variance, directions = torch.linalg.eigh(((units - mean).T @ (units - mean) / len(units)).double())
    variance, directions = variance.flip(0)[:width].float(), directions.flip(1)[:, :width].float()
    turn = directions * (variance / variance[0] + 1e-3) ** -power
    student.set_head(turn.T @ student.head.detach(), turn.T @ student.head_bias.detach())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--start", type=Path, required=True, help="a packed encoder")
    parser.add_argument("--students", type=Path, nargs="+", required=True, help="what `train.py` wrote")
    parser.add_argument(
        "--shares", type=float, nargs="+", required=True, help="of the start and of each student"
    )
    parser.add_argument("--texts", type=Path, nargs="+", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--power", type=float, default=0.06)
    args = parser.parse_args()
    if len(args.shares) != 1 + len(args.students):
        parser.error(f"--shares: {1 + len(args.students)} numbers are needed, the start's first")
    device, tokenizer = torch.device("cpu"), args.start / "tokenizer.json"
    start = Student(packaged(args.start), 12, device, tokenizer)
    mean, *others = (Student(read_export(path), 12, device, tokenizer) for path in args.students)
    of_start, total, *shares = args.shares
    for other, share in zip(others, shares):
        total += share
        blend(mean, other, share / total)
    texts = sample(args.texts)
    batches = Batches(*tokens_of(tokenizer, texts, LONGEST), device)
    fit_head(start, batches, NORM * unit(outputs(mean, batches, len(texts))), len(texts))
    blend(mean, start, of_start / (total + of_start))
    flatten(mean, outputs(mean, batches, len(texts)), args.power)
    mean.export(args.out, {"shares": args.shares, "power": args.power, "texts": len(texts)})


@torch.no_grad()
def blend(student: Student, other: Student, share: float) -> None:
    """Bring every weight nearer to the other's by a share."""
    for mine, theirs in zip(student.parameters(), other.parameters()):
        mine.lerp_(theirs, share)


if __name__ == "__main__":
    main()
