"""`liebig pretrain --plan`: steps, tokens, memory and time, before anything starts.

Lengths are measured on the stores where they exist and assumed where they do not; work is counted in
floating-point operations. Time follows from the speed an earlier run measured, or from that work at a share of
this machine's matrix rate, measured on the spot. Every assumption is printed with the number that rests on it.
"""

from __future__ import annotations

import json
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from liebig.base.progress import duration
from liebig.methods import pretraining as presets, sources
from liebig.methods.base import Load, Method, Size
from liebig.methods.pretraining import PretrainConfig
from liebig.methods.sources import QUERY_TOKENS, CollectionSource
from liebig.model.loading import FolderBackbone, HubBackbone
from liebig.model.settings import TransformerFile, read_model_file
from liebig.store import TokenStore
from liebig.text.tokenizer import Tokenizer
from liebig.train.guards import CPU_TOKENS

GIB = 2**30
BYTES_A_STATE = (
    34  # activations kept for the backward pass, per token, layer and unit of width, in half precision
)
CHUNK_TOKENS = {"cuda": 32_768, "cpu": CPU_TOKENS}  # what `chunk_tokens = "auto"` is taken for
USEFUL = {"cuda": 0.40, "cpu": 0.50}  # share of the matrix rate that training reaches
BASE = {"num_hidden_layers": 12, "hidden_size": 768, "vocab_size": 30_522, "intermediate_size": 3072}


@dataclass(frozen=True)
class Plan:
    """What a run will take; `lines` is for people."""

    steps: int | None
    tokens: float | None
    flop_a_step: float
    memory: float
    seconds: float | None
    lines: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(self.lines)


def plan(config: PretrainConfig, run: Path | None = None) -> Plan:
    """The plan of a recipe; its time comes from the speed of an earlier `run` like it, or from counted work."""
    full = presets.resolve(config)
    stores = [TokenStore.open(s.path, hashes=False) for s in full.stores if s.path.is_dir()]
    size = size_of(full, stores)
    load = measured(full, stores) if _all_there(full) else assumed(full)
    where = device()
    flop = flop_a_step(full.objective, size, load)
    if run is None:
        rate = matrix_rate(where)
        a_step = flop / (rate * USEFUL[where])
        basis = f"if training reaches {USEFUL[where]:.0%} of its matrix rate ({big(rate)}FLOP/s)"
    else:
        a_step = (load.encoded + load.decoded) / tokens_per_second(run)
        basis = f"at the {big(tokens_per_second(run))}tokens/s that {run} measured"
    steps = _steps(full, load, a_step)
    memory = memory_of(full, size, load)
    tokens = None if steps is None else steps * (load.encoded + load.decoded)
    seconds = None if steps is None else steps * a_step
    lines = (
        f"{', '.join(presets.describe_preset(config))}; {full.objective.kind} on {full.source.kind}",
        f"model   {size.layers} layers of width {size.width}, {big(size.parameters)}parameters{size.note}",
        f"batch   {load.examples:,} examples, {big(load.encoded + load.decoded)}tokens{load.note}",
        f"length  {_length(full, load, steps)}" + ("" if tokens is None else f", {big(tokens)}tokens"),
        f"memory  {memory / GIB:.2g} GiB for weights, moments and a chunk of {_chunk(full, load):,} tokens",
        f"time    {_time(seconds, a_step)} on one {where} device, {basis}; {big(flop)}FLOP a step",
    )
    return Plan(steps, tokens, flop, memory, seconds, lines)


def size_of(config: PretrainConfig, stores: list[TokenStore]) -> Size:
    """From the recipe, or from the folder's config.json; BERT-base where neither says."""
    model = config.model
    vocab = stores[0].vocab_size if stores else BASE["vocab_size"]
    if isinstance(model, FolderBackbone):
        path = model.path / "config.json"
        if path.is_file():
            return _sizes(read_model_file(path, TransformerFile).model_dump(exclude_none=True), "")
        return _sizes(BASE, " (BERT-base assumed: the folder is not there yet)")
    if isinstance(model, HubBackbone):
        note = "" if "bert-base" in model.name else f" (BERT-base assumed for {model.name})"
        return _sizes(BASE, note)
    return Size(model.layers, model.width, model.intermediate or 4 * model.width, vocab)


def _sizes(config: dict[str, int], note: str) -> Size:
    layers, width = config["num_hidden_layers"], config["hidden_size"]
    return Size(layers, width, config.get("intermediate_size", 4 * width), config["vocab_size"], note)


def _all_there(config: PretrainConfig) -> bool:
    paths: list[Path] = [store.path for store in config.stores]
    paths += [one.collection for one in config.source.members if isinstance(one, CollectionSource)]
    return all(path.is_dir() for path in paths) and bool(config.stores)


