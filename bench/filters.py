"""Searches with filters that let from all to ten passages through: CPU time must not grow with how selective they are.

    python bench/filters.py                    a million passages: short texts and vectors that are drawn
    python bench/filters.py --passages 100000  fewer

The retriever is a folder as `liebig build` writes it: texts of Zipf-distributed words, four passages of a document,
fp16 vectors of 384 numbers, and the bundled encoder for the questions. Milliseconds are CPU time of the process per
question with one thread, the median of the questions; what a first search compiles is not counted. A row per share of
documents that pass, a column per system; then conditions of the query language, and counts for filters. The last line
is `ratio: X`: the time of a hybrid search without a filter over that of the slowest filter.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from latency import drawn

EACH, WORDS, VOCABULARY, QUESTIONS, WIDTH = 4, 24, 50_000, 20, 384
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
    from liebig.base.config import Config
    from liebig.base.pipeline import Stage, run_stage
    from liebig.base.workspace import Folder
    from liebig.indexes.exact import ExactIndex
    from liebig.search.retriever_folder import RetrieverDescription, write
    from liebig.stages.bm25 import STAGE, BM25Config
    from liebig.vectors import Shard

    class DrawnConfig(Config):
        """Vectors that no model made."""

        count: int

    def draw(config: DrawnConfig, out: Folder) -> None:
        shards, number = [], 0
        for x in drawn(config.count, WIDTH):
            ids = [f"d{i // EACH}-{i % EACH}" for i in range(number, number + len(x))]
            shards.append(Shard.in_memory(ids, x, "fp16"))
            number += len(x)
        about = {"model": str(encoders.folder()), "unit": True}
        ExactIndex("fp16", WIDTH, shards, about).save(out.path)

    if not (folder / "bm25").is_dir():
        write_collection(folder / "collection", count)
        run_stage(STAGE, BM25Config(collection=folder / "collection"), folder / "bm25")
    run_stage(Stage("drawn", DrawnConfig, draw), DrawnConfig(count=count), folder / "index")
    (folder / "model").symlink_to(encoders.folder())
    write(folder, RetrieverDescription(1, "hybrid", "collection", "bm25", "index", "model", norm="spread"))


def write_collection(folder: Path, count: int) -> None:
    """Documents with metadata, and their passages."""
    folder.mkdir(parents=True)
    documents = -(-count // EACH)
    luck = np.random.default_rng(1).permutation(documents)
    with (folder / "documents.jsonl").open("w") as first, (folder / "passages.jsonl").open("w") as second:
        for number, text in enumerate(texts(count)):
            document, part = divmod(number, EACH)
            if part == 0:
                place = int(luck[document])
                fields = {f"p{share}": "yes" for share in PASS if place < share * documents}
                fields |= {"rare": "yes"} if place < RARE else {}
                fields |= {"size": str(place), "folder": f"f{document % 1000}"}
                row = {"id": f"d{document}", "text": "", "metadata": fields}
                first.write(json.dumps(row) + "\n")
            passage = {"id": f"d{document}-{part}", "doc": f"d{document}", "text": text}
            second.write(json.dumps(passage) + "\n")


def measure(folder: Path) -> None:
    """Print the table."""
    from liebig import Retriever

    retriever = Retriever.from_folder(folder, verify=False)
    random = np.random.default_rng(2)
    questions = [" ".join(f"w{int(VOCABULARY**x):x}" for x in random.random(6)) for _ in range(QUESTIONS)]

    def timed(more: str = "", **options: Any) -> float:
        milliseconds = []
        for question in questions:
            began = time.process_time()
            retriever.answer(f"{question} {more}".strip(), 10, floor=False, suggest=False, **options)
            milliseconds.append(1e3 * (time.process_time() - began))
        return float(np.median(milliseconds))

    systems = ("bm25", "dense", "hybrid")
    for system in systems:
        for question in questions:
            retriever.search(question, 10, system)
    began = time.process_time()
    retriever.search(questions[0], 10, filters={"rare": "yes"})
    print(f"the first filter reads all metadata: {time.process_time() - began:.1f} CPU-s", flush=True)
    half = -(-len(retriever) // EACH) // 2
    cases: dict[str, dict[str, Any]] = {f"{share:.2%} pass": {f"p{share}": "yes"} for share in PASS}
    cases |= {f"{RARE} documents pass": {"rare": "yes"}, "none passes": {"folder": "no"}}
    cases |= {"range, half pass": {"size": {"lt": half}}, "range, 100 pass": {"size": {"lt": 100}}}
    print(f"{'CPU-ms':28}" + "".join(f"{name:>10}" for name in systems), flush=True)

    def row(label: str, more: str = "", **options: Any) -> float:
        found = [timed(more, system=system, **options) for system in systems]
        print(f"{label:28}" + "".join(f"{ms:10.1f}" for ms in found), flush=True)
        return found[-1]

    without = row("no filter")
    slowest = max(row(label, filters=filters) for label, filters in cases.items())
    row("-word", f"-w{VOCABULARY - 1:x}")
    row("phrase of rare words", '"w5000 w6000"')
    row("phrase of frequent words", '"w1 w2"')
    row("counts of 1,000 values", facets=("folder",))
    row("counts of all documents", facets=("doc",))
    print(f"ratio: {without / slowest:.2f}")


if __name__ == "__main__":
    main()
