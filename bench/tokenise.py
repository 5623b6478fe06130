"""Texts to token ids, against the tokenizers library, in one run.

    python bench/tokenise.py --data DATA [--passages 20000] [--model FOLDER]

The same passages of the wiki go through the same tokenizer: by the library's fastest call (`encode_batch_fast`, without
special tokens, one thread), and by ours, which is compiled for WordPiece and looks words up for BPE; both end with one
array of ids. The sides take turns, and the lowest CPU time counts, so a table of words is full. The ids must be equal.
The last line is `ratio: X`, the library's time over ours.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from itertools import chain, islice
from pathlib import Path

import numpy as np

from bm25 import cut
from liebig.base.hub import model_folder
from liebig.text.tokenizer import Tokenizer

ROUNDS = 3


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with wiki")
    parser.add_argument("--model", type=Path, help="a folder with a tokenizer [the bundled encoder]")
    parser.add_argument("--passages", type=int, default=20_000)
    args = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # CPU time of several threads would count all of them
    tokenizer = Tokenizer.from_folder(model_folder(args.model or "liebig:mini-v3"))
    texts = [f"{p.title} {p.text}" for p in islice(cut(args.data / "wiki"), args.passages)]
    tokenizer.encode_packed(texts[:2000])  # what is compiled is so before the clock starts

    def library() -> np.ndarray:
        encodings = tokenizer.core.encode_batch_fast(texts, add_special_tokens=False)
        return np.fromiter(chain.from_iterable(one.ids for one in encodings), np.int32)

    sides = {"tokenizers": library, "liebig": lambda: tokenizer.encode_packed(texts).values}
    seconds = dict.fromkeys(sides, math.inf)
    ids = {}
    for _ in range(ROUNDS):
        for name, side in sides.items():
            start = time.process_time()
            ids[name] = side()
            seconds[name] = min(seconds[name], time.process_time() - start)
    assert np.array_equal(ids["liebig"], ids["tokenizers"]), "the ids differ"
    count = len(ids["liebig"])
    print(f"{len(texts):,} passages, {count:,} tokens, {type(tokenizer.core.model).__name__}, one thread")
    for name, took in seconds.items():
        print(f"{name:12} {count / took / 1e6:8.2f} M tokens per CPU second")
    print(f"ratio: {seconds['tokenizers'] / seconds['liebig']:.2f}")


if __name__ == "__main__":
    main()
