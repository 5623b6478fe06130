"""How memory and CPU time grow with the batch, the length of texts, the corpus and the processes.

    python bench/growth.py --data DATA                               every curve; hours on two cores
    python bench/growth.py --data DATA --only search --most 100000   one curve, up to a size

Every measurement is a process of its own with one thread, watched from outside: memory is the most anonymous memory it
had, because mapped files are a cache that the system gives back. Time is CPU time, the lowest of three rounds where
they are short: other work on the machine only ever adds to it. Code is compiled, and data are made, before the clock
starts. Passages are drawn from the wiki text's own distribution, as in bench/bm25_large.py.

An exponent is the slope of log time or memory over log size: 1 is linear. It is fitted to all sizes, with its standard
error, and taken between the two largest, where fixed costs matter least. What is measured goes to bench/growth.json,
which keeps the curves of earlier runs; the figures and the table of docs/scaling.md are made from that file
(`--only` without a name makes them again).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from page import write_table
from prepare import family, processor

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "growth.json"
PAGE = ROOT / "docs" / "scaling.md"
IMAGES = ROOT / "docs" / "images"
Work = Callable[[], object]
Point = dict[str, float]

LENGTHS = (8, 64, 512)
THOUSANDS = (10_000, 30_000, 100_000, 300_000, 1_000_000)
MILLIONS = (10_000, 100_000, 1_000_000, 10_000_000)
REAL = 20_000  # wiki passages to draw from
ARTICLES = (25, 100, 400, 1600)
QUERIES, WIDTH, SHARD = 256, 384, 65_536
ROUNDS, ENOUGH = 3, 1.0  # times that work is repeated, unless that many seconds are spent
PAIRS, STEPS = 256, 2  # of a step by several processes


@dataclass(frozen=True)
class Curve:
    """What grows: its name is that of the function that measures it, after the one that makes its data."""

    name: str
    what: str
    unit: str
    sizes: tuple[int, ...]
    figure: str
    make: str = ""
    memory: bool = True


CURVES = (
    Curve("cached", "contrastive step, cached gradients", "pairs", (64, 256, 1024, 2048), "batch"),
    Curve("returned", "the same, freed memory given back", "pairs", (64, 256, 1024, 2048), "batch"),
    Curve("whole", "the same step at once", "pairs", (64, 256, 1024), "batch"),
    Curve("forward", "encoding 64 texts", "tokens per text", LENGTHS, "length"),
    Curve("training", "training step of 32 pairs", "tokens per text", LENGTHS, "length"),
    Curve("bm25_index", "BM25 index", "passages", THOUSANDS, "corpus", "texts"),
    Curve("bm25_query", "200 BM25 queries", "passages", MILLIONS, "corpus", memory=False),
    Curve("store", "text to token store", "passages", THOUSANDS, "corpus", "texts"),
    Curve("batches", "100 batches from the store", "passages", MILLIONS, "corpus", "joined"),
    Curve("search", f"{QUERIES} exact searches", "passages", MILLIONS, "corpus", "vectors"),
    Curve("encoding", "encoding", "passages", (100, 300, 1000, 3000, 10_000), "corpus", "texts"),
    Curve("evaluation", "measures of a run", "lines", MILLIONS, "corpus", "run"),
    Curve("processes", "contrastive step, per process", "processes", (1, 2, 4), "processes"),
    Curve("answers", "folder to first answer", "articles of 600 words", ARTICLES, "answers", "articles"),
    Curve("script", "the plain script", "articles of 600 words", ARTICLES, "answers", "articles"),
    Curve("update", "update of one article", "articles of 600 words", ARTICLES, "answers", "articles"),
    Curve("hybrid", "60 questions, hybrid with sentences", "passages", THOUSANDS, "questions", "texts"),
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder with wiki and nq")
    parser.add_argument("--model", type=Path, help="all-MiniLM-L6-v2, for the plain script (bench/build.py)")
    parser.add_argument("--only", nargs="*", metavar="CURVE", choices=[curve.name for curve in CURVES])
    parser.add_argument("--least", type=int, default=0, help="smallest size")
    parser.add_argument("--most", type=int, default=MILLIONS[-1], help="largest size")
    parser.add_argument("--work", type=Path, help="where temporary folders go; 12 GB for ten million vectors")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--size", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args)
        return
    if args.model is not None:
        os.environ["LIEBIG_BENCH_MODEL"] = str(args.model)  # for the children
    for curve in CURVES:
        if curve.name in args.only if args.only is not None else curve.name != "script" or args.model:
            for size in curve.sizes:
                if args.least <= size <= args.most:
                    point = measure(curve, size, args)
                    results = recorded()
                    results.setdefault(curve.name, {})[str(size)] = point
                    print(f"{curve.name} {size:,}: {json.dumps(point)}", flush=True)
                    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    results = recorded()
    draw_figures(results)
    write_table(PAGE, "bench/growth.py", table(results))


def measure(curve: Curve, size: int, args: argparse.Namespace) -> Point:
    """What a size takes, on data that are made by a process of their own."""
    with tempfile.TemporaryDirectory(dir=args.work) as name:
        folder = Path(name)
        if curve.make:
            watched(curve.make, size, folder, args.data)
        point = watched(curve.name, size, folder, args.data)
    return {key: float(f"{value:.4g}") for key, value in point.items()}


def recorded() -> dict[str, dict[str, Point]]:
    """What was measured so far: CPU seconds and MB by curve and size."""
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {}


def watched(name: str, size: int, folder: Path, data: Path | None) -> Point:
    """What a child says, with the most anonymous memory that it and its children had, in MB."""
    command = [sys.executable, __file__, f"--child={name}", f"--size={size}", f"--folder={folder}"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    if name == "returned":
        environment["MALLOC_MMAP_THRESHOLD_"] = str(1 << 17)
    process = subprocess.Popen(
        [*command, f"--data={data}"], stdout=subprocess.PIPE, text=True, env=environment
    )
    peak = [0.0]

    def watch() -> None:
        while process.poll() is None:
            peak[0] = max(peak[0], sum(anonymous(pid) for pid in family(process.pid)))
            time.sleep(0.03)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    said, _ = process.communicate()
    watcher.join()
    if process.returncode:
        sys.exit(f"{name} failed at {size:,}")
    return {"memory": peak[0], **json.loads(said.splitlines()[-1])}


def anonymous(pid: int) -> float:
    """Anonymous memory of a process in MB; 0 for one that has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")) / 1000


