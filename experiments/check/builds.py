"""Whole builds of a few corpora, asked people's questions afterwards: what is served, BM25, the plain hybrid.

    python experiments/check/builds.py DATA OUT [--passages 300] [--asked 300] [--names cosqa vaswani ...]
    python experiments/check/builds.py DATA OUT --passages 100000 --asked 10000 --names medquad scifact ...  # whole

Every corpus is built by `liebig build --minutes 0` from its passages alone (a folder that is there is not built
again). Then people's questions (of test splits, where there are splits) are asked. `novels` and `win32` are documents
that nobody has asked about: what is served there is shown, and no value. Prints rows of Markdown; "no hits" counts
questions that a search finds unfit for the corpus (`search/floor.py`), which is switched off for the values.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
from corpora import rows, source
from measure import DISCOUNT, TOP

from liebig import Retriever
from liebig.search.answer import SearchOptions
from liebig.search.fusion import FUSION_DEPTH, weighted

DOCUMENTS = {"novels": (1, 250_000), "win32": (150, 4_000)}  # documents, and characters of each


def value(ids: list[str], grades: dict[str, int]) -> float:
    """nDCG@10."""
    gains = np.array([max(0, grades.get(id, 0)) for id in ids[:TOP]], float)
    ideal = np.sort(np.array([grade for grade in grades.values() if grade > 0], float))[::-1][:TOP]
    return float(gains @ DISCOUNT[: len(gains)] / (ideal @ DISCOUNT[: len(ideal)]))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--passages", type=int, default=300, help="of a corpus at most")
    parser.add_argument("--asked", type=int, default=300, help="questions of a corpus at most")
    parser.add_argument(
        "--names", nargs="*", default=["novels", "win32", "cosqa", "vaswani", "fquad-fr", "jsquad-ja"]
    )
    given = parser.parse_args()
    print(
        "| corpus | passages | questions | BM25 | plain | served | to the better | no hits | what is served |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |", flush=True)
    for name in given.names:
        built, texts = given.out / name, given.out / "texts" / name / "corpus.jsonl"
        texts.parent.mkdir(parents=True, exist_ok=True)
        if name in DOCUMENTS:
            count, length = DOCUMENTS[name]
            asked = []
            made = [
                {"id": row["id"], "title": row["title"], "text": row["text"][:length]}
                for row, _ in zip(rows(next((given.data / name).glob("*.xz"))), range(count))
            ]
        else:
            corpus = source(given.data, name, given.passages, dev=False)
            order = np.random.default_rng(0).permutation(len(corpus.asked))[: given.asked]
            asked = [corpus.asked[number] for number in order]
            made = [{"_id": p.id, "title": p.title, "text": p.text} for p in corpus.texts]
        texts.write_text("".join(json.dumps(one) + "\n" for one in made), encoding="utf-8")
        if not (built / "retriever.json").is_file():
            command = ["liebig", "-q", "build", str(texts), "--out", str(built), "--minutes", "0"]
            subprocess.run([sys.executable, "-m", *command], check=True, stdout=sys.stderr)
        retriever = Retriever.from_folder(built)
        checks = json.loads(next(built.glob("checks-*/checks.json")).read_text(encoding="utf-8"))
        cells = ["–"] * 5
        if asked:
            questions = [one.text for one in asked]
            systems = ("bm25", *(["dense"] if "dense" in retriever.systems else []), None)
            options = SearchOptions(FUSION_DEPTH, systems, floor=False, suggest=False)
            found = [answer.lists for answer in retriever.answers(questions, options)]
            lists = [[[(hit.id, hit.score) for hit in hits] for hits in one] for one in zip(*found)]
            plain = [weighted(parts, [0.5] * len(parts)) for parts in zip(*lists[:-1])]
            values = np.array(
                [
                    [value([id for id, _ in hits], dict(one.grades)) for hits, one in zip(some, asked)]
                    for some in (lists[0], plain, lists[-1])
                ]
            )
            differences = values[2] - values[int(values[:2].mean(1).argmax())]
            error = differences.std(ddof=1) / np.sqrt(len(asked))
            empty = sum(not hits for hits in retriever.search_many(questions, 1))
            means = [f"{mean:.3f}" for mean in values.mean(1)]
            cells = [*means, f"{differences.mean():+.3f} ± {error:.3f}", str(empty)]
        print(
            f"| {name} | {len(retriever)} | {len(asked)} | {' | '.join(cells)} | {checks['chosen']} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
