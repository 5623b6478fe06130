"""Five queries per passage, from text to text, against transformers' `model.generate`, in one run.

    python bench/generate.py --model FOLDER --data DATA --gpu   20,000 passages of Wikipedia, bf16
    python bench/generate.py --model FOLDER --data DATA         CPU: 32 passages, fp32

FOLDER is a trained generator (`liebig queries train`), so that queries end where queries end. Both sides sample with
top k 25 and top p 0.95, at most 64 tokens. The peer gets passages sorted by length and its best batch size of those
tried, on fewer passages; the seconds of our shards show how steady the rate is. Beside it: how many queries are the
same when our batches are smaller, and how many of the likeliest are the same on both sides. The last line is
`ratio: X`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from encode import passages
from liebig.base.records import Passage
from liebig.collection.lookup import hash_all
from liebig.queries.decoding import Decoding, Engine, passage_keys
from liebig.queries.generator import Generator

SHARD = 10_000


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, required=True)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--data", type=Path, help="folder with wiki/articles-*.jsonl.xz")
    source.add_argument("--passages", type=Path, help="passages.jsonl of a collection, instead of --data")
    parser.add_argument("--texts", type=int, help="how many passages; 32 on a CPU, 20,000 on a GPU")
    parser.add_argument("--count", type=int, default=5)
    parser.add_argument("--budget", type=int, help="padded tokens of a batch")
    parser.add_argument("--gpu", action="store_true")
    args = parser.parse_args()
    device = torch.device("cuda" if args.gpu else "cpu")
    asked = read(args, args.texts or (20_000 if args.gpu else 32))
    print(f"{len(asked):,} passages, {torch.cuda.get_device_name() if args.gpu else 'CPU'}", flush=True)
    sizes = (128, 256, 512, 1024, 2048) if args.gpu else (4, 8, 16)
    mine = ours(args, asked, device)
    peer = theirs(args, asked[: 2048 if args.gpu else len(asked)], device, sizes)
    print(f"ratio: {mine / peer:.2f}")


def read(args: argparse.Namespace, count: int) -> list[Passage]:
    """The first `count` passages, of a collection or of Wikipedia."""
    if args.passages is None:
        return [Passage(f"w{i}", text) for i, text in enumerate(passages(args.data, count))]
    with args.passages.open(encoding="utf-8") as file:
        rows = map(json.loads, islice(file, count))
        return [Passage(row["id"], row["text"], title=row.get("title", "")) for row in rows]


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


def write(
    generator: Generator,
    engine: Engine,
    asked: Sequence[Passage],
    method: Decoding,
    times: list[float] | None = None,
) -> list[str]:
    """Queries from text to text, shard by shard; tokens and texts are made in threads, as in the command."""
    began = time.perf_counter()
    shards = [asked[start : start + SHARD] for start in range(0, len(asked), SHARD)]
    with ThreadPoolExecutor(2) as pool:
        coming = [pool.submit(generator.sources, some) for some in shards]
        making = []
        for some, sources in zip(shards, coming):
            keys = passage_keys(0, hash_all(p.id for p in some))
            rows = engine.write(sources.result(), keys, method)
            if times is not None:
                times.append(time.perf_counter() - began)
            making.append(pool.submit(generator.texts, [row for five in rows for row in five]))
        return [text for made in making for text in made.result()]


def ours(args: argparse.Namespace, asked: list[Passage], device: torch.device) -> float:
    precision, method = "bf16" if args.gpu else "fp32", Decoding(args.count)
    generator = Generator.load(args.model)
    engine = Engine(generator, device, precision, args.budget)
    write(generator, engine, asked[: 4096 if args.gpu else 4], method)
    times: list[float] = []
    seconds, found = timed(lambda: write(generator, engine, asked, method, times))
    rate = len(asked) / seconds
    steady = " + ".join(f"{x:.1f}" for x in np.diff([0.0, *times]))
    length = np.mean([len(ids) for ids in generator.tokenizer.encode_batch(found[:5000])])
    print(f"ours: {rate:,.1f} passages/s (shards in {steady} s), queries of {length:.1f} tokens", flush=True)
    some = asked[: 2048 if args.gpu else 16]
    engine = Engine(generator, device, precision, (args.budget or engine.budget) // 8)
    other = write(generator, engine, some, method)
    same = np.mean([a == b for a, b in zip(found, other)])
    print(f"the same in batches of an eighth: {same:.4f} of {len(other):,} queries", flush=True)
    return rate


def theirs(
    args: argparse.Namespace, asked: list[Passage], device: torch.device, sizes: Sequence[int]
) -> float:
    generator = Generator.load(args.model)
    model = generator.model.to(device=device, dtype=torch.bfloat16 if args.gpu else torch.float32).eval()
    sampled = {"do_sample": True, "top_k": 25, "top_p": 0.95, "num_return_sequences": args.count}
    best = 0.0
    plain(generator, model, asked[:8], 8, sampled)
    for size in sizes:
        try:
            seconds, _ = timed(partial(plain, generator, model, asked, size, sampled))
        except torch.OutOfMemoryError:
            print(f"  model.generate, batches of {size:4}: does not fit into memory")
            break
        rate = len(asked) / seconds
        print(f"  model.generate, batches of {size:4}: {rate:8,.1f} passages/s", flush=True)
        if rate < 0.8 * best:
            break
        best = max(best, rate)
    likeliest(args, generator, model, asked[: 512 if args.gpu else 16], device)
    return best


def likeliest(
    args: argparse.Namespace, generator: Generator, model: Any, asked: list[Passage], device: torch.device
) -> None:
    """How many greedy queries are the same on both sides."""
    peer = plain(generator, model, asked, 64, {"do_sample": False, "num_beams": 1})
    engine = Engine(generator, device, "bf16" if args.gpu else "fp32", args.budget)
    mine = write(generator, engine, asked, Decoding(1, top_k=1))
    print(f"greedy queries that are the same: {np.mean([a == b for a, b in zip(mine, peer)]):.4f}")


@torch.inference_mode()
def plain(
    generator: Generator, model: Any, asked: list[Passage], size: int, told: dict[str, Any]
) -> list[str]:
    """model.generate over batches of similar length, from text to text."""
    sources = generator.sources(asked)
    order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
    many = told.get("num_return_sequences", 1)
    found: list[list[str]] = [[] for _ in sources]
    for start in range(0, len(order), size):
        some = order[start : start + size]
        longest = len(sources[some[0]])
        tokens = torch.full((len(some), longest), generator.pad)
        for row, i in zip(tokens, some):
            row[: len(sources[i])] = torch.tensor(sources[i])
        lengths = torch.tensor([len(sources[i]) for i in some])
        mask = (torch.arange(longest) < lengths[:, None]).long()
        out = model.generate(
            input_ids=tokens.to(model.device),
            attention_mask=mask.to(model.device),
            max_new_tokens=generator.settings.query_length,
            **told,
        )
        texts = generator.texts(out.tolist())
        for place, i in enumerate(some):
            found[i] = texts[place * many : (place + 1) * many]
    return [text for texts in found for text in texts]


if __name__ == "__main__":
    main()
