"""BM25 against bm25s: indexing speed, query speed and effectiveness, in one run.

    python bench/bm25.py --data DATA           SciFact, Cranfield and MedQuAD
    python bench/bm25.py --data DATA --wiki    732,630 Wikipedia passages, NQ test questions, answers in the top k

Indexing is from text to an index on disk, a query from text to the top 100; CPU seconds of one thread. The two sides
take turns, and the best pass of each counts, because other work on the machine only ever adds time.
The last line is `ratio: X`, the lowest speed relative to bm25s.
"""

from __future__ import annotations

import argparse
import json
import lzma
import math
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import bm25s
import numpy as np
import Stemmer

from liebig.base import workspace
from liebig.base.records import Passage
from liebig.bm25.search import BM25, BM25Settings
from liebig.bm25.update import write_index
from liebig.measures import parse
from liebig.measures.answers import accuracy_at, first_match, join, token_matcher
from liebig.measures.evaluator import (
    block_from_matrix as from_matrix,
    evaluate,
    judgements_from_mapping as from_mapping,
)

K = 100


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, required=True, help="folder of BEIR folders; for --wiki of wiki and nq"
    )
    parser.add_argument("--sets", nargs="+", default=["scifact", "cranfield", "medquad"])
    parser.add_argument("--wiki", action="store_true")
    parser.add_argument("--peer", action="store_true", help="with --wiki: index and search with bm25s too")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        ratio = (
            wiki(args.data, Path(folder), args.peer)
            if args.wiki
            else beir(args.data, args.sets, Path(folder))
        )
    print(f"ratio: {ratio:.2f}")


def beir(data: Path, sets: list[str], folder: Path) -> float:
    warm(folder)
    ratios = []
    for name in sets:
        passages, queries, judged = load(data / name)
        texts = list(queries.values())
        sides: dict[str, Ours | Theirs] = {
            "ours": Ours(passages, folder / name),
            "bm25s": Theirs(passages, folder / name),
        }
        indexing = fastest({system: side.index for system, side in sides.items()}, rounds=3)
        searches = {system: partial(side.search, texts) for system, side in sides.items()}
        searching = fastest(searches, rounds=15)
        print(f"{name}: {len(passages):,} passages, {len(queries):,} queries")
        for system, search in searches.items():
            numbers, scores = search()
            quality = ndcg(numbers, scores, passages, queries, judged)
            print(
                f"  {system:6} index {indexing[system]:6.2f} s   {len(queries) / searching[system]:9.0f} queries/s   "
                f"nDCG@10 {quality:.4f}"
            )
        ratios += [seconds["bm25s"] / seconds["ours"] for seconds in (indexing, searching)]
        print(f"  ours / bm25s: indexing {ratios[-2]:.2f}, queries {ratios[-1]:.2f}")
    return min(ratios)


def warm(folder: Path) -> None:
    """Compile everything once, on both sides."""
    passages = [Passage(str(i), f"a few words number {i} to compile with") for i in range(200)]
    for side in (Ours(passages, folder / "warm"), Theirs(passages, folder / "warm")):
        side.index()
        side.search(["words"])


class Ours:
    """Our index of some passages on disk."""

    def __init__(self, passages: Sequence[Passage], folder: Path) -> None:
        self._passages, self._folder = passages, folder / "ours"

    def index(self) -> None:
        with workspace.stage(self._folder, kind="bm25", recipe={}, inputs={}, resume=False) as stage:
            write_index(stage, self._passages, BM25Settings())
        self._index = BM25.open(self._folder)

    def search(self, queries: Sequence[str]) -> tuple[Any, Any]:
        hits = self._index.search(queries, K)
        return hits.numbers, hits.scores


class Theirs:
    """The index of bm25s with its numba backend, saved as ours is."""

    def __init__(self, passages: Sequence[Passage], folder: Path) -> None:
        self._passages, self._folder = passages, folder / "theirs"
        self._stemmer = Stemmer.Stemmer("english")

    def index(self) -> None:
        self._model = bm25s.BM25(k1=0.9, b=0.4, method="lucene", backend="numba")
        self._model.index(
            self._tokens([f"{p.title} {p.text}" for p in self._passages], True), show_progress=False
        )
        shutil.rmtree(self._folder, ignore_errors=True)
        self._model.save(self._folder, show_progress=False)

    def search(self, queries: Sequence[str]) -> tuple[Any, Any]:
        tokens = [terms or [""] for terms in self._tokens(list(queries), False)]
        k = min(K, len(self._passages))
        numbers, scores = self._model.retrieve(tokens, k=k, show_progress=False, backend_selection="numba")
        return np.where(scores > 0, numbers, -1), scores

    def _tokens(self, texts: list[str], ids: bool) -> Any:
        return bm25s.tokenize(
            texts, stopwords="en", stemmer=self._stemmer, show_progress=False, return_ids=ids
        )


