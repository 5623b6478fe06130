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
from liebig.methods import (
    objective_configs as objectives,
    pretraining as presets,
    source_configs as kinds,
    sources,
)
from liebig.methods.moco import check_queue
from liebig.methods.pretraining import PretrainConfig
from liebig.model.loading import FolderBackbone, HubBackbone
from liebig.store.store import TokenStore
from liebig.text.tokenizer import Tokenizer
from liebig.train.memory import CPU_TOKENS

GIB = 2**30
FILLED = 0.8  # share of max_length that a block or span of whole sentences has
QUERY_TOKENS = 10
TEXT_TOKENS = 48  # of texts of all lengths, as a teacher's are
BYTES_A_STATE = (
    34  # activations kept for the backward pass, per token, layer and unit of width, in half precision
)
CHUNK_TOKENS = {"cuda": 32_768, "cpu": CPU_TOKENS}  # what `chunk_tokens = "auto"` is taken for
USEFUL = {"cuda": 0.40, "cpu": 0.50}  # share of the matrix rate that training reaches
BASE = {"num_hidden_layers": 12, "hidden_size": 768, "vocab_size": 30_522, "intermediate_size": 3072}


@dataclass(frozen=True)
class Size:
    """What work and memory depend on."""

    layers: int
    width: int
    intermediate: int
    vocab: int
    note: str = ""

    @property
    def a_layer(self) -> int:
        """Parameters of a layer."""
        return 4 * self.width**2 + 2 * self.width * self.intermediate

    @property
    def parameters(self) -> int:
        return self.layers * self.a_layer + (self.vocab + 512) * self.width + self.width**2


@dataclass(frozen=True)
class Load:
    """An update: examples, tokens that are encoded, tokens that are decoded, and an epoch where it is known."""

    examples: int
    encoded: float
    decoded: float
    length: float
    epoch_steps: int | None
    note: str = ""


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
    if isinstance(full.objective, objectives.MocoConfig):
        check_queue(full.objective.queue or 0, full.loop.batch)
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
        f"{', '.join(presets.said(config))}; {full.objective.kind} on {full.source.kind}",
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
            return _sizes(json.loads(path.read_text(encoding="utf-8")), "")
        return _sizes(BASE, " (BERT-base assumed: the folder is not there yet)")
    if isinstance(model, HubBackbone):
        note = "" if "bert-base" in model.name else f" (BERT-base assumed for {model.name})"
        return _sizes(BASE, note)
    return Size(model.layers, model.width, model.intermediate or 4 * model.width, vocab)


def _sizes(found: dict[str, int], note: str) -> Size:
    layers, width = found["num_hidden_layers"], found["hidden_size"]
    return Size(layers, width, found.get("intermediate_size", 4 * width), found["vocab_size"], note)


def _all_there(config: PretrainConfig) -> bool:
    collections = [
        part.collection
        for part in kinds.parts(config.source)
        if isinstance(part, kinds.PairsConfig | kinds.QueriesConfig)
    ]
    paths: list[Path] = [store.path for store in config.stores] + collections
    return all(path.is_dir() for path in paths) and bool(config.stores)


def measured(config: PretrainConfig, stores: list[TokenStore]) -> Load:
    """From a sample of what the recipe would draw."""
    tokenizer: Tokenizer = stores[0].tokenizer
    found = sources.build(config, stores, tokenizer)
    kept, _ = sources.divide(found, config.evaluation.share)
    tokens = sources.tokens_per_example(kept)
    examples = _examples(config, tokens)
    sources.batches(
        kept, examples, config.seed, config.mix or "batch"
    )  # refuses a batch of more than there is
    return _load(config, examples, tokens, sources.epoch_steps(kept, examples))


def assumed(config: PretrainConfig) -> Load:
    """From the recipe alone."""
    tokens = sum(_tokens(part, config) for part in kinds.parts(config.source)) / len(
        kinds.parts(config.source)
    )
    note = " (lengths assumed: the data is not there yet)"
    return _load(config, _examples(config, tokens), tokens, None, note)


def _tokens(part: kinds.Single, config: PretrainConfig) -> float:
    """Tokens of an example."""
    whole = FILLED * config.max_length
    if isinstance(part, kinds.BlocksConfig):
        return whole
    if isinstance(part, kinds.TextsConfig):
        return part.group * min(TEXT_TOKENS, whole)
    if isinstance(part, kinds.CropsConfig):
        mean = part.window * ((part.shortest or 0.0) + part.longest) / 2
        return 2 * (mean * (1 - (part.delete or 0.0)) + 2)
    if isinstance(part, kinds.SpansConfig):
        return (4 if isinstance(config.objective, objectives.CotmaeConfig) else 2) * whole
    return whole + QUERY_TOKENS


