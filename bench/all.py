"""Run the benchmarks that fit this machine, and write their ratios and goals into bench/README.md.

    python bench/all.py --data DATA [--gpu] [--model FOLDER] [--only bm25 encode] [--minutes 20]

Each benchmark is a process of its own that ends with `ratio: X`, ours over the peer's; what it prints is printed as it
comes. A row shows that ratio, the goal and the peer with its version and settings; one that misses its goal says what
bounds it. A run replaces the rows of machines of its kind, x86_64, aarch64 or a GPU; a benchmark that cannot run here
keeps the row of its last run, and the reason is printed. The exit code is 1 if a benchmark that ran failed.
"""

from __future__ import annotations

import argparse
import platform
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from liebig.base.machine import instructions
from page import read_table, write_table

ROOT = Path(__file__).resolve().parent
README = ROOT / "README.md"
HEAD = "| command | peer | ratio | goal | machine | bound |\n| --- | --- | ---: | ---: | --- | --- |\n"


@dataclass(frozen=True)
class Benchmark:
    """A command, the ratio that it should reach, and the peer: its packages and how it is set up."""

    name: str
    arguments: str
    goal: float
    packages: tuple[str, ...]
    settings: str
    bound: str = ""  # what keeps it below the goal, where that is known
    gpu: bool = False
    beside: tuple[str, ...] = ()  # packages that are compared too, where they are installed

    @property
    def command(self) -> str:
        """As it is written in the table; DATA and MODEL stand for folders of the reader."""
        return f"python bench/{self.name}.py {self.arguments}".strip()

    def words(self, places: dict[str, Path | None]) -> list[str]:
        """The command with the folders put in."""
        words = self.arguments.split()
        for name, path in places.items():
            words = [word.replace(name, str(path)) for word in words]
        return [sys.executable, str(ROOT / f"{self.name}.py"), *words]

    def missing(self, places: dict[str, Path | None]) -> str:
        """Why it cannot run here; empty if it can."""
        folders = [name for name, path in places.items() if name in self.arguments and path is None]
        packages = [name for name in self.packages if find_spec(name.replace("-", "_")) is None]
        if folders:
            return f"needs --{folders[0].lower()}"
        if self.gpu and not has_gpu():
            return "needs a CUDA device"
        return f"needs the package {packages[0]}" if packages else ""


def has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


