"""From a folder to its first answer: `liebig build` against the shortest script that a user would write.

    python bench/build.py --data DATA --model MINILM                       400 articles, 5,000 short texts
    python bench/build.py --data DATA --model MINILM --only manuals large  17,000 and 100,000 passages: hours

Folders: `articles`, 400 wiki articles of about 600 words; `short`, 5,000 functions with docstrings; `manuals`, pages of
API documentation of about 17,000 passages; `large`, wiki articles of about 100,000 passages. Ours reads, cuts, indexes
words, passages and sentences, makes questions, checks which system answers them best, and answers a question. The
script reads, cuts every 200 words, encodes with sentence-transformers (the model of --model, fp32, the best of three
batch sizes), indexes the words with bm25s, and answers with the sum of both scores by numpy.

Each side is a process of its own; figures are CPU seconds of all its threads, because wall time means nothing on a
machine that others use. Kernels are compiled before (`--fresh` counts compiling, as after an installation). The script
encodes at most --most passages; its time for the rest is what those took per word, which is said. The last line is
`ratio: X`, the lowest of the folders: the script's time over ours.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

BATCHES, TRIED = (8, 16, 32), 48  # batch sizes of the script, and passages to choose one with
WORDS = 200  # of a passage of the script
QUESTION = "how was it first used and by whom"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder with wiki, win32 and cosqa")
    parser.add_argument("--model", type=Path, help="all-MiniLM-L6-v2 as a sentence-transformers folder")
    parser.add_argument("--only", nargs="+", choices=tuple(FOLDERS), default=["articles", "short"])
    parser.add_argument("--most", type=int, default=200, help="passages that the script encodes at most")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--fresh", action="store_true", help="compile our kernels, as after an installation")
    parser.add_argument("--child", choices=("ours", "theirs"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child is not None:
        print(json.dumps(ours(args.folder) if args.child == "ours" else theirs(args)))
        return
    if args.data is None or args.model is None:
        parser.error("--data and --model are needed")
    ratios = []
    with tempfile.TemporaryDirectory() as name:
        for kind in args.only:
            source = Path(name) / kind
            source.mkdir()
            count = sum(1 for _ in map(_write, FOLDERS[kind](args.data), _paths(source)))
            sides = {}
            for side in ("ours", "theirs"):
                sides[side] = run(side, source, args)
                print(f"{kind} ({count:,} files), {side}: {sides[side]['total']:,.0f} CPU-s", flush=True)
                for stage, seconds in sides[side]["stages"].items():
                    print(f"    {stage:32} {seconds:8.1f}")
            ratios.append(sides["theirs"]["total"] / sides["ours"]["total"])
            print(f"{kind}: {ratios[-1]:.2f} times as fast", flush=True)
    print(f"ratio: {min(ratios):.2f}")


def articles(data: Path, count: int = 400, words: int = 600) -> Iterator[str]:
    """Wiki articles as Markdown, each cut behind the paragraph with its last word."""
    for path in sorted((data / "wiki").glob("articles-*.jsonl.xz")):
        with lzma.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                article = json.loads(line)
                parts, length = [f"# {article['title']}"], 0
                for section in article["sections"]:
                    if length >= words:
                        break
                    parts += [f"## {section['h']}"] if section["h"] else []
                    for paragraph in section["p"]:
                        parts.append(paragraph)
                        length += len(paragraph.split())
                        if length >= words:
                            break
                if length >= 0.7 * words:
                    yield "\n\n".join(parts)
                    count -= 1
                if count == 0:
                    return


def large(data: Path) -> Iterator[str]:
    """About 100,000 passages."""
    yield from articles(data, count=4000, words=2000)


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def short(data: Path) -> Iterator[str]:
    """5,000 functions with their docstrings."""
    for row in islice(_rows(data / "cosqa" / "corpus.jsonl.xz"), 5000):
        yield row["text"]


def manuals(data: Path) -> Iterator[str]:
    """Pages of API documentation, about 17,000 passages."""
    for row in islice(_rows(data / "win32" / "docs.jsonl.xz"), 4000):
        yield row["text"]


FOLDERS = {"articles": articles, "short": short, "manuals": manuals, "large": large}


def _paths(folder: Path) -> Iterator[Path]:
    number = 0
    while True:
        yield folder / f"{number:06d}.md"
        number += 1


def _write(text: str, path: Path) -> None:
    path.write_text(text + "\n", encoding="utf-8")


def run(side: str, source: Path, args: argparse.Namespace) -> dict[str, Any]:
    """What a side takes, in a process of its own."""
    threads = str(args.threads)
    environment = {**os.environ, "OMP_NUM_THREADS": threads, "TOKENIZERS_PARALLELISM": "true"}
    with tempfile.TemporaryDirectory() as cache:
        if args.fresh:
            environment["NUMBA_CACHE_DIR"] = cache
        words = [sys.executable, __file__, "--child", side, "--folder", str(source)]
        words += ["--model", str(args.model), "--most", str(args.most), "--threads", threads]
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{side}: {done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def cpu() -> float:
    """CPU seconds of this process and of those it waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