def _examples(config: PretrainConfig, tokens: float) -> int:
    return config.loop.batch if config.batch_tokens is None else max(1, round(config.batch_tokens / tokens))


def _sequences(part: kinds.Single) -> int:
    """Sequences of an example."""
    return part.group if isinstance(part, kinds.TextsConfig) else 1 if part.kind == "blocks" else 2


def _load(
    config: PretrainConfig, examples: int, tokens: float, epoch_steps: int | None, note: str = ""
) -> Load:
    decoder = isinstance(config.objective, objectives.CotmaeConfig)
    queries = all(isinstance(p, kinds.QueriesConfig | kinds.PairsConfig) for p in kinds.parts(config.source))
    share = (QUERY_TOKENS / tokens if queries else 0.5) if decoder else 0.0
    total = examples * tokens
    length = min(config.max_length, tokens / _sequences(kinds.parts(config.source)[0]))
    return Load(examples, total * (1 - share), total * share, length, epoch_steps, note)


def flop_a_step(objective: objectives.Objective, size: Size, load: Load) -> float:
    """Matrix products, forward and backward (three forward passes' worth), attention and vocabulary included."""
    encoder = load.encoded * size.layers * _layer(size, load.length)
    forward, kept = encoder, 0.0
    forward += load.encoded * head_layers(objective) * _layer(size, load.length)
    if isinstance(objective, objectives.CotmaeConfig):
        forward += load.decoded * (objective.n_decoder_layers or 2) * _layer(size, load.length)
    forward += masked_tokens(objective, load) * 2 * (size.vocab * size.width + size.width**2)
    if isinstance(objective, objectives.MocoConfig):
        forward, kept = forward / 2, forward / 2  # keys are half of the tokens, and have no gradient
    if not objectives.is_local(objective):
        kept += encoder if not isinstance(objective, objectives.MocoConfig) else encoder / 2
    return 3 * forward + kept


def head_layers(objective: objectives.Objective) -> int:
    """Layers of the Condenser head that are run; a contrast alone runs none."""
    alone = isinstance(objective, objectives.CocondenserConfig) and not objective.mlm
    return objective.n_head_layers if isinstance(objective, objectives.Head) and not alone else 0


def _layer(size: Size, length: float) -> float:
    """FLOP of one layer on one token, forward."""
    return 2 * size.a_layer + 4 * size.width * length


def masked_tokens(objective: objectives.Objective, load: Load) -> float:
    """Positions that reach the vocabulary in a step, over all terms."""
    if isinstance(objective, objectives.CotmaeConfig):
        share = 1.0 if objective.decoder == "causal" else objective.decoder_rate
        return load.encoded * objective.encoder_rate + load.decoded * share
    if isinstance(objective, objectives.Head) and head_layers(objective):
        return load.encoded * objective.mask_rate * (1 + objective.late_mlm)
    if isinstance(objective, objectives.MlmConfig):
        return load.encoded * objective.mask_rate
    return 0.0


def memory_of(config: PretrainConfig, size: Size, load: Load) -> float:
    """Bytes: weights, gradients and two moments in fp32; what a chunk keeps; a queue and a second encoder."""
    tokens = _chunk(config, load)
    share = masked_tokens(config.objective, load) / max(load.encoded + load.decoded, 1.0)
    fixed = 16.0 * size.parameters
    fixed += 16.0 * head_layers(config.objective) * size.a_layer
    if isinstance(config.objective, objectives.MocoConfig):
        fixed += 4.0 * size.parameters + 4.0 * (config.objective.queue or 0) * size.width
    return fixed + tokens * (BYTES_A_STATE * size.width * size.layers + 8 * share * size.vocab)


def device() -> str:
    """What a run on this machine would train on."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def _chunk(config: PretrainConfig, load: Load) -> int:
    wanted = config.loop.chunk_tokens
    total = round(load.encoded + load.decoded)
    return (
        min(total, wanted)
        if isinstance(wanted, int)
        else total
        if wanted == "whole"
        else min(total, CHUNK_TOKENS[device()])
    )


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
    found = [json.loads(line).get("tokens_per_second") for line in lines]
    return statistics.median(rate for rate in found if rate is not None)


def big(value: float) -> str:
    """`310 M `, `4.1 T `: three digits, a letter and the space before what is counted."""
    for size, letter in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= 0.9995 * size:  # from there on three digits round up to it
            return f"{value / size:.3g} {letter} "
    return f"{value:.3g} "


def matrix_rate(device: str, seconds: float = 0.3) -> float:
    """FLOP/s of a large matrix product here and now."""
    size, dtype = (8192, torch.bfloat16) if device == "cuda" else (1024, torch.float32)
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    a @ b
    done, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        a @ b
        done += 1
        if device == "cuda":
            torch.cuda.synchronize()
    return done * 2 * size**3 / (time.perf_counter() - began)