BENCHMARKS = (
    Benchmark(
        "bm25",
        "--data DATA",
        1.0,
        ("bm25s",),
        "numba backend, one thread; the lowest of indexing and queries on three sets",
    ),
    Benchmark(
        "bm25_large",
        "--data DATA --passages 1000000",
        3.0,
        ("bm25s",),
        "numba backend, one thread, scores in memory; 1 M passages",
        "217,000 postings per question, of which 8 bytes each come from memory, and a million sums that are looked "
        "through and cleared (LABNOTES); the ratio grows with the corpus",
    ),
    Benchmark(
        "bm25_large",
        "--data DATA",
        3.0,
        ("bm25s",),
        "numba backend, one thread, scores in memory; 8.8 M passages, 4 GiB",
        "as with 1 M passages",
    ),
    Benchmark(
        "exact",
        "--count 200000 --threads 1",
        3.0,
        ("faiss",),
        "IndexFlatIP, one thread on both sides, 200,000 x 384 in memory, 1,000 queries at once; CPU time",
        "ours scores in int8 and again, exactly, what the error bound leaves: half of its time is the product in int8, "
        "a fifth the choice of what is left, an eighth exact scores, a twelfth rounding; FAISS is at the bound of its "
        "BLAS (LABNOTES)",
    ),
    Benchmark("measures", "", 1.0, ("ranx",), "the faster of ranx and plain Python"),
    Benchmark("sentences", "", 1.0, ("pysbd", "syntok"), "the faster of the two"),
    Benchmark("tokenise", "--data DATA", 10.0, ("tokenizers",), "`encode_batch_fast`, one thread; CPU time"),
    Benchmark(
        "prepare",
        "--data DATA/wiki --parts 1",
        1.0,
        ("datasets",),
        "`datasets.map`, batched, the same number of processes",
    ),
    Benchmark(
        "step_cpu",
        "",
        3.0,
        ("transformers",),
        "Trainer with padding, fp32, AdamW, batches of the same rows; CPU time",
    ),
    Benchmark("abs", "--data DATA/wiki --levels 12", 10.0, (), "the plain greedy of the paper"),
    Benchmark(
        "serve",
        "--rounds 2 --seconds 2",
        3.0,
        ("sentence_transformers",),
        "FastAPI, the better of `def` and `async`, with and without batching",
    ),
    Benchmark(
        "encode",
        "--data DATA --texts 64",
        4.0,
        ("sentence_transformers", "onnxruntime"),
        "torch fp32 at its best batch size; ONNX Runtime and OpenVINO, fp32 and int8, run the same graphs beside it, "
        "because the peer's own export needs optimum, which does not go with current transformers",
        "of our int8 layers at these lengths products in int8 take about 60 %, attention 20 %, norms 10 %; the ratio "
        "is lower on busy cores (LABNOTES)",
        beside=("openvino",),
    ),
    Benchmark(
        "evaluate",
        "--data DATA --passages 800 --queries 100 --precision int8",
        3.0,
        ("sentence_transformers",),
        "InformationRetrievalEvaluator, fp32, the better of batches of 8 and 32; CPU time",
        "encoding, nine tenths of our time: see the row of encode.py; 1.09 in fp32, which is the default",
    ),
    *(
        Benchmark(
            "build",
            f"--data DATA --model MODEL --only {folder}",
            3.0,
            ("sentence_transformers", "bm25s"),
            "a script with all-MiniLM-L6-v2 (MODEL) in fp32 at its best batch size and numpy; "
            f"{texts}; CPU time from files to the first answer, ours with sentences and the check",
            "encoding, three quarters of our time: all passages, and without titles those of the check",
        )
        for folder, texts in (
            ("articles", "400 articles of 600 words"),
            ("short", "5,000 functions with docstrings"),
            ("manuals", "4,000 pages of manuals, 16,396 passages"),
        )
    ),
    Benchmark(
        "cold_search",
        "",
        3.0,
        ("sentence_transformers",),
        "a script that loads the same encoder and multiplies with 500 vectors; a question in a fresh process, CPU time",
    ),
    Benchmark(
        "latency",
        "--data DATA --model MODEL",
        3.0,
        ("sentence_transformers", "bm25s"),
        "all-MiniLM-L6-v2 (MODEL), one question at a time, one thread, 20,000 passages, ours with 60,000 sentences; "
        "CPU time, median",
        "encoding the question, and a product with all sentences",
    ),
    Benchmark(
        "pretrain_step",
        "--steps 12 --dropout 0.1",
        3.0,
        ("transformers",),
        "SDPA, bf16 autocast, padded; the better of eager and compiled",
        "our step has .575 of the matrix rate that the same run measures; three times the compiled peer would be .60; "
        "kernels between products run near the memory's rate, attention takes about twice its traffic (LABNOTES)",
        gpu=True,
    ),
    Benchmark(
        "cached_step",
        "--steps 4 --grow",
        3.0,
        ("sentence_transformers",),
        "MultipleNegativesRankingLoss, bf16, the best of no cache, and with one mini-batches of 512, 1,024 and 2,048 "
        "pairs or 65,536 and 262,144 tokens",
        "matrix products and the host's launches",
        gpu=True,
    ),
    Benchmark(
        "finetune",
        "--data DATA/squad",
        3.5,
        ("sentence_transformers",),
        "the trainer's loop, bf16; the lower of two settings",
        "kernels take nine tenths of our step; 3.5 times the peer needs less than its products and attention take; the "
        "peer differs by a half between hosts",
        gpu=True,
    ),
    Benchmark("short_attention", "", 1.0, (), "torch's variable-length kernel", gpu=True),
    Benchmark(
        "short_pairs",
        "",
        1.2,
        (),
        "the same steps on pairs of spans, 12 x 384 and BERT-base, 256 and 1,024 pairs; the lowest of eight",
        "outside of the layers the host takes longer than the GPU does for the layers",
        gpu=True,
    ),
    Benchmark(
        "exact",
        "--gpu",
        0.75,
        (),
        "the bound of memory and matrix rate, measured in the same run",
        "the product's kernel is as fast as cuBLAS's product and takes about three quarters of the time; choosing "
        "groups, gathering their vectors, exact scores and the host take the rest (LABNOTES)",
        gpu=True,
    ),
    Benchmark(
        "encode",
        "--data DATA --gpu --model MODEL --texts 100000",
        4.0,
        ("sentence_transformers",),
        "best of bf16 and fp16, batches of 256 to 2,048",
        gpu=True,
    ),
    Benchmark(
        "evaluate",
        "--data DATA --gpu --model MODEL --wiki 10000 --rounds 1",
        3.0,
        ("sentence_transformers",),
        "InformationRetrievalEvaluator, best of bf16 and fp16, batches of 128 to 1,024; 15,183 passages",
        gpu=True,
    ),
    Benchmark(
        "evaluate",
        "--data DATA --gpu --model MODEL --wiki 100000 --rounds 1",
        3.0,
        ("sentence_transformers",),
        "InformationRetrievalEvaluator, best of bf16 and fp16, batches of 128 to 1,024; 105,183 passages",
        gpu=True,
    ),
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder with wiki, nq, squad and BEIR folders")
    parser.add_argument(
        "--model",
        type=Path,
        help="a sentence-transformers folder: for encoding on a GPU, and that of the plain script",
    )
    parser.add_argument(
        "--gpu", action="store_true", help="run those that need a GPU, instead of those for a CPU"
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=sorted({b.name for b in BENCHMARKS}))
    parser.add_argument("--minutes", type=float, default=20, help="after which a benchmark is stopped")
    args = parser.parse_args()
    places = {"DATA": args.data, "MODEL": args.model}
    rows, failed = [], False
    for benchmark in BENCHMARKS:
        if benchmark.gpu != args.gpu or (args.only and benchmark.name not in args.only):
            continue
        if reason := benchmark.missing(places):
            print(f"{benchmark.command}: not run, {reason}", flush=True)
            continue
        try:
            ratio = run(benchmark.words(places), args.minutes)
        except RuntimeError as error:
            print(f"{benchmark.command}: {error}", flush=True)
            failed = True
            continue
        rows.append(row(benchmark, ratio))
        print(f"{benchmark.command}: ratio {ratio:.2f}, goal {benchmark.goal:g}", flush=True)
    write_table(README, "bench/all.py", with_rows(read_table(README, "bench/all.py"), rows))
    sys.exit(failed)


def run(command: list[str], minutes: float) -> float:
    """The ratio that a benchmark ends with."""
    last, stopped = "it printed nothing", False
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None

        def stop() -> None:
            nonlocal stopped
            stopped = True
            process.kill()

        timer = threading.Timer(60 * minutes, stop)
        timer.start()
        for line in process.stdout:
            print(f"  {line}", end="", flush=True)
            last = line.strip() or last
        timer.cancel()
    # One that has its ratio may hang while it ends.
    if last.startswith("ratio: ") and (stopped or process.returncode == 0):
        return float(last.removeprefix("ratio: "))
    if stopped:
        raise RuntimeError(f"stopped after {minutes:g} minutes")
    raise RuntimeError(f"failed with exit code {process.returncode}; the last line was: {last}")


def row(benchmark: Benchmark, ratio: float) -> str:
    """A line of the table."""
    there = [name for name in benchmark.beside if find_spec(name) is not None]
    absent = [f"{name} was not installed" for name in benchmark.beside if name not in there]
    versions = [f"{name} {release(name)}" for name in (*benchmark.packages, *there)]
    peer = "; ".join((*versions, benchmark.settings, *absent))
    bound = "" if ratio >= benchmark.goal else benchmark.bound or "not known"
    cells = (
        f"`{benchmark.command}`",
        peer,
        f"**{ratio:.2f}**",
        f"{benchmark.goal:g}",
        machine(benchmark.gpu),
        bound,
    )
    return f"| {' | '.join(cells)} |"


def release(package: str) -> str:
    """The version of a package, which may be distributed under another name."""
    for name in (package, f"{package}-cpu"):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return "of unknown version"


def machine(gpu: bool) -> str:
    """The GPU, or the processor with the instructions that matter to products of small numbers."""
    if gpu:
        import torch

        return torch.cuda.get_device_name()
    return " ".join((platform.machine(), *instructions()))


def with_rows(table: str, rows: Sequence[str]) -> str:
    """The table with these rows in place of those of the same command and kind of machine, in order."""
    order = {benchmark.command: place for place, benchmark in enumerate(BENCHMARKS)}
    lines = {}
    for line in (*table.splitlines(), *rows):
        cells = line.split(" | ")
        command = cells[0].strip("| `")
        if command in order:
            lines[order[command], cells[4].split()[0]] = line
    return HEAD + "\n".join(lines[key] for key in sorted(lines))


if __name__ == "__main__":
    main()