def child(args: argparse.Namespace) -> None:
    """Set a measurement up, run it, and say what it took; what it returns is said too."""
    work = CHILDREN[args.child](args.size, args.folder, args.data)
    rounds = 1 if args.child in {curve.make for curve in CURVES} | ONCE else ROUNDS
    seconds: list[float] = []
    while len(seconds) < rounds and sum(seconds) < ENOUGH:
        spent = processor()
        more = work()
        seconds.append(processor() - spent)
    print(json.dumps({"cpu": min(seconds)} | (more if isinstance(more, dict) else {})))


# Training: Contriever's in-batch loss (SimCLR), random tokens, no dropout.


def objective(layers: int, width: int) -> Any:
    from liebig.methods.simclr import SimCLR
    from liebig.model.backbone import Backbone

    backbone = Backbone.create(layers, width, width // 64, 30522, dropout=0.0, seed=0)
    return SimCLR(SimCLR.Config(), backbone).train()


def pairs(lengths: Any) -> Any:
    """A batch of pairs of random texts of these lengths, those of the queries first."""
    import torch

    from liebig.model.packed import Packed
    from liebig.ragged import Ragged, offsets_of
    from liebig.train.batch import Batch, Side

    sides, n = {}, len(lengths) // 2
    for seed, (name, part) in enumerate((("query", lengths[:n]), ("key", lengths[n:]))):
        offsets = offsets_of(part)
        tokens = np.random.default_rng(seed).integers(1000, 30000, offsets[-1])
        sides[name] = Side(Packed.from_ragged(Ragged(tokens, offsets)), torch.arange(n))
    return Batch(sides, n)


def natural(size: int) -> Any:
    """Pairs of 82 tokens on average, at most 128."""
    from usual import natural_lengths

    return pairs(natural_lengths(2 * size, 128, 82).numpy())


def cached(size: int, folder: Path, data: Path, chunk: int | None = 2048) -> Work:
    """A step in chunks of so many tokens."""
    from liebig.train.step import step

    model = objective(1, 64)
    step(model, natural(32), chunk_tokens=chunk)
    batch = natural(size)

    def work() -> None:
        step(model, batch, chunk_tokens=chunk)

    return work


def returned(size: int, folder: Path, data: Path) -> Work:
    """`watched` tells the C library to give freed memory back instead of keeping pieces of it."""
    return cached(size, folder, data)


def whole(size: int, folder: Path, data: Path) -> Work:
    return cached(size, folder, data, chunk=None)


def forward(size: int, folder: Path, data: Path) -> Work:
    """The bundled encoder's forward pass, in one batch."""
    from liebig import encoders
    from liebig.model.encoder import Encoder, TorchModel
    from liebig.ragged import Ragged, offsets_of

    model = TorchModel(Encoder.load(encoders.folder()))
    offsets = offsets_of(np.full(64, size))
    rows = Ragged(np.random.default_rng(0).integers(1000, 30000, offsets[-1]), offsets)

    def work() -> None:
        model.start([(rows, np.arange(64))], 64)()

    work()
    return work


def training(size: int, folder: Path, data: Path) -> Work:
    from liebig.train.step import step

    model, batch = objective(4, 256), pairs(np.full(64, size))

    def work() -> None:
        step(model, batch)

    work()
    return work


def processes(size: int, folder: Path, data: Path) -> Work:
    """The same step by several processes (gloo): CPU time of the slowest, and how far gradients are from one's."""

    def launch(count: int) -> list[dict[str, float]]:
        words = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}", __file__]
        options = ["--child=one_process", f"--size={count}", f"--folder={folder}"]
        subprocess.run([sys.executable, *words, *options], check=True, stdout=subprocess.DEVNULL)
        return [json.loads((folder / f"{count}-{rank}.json").read_text()) for rank in range(count)]

    def work() -> dict[str, float]:
        found = launch(size)
        one = np.load(folder / "1.npy") if size == 1 else (launch(1), np.load(folder / "1.npy"))[1]
        many = np.load(folder / f"{size}.npy")
        return {
            "cpu": max(rank["cpu"] for rank in found),
            "memory": max(rank["memory"] for rank in found),
            "error": float(np.abs(many - one).max() / np.abs(one).max()),
        }

    return work


