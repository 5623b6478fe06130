"""Searches with filters that let from all to ten passages through: CPU time must not grow with how selective they are.

    python bench/filters.py                    a million passages: short texts and vectors that are drawn
    python bench/filters.py --passages 100000  fewer

The retriever is a folder as `liebig build` writes it: texts of Zipf-distributed words, four passages of a document,
fp16 vectors of 384 numbers, and the bundled encoder for the questions. Milliseconds are CPU time of the process per
question with one thread, the median of the questions; what a first search compiles is not counted. A row per share of
documents that pass, a column per system; then conditions of the query language, and counts for filters. `far` passes
half of the documents, those whose vectors are far from the questions'. The last line is `ratio: X`: the time of a
hybrid search without a filter over that of the slowest filter by value.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from bench.latency import drawn

EACH, WORDS, VOCABULARY, QUESTIONS = 4, 24, 50_000, 20
PASS = (1.0, 0.5, 0.1, 0.01, 0.001, 0.0001)  # shares of the documents
RARE = 3  # documents of the most selective filter


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--passages", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, help="keep the retriever here, or take the one that is there")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or Path(temporary)
        if not (folder / "retriever.json").is_file():
            make(folder, args.passages)
        measure(folder)


def texts(count: int) -> Iterator[str]:
    """Texts whose words are as frequent as those of a language."""
    random = np.random.default_rng(0)
    words = np.array([f"w{i:x}" for i in range(VOCABULARY)])
    for first in range(0, count, 10_000):
        size = min(10_000, count - first)
        places = np.minimum(VOCABULARY ** random.random((size, WORDS)), VOCABULARY - 1).astype(int)
        yield from map(" ".join, words[places])


def make(folder: Path, count: int) -> None:
    """A retriever's folder."""
    from liebig import encoders
    from liebig.base.pipeline import run_stage
    from liebig.indexes.exact import ExactIndex
    from liebig.model.encoder import Encoder
    from liebig.search.retriever_folder import RetrieverDescription, write
    from liebig.stages.bm25 import STAGE, BM25Config
    from liebig.vectors import Shard

    collection = folder / "collection"
    collection.mkdir(parents=True)
    random = np.random.default_rng(1)
    documents = -(-count // EACH)
    luck = random.permutation(documents)
    with (
        (collection / "documents.jsonl").open("w") as of_documents,
        (collection / "passages.jsonl").open("w") as of_passages,
    ):
        for number, text in enumerate(texts(count)):
            document = number // EACH
            if number % EACH == 0:
                shares = {f"p{share}": "yes" for share in PASS if luck[document] < share * documents}
                rare = {"rare": "yes"} if luck[document] < RARE else {}
                size = {"size": str(luck[document]), "folder": f"f{document % 1000}"}
                row = {"id": f"d{document}", "text": "", "metadata": {**shares, **rare, **size}}
                of_documents.write(json.dumps(row) + "\n")
            row = {"id": f"d{document}-{number % EACH}", "doc": f"d{document}", "text": text}
            of_passages.write(json.dumps(row) + "\n")
    run_stage(STAGE, BM25Config(collection=collection), folder / "bm25")
    width = Encoder.load(encoders.folder()).width
    shards, number = [], 0
    for x in drawn(count, width):
        ids = [f"d{i // EACH}-{i % EACH}" for i in range(number, number + len(x))]
        shards.append(Shard.in_memory(ids, x, "fp16"))
        number += len(x)
    ExactIndex("fp16", width, shards, {"model": str(encoders.folder()), "unit": True}).save(folder / "index")
    (folder / "model").symlink_to(encoders.folder())
    write(folder, RetrieverDescription(1, "hybrid", "collection", "bm25", "index", "model", norm="spread"))


def measure(folder: Path) -> None:
    from liebig import Retriever

    retriever = Retriever.from_folder(folder, verify=False)
    random = np.random.default_rng(2)
    questions = [" ".join(f"w{int(VOCABULARY**x):x}" for x in random.random(6)) for _ in range(QUESTIONS)]

    def timed(label: str, **options: object) -> float:
        milliseconds = []
        for question in questions:
            began = time.process_time()
            retriever.answer(question.replace("w", "w"), 10, **options)
            milliseconds.append(1e3 * (time.process_time() - began))
        return float(np.median(milliseconds))

    for system in ("bm25", "dense", "hybrid"):
        for _ in range(20):
            retriever.search(questions[0], 10, system)
    began = time.process_time()
    retriever.search(questions[0], 10, filters={"rare": "yes"})
    print(f"first filter: {time.process_time() - began:.1f} CPU-s", flush=True)
    cases = {"no filter": None, **{f"{share:.2%} pass": {f"p{share}": "yes"} for share in PASS}}
    cases |= {f"{RARE} documents": {"rare": "yes"}, "none pass": {"rare": "no"}}
    cases |= {"size below half": {"size": {"lt": 125_000}}, "size below 100": {"size": {"lt": 100}}}
    systems = ("bm25", "dense", "hybrid")
    print(f"{'':24}" + "".join(f"{name:>10}" for name in systems), flush=True)
    for label, filters in cases.items():
        row = [timed(label, system=system, filters=filters) for system in systems]
        print(f"{label:24}" + "".join(f"{ms:10.1f}" for ms in row), flush=True)


if __name__ == "__main__":
    main()
