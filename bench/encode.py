"""Encoding from raw text against sentence-transformers and its CPU back ends, in one run.

    python bench/encode.py --data DATA [--model FOLDER]            CPU: fp32 with the same vectors, and int8
    python bench/encode.py --data DATA --quality scifact squad     and nDCG@10 on parts of sets, fp32 against int8
    python bench/encode.py --data DATA --peer MINILM               another model there, and in our int8 too
    python bench/encode.py --data DATA --gpu --model FOLDER        BERT-base of random weights, and the given model

The peer runs at its best dtype and batch size of those tried. On a CPU these are torch, ONNX Runtime and OpenVINO (both
in fp32 and int8) where they are installed: sentence-transformers' own ONNX and OpenVINO back ends need optimum, which
does not go with current transformers, so the same graphs run on batches made as it makes them. Systems take turns; CPU
time counts, the lowest of the rounds, because other work on the machine only ever adds time. Tokenising is part of all;
processes are started, and code is compiled, before the clock. The last line is `ratio: X`: on a CPU our best over
sentence-transformers in fp32.
"""

from __future__ import annotations

import argparse
import json
import lzma
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from liebig.base.compiled import byte_products
from liebig.base.hub import model_folder
from liebig.base.machine import cores
from liebig.model.encoder import Encoder, TorchModel
from liebig.model.onnx_graph import GRAPH, padded, session
from liebig.model.settings import TOKENS_CPU, TOKENS_INT8
from liebig.search.embed import TOKENS_CUDA, TOKENS_ONNX
from liebig.search.pieces import frame_of
from liebig.search.token_windows import TextItem, Workers
from liebig.search.window_vectors import EncodingPlan, encode

WINDOW = 8192
OTHER = "the peer's model in our int8"
PART = 2000  # passages of a set, ten for each question


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--model", type=Path, help="a sentence-transformers folder [CPU: the bundled encoder]"
    )
    parser.add_argument(
        "--data", type=Path, required=True, help="folder with wiki/articles-*.jsonl.xz, scifact/"
    )
    parser.add_argument("--texts", type=int, help="how many passages; 500 on a CPU, 200,000 on a GPU")
    parser.add_argument("--quality", nargs="+", default=[], metavar="SET", help="nDCG@10 of BEIR folders too")
    parser.add_argument("--peer", type=Path, help="what sentence-transformers runs on a CPU [the same model]")
    parser.add_argument("--gpu", action="store_true")
    args = parser.parse_args()
    os.environ.pop("TOKENIZERS_PARALLELISM", None)  # the peer tokenises with every core
    if args.gpu:
        gpu(args)
    else:
        cpu(args)


def passages(data: Path, count: int) -> list[str]:
    """Wikipedia passages of 100 words, title first."""
    found: list[str] = []
    for part in sorted((data / "wiki").glob("articles-*.jsonl.xz")):
        with lzma.open(part, "rt", encoding="utf-8") as file:
            for article in map(json.loads, file):
                for section in article["sections"]:
                    words = " ".join(section["p"]).split()
                    found += [
                        f"{article['title']} {' '.join(words[i : i + 100])}"
                        for i in range(0, len(words), 100)
                    ]
                if len(found) >= count:
                    return found[:count]
    return found


def groups(texts: list[str]) -> Iterator[list[TextItem]]:
    for start in range(0, len(texts), WINDOW):
        yield [TextItem(str(start + i), text) for i, text in enumerate(texts[start : start + WINDOW])]


def ours(texts: list[str], model: Any, encoder: Encoder, workers: Workers, budget: int) -> np.ndarray:
    layout = encoder.layout_for("passage", "")
    batches = workers.windows(groups(texts), layout)
    return np.concatenate(
        [window.vectors for window in encode(batches, model, EncodingPlan(frame_of(layout), budget))]
    )


def timed(function: Callable[[], Any], repeats: int = 1) -> tuple[float, Any]:
    times, result = [], None
    for _ in range(repeats):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        start = time.perf_counter()
        result = function()
        times.append(time.perf_counter() - start)
    return min(times), result