def measured(config: PretrainConfig, stores: list[TokenStore]) -> Load:
    """From a sample of what the recipe would draw."""
    tokenizer: Tokenizer = stores[0].tokenizer
    opened = sources.build(config, stores, tokenizer)
    kept, _ = sources.divide(opened, config.evaluation.share)
    tokens = sources.tokens_per_example(kept)
    examples = _examples(config, tokens)
    sources.batches(
        kept, examples, config.seed, config.mix or "batch"
    )  # refuses a batch of more than there is
    return _load(config, examples, tokens, sources.epoch_steps(kept, examples))


def assumed(config: PretrainConfig) -> Load:
    """From the recipe alone."""
    members = config.source.members
    # A decoder reads each side of a symmetric pair once more.
    tokens = [
        one.tokens(config.max_length) * (2 if config.objective.decodes and one.symmetric else 1)
        for one in members
    ]
    mean = sum(tokens) / len(members)
    note = " (lengths assumed: the data is not there yet)"
    return _load(config, _examples(config, mean), mean, None, note)


def _examples(config: PretrainConfig, tokens: float) -> int:
    return config.loop.batch if config.batch_tokens is None else max(1, round(config.batch_tokens / tokens))


def _load(
    config: PretrainConfig, examples: int, tokens: float, epoch_steps: int | None, note: str = ""
) -> Load:
    members = config.source.members
    queries = not any(one.reads_store for one in members)
    share = (QUERY_TOKENS / tokens if queries else 0.5) if config.objective.decodes else 0.0
    total = examples * tokens
    length = min(config.max_length, tokens / members[0].sequences)
    return Load(examples, total * (1 - share), total * share, length, epoch_steps, note)


def flop_a_step(objective: Method.Config, size: Size, load: Load) -> float:
    """Matrix products, forward and backward (three forward passes' worth), attention and vocabulary included."""
    cost = objective.cost(size, load)
    encoder = load.encoded * size.layers * _layer(size, load.length)
    forward = encoder + cost.head_tokens * _layer(size, load.length)
    forward += cost.predictions * 2 * (size.vocab * size.width + size.width**2)
    # A contrast runs the encoder once more without gradient, to fill the cache.
    cache = 0.0 if objective.negatives == "none" else encoder * (1 - cost.frozen)
    return 3 * forward * (1 - cost.frozen) + forward * cost.frozen + cache


def _layer(size: Size, length: float) -> float:
    """FLOP of one layer on one token, forward."""
    return 2 * size.a_layer + 4 * size.width * length


def memory_of(config: PretrainConfig, size: Size, load: Load) -> float:
    """Bytes: weights, gradients and two moments in fp32; what a chunk keeps; and what the method adds."""
    cost = config.objective.cost(size, load)
    predicted = cost.predictions / max(load.encoded + load.decoded, 1.0)
    fixed = 16.0 * (size.parameters + cost.head_layers * size.a_layer) + cost.memory
    chunk = BYTES_A_STATE * size.width * size.layers + 8 * predicted * size.vocab
    return fixed + _chunk(config, load) * chunk


def device() -> str:
    """What a run on this machine would train on."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def _chunk(config: PretrainConfig, load: Load) -> int:
    budget, total = config.loop.chunk_tokens, round(load.encoded + load.decoded)
    if budget == "whole":
        return total
    return min(total, budget if isinstance(budget, int) else CHUNK_TOKENS[device()])


def _steps(config: PretrainConfig, load: Load, a_step: float) -> int | None:
    if config.loop.steps is not None:
        return config.loop.steps
    if config.loop.minutes is not None:
        return max(1, int(config.loop.minutes * 60 / a_step))
    return None if load.epoch_steps is None else max(1, round((config.loop.epochs or 1.0) * load.epoch_steps))


def _length(config: PretrainConfig, load: Load, steps: int | None) -> str:
    if steps is None:
        return f"{config.loop.epochs or 1:g} epochs of data that is not there yet"
    epochs = "" if load.epoch_steps is None else f", {steps / load.epoch_steps:.3g} epochs"
    return f"{steps:,} steps{epochs}"


def _time(seconds: float | None, a_step: float) -> str:
    return f"{duration(1000 * a_step)} for 1,000 steps" if seconds is None else duration(seconds)


def tokens_per_second(run: Path) -> float:
    """The median speed in a run's timing.jsonl."""
    lines = (run / "timing.jsonl").read_text(encoding="utf-8").splitlines()
    rates = [json.loads(line).get("tokens_per_second") for line in lines]
    return statistics.median(rate for rate in rates if rate is not None)


def big(value: float) -> str:
    """`310 M `, `4.1 T `: three digits, a letter and the space before what is counted."""
    for size, letter in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= 0.9995 * size:  # from there on three digits round up to it
            return f"{value / size:.3g} {letter} "
    return f"{value:.3g} "


def matrix_rate(device: str, seconds: float = 0.3) -> float:
    """FLOP/s of a large matrix product here and now.

    The median product counts: on a busy machine one of them may wait for the processor longer than all others take.
    """
    size, dtype = (8192, torch.bfloat16) if device == "cuda" else (1024, torch.float32)
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    a @ b
    times: list[float] = []
    while sum(times) < seconds or len(times) < 5:
        began = time.perf_counter()
        a @ b
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return 2 * size**3 / statistics.median(times)
