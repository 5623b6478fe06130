"""What the comparison is held against besides random batches: BM25, and the encoder before any fine-tuning.

    python experiments/finetuning/baselines.py --data data --work runs/finetuning-work --prepared runs/prepared \
        --out runs/finetuning

Both answer the very test questions of the prepared folder over the very same passages. Writes `baselines.npz` to --out:
`SET|bm25|TEST` and `SET|untuned|TEST` (questions x measures, in ten thousandths), and `SET|documents|TEST`, the
document (article, topic, abstract) of each question's first relevant passage, by which the table's tests count
questions of one document together, and `SET|seen|TEST`: whether a passage relevant to the question was the positive of
a training question, so that remembering passages can be told from finding them. BM25 takes 15 seconds; the encoder four
minutes of one core in bfloat16 (`--no-untuned` leaves it out).
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from jobs import FEW
from methods import Bench, Plan, Start
from numpy.typing import NDArray
from prepared import Prepared, drawn, load
from searching import values
from sets import FAR, ZERO_SHOT, Set, Split, read
from table import ROWS

from prepare import SETS, START

Arrays = dict[str, NDArray]


def main() -> None:
    args = arguments()
    made: Arrays = {}
    for name in args.sets:
        known = load(args.prepared / name)
        made |= by_words(read(name, args.data, args.work, args.distractors, None), known)
        made |= seen(name, known)
        if f"{name}-few" in ROWS:
            made |= seen(f"{name}-few", known.limited(FEW))
        if not args.no_untuned:
            made |= untuned(name, known, args.encoder, args.out)
        for key, found in made.items():
            if key.startswith((f"{name}|bm25", f"{name}|untuned")):
                print(key, (found.mean(axis=0) / 10_000).round(4).tolist(), flush=True)
    np.savez_compressed(args.out / "baselines.npz", **made)


def by_words(found: Set, known: Prepared) -> Arrays:
    """BM25's values, and the documents, of the test questions that were prepared."""
    made: Arrays = {}
    for test, split in found.tests.items():
        asked = known.tests[test].relevant
        kept = split.take(drawn(len(split.queries), len(asked), 0).tolist())
        assert all(set(one) == set(two) for one, two in zip(kept.relevant, asked, strict=True)), (
            f"{found.name}: prepared from other data"
        )
        made[f"{found.name}|bm25|{test}"] = in_short(values(kept.found, asked, len(found.passages)))
        made[f"{found.name}|documents|{test}"] = documents(found, kept, test)
    return made


def documents(found: Set, split: Split, test: str) -> NDArray[np.int32]:
    """The document of each question's first relevant passage; NQ's, matched by answers, are of no one document."""
    if test == "nq":
        return np.arange(len(split.queries), dtype=np.int32)
    first = [found.passages[row[0]] for row in split.relevant]
    return np.unique([p.doc or p.id for p in first], return_inverse=True)[1].astype(np.int32)


def seen(name: str, known: Prepared) -> Arrays:
    """Whether a question's relevant passages were positives in training."""
    shown = known.train.relevant.values[known.train.relevant.offsets[:-1]]
    return {
        f"{name}|seen|{test}": np.array([np.isin(row, shown).any() for row in split.relevant])
        for test, split in known.tests.items()
    }


def untuned(name: str, known: Prepared, encoder: Path, out: Path) -> Arrays:
    """The encoder that all runs begin with."""
    torch.set_num_threads(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    start = Start(encoder, device)
    bench = Bench(name, known, Plan(encoder, 0, 0, device, out), start)
    tests = bench.test(start.encoder.to(torch.bfloat16))
    return {f"{name}|untuned|{test}": in_short(v) for test, v in tests.items()}


def in_short(found: NDArray[np.float64]) -> NDArray[np.uint16]:
    return np.rint(found * 10_000).astype(np.uint16)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="as for prepare.py")
    parser.add_argument("--prepared", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="as for run.py")
    parser.add_argument("--encoder", type=Path, default=START, help="a model folder [default: %(default)s]")
    parser.add_argument("--sets", nargs="*", choices=(*SETS, FAR, *ZERO_SHOT), default=SETS)
    parser.add_argument("--distractors", type=int, default=50_000, help="as for prepare.py")
    parser.add_argument("--no-untuned", action="store_true", help="BM25 only")
    return parser.parse_args()


if __name__ == "__main__":
    main()