class Stages:
    """CPU seconds by stage, in order; what lies between two marks belongs to the second."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {"start": cpu()}
        self._last = cpu()

    def mark(self, name: str) -> None:
        """The work since the last mark was this stage's."""
        now = cpu()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self._last
        self._last = now


def ours(folder: Path) -> dict[str, Any]:
    """`liebig build`, and a question."""
    from liebig.base import pipeline

    stages, run_stage = Stages(), pipeline.run_stage

    def timed(stage: Any, config: Any, out: Path, **options: Any) -> Any:
        stages.mark("between stages, imports too")
        done = run_stage(stage, config, out, **options)
        stages.mark(out.name)
        return done

    pipeline.run_stage = timed  # type: ignore[assignment]
    from liebig.builder.build import build
    from liebig.builder.build_config import BuildConfig

    with tempfile.TemporaryDirectory() as name:
        built = build(BuildConfig(sources=(str(folder),)), Path(name) / "out", lambda line: None)
        stages.mark("between stages, imports too")
        answer = built.retriever.answer(QUESTION, 10, floor=False)  # whatever the folder is about
        assert answer.results, "an answer"
        stages.mark("first answer")
    return {"total": cpu(), "stages": stages.seconds}


def theirs(args: argparse.Namespace) -> dict[str, Any]:
    """The script."""
    stages = Stages()
    import bm25s
    import numpy as np
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(args.model), device="cpu")
    stages.mark("import and load")
    texts = [path.read_text(encoding="utf-8") for path in sorted(args.folder.iterdir())]
    words = [text.split() for text in texts]
    passages = [" ".join(all_[i : i + WORDS]) for all_ in words for i in range(0, max(1, len(all_)), WORDS)]
    stages.mark("read and cut")
    index = bm25s.BM25()
    index.index(bm25s.tokenize(passages, stopwords="en", show_progress=False), show_progress=False)
    stages.mark("bm25")
    tried = {}
    for size in BATCHES:  # not counted: a user would look it up
        began = time.process_time()
        model.encode(passages[:TRIED], batch_size=size)
        tried[size] = time.process_time() - began
    stages.mark("trials")
    some = passages[: args.most]
    vectors = model.encode(
        some, batch_size=min(tried, key=lambda size: tried[size]), normalize_embeddings=True
    )
    stages.mark("encode")
    del stages.seconds["trials"]
    share = sum(len(text.split()) for text in some) / sum(len(text.split()) for text in passages)
    stages.seconds["encode"] /= share
    hits, scores = index.retrieve(
        bm25s.tokenize([QUESTION], stopwords="en", show_progress=False),
        k=min(10, len(passages)),
        show_progress=False,
    )
    cosines = vectors @ model.encode([QUESTION], normalize_embeddings=True)[0]
    assert len(np.argsort(-cosines)[:10]) == len(hits[0]) == len(scores[0]), "an answer"
    stages.mark("first answer")
    seconds = {name: value for name, value in stages.seconds.items() if name != "encode"}
    label = "encode" if share == 1 else f"encode ({len(some):,} of {len(passages):,} measured)"
    return {"total": sum(stages.seconds.values()), "stages": {**seconds, label: stages.seconds["encode"]}}


if __name__ == "__main__":
    main()