def one_process(size: int, folder: Path, data: Path) -> Work:
    """One of torchrun's processes: its share of a step, the lowest of some."""
    import torch

    from liebig.train.distributed import joined as torchrun
    from liebig.train.step import step

    model = objective(2, 128)

    def work() -> None:
        with torchrun(cpu=True) as world:
            batch = world.slice(natural(PAIRS))
            seconds = []
            for _ in range(STEPS + 1):
                start = time.process_time()
                step(model, batch, world)
                seconds.append(time.process_time() - start)
            exact = model.double()  # in which gradients of one and of several processes can be compared
            step(exact, world.slice(natural(32)), world)
            if world.first:
                grads = [p.grad.flatten() for p in exact.parameters() if p.grad is not None]
                np.save(folder / f"{size}.npy", torch.cat(grads).numpy())
            said = {"cpu": min(seconds[1:]), "memory": anonymous(os.getpid())}
            (folder / f"{size}-{world.rank}.json").write_text(json.dumps(said))

    return work


# Text: passages drawn from the wiki's distribution.


def drawn(data: Path, count: int) -> Iterator[tuple[str, str]]:
    """Ids and texts: each has the length of a real passage, and its words from that passage and the two after it."""
    from bm25 import cut
    from bm25_large import NEIGHBOURS

    rows = [f"{passage.title} {passage.text}".split() for passage in islice(cut(data / "wiki"), REAL)]
    words, ends = [word for row in rows for word in row], np.cumsum([len(row) for row in rows]).tolist()
    starts = [0, *ends[:-1]]
    rng = np.random.default_rng(0)
    for number in range(count):
        real = int(rng.integers(len(ends)))
        first, last = starts[real], ends[min(real + NEIGHBOURS, len(ends)) - 1]
        yield str(number), " ".join([words[i] for i in rng.integers(first, last, len(rows[real])).tolist()])


