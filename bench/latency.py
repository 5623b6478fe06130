"""One question at a time, as a user asks: a hybrid of ours against the same by sentence-transformers, bm25s and numpy.

    python bench/latency.py --data DATA --model MINILM [--passages 20000]
    python bench/latency.py --data DATA --passages 1000000 --vectors-only       ours alone, without words
    python bench/latency.py --start       what commands take to start, and a server until it has answered

Ours searches words, passages and --sentences vectors of sentences per passage, and fuses them as a built retriever
does; the other side searches words and passages. Texts are wiki passages of 100 words; vectors are drawn around a
thousand centres, because encoding takes no part in a search. Milliseconds are CPU time of the process per question,
median and 95th percentile, with one thread: two cores halve the search of many vectors, and clients at once share
them. `8 clients` asks the same questions from eight threads; it is the mean. Loading, compiling and the first
questions are not counted. The last line is `ratio: X`, the other side's median over ours.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import numpy as np
from numpy.typing import NDArray

CENTRES, CHUNK = 1000, 65_536
FIRST, QUESTIONS, CLIENTS, HITS = 20, 60, 8, 10  # the first are not measured
COMMANDS = {
    "import liebig": (["-c", "import liebig"], 0, 0.1),
    "liebig --help": (["-m", "liebig", "--help"], 0, 0.3),
    "liebig build (no source)": (["-m", "liebig", "build"], 2, 0.5),
}
Floats = NDArray[np.float32]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder with wiki and nq")
    parser.add_argument("--model", type=Path, help="all-MiniLM-L6-v2 as a sentence-transformers folder")
    parser.add_argument("--passages", type=int, default=20_000)
    parser.add_argument("--sentences", type=int, default=3, help="vectors of sentences per passage")
    parser.add_argument("--vectors-only", action="store_true", help="search vectors, and no words")
    parser.add_argument("--start", action="store_true", help="measure what commands take to start")
    args = parser.parse_args()
    if args.start:
        start()
        return
    if args.data is None:
        parser.error("--data is needed")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    questions = list(islice(rows(args.data / "nq" / "dev.jsonl.xz"), FIRST + 2 * QUESTIONS))
    with tempfile.TemporaryDirectory() as name:
        texts = [] if args.vectors_only else passages(args.data, args.passages)
        search = ours(Path(name), texts, args)
        mine = report("liebig", search, questions)
        with ThreadPoolExecutor(CLIENTS) as pool:
            began = time.process_time()
            list(pool.map(search, questions[FIRST + QUESTIONS :]))
            print(f"{'liebig, 8 clients':24} {1e3 * (time.process_time() - began) / QUESTIONS:8.1f} mean")
        if args.model is not None and texts:
            other = report("plain script", theirs(texts, args), questions)
            print(f"ratio: {other / mine:.2f}")


def start() -> None:
    """CPU seconds of commands, and of a server of 500 passages until it has answered; the lowest of three."""
    from cold_search import QUESTION, make_folder

    def command(words: list[str], code: int) -> None:
        done = subprocess.run([sys.executable, *words], capture_output=True, check=False)
        if done.returncode != code:
            raise SystemExit(f"{words} ended with {done.returncode}: {done.stderr.decode()[-500:]}")

    def server(folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        url = f"http://127.0.0.1:{port}/search?" + urlencode({"q": QUESTION})
        words = [sys.executable, "-m", "liebig", "serve", str(folder), "--port", str(port)]
        with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            while process.poll() is None:
                time.sleep(0.1)
                try:
                    urlopen(url, timeout=60).close()
                    break
                except HTTPError as error:  # an answer, but not to the question
                    process.kill()
                    raise SystemExit(f"liebig serve: {error}") from None
                except (ConnectionError, URLError):  # it does not listen yet
                    continue
            process.send_signal(signal.SIGINT)

    with tempfile.TemporaryDirectory() as name:
        make_folder(Path(name) / "retriever", 500)
        runs: dict[str, tuple[Callable[[], None], float]] = {
            label: (partial(command, words, code), goal) for label, (words, code, goal) in COMMANDS.items()
        }
        runs["liebig serve, first answer"] = partial(server, Path(name) / "retriever"), 2
        for label, (run, goal) in runs.items():
            seconds = []
            for _ in range(3):
                before = resource.getrusage(resource.RUSAGE_CHILDREN)
                run()
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
            print(f"{label:32} {min(seconds):6.2f} CPU-s   goal {goal}", flush=True)


def rows(path: Path) -> Iterator[str]:
    """The texts of a file."""
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        yield from (json.loads(line)["text"] for line in lines)


def passages(data: Path, count: int) -> list[str]:
    """That many passages of 100 words."""
    texts: list[str] = []
    for path in sorted((data / "wiki").glob("articles-*.jsonl.xz")):
        with lzma.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                words = " ".join(p for part in json.loads(line)["sections"] for p in part["p"]).split()
                texts += [" ".join(words[i : i + 100]) for i in range(0, len(words), 100)]
                if len(texts) >= count:
                    return texts[:count]
    return texts


def drawn(count: int, width: int) -> Iterator[Floats]:
    """Vectors of length 1 around centres."""
    random = np.random.default_rng(0)
    centres = random.standard_normal((CENTRES, width), np.float32)
    for first in range(0, count, CHUNK):
        size = min(CHUNK, count - first)
        x = centres[random.integers(0, CENTRES, size)] + random.standard_normal((size, width), np.float32)
        yield x / np.linalg.norm(x, axis=1, keepdims=True)


def ours(folder: Path, texts: Sequence[str], args: argparse.Namespace) -> Callable[[str], object]:
    """A hybrid as `liebig build` puts it together."""
    from liebig import encoders
    from liebig.base.pipeline import run_stage
    from liebig.base.records import Query
    from liebig.bm25.search import BM25
    from liebig.indexes.exact import ExactIndex
    from liebig.model.encoder import Encoder
    from liebig.search.embed import Embedder
    from liebig.search.fusion import weighted_by
    from liebig.search.systems import Hybrid, Lexical, Once, QueryEncoder, SentenceScores, System, of_texts
    from liebig.stages.bm25 import STAGE, BM25Config
    from liebig.vectors import Shard

    systems: list[System] = []
    if texts:
        (folder / "collection").mkdir()
        lines = (json.dumps({"id": str(i), "text": text}) + "\n" for i, text in enumerate(texts))
        (folder / "collection" / "passages.jsonl").write_text("".join(lines), encoding="utf-8")
        run_stage(STAGE, BM25Config(collection=folder / "collection"), folder / "bm25")
        systems.append(Lexical(BM25.open(folder / "bm25")))
    about, width = {"model": str(encoders.folder()), "unit": True}, Encoder.load(encoders.folder()).width

    def index(each: int) -> ExactIndex:
        shards, number = [], 0
        for x in drawn(args.passages * max(1, each), width):
            names = [f"{i // each}#{i % each}" if each else str(i) for i in range(number, number + len(x))]
            shards.append(Shard.in_memory(names, x, "fp16"))
            number += len(x)
        return ExactIndex("fp16", width, shards, {**about, "pieces": each > 0}, threads=1)

    Embedder.load(encoders.folder(), "cpu", precision="auto").vectors(
        [""], "query"
    )  # compiles, where int8 is used
    vectors = Once(QueryEncoder(whole := index(0)))
    systems.append(of_texts(whole, vectors))
    sentences = SentenceScores(index(args.sentences), vectors) if args.sentences else None
    fuse = weighted_by(0.45, "spread", 0.25 if args.sentences else 0.0, 0.3)
    hybrid = Hybrid(systems, lambda _: fuse, sentences)
    if not texts:
        return lambda question: hybrid.answer([Query("", question)], HITS)
    return lambda question: hybrid.search([Query("", question)], HITS)


def theirs(texts: Sequence[str], args: argparse.Namespace) -> Callable[[str], object]:
    """The same without sentences, by sentence-transformers, bm25s and numpy."""
    import bm25s
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(args.model), device="cpu")
    words = bm25s.BM25()
    words.index(bm25s.tokenize(list(texts), stopwords="en", show_progress=False), show_progress=False)
    vectors = np.concatenate(list(drawn(args.passages, 384)))

    def search(question: str) -> object:
        tokens = bm25s.tokenize([question], stopwords="en", show_progress=False)
        scores = words.get_scores(list(bm25s.tokenization.convert_tokenized_to_string_list(tokens)[0]))
        cosines = vectors @ model.encode([question], normalize_embeddings=True)[0]
        return np.argsort(-(scores / max(scores.max(), 1e-9) + cosines))[:HITS]

    return search


def report(label: str, search: Callable[[str], object], questions: Sequence[str]) -> float:
    """Print the milliseconds of questions; the median is returned."""
    for question in questions[:FIRST]:
        search(question)
    milliseconds = []
    for question in questions[FIRST : FIRST + QUESTIONS]:
        began = time.process_time()
        search(question)
        milliseconds.append(1e3 * (time.process_time() - began))
    median, late = np.percentile(milliseconds, (50, 95))
    print(f"{label:24} {median:8.1f} p50 {late:8.1f} p95   CPU-ms per question", flush=True)
    return float(median)


if __name__ == "__main__":
    main()
