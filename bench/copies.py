"""Near-duplicates among many documents: Liebig's MinHash against datasketch's (MinHash and LSH, 64 permutations).

Documents are drawn from a Zipf-like vocabulary, 120 words each; one in ten is a copy of an earlier one with up to four
words changed. Both sides get the same documents, datasketch the first ones only, and are compared in documents per
CPU second, without the time in which they are drawn; what each finds of the planted copies is printed too.

    python bench/copies.py --documents 1000000
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Iterator
from itertools import islice

import numpy as np

from liebig.base.records import Document, Section
from liebig.collection.copies import find_copies

WORDS, LENGTH, PLANTED, CHANGED = 50_000, 120, 10, 4


def documents(count: int) -> Iterator[Document]:
    """Documents without end of memory: a copy repeats the draw of its original."""
    names = np.array([f"w{i:x}" for i in range(WORDS)])
    for number in range(count):
        is_copy = number % PLANTED == PLANTED - 1
        rng = np.random.default_rng(number // PLANTED if is_copy else 10**9 + number)
        if number % PLANTED == 0:
            rng = np.random.default_rng(number // PLANTED)
        words = (rng.random(LENGTH) ** 3 * WORDS).astype(np.int64)
        if is_copy:
            words[number % LENGTH : number % LENGTH + number % (CHANGED + 1)] = number % WORDS
        yield Document(str(number), "", (Section("", (" ".join(names[words]),)),))


def ours(count: int) -> tuple[float, float]:
    """Documents per second, and the share of the planted copies that were found."""
    find_copies(documents(PLANTED))  # compiled before the time begins
    drawing = 0.0

    def drawn() -> Iterator[Document]:
        nonlocal drawing
        source = documents(count)
        while True:
            began = time.process_time()
            document = next(source, None)
            drawing += time.process_time() - began
            if document is None:
                return
            yield document

    began = time.process_time()
    originals = find_copies(drawn()).originals
    seconds = time.process_time() - began - drawing
    planted = {str(n): str(n - PLANTED + 1) for n in range(PLANTED - 1, count, PLANTED)}
    hits = sum(originals.get(copy) == original for copy, original in planted.items())
    print(
        f"Liebig: {count:,} documents in {seconds:.1f} s of CPU, {len(originals) - hits} others than planted"
    )
    return count / seconds, hits / len(planted)


def theirs(count: int) -> tuple[float, float]:
    """The same of datasketch."""
    from datasketch import MinHash, MinHashLSH

    some = list(islice(documents(count), count))
    index, hits, planted = MinHashLSH(threshold=0.8, num_perm=64), 0, 0
    began = time.process_time()
    for number, document in enumerate(some):
        words = document.text.split()
        made = MinHash(num_perm=64)
        made.update_batch([" ".join(t).encode() for t in zip(words, words[1:], words[2:])])
        near = index.query(made)
        if number % PLANTED == PLANTED - 1:
            planted, hits = planted + 1, hits + (number - PLANTED + 1 in near)
        index.insert(number, made)
    return count / (time.process_time() - began), hits / planted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--theirs", type=int, default=5_000, help="documents that datasketch gets")
    told = parser.parse_args()
    speed, share = ours(told.documents)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    other, other_share = theirs(told.theirs)
    print(f"Liebig {speed:,.0f} documents/s, {share:.1%} of the copies found, {memory} MiB at most")
    print(f"datasketch {other:,.0f} documents/s, {other_share:.1%} of the copies found")
    print(f"ratio: {speed / other:.2f}")


if __name__ == "__main__":
    main()
