"""Everything the comparison needs that takes no GPU, done once: reading, BM25, answers of NQ, tokens, dev's passages.

    python experiments/finetuning/prepare.py --data data --out runs/prepared --work runs/finetuning-work

writes a folder for each of wiki, medquad and scifact (15 MB together), which `run.py --prepared` starts from, here or
on another machine. About two minutes on two cores. Training keeps --train questions and every test --test questions at
the most, drawn by a fixed seed; --most cuts every split, to try things out.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from prepared import PASSAGE, QUERY, Asked, Prepared, dev_places, digest, drawn, save, tokenised
from sets import FAR, ZERO_SHOT, Set, Split, read

from liebig.ragged import Ragged
from liebig.text.layout import RoleLayout
from liebig.text.tokenizer import Tokenizer

START = Path("runs/mini-v0/model/model")  # what `liebig run recipes/encoders/mini-v0.toml` makes

SETS = ("scifact", "medquad", "wiki")


def main() -> None:
    args = arguments()
    tokenizer = Tokenizer.from_folder(args.encoder)
    for name in args.sets:
        began = time.monotonic()
        found = read(name, args.data, args.work, args.distractors, args.most)
        reading, began = time.monotonic() - began, time.monotonic()
        made = numbered(found, tokenizer, args.train, args.test)
        facts = {
            "passages": len(made.bare), "train": len(made.train), "dev": len(made.dev),
            "test": {test: len(split) for test, split in made.tests.items()}, "distractors": args.distractors,
        }  # fmt: skip
        save(args.out / name, made, facts)
        said = (
            f"read and searched in {reading:.1f} s, tokenised and written in {time.monotonic() - began:.1f} s"
        )
        print(f"{name}: {said}; {facts}", flush=True)


def numbered(found: Set, tokenizer: Tokenizer, train: int, test: int) -> Prepared:
    """A set in token ids and numbers."""
    whole, numbers = RoleLayout(tokenizer, PASSAGE), dict[str, int]()
    judged = {p for row in found.dev.relevant for p in row}
    return Prepared(
        found.name,
        tokenised([whole.text(p) for p in found.passages], tokenizer, PASSAGE),
        np.array([numbers.setdefault(p.text, len(numbers)) for p in found.passages], np.int64),
        asked(found.train, tokenizer, train),
        asked(found.dev, tokenizer, len(found.dev.queries)),
        {name: asked(split, tokenizer, test) for name, split in found.tests.items()},
        dev_places(judged, len(found.passages)),
        digest(tokenizer),
    )


def asked(split: Split, tokenizer: Tokenizer, most: int) -> Asked:
    """At most `most` questions of a split."""
    kept = split.take(drawn(len(split.queries), most, 0).tolist())
    return Asked(
        tokenised([q.text for q in kept.queries], tokenizer, QUERY),
        Ragged.from_lists(kept.relevant),
        kept.found,
        kept.scores,
    )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, required=True, help="folder with squad, nq, wiki, medquad, scifact"
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="collections and BM25: large")
    parser.add_argument("--encoder", type=Path, default=START, help="whose tokenizer [default: %(default)s]")
    parser.add_argument("--sets", nargs="*", choices=(*SETS, FAR, *ZERO_SHOT), default=SETS)
    parser.add_argument("--train", type=int, default=4_000, help="training questions of a set at the most")
    parser.add_argument("--test", type=int, default=3_000, help="questions of a test at the most")
    parser.add_argument("--distractors", type=int, default=50_000, help="wiki passages beside SQuAD's")
    parser.add_argument("--most", type=int, help="questions of every split at the most, to try things out")
    return parser.parse_args()


if __name__ == "__main__":
    main()