def texts(size: int, folder: Path, data: Path) -> Work:
    """A collection of passages; a small one beside it, to warm up with."""

    def work() -> None:
        for name, count in (("warm", 10), ("collection", size)):
            (folder / name).mkdir()
            with (folder / name / "passages.jsonl").open("w", encoding="utf-8") as out:
                out.writelines(json.dumps({"id": i, "text": text}) + "\n" for i, text in drawn(data, count))

    return work


def stage(folder: Path, make: Callable[[str], Any], kind: str, run: Callable[..., None]) -> Work:
    """A stage of a pipeline on the collection, after it ran on the small one."""
    from liebig.base.pipeline import Stage, run_stage

    def at(name: str) -> None:
        config, out = make(name), folder / f"{name}-{kind}"
        shutil.rmtree(out, ignore_errors=True)
        run_stage(Stage(kind, type(config), run, "", ""), config, out)

    at("warm")
    return lambda: at("collection")


def bm25_index(size: int, folder: Path, data: Path) -> Work:
    from liebig.stages.bm25 import BM25Config, run

    return stage(folder, lambda name: BM25Config(collection=folder / name), "bm25", run)


def bm25_query(size: int, folder: Path, data: Path) -> Work:
    """NQ's questions, postings in memory."""
    from bm25 import lines
    from bm25_large import draw_segment
    from liebig.bm25.search import BM25, BM25Settings

    index = BM25(BM25Settings(), [draw_segment(data / "wiki", REAL, size, folder)])
    questions = [row["text"] for row in islice(lines(data / "nq" / "test.jsonl.xz"), 200)]

    def work() -> None:
        for question in questions:
            index.search([question], 100)

    work()
    return work


def store(size: int, folder: Path, data: Path) -> Work:
    from liebig import encoders
    from liebig.stages.prepare import PrepareConfig, run

    def make(name: str) -> PrepareConfig:
        return PrepareConfig(collection=folder / name, tokenizer=encoders.folder(), processes=1)

    return stage(folder, make, "prepare", run)


