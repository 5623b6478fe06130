"""BM25 against bm25s and rank_bm25: indexing speed, query speed and effectiveness, in one run.

    python bench/bm25.py --data DATA           SciFact, Cranfield and MedQuAD
    python bench/bm25.py --data DATA --wiki    732,630 Wikipedia passages, NQ test questions, answers in the top k

Indexing is from text to an index on disk, a query from text to the top 100; CPU seconds of one thread, the best of
three passes.
The last line is `ratio: X`, the lowest speed relative to bm25s.
"""

from __future__ import annotations

import argparse
import json
import lzma
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from liebig.base import workspace
from liebig.base.records import Passage
from liebig.bm25.index import plain
from liebig.bm25.search import BM25, Settings
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
        found = {
            "ours": ours(passages, queries, folder / name),
            "bm25s": bm25s(passages, queries, folder / name),
        }
        if len(passages) < 6000:
            found["rank_bm25"] = rank_bm25(passages, queries)
        print(f"{name}: {len(passages):,} passages, {len(queries):,} queries")
        for system, (index, search, numbers, scores) in found.items():
            quality = ndcg(numbers, scores, passages, queries, judged)
            print(
                f"  {system:10} index {index:6.2f} s   {len(queries) / search:9.0f} queries/s   nDCG@10 {quality:.4f}"
            )
        ratios += [found["bm25s"][0] / found["ours"][0], found["bm25s"][1] / found["ours"][1]]
        print(f"  ours / bm25s: indexing {ratios[-2]:.2f}, queries {ratios[-1]:.2f}")
    return min(ratios)


def warm(folder: Path) -> None:
    """Compile everything once, on both sides."""
    passages = [Passage(str(i), f"a few words number {i} to compile with") for i in range(200)]
    for run in (ours, bm25s):
        run(passages, {"q": "words"}, folder / "warm")


def ours(passages: list[Passage], queries: dict[str, str], folder: Path) -> tuple[float, float, Any, Any]:
    def index() -> None:
        with workspace.stage(folder / "ours", kind="bm25", recipe={}, inputs={}, resume=False) as stage:
            write_index(stage, plain(passages), Settings())

    seconds = best(index)
    opened = BM25.open(folder / "ours")
    opened.search(["warm"], K)
    asked = list(queries.values())
    took = best(lambda: opened.search(asked, K))
    found = opened.search(asked, K)
    return seconds, took, found.numbers, found.scores


def bm25s(passages: list[Passage], queries: dict[str, str], folder: Path) -> tuple[float, float, Any, Any]:
    import bm25s as peer
    import Stemmer

    stemmer = Stemmer.Stemmer("english")

    def tokens(texts: list[str], ids: bool) -> Any:
        return peer.tokenize(texts, stopwords="en", stemmer=stemmer, show_progress=False, return_ids=ids)

    def index() -> Any:
        model = peer.BM25(k1=0.9, b=0.4, method="lucene", backend="numba")
        model.index(tokens([f"{p.title} {p.text}" for p in passages], True), show_progress=False)
        shutil.rmtree(folder / "theirs", ignore_errors=True)
        model.save(folder / "theirs", show_progress=False)
        return model

    def search() -> Any:
        asked = [terms or [""] for terms in tokens(list(queries.values()), False)]
        k = min(K, len(passages))
        return model.retrieve(asked, k=k, show_progress=False, backend_selection="numba")

    seconds = best(index)
    model = index()
    search()
    took = best(search)
    numbers, scores = search()
    return seconds, took, np.where(scores > 0, numbers, -1), scores


def rank_bm25(passages: list[Passage], queries: dict[str, str]) -> tuple[float, float, Any, Any]:
    from rank_bm25 import BM25Okapi

    from liebig.bm25.analysis import Analyzer

    analyzer = Analyzer()
    start = time.process_time()
    model = BM25Okapi([analyzer.terms(f"{p.title} {p.text}") or [""] for p in passages], k1=0.9, b=0.4)
    middle = time.process_time()
    scores = np.stack([model.get_scores(analyzer.terms(text)) for text in queries.values()])
    numbers = np.argsort(-scores, axis=1, kind="stable")[:, :K]
    took = time.process_time() - middle
    return middle - start, took, numbers, np.take_along_axis(scores, numbers, 1)


def best(function: Callable[[], object]) -> float:
    times = []
    for _ in range(3):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times)


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
        write_index(stage, plain(cut(data / "wiki")), Settings())
    index = BM25.open(folder / "ours")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{len(index):,} passages read and indexed in {time.process_time() - start:.0f} CPU-s, "
        f"{len(index.segments)} segments"
    )
    print(f"peak memory while indexing {memory:.0f} MB; index {size(folder) / 2**20:.0f} MB with texts")
    questions = list(lines(data / "nq" / "test.jsonl.xz"))
    asked = [question["text"] for question in questions]
    index.search(asked[:64], K)
    seconds = best(lambda: index.search(asked, K))
    found = index.search(asked, K)
    print(f"{len(asked):,} questions: {len(asked) / seconds:.0f}/s")
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
    _, took, _, _ = bm25s(list(cut(data / "wiki")), dict(enumerate(asked)), folder)  # type: ignore[arg-type]
    print(f"bm25s: {len(asked) / took:.0f}/s")
    return took / seconds


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


if __name__ == "__main__":
    main()
