"""`liebig init` and `liebig prepare` on real text: memory, speed beside `datasets.map`, and batches from the store.

    python bench/prepare.py --data WIKI --parts 1

Every stage runs in a process of its own, whose tree is watched: peak memory is the sum of the resident sets of the
process and its children. Both ways tokenize the same paragraphs with the same tokenizer and number of processes;
`datasets.map` keeps nothing but the ids. The last line is the ratio of tokens per second, ours over theirs.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

PAGE = os.sysconf("SC_PAGE_SIZE")
MEGA = 1e6
LIMIT = 1.5 * 2**30


def main() -> None:
    options = arguments()
    if options.child:
        print(json.dumps(CHILDREN[options.child](**json.loads(options.values))))
        return
    if options.data is None:
        raise SystemExit("--data is missing: name a folder of .jsonl or .jsonl.xz files of documents")
    with tempfile.TemporaryDirectory(dir=options.work) as folder:
        compare(Path(folder), options)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder of .jsonl or .jsonl.xz files of documents")
    parser.add_argument("--parts", type=int, help="how many of the files to use [default: all]")
    parser.add_argument(
        "--tokenizer", type=Path, help="a tokenizer's folder [default: learned from the data]"
    )
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--alone", action="store_true", help="leave out datasets.map, and with it the ratio")
    parser.add_argument("--work", type=Path, help="where temporary folders go")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--values", help=argparse.SUPPRESS)
    return parser.parse_args()


def compare(work: Path, options: argparse.Namespace) -> None:
    files = sorted(p for p in options.data.iterdir() if p.name.endswith((".jsonl.xz", ".jsonl")))[
        : options.parts
    ]
    collection, store = str(work / "collection"), str(work / "store")
    init = watched("init", paths=[str(f) for f in files], out=collection)
    tokenizer = str(options.tokenizer or work / "tokenizer")
    if not options.tokenizer:
        watched("learn", collection=collection, out=tokenizer)
    print(f"{len(files)} files, {init['bytes'] / MEGA:.0f} MB of JSON lines, {options.processes} processes")
    both = {"collection": collection, "tokenizer": tokenizer, "processes": options.processes}
    prepare = watched("prepare", out=store, **both)
    theirs = None if options.alone else watched("map", out=str(work / "map"), **both)
    report_memory(init, prepare)
    report_speed({"liebig prepare": prepare} | ({"datasets.map": theirs} if theirs else {}))
    report_share(watched("share", collection=collection, tokenizer=tokenizer), prepare)
    report_batches(watched("batches", store=store))
    if theirs:
        print(f"ratio: {prepare['tokens'] / prepare['seconds'] * theirs['seconds'] / theirs['tokens']:.2f}")


def report_memory(init: dict[str, Any], prepare: dict[str, Any]) -> None:
    for name, found in (("init", init), ("prepare", prepare)):
        verdict = "under" if found["peak"] < LIMIT else "OVER"
        print(
            f"{name:8} {found['seconds']:7.1f} s   peak memory {found['peak'] / 2**20:6.0f} MiB, {verdict} 1.5 GiB"
        )


def report_speed(ways: dict[str, dict[str, Any]]) -> None:
    for name, found in ways.items():
        tokens = found["tokens"]
        print(
            f"{name:15} {tokens:,} tokens   {tokens / found['seconds'] / MEGA:6.3f} M/s   "
            f"{tokens / found['cpu'] / MEGA:6.3f} M per processor second   peak {found['peak'] / 2**20:,.0f} MiB"
        )


def report_share(found: dict[str, Any], prepare: dict[str, Any]) -> None:
    library, tokens = found["library"], found["tokens"]
    print(
        f"the tokenizers library alone: {tokens / library / MEGA:.3f} M tokens/s and core; in shares of its time:"
    )
    parts = {"tokenizing": found["encoding"], **found["parts"]}
    print("  " + ", ".join(f"{name} {seconds / library:.1%}" for name, seconds in parts.items()))
    whole = prepare["cpu"] / prepare["tokens"] / (library / tokens)
    print(f"  prepare as a whole {whole:.1%}")


def report_batches(found: dict[str, Any]) -> None:
    for name, rate in found.items():
        if isinstance(rate, float) and name not in ("seconds", "cpu"):
            print(f"batches of {name:12} {rate / MEGA:6.1f} M tokens/s and core, drawn and packed")


def watched(child: str, **values: Any) -> dict[str, Any]:
    """Run a child of this script; what it says, with its peak memory."""
    command = [sys.executable, __file__, "--child", child, "--values", json.dumps(values)]
    environment = os.environ | {
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    peak = [0]
    watcher = threading.Thread(target=watch, args=(process, peak), daemon=True)
    watcher.start()
    said, complaints = process.communicate()
    watcher.join()
    if process.returncode != 0:
        sys.exit(f"{child} failed:\n{complaints.decode()}")
    return {"peak": peak[0], **json.loads(said.splitlines()[-1])}


def watch(process: subprocess.Popen[bytes], peak: list[int]) -> None:
    while process.poll() is None:
        peak[0] = max(peak[0], sum(resident(pid) for pid in family(process.pid)))
        time.sleep(0.05)


def family(pid: int) -> Iterator[int]:
    yield pid
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = path.read_text().split()
        except OSError:
            continue
        for child in children:
            yield from family(int(child))


def resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    except (OSError, IndexError):
        return 0


def run_stage(out: str, kind: str, config: Any, run: Callable[..., None]) -> dict[str, float]:
    """What a stage takes until its folder is finished."""
    from liebig.base.pipeline import Stage, run_stage

    return measured(lambda: run_stage(Stage(kind, type(config), run, "", ""), config, Path(out)))[1]


def measured(function: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """A result, and the seconds and processor seconds (of this process and those it started) that it took."""
    began, spent = time.perf_counter(), processor()
    result = function()
    return result, {"seconds": time.perf_counter() - began, "cpu": processor() - spent}


def processor() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def child_init(paths: list[str], out: str) -> dict[str, Any]:
    from liebig.stages.init import InitConfig, run

    taken = run_stage(out, "init", InitConfig(paths=tuple(paths)), run)
    return {**taken, "bytes": (Path(out) / "documents.jsonl").stat().st_size}


def child_learn(collection: str, out: str) -> dict[str, Any]:
    from liebig.stages.tokenizer import TokenizerConfig, run

    every = max(1, (Path(collection) / "documents.jsonl").stat().st_size // (16 << 20))
    config = TokenizerConfig(collections=(Path(collection),), every=every)
    return run_stage(out, "tokenizer", config, run)


def child_prepare(collection: str, tokenizer: str, out: str, processes: int) -> dict[str, Any]:
    from liebig.stages.prepare import PrepareConfig, run

    config = PrepareConfig(collection=Path(collection), tokenizer=Path(tokenizer), processes=processes)
    taken = run_stage(out, "prepare", config, run)
    return {**taken, "tokens": json.loads((Path(out) / "store.json").read_text())["tokens"]}


def child_map(collection: str, tokenizer: str, out: str, processes: int) -> dict[str, Any]:
    import pyarrow.compute as compute
    from datasets import Dataset, disable_progress_bars
    from transformers import AutoTokenizer

    disable_progress_bars()
    rows = Dataset.from_generator(paragraphs, gen_kwargs={"collection": collection}, cache_dir=out)
    encode = AutoTokenizer.from_pretrained(tokenizer)
    encode.model_max_length = 1 << 60
    lean = {"add_special_tokens": False, "return_attention_mask": False, "return_token_type_ids": False}
    options = {"batched": True, "num_proc": processes, "remove_columns": ["text"]}
    found, taken = measured(lambda: rows.map(lambda batch: encode(batch["text"], **lean), **options))
    column = found.data.column("input_ids")
    return {**taken, "tokens": compute.sum(compute.list_value_length(column)).as_py()}


def paragraphs(collection: str) -> Iterator[dict[str, str]]:
    from liebig.collection import Collection

    for document in Collection(collection).documents():
        for section in document.sections:
            yield from ({"text": paragraph} for paragraph in section.paragraphs)


def child_share(collection: str, tokenizer: str) -> dict[str, Any]:
    """Where the time of one process goes, on a few pieces: processor seconds of each part."""
    from liebig.store.prepare import PIECE, cut
    from liebig.store.writing import build, cut as cut_text
    from liebig.text import sentences
    from liebig.text.tokenizer import Tokenizer

    encoder = Tokenizer.from_folder(tokenizer)
    pieces = cut(Path(collection), PIECE)[:6]
    read, reading = timed(lambda: [list(piece.documents()) for piece in pieces])
    texts = [p for documents in read for d in documents for s in d.sections for p in s.paragraphs]
    found, splitting = timed(lambda: [list(cut_text(text, sentences.spans(text))) for text in texts])
    batches = [[s for group in found[i : i + 500] for s in group] for i in range(0, len(found), 500)]
    _, library = timed(
        lambda: [encoder.core.encode_batch_fast(b, add_special_tokens=False) and 0 for b in batches]
    )
    encoder.encode_packed, encoding = counted(encoder.encode_packed)  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as folder:
        shards, building = timed(lambda: [build(documents, encoder) for documents in read])
        _, saving = timed(lambda: [s.save(Path(folder) / f"{i}.npz") for i, s in enumerate(shards)])
    packing = building - splitting - encoding[0]
    parts = {"reading JSON": reading, "sentences": splitting, "packing": packing, "saving": saving}
    return {
        "library": library,
        "encoding": encoding[0],
        "parts": parts,
        "tokens": sum(len(s.tokens) for s in shards),
    }


def counted(function: Callable[..., Any]) -> tuple[Callable[..., Any], list[float]]:
    """The function, and the processor seconds spent in it so far."""
    spent = [0.0]

    def wrapper(*values: Any) -> Any:
        result, seconds = timed(lambda: function(*values))
        spent[0] += seconds
        return result

    return wrapper, spent


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    began = time.process_time()
    result = function()
    return result, time.process_time() - began


def child_batches(store: str) -> dict[str, Any]:
    from liebig.methods.sources.batches import Batches
    from liebig.methods.sources.blocks import BlockSource, ClozeSource
    from liebig.methods.sources.crops import CropSource
    from liebig.methods.sources.spans import SpanSource
    from liebig.methods.sources.token_rows import ExampleSource
    from liebig.store import TokenStore

    opened = TokenStore.open(Path(store))
    sources: dict[str, ExampleSource] = {
        "spans": SpanSource(opened, 126),
        "blocks": BlockSource(opened, 126),
        "crops": CropSource(opened, 256),
        "cloze": ClozeSource(opened, 126),
    }
    rates = {}
    for name, source in sources.items():
        batches = Batches(source, min(1000, len(source)), seed=1)
        batches(0)
        began, tokens = time.process_time(), 0
        for step in range(1, 101):
            tokens += len(batches(step).tokens.values)
        rates[name] = tokens / (time.process_time() - began)
    return rates


CHILDREN: dict[str, Callable[..., dict[str, Any]]] = {
    "init": child_init,
    "learn": child_learn,
    "prepare": child_prepare,
    "map": child_map,
    "share": child_share,
    "batches": child_batches,
}

if __name__ == "__main__":
    main()