def fastest(functions: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The fewest CPU seconds that each function took; they are called in turn, after a call that is not counted."""
    for function in functions.values():
        function()
    seconds = dict.fromkeys(functions, math.inf)
    for _ in range(rounds):
        for name, function in functions.items():
            start = time.process_time()
            function()
            seconds[name] = min(seconds[name], time.process_time() - start)
    return seconds


def lines(path: Path) -> Iterator[dict[str, Any]]:
    with lzma.open(path, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def load(folder: Path) -> tuple[list[Passage], dict[str, str], dict[str, dict[str, int]]]:
    """Passages, and the test queries with their judgements."""
    passages = [
        Passage(row["_id"], row["text"], row.get("title") or "") for row in lines(folder / "corpus.jsonl.xz")
    ]
    judged: dict[str, dict[str, int]] = {}
    for line in (folder / "qrels" / "test.tsv").read_text().splitlines()[1:]:
        query, passage, grade = line.split("\t")
        judged.setdefault(query, {})[passage] = int(grade)
    texts = {row["_id"]: row["text"] for row in lines(folder / "queries.jsonl.xz")}
    return passages, {query: texts[query] for query in judged}, judged


def part(
    folder: Path, passages: int | None, queries: int | None
) -> tuple[list[Passage], dict[str, str], dict[str, dict[str, int]]]:
    """The first queries of a set, the passages judged for them, and others up to the number."""
    every, texts, judged = load(folder)
    kept = dict(islice(texts.items(), queries))
    needed = {passage for query in kept for passage in judged[query]}
    ordered = sorted(every, key=lambda passage: passage.id not in needed)  # those that are judged first
    return ordered[:passages], kept, {query: judged[query] for query in kept}


def ndcg(numbers: Any, scores: Any, passages: list[Passage], queries: dict[str, str], judged: Any) -> float:
    block = from_matrix(
        list(queries), [passage.id for passage in passages], numbers, np.where(numbers < 0, 0, scores)
    )
    measure = parse("nDCG@10")
    return evaluate([block], from_mapping(judged), [measure]).means()[str(measure)]


def cut(folder: Path) -> Iterator[Passage]:
    """Every section in pieces of 100 words; a rest under 20 words is dropped, a section that short is kept."""
    for part in sorted(folder.glob("articles-*.jsonl.xz")):
        for article in lines(part):
            number = 0
            for section in article["sections"]:
                words = " ".join(section["p"]).split()
                for start in range(0, len(words), 100):
                    if words and (start == 0 or len(words) - start >= 20):
                        yield Passage(
                            f"{article['id']}-{number}",
                            " ".join(words[start : start + 100]),
                            article["title"],
                        )
                        number += 1


def wiki(data: Path, folder: Path, peer: bool) -> float:
    start = time.process_time()
    with workspace.stage(folder / "ours", kind="bm25", recipe={}, inputs={}, resume=False) as stage:
        write_index(stage, cut(data / "wiki"), BM25Settings())
    index = BM25.open(folder / "ours")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{len(index):,} passages read and indexed in {time.process_time() - start:.0f} CPU-s, "
        f"{len(index.segments)} segments"
    )
    print(f"peak memory while indexing {memory:.0f} MB; index {size(folder) / 2**20:.0f} MB with texts")
    questions = list(lines(data / "nq" / "test.jsonl.xz"))
    asked = [question["text"] for question in questions]
    searches: dict[str, Callable[[], Any]] = {"ours": lambda: index.search(asked, K)}
    if peer:
        theirs = Theirs(list(cut(data / "wiki")), folder)
        theirs.index()
        searches["bm25s"] = lambda: theirs.search(asked)
    seconds = fastest(searches, rounds=3)
    for system, took in seconds.items():
        print(f"{system}: {len(asked) / took:.0f} of {len(asked):,} questions per second")
    found = index.search(asked, K)
    joined: dict[int, str] = {}

    def text(number: int) -> str:
        if number not in joined:
            joined[number] = join(index.passage(number).text)
        return joined[number]

    ranks = np.array(
        [
            first_match((text(n) for n, _ in found.row(i)), token_matcher(question["answers"]))
            for i, question in enumerate(questions)
        ]
    )
    accuracy = {k: accuracy_at(ranks, k).mean() for k in (1, 5, 20, 100)}
    print("answer in the top k: " + ", ".join(f"{k}: {value:.4f}" for k, value in accuracy.items()))
    if not peer:
        return float(min(accuracy[20] / 0.349, accuracy[100] / 0.456))
    return seconds["bm25s"] / seconds["ours"]


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


if __name__ == "__main__":
    main()