def cpu(args: argparse.Namespace) -> None:
    from sentence_transformers import SentenceTransformer

    from liebig.model.onnx_graph import OnnxModel
    from liebig.stages.onnx import export

    texts = passages(args.data, args.texts or 128)
    model = model_folder(args.model or "liebig:mini-v3")
    encoder = Encoder.load(model)
    theirs = SentenceTransformer(str(args.peer or model), device="cpu")
    other = Encoder.load(args.peer) if args.peer else encoder
    print(
        f"{len(texts)} passages, {torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}, "
        f"int8 by {byte_products() or 'ONNX Runtime alone'}"
    )
    with (
        Workers(encoder.tokenizer, None, 0) as workers,
        Workers(other.tokenizer, None, 0) as words,
        tempfile.TemporaryDirectory() as folder,
    ):
        graphs = {kind: Path(folder) / kind for kind in ("fp32", "int8")}
        for kind, path in graphs.items():
            path.mkdir()
            export(encoder, path, int8=kind == "int8")
        fp32, graph_int8 = TorchModel(encoder), OnnxModel(graphs["int8"], encoder)
        runs: dict[str, Callable[[list[str]], np.ndarray]] = {
            "ours fp32": lambda t: ours(t, fp32, encoder, workers, TOKENS_CPU),
            "ours int8 by ONNX Runtime": lambda t: ours(t, graph_int8, encoder, workers, TOKENS_ONNX),
        }
        if byte_products():
            int8 = TorchModel(encoder, precision="int8")
            runs["ours int8"] = lambda t: ours(t, int8, encoder, workers, TOKENS_INT8)
        mine = list(runs)
        if args.peer:
            other_int8 = TorchModel(other, precision="int8")
            runs[OTHER] = lambda t: ours(t, other_int8, other, words, TOKENS_INT8)
        for size in (8, 16, 32):
            runs[f"sentence-transformers, batches of {size}"] = partial(theirs.encode, batch_size=size)
        engines: dict[str, Engine] = {} if args.peer else {"ONNX Runtime": onnx_runner}
        if find_spec("openvino") is None:
            print("OpenVINO is not installed, and not run")
        elif engines:
            engines["OpenVINO"] = openvino_runner
        for engine, opened in engines.items():
            for kind, path in graphs.items():
                graph = opened(path)
                for size in (8, 32):
                    label = f"{engine} {kind}, batches of {size}"
                    runs[label] = partial(in_batches, encoder, graph, size=size)
        for run in runs.values():
            run(texts[:64])
        busy, found = interleaved(runs, texts)
        torch_runs = [name for name in runs if name.startswith("sentence")]
        peer = min(torch_runs, key=lambda name: busy[name])
        for name in runs:
            print(
                f"{name:38} {len(texts) / busy[name]:8.1f} passages per CPU second   "
                f"{busy[peer] / busy[name]:.2f} of {peer}"
            )
        best = min(busy[name] for name in mine)
        if args.peer:
            print(f"{OTHER}: {busy[OTHER] / best:.2f} times the CPU time of ours")
        else:
            error = np.abs(found["ours fp32"] - found[peer]).max()
            print(f"largest difference of a number of the vectors: fp32 {error:.1e}")
        for name in mine[1:]:
            cosines = [
                a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in zip(found[name], found[mine[0]])
            ]
            print(
                f"cosine of vectors with those of fp32: {name} {np.mean(cosines):.5f}, lowest {min(cosines):.5f}"
            )
        if args.quality:
            quality(args.data, args.quality, {name: runs[name] for name in mine})
    print(f"ratio: {busy[peer] / best:.2f}")


Inputs = dict[str, NDArray[np.int64]]
Engine = Callable[[Path], Callable[[Inputs], np.ndarray]]


def in_batches(
    encoder: Encoder, run: Callable[[Inputs], np.ndarray], texts: list[str], size: int = 32
) -> np.ndarray:
    """Vectors as sentence-transformers makes them: sorted by length, in padded batches of so many texts."""
    rows = encoder.layout_for("passage", "").ids(texts)
    order = np.argsort(-rows.lengths)
    vectors = np.empty((len(texts), encoder.width), np.float32)
    for start in range(0, len(texts), size):
        chosen = order[start : start + size]
        vectors[chosen] = run(padded(rows.take(chosen), encoder.tokenizer.pad))
    return vectors


def onnx_runner(folder: Path) -> Callable[[Inputs], np.ndarray]:
    opened = session(folder, torch.get_num_threads())
    return lambda inputs: opened.run(["vectors"], inputs)[0]  # type: ignore[no-any-return]


def openvino_runner(folder: Path) -> Callable[[Inputs], np.ndarray]:
    import openvino

    settings = {"INFERENCE_NUM_THREADS": torch.get_num_threads(), "PERFORMANCE_HINT": "LATENCY"}
    compiled = openvino.Core().compile_model(str(folder / GRAPH), "CPU", settings)
    numbers = compiled.get_property(
        "INFERENCE_PRECISION_HINT"
    ).get_type_name()  # float16 on aarch64, unless told
    print(f"OpenVINO computes the graph of {folder.name} in {numbers} where it is not in int8")
    request = compiled.create_infer_request()
    return lambda inputs: request.infer(inputs)[0]  # type: ignore[no-any-return]


