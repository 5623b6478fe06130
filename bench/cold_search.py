"""A question in a fresh process: `liebig search` against a plain script with sentence-transformers.

    python bench/cold_search.py [--passages 500] [--rounds 3]

Both start Python, load the same encoder, embed the question and print the best of the same passages, whose vectors
were made before; Liebig also opens its folder, asks BM25 and fuses. The peer is given its vectors as one array. The
CPU time of the whole process is compared, user and system, the lowest of the rounds. Last line: the peer's over ours.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from importlib.metadata import version
from itertools import islice
from pathlib import Path

import numpy as np

from liebig import Retriever, encoders
from liebig.base import pipeline
from liebig.base.records import Document
from liebig.formats.stdlib import read_stdlib
from liebig.search.retriever_folder import RetrieverDescription, write
from liebig.stages import STAGES

QUESTION = "how do I merge two sorted lists?"
PEER = """
import json, sys
import numpy as np
from sentence_transformers import SentenceTransformer

model, vectors, texts, question = sys.argv[1:]
vector = SentenceTransformer(model, device="cpu").encode([question], normalize_embeddings=True)[0]
best = np.argsort(-(np.load(vectors) @ vector))[:5]
passages = json.load(open(texts))
for number in best:
    print(passages[number])
"""


def cpu_seconds(command: list[str]) -> float:
    """User and system time of a process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def make_folder(out: Path, passages: int) -> list[str]:
    """A retriever of paragraphs of Python's documentation; their texts."""
    paragraphs = (
        (item.record.title, paragraph)
        for item in read_stdlib("stdlib:")
        if isinstance(item.record, Document)
        for section in item.record.sections
        for paragraph in section.paragraphs
        if len(paragraph) > 100
    )
    rows = [
        {"id": str(number), "title": title, "text": text, "doc": ""}
        for number, (title, text) in enumerate(islice(paragraphs, passages))
    ]
    (out / "collection").mkdir(parents=True)
    (out / "collection" / "passages.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    recipe = {
        "bm25": {"collection": str(out / "collection")},
        "index": {
            "kind": "encode",
            "source": str(out / "collection"),
            "model": f"liebig:{encoders.DEFAULT}",
        },
    }
    pipeline.run(pipeline.plan_stages(STAGES, recipe, out), lambda line: None)
    (out / "model").symlink_to(encoders.folder())
    write(out, RetrieverDescription(1, "hybrid", "collection", "bm25", "index", "model", weight=0.5))
    return [row["text"] for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--passages", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    told = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home) / "retriever"
        texts = make_folder(folder, told.passages)
        (folder.parent / "texts.json").write_text(json.dumps(texts))
        index = Retriever.from_folder(folder).current.index
        assert index is not None, "it was made"
        shards = index.stored()
        assert shards is not None, "exact vectors are stored"
        vectors = np.concatenate([shard.vectors[0 : len(shard.ids)].decode() for shard in shards])
        np.save(folder.parent / "vectors.npy", vectors)
        files = [str(folder.parent / name) for name in ("vectors.npy", "texts.json")]
        commands = {
            "liebig search": [sys.executable, "-m", "liebig", "search", str(folder), QUESTION],
            "sentence-transformers": [
                sys.executable, "-c", PEER, str(encoders.folder()), *files, QUESTION,
            ],
        }  # fmt: skip
        times = {
            name: min(cpu_seconds(words) for _ in range(told.rounds)) for name, words in commands.items()
        }
    for name, seconds in times.items():
        print(f"{name}: {seconds:.2f} s of CPU time")
    print(
        f"peer: sentence_transformers {version('sentence_transformers')}; a plain script; CPU time of the process"
    )
    print(f"ratio: {times['sentence-transformers'] / times['liebig search']:.2f}")


if __name__ == "__main__":
    main()
