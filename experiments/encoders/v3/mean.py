"""The mean of the start's and a student's weights, and its projection centred and with a flatter spectrum.

    python experiments/encoders/v3/mean.py --start FOLDER --student EXPORT --texts FILE... --out OUT

Both students have projections of their own, so the start's is first fitted to what the other one makes of 9,000 texts
of all files. Then each weight is the mean of both. At last the projection loses the mean of unit vectors, at the median
length, and each principal direction is divided by its variance to the power --power: a few directions hold most of the
variance. Dev splits chose the power. Ten minutes of a core.
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

ROWS, LARGE, TEXTS = 1500, 2e6, 9000  # rows read of a file, bytes of a large file, texts in all
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
    """Take the mean off, and divide the principal directions of unit vectors by their variance to a power."""
    width, units = student.width, unit(vectors)
    mean = units.mean(0)
    variance, directions = torch.linalg.eigh(((units - mean).T @ (units - mean) / len(units)).double())
    variance, directions = variance.flip(0)[:width].float(), directions.flip(1)[:, :width].float()
    turn = directions * (variance / variance[0] + 1e-3) ** -power
    shift = student.head_bias.detach() - vectors.norm(dim=1).median() * mean
    student.set_head(turn.T @ student.head.detach(), turn.T @ shift)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--start", type=Path, required=True, help="a packed encoder")
    parser.add_argument("--student", type=Path, required=True, help="what `train.py` wrote")
    parser.add_argument("--texts", type=Path, nargs="+", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--share", type=float, default=0.5, help="of the start")
    parser.add_argument("--power", type=float, default=0.05)
    args = parser.parse_args()
    device, tokenizer = torch.device("cpu"), args.start / "tokenizer.json"
    start = Student(packaged(args.start), 12, device, tokenizer)
    student = Student(read_export(args.student), 12, device, tokenizer)
    texts = sample(args.texts)
    batches = Batches(*tokens_of(tokenizer, texts, LONGEST), device)
    fit_head(start, batches, NORM * unit(outputs(student, batches, len(texts))), len(texts))
    with torch.no_grad():
        for mean, other in zip(student.parameters(), start.parameters()):
            mean.lerp_(other, args.share)
    flatten(student, outputs(student, batches, len(texts)), args.power)
    student.export(args.out, {"share": args.share, "power": args.power, "texts": len(texts)})


if __name__ == "__main__":
    main()