def interleaved(
    runs: dict[str, Callable[[list[str]], np.ndarray]], texts: list[str], rounds: int = 4
) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """The fewest CPU seconds of several rounds, in which the systems take turns."""
    busy = dict.fromkeys(runs, math.inf)
    found = {}
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.process_time()
            found[name] = run(texts)
            busy[name] = min(busy[name], time.process_time() - start)
    return busy, found


def quality(data: Path, names: list[str], runs: dict[str, Callable[[list[str]], np.ndarray]]) -> None:
    """nDCG@10 of parts of some sets, with passages by each way and questions in fp32, as `liebig encode` has them."""
    from bm25 import ndcg, part
    from liebig.vectors.topk import topk

    for set_ in names:
        passages, queries, judged = part(data / set_, PART, PART // 10)
        asked = runs["ours fp32"](list(queries.values()))
        print(f"{set_}: {len(passages):,} passages, {len(queries):,} questions, nDCG@10")
        for name, run in runs.items():
            scores, numbers = topk(asked, run([f"{p.title} {p.text}".strip() for p in passages]), 100)
            print(f"  {name}: {ndcg(numbers, scores, passages, queries, judged):.4f}")


def bert_base(folder: Path, vocabulary: Path) -> Path:
    """BERT-base with random weights and the tokenizer of another model; speed does not depend on the weights."""
    from liebig.model.backbone import Backbone
    from liebig.text.tokenizer import Tokenizer

    tokenizer = Tokenizer.from_folder(vocabulary)
    backbone = Backbone.create(layers=12, width=768, heads=12, vocab_size=tokenizer.vocab_size, family="bert")
    Encoder(backbone, tokenizer, pooling="cls", max_length=256).save(folder)
    return folder


def gpu(args: argparse.Namespace) -> None:
    texts = passages(args.data, args.texts or 200_000)
    print(f"{len(texts):,} passages, {torch.cuda.get_device_name()}")
    with tempfile.TemporaryDirectory() as folder:
        models = {"BERT-base": bert_base(Path(folder), args.model), "MiniLM": args.model}
        ratios = {name: gpu_model(name, path, texts) for name, path in models.items()}
    print(", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items()))
    print(f"ratio: {ratios['BERT-base']:.2f}")


def gpu_model(name: str, path: Path, texts: list[str]) -> float:
    from sentence_transformers import SentenceTransformer

    encoder = Encoder.load(path).to("cuda")
    encoder.backbone.compile()
    model = TorchModel(encoder)
    with Workers(encoder.tokenizer, path, min(12, cores() - 1)) as workers:
        ours(texts[: 4 * WINDOW], model, encoder, workers, TOKENS_CUDA)
        only, _ = timed(
            lambda: sum(1 for _ in workers.windows(groups(texts), encoder.layout_for("passage", ""))), 2
        )
        took, mine = timed(lambda: ours(texts, model, encoder, workers, TOKENS_CUDA), 2)
    print(f"{name}: ours {len(texts) / took:,.0f} passages/s; the tokeniser alone {len(texts) / only:,.0f}")
    some, best = texts[:10_000], 0.0
    for dtype in (torch.bfloat16, torch.float16):  # fp32 is never the fastest
        theirs = SentenceTransformer(str(path), device="cuda", model_kwargs={"dtype": dtype})
        theirs.encode(some[:2048], batch_size=256)
        for size in (256, 512, 1024, 2048):
            seconds, _ = timed(partial(theirs.encode, some, batch_size=size))
            rate = len(some) / seconds
            print(f"  sentence-transformers {str(dtype)[6:]:9} batches of {size:4}: {rate:8,.0f} passages/s")
            best = max(best, rate)
    some = some[:2000]
    close = SentenceTransformer(str(path), device="cuda").encode(some)
    cosine = (
        (mine[: len(some)] * close).sum(1)
        / np.linalg.norm(mine[: len(some)], axis=1)
        / np.linalg.norm(close, axis=1)
    )
    print(
        f"  cosine of ours (bfloat16) and theirs (fp32): mean {cosine.mean():.6f}, lowest {cosine.min():.6f}"
    )
    return len(texts) / took / best


if __name__ == "__main__":
    main()