def joined(size: int, folder: Path, data: Path) -> Work:
    """A store of many documents: a shard of 10,000 drawn ones, repeated."""
    from liebig import encoders
    from liebig.base import workspace
    from liebig.base.records import Document, Section
    from liebig.store.writing import build, join
    from liebig.text.tokenizer import Tokenizer

    tokenizer = Tokenizer.from_folder(encoders.folder())
    documents = (Document(i, "", (Section("", (text,)),)) for i, text in drawn(data, 10_000))
    build(documents, tokenizer).save(folder / "shard.npz")

    def work() -> None:
        with workspace.stage(folder / "store", kind="prepare", recipe={}, inputs={}, resume=False) as out:
            join([folder / "shard.npz"] * (size // 10_000), out.path, tokenizer)

    return work


def batches(size: int, folder: Path, data: Path) -> Work:
    """Spans of documents in a random order, 256 per batch; opening is part of it, hashing the files is not."""
    from liebig.methods.sources.batches import Batches
    from liebig.methods.sources.spans import SpanSource
    from liebig.store import TokenStore

    def work() -> None:
        source = SpanSource(TokenStore.open(folder / "store", hashes=False), 126)
        read = Batches(source, 256, seed=1)
        for step in range(100):
            read(step)

    work()
    return work


def vectors(size: int, folder: Path, data: Path) -> Work:
    """Half clustered, half Gaussian, of length 1; each shard is the first one with other signs of its columns."""
    import exact
    from liebig.vectors import write_shard

    args = argparse.Namespace(width=WIDTH)
    rng = np.random.default_rng(0)
    block = exact.make(rng, min(SHARD, size), WIDTH, exact.centres(args))

    def work() -> None:
        for start in range(0, size, SHARD):
            x = (block * rng.choice(np.array([-1, 1], np.float32), WIDTH))[: size - start]
            ids = [str(start + i) for i in range(len(x))]
            write_shard(folder / "vectors" / f"{start:08}", ids, x, "fp16")

    return work


def search(size: int, folder: Path, data: Path) -> Work:
    """Exact top 100 of mapped fp16 vectors."""
    import exact
    from liebig.indexes.exact_cpu import search as exact_search
    from liebig.vectors import Shard

    queries = exact.queries(argparse.Namespace(width=WIDTH, queries=QUERIES))
    shards = [Shard.open(path, "fp16", WIDTH) for path in sorted((folder / "vectors").iterdir())]
    exact_search(queries[:2], shards[:1], 100, threads=1)

    def work() -> None:
        exact_search(queries, shards, 100, threads=1)

    return work


def encoding(size: int, folder: Path, data: Path) -> Work:
    from liebig import encoders
    from liebig.stages.encode import EncodeConfig, run

    def make(name: str) -> EncodeConfig:
        return EncodeConfig(source=folder / name, model=encoders.folder(), threads=1, device="cpu")

    return stage(folder, make, "encode", run)


def run(size: int, folder: Path, data: Path) -> Work:
    """A run of 100 hits per query, and judgements; every query has the hits of the first."""

    def work() -> None:
        for name, queries in (("warm", 10), ("whole", size // 100)):
            hits = b"".join(b"QUERY Q0 %d %d %.6f bench\n" % (7 * i, i + 1, 90 - i / 100) for i in range(100))
            with (folder / f"{name}.trec").open("wb") as out:
                out.writelines(hits.replace(b"QUERY", b"%d" % (1_000_000 + i)) for i in range(queries))
            with (folder / f"{name}.qrels").open("wb") as out:
                out.writelines(b"%d 0 %d 1\n" % (1_000_000 + i, 7 * (i % 100)) for i in range(queries))

    return work


def evaluation(size: int, folder: Path, data: Path) -> Work:
    """`liebig evaluate`: from the files to measures, intervals, and the values of every query."""
    from liebig.base.pipeline import Stage, run_stage
    from liebig.stages.evaluate import EvaluateConfig, run

    def at(name: str) -> None:
        out = folder / f"{name}-results"
        shutil.rmtree(out, ignore_errors=True)
        config = EvaluateConfig(system=folder / f"{name}.trec", collections=(folder / f"{name}.qrels",))
        run_stage(Stage("evaluate", EvaluateConfig, run, "", ""), config, out)

    at("warm")
    return lambda: at("whole")


# Whole builds, of the articles of bench/build.py.


def articles(size: int, folder: Path, data: Path) -> Work:
    """A folder of articles as Markdown; a small one beside it, to warm up with."""
    import build

    def work() -> None:
        for name, count in (("warm", 4), ("source", size)):
            (folder / name).mkdir()
            for number, text in enumerate(build.articles(data, count)):
                (folder / name / f"{number:06d}.md").write_text(text + "\n", encoding="utf-8")

    return work


def built(folder: Path, name: str) -> Path:
    """The retriever of a folder, which has answered a question."""
    from build import QUESTION
    from liebig.builder.build import build
    from liebig.builder.build_config import BuildConfig

    out = folder / f"{name}-retriever"
    shutil.rmtree(out, ignore_errors=True)
    result = build(BuildConfig(sources=(str(folder / name),)), out, lambda line: None)
    assert result.retriever.answer(QUESTION, 10, floor=False).results, "an answer"
    return out


def answers(size: int, folder: Path, data: Path) -> Work:
    built(folder, "warm")
    return lambda: built(folder, "source")


def script(size: int, folder: Path, data: Path) -> Work:
    """As in bench/build.py, with all of its passages."""
    import build

    model = Path(os.environ["LIEBIG_BENCH_MODEL"])
    args = argparse.Namespace(model=model, folder=folder / "source", most=sys.maxsize)
    return lambda: {"cpu": build.theirs(args)["total"]}


def update(size: int, folder: Path, data: Path) -> Work:
    """A word more in one article, until it is found."""
    from liebig import Retriever
    from liebig.builder.update import update as update_folder

    out = built(folder, "source")
    changed = folder / "source" / "000000.md"
    words = (f"zwieback{number}" for number in range(ROUNDS + 1))

    def work() -> None:
        word = next(words)
        changed.write_text(f"{changed.read_text(encoding='utf-8')} {word}\n", encoding="utf-8")
        update_folder(out, (str(folder / "source"),), lambda line: None)
        assert Retriever.from_folder(out, verify=False).search(word, 1, "bm25"), "it is found"

    work()
    return work


def hybrid(size: int, folder: Path, data: Path) -> Work:
    """As bench/latency.py asks, three sentences per passage."""
    import latency

    args = argparse.Namespace(passages=size, sentences=3)
    questions = list(islice(latency.rows(data / "nq" / "dev.jsonl.xz"), latency.QUESTIONS))
    texts_of = (json.loads(line)["text"] for line in (folder / "collection" / "passages.jsonl").open())
    asked = folder / "asked"
    asked.mkdir()
    ask = latency.ours(asked, list(texts_of), args)

    def work() -> None:
        for question in questions:
            ask(question)

    work()
    return work


CHILDREN: dict[str, Callable[[int, Path, Path], Work]] = {
    function.__name__: function
    for function in (
        cached, returned, whole, forward, training, processes, one_process, texts, bm25_index, bm25_query, store,
        joined, batches, vectors, search, encoding, run, evaluation, articles, answers, script, update, hybrid,
    )
}  # fmt: skip


ONCE = {"processes", "one_process"}  # repeat their steps themselves


# What the page shows.


@dataclass(frozen=True)
class Fit:
    """The slope of log y over log x, its standard error, and the slope between the two largest x."""

    slope: float
    error: float
    last: float


def fit(x: list[float], y: list[float]) -> Fit:
    """By least squares; two points have no error."""
    a, b = np.log(x), np.log(y)
    centred = a - a.mean()
    slope = float((centred * b).sum() / (centred**2).sum())
    rest = b - b.mean() - slope * centred
    error = math.sqrt(float((rest**2).sum()) / max(1, len(x) - 2) / float((centred**2).sum()))
    return Fit(slope, error, float((b[-1] - b[-2]) / (a[-1] - a[-2])))


def columns(points: dict[str, Point], name: str) -> tuple[list[float], list[float]]:
    """Sizes in their order, and the value of each."""
    sizes = sorted(map(int, points))
    return [float(size) for size in sizes], [points[str(size)][name] for size in sizes]


def exponents(x: list[float], y: list[float]) -> str:
    """Two cells: fitted to all sizes, and between the two largest."""
    fitted = fit(x, y)
    error = f" ± {fitted.error:.2f}" if len(x) > 2 else ""
    slope, last = (round(number, 2) + 0.0 for number in (fitted.slope, fitted.last))  # no -0.00
    return f"{slope:.2f}{error} | {last:.2f}"


def table(results: dict[str, dict[str, Point]]) -> str:
    """A row per curve."""
    rows = [
        "| what | sizes | CPU time at the largest | exponent of CPU time | between the two largest | memory, MB | "
        "exponent of memory | between the two largest |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for curve in CURVES:
        if curve.name in results and len(results[curve.name]) > 1:
            x, seconds = columns(results[curve.name], "cpu")
            _, memory = columns(results[curve.name], "memory")
            held = f"{memory[0]:,.0f} to {memory[-1]:,.0f} | {exponents(x, memory)}"
            rows.append(
                f"| {curve.what} | {x[0]:,.0f} to {x[-1]:,.0f} {curve.unit} | {seconds[-1]:,.3g} s | "
                f"{exponents(x, seconds)} | {held if curve.memory else '– | – | –'} |"
            )
    return "\n".join(rows)


STYLE = "<style>svg{color:#222}@media (prefers-color-scheme:dark){svg{color:#ddd}}</style>"


def draw_figures(results: dict[str, dict[str, Point]]) -> None:
    """For each group of curves one figure of time and one of memory, for light and dark pages."""
    from liebig.evaluation import plots

    for figure in dict.fromkeys(curve.figure for curve in CURVES):
        group = [curve for curve in CURVES if curve.figure == figure and curve.name in results]
        for name, label in (("cpu", "CPU seconds"), ("memory", "anonymous memory, MB")):
            lines = [
                plots.Series(curve.what, *columns(results[curve.name], name), colour=i)
                for i, curve in enumerate(group)
                if name == "cpu" or curve.memory
            ]
            if lines:
                units = " or ".join(dict.fromkeys(curve.unit for curve in group))
                svg = plots.lines(f"{figure}-{name}", lines, plots.Axes(units, label, log_x=True, log_y=True))
                head, rest = svg.split(">", 1)
                title = f"<title>{label[0].upper() + label[1:]} against {units}</title>"
                plots.write_svg(
                    IMAGES / f"scaling-{figure}-{name}.svg", f'{head} role="img">{title}{STYLE}{rest}'
                )


if __name__ == "__main__":
    main()
