"""A Condenser step on one GPU, against the usual way in the same run.

The usual way: sequences padded to the longest, SDPA, bf16 autocast, every position through the vocabulary, twice;
as it is and compiled. Ours: `liebig.methods.condenser` through `liebig.train.step`, compiled, from batches in
page-locked memory. Both: the same sequences (natural lengths, mean 82, at most 128), 15 % masked, whole batch in one
pass, clipping, fused AdamW, fp32 weights. Useful share: FLOP of real tokens (the vocabulary at masked positions only)
over time, over the chip's rate for a large bf16 product measured in this run.

    python bench/pretrain_step.py                          (BERT-base, dropout 0)
    python bench/pretrain_step.py --dropout 0.1
    python bench/pretrain_step.py --size mini              (6 x 384)
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch

from liebig.methods.condenser import Condenser
from liebig.model.backbone import Backbone
from liebig.model.packed import Packed
from liebig.ragged import Ragged
from liebig.train.batch import Batch, Side
from liebig.train.distributed import World
from liebig.train.step import step
from usual import (
    SIZES,
    UsualCondenser,
    bert_config,
    condenser_flops,
    matmul_rate,
    natural_lengths,
    peak_memory,
    profile,
    warmed,
)

MASK = 103
CUDA = torch.device("cuda")


@dataclass(frozen=True)
class Work:
    """One batch for both sides, and what it costs."""

    packed: Batch
    padded: tuple[torch.Tensor, torch.Tensor, torch.Tensor]
    tokens: int
    flops: float


def work(size: str, sequences: int, seed: int) -> Work:
    """Random tokens at natural lengths, 15 % masked."""
    generator = np.random.default_rng(seed)
    lengths = natural_lengths(sequences, 128, 82, seed)
    offsets = np.concatenate([[0], lengths.numpy().cumsum()])
    tokens = generator.integers(1000, 30000, offsets[-1])
    targets = np.sort(generator.choice(len(tokens), int(0.15 * len(tokens)), replace=False))
    labels = tokens[targets].copy()
    tokens[targets] = MASK
    side = Side(
        Packed.from_ragged(Ragged(tokens, offsets)),
        torch.arange(sequences),
        torch.from_numpy(targets),
        torch.from_numpy(labels),
    )
    flops = condenser_flops(size, lengths, len(targets))
    return Work(Batch({"text": side}, sequences).pin(), padded(side, lengths), int(offsets[-1]), flops)


def padded(side: Side, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The same batch as input ids, attention mask and labels, padded to the longest."""
    bounds = side.packed.bounds
    whole = torch.full((side.packed.total,), -100)
    assert side.targets is not None
    assert side.labels is not None
    whole[side.targets] = side.labels
    pad = torch.nn.utils.rnn.pad_sequence
    rows = [(side.packed.tokens[a:b], whole[a:b]) for a, b in pairwise(bounds)]
    ids = pad([ids for ids, _ in rows], batch_first=True)
    labels = pad([labels for _, labels in rows], batch_first=True, padding_value=-100)
    mask = torch.arange(ids.shape[1])[None, :] < lengths[:, None]
    return ids.pin_memory(), mask.long().pin_memory(), labels.pin_memory()


def ours(size: str, dropout: float) -> Callable[[Work], torch.Tensor]:
    """A step of ours."""
    shape = SIZES[size]
    backbone = Backbone.create(
        shape["layers"], shape["width"], shape["heads"], shape["vocab"], dropout=dropout, seed=0
    )
    objective = Condenser(Condenser.Config(), backbone).to(CUDA).train()
    backbone.compile()
    parameters = list(objective.parameters())
    optimiser = torch.optim.AdamW(parameters, lr=1e-4, fused=True)
    world = World(device=CUDA)

    def run(one: Work) -> torch.Tensor:
        result = step(objective, one.packed, world, dtype=torch.bfloat16)
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        return result.loss

    return run


def usual(size: str, dropout: float, compiled: bool) -> Callable[[Work], torch.Tensor]:
    """A step of the usual way."""
    torch.manual_seed(0)
    model = UsualCondenser(bert_config(size, dropout)).to(CUDA).train()
    called = torch.compile(model) if compiled else model
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def run(one: Work) -> torch.Tensor:
        optimiser.zero_grad(set_to_none=True)
        ids, mask, labels = (x.to(CUDA, non_blocking=True) for x in one.padded)
        with torch.autocast("cuda", torch.bfloat16):
            loss = called(ids, mask, labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        return loss

    return run


@dataclass(frozen=True)
class Measured:
    """Real tokens a second, useful share of the chip's rate, peak GiB, and the loss at the end."""

    rate: float
    share: float
    peak: float
    loss: float


def measure(run: Callable[[Work], torch.Tensor], works: list[Work], steps: int, ceiling: float) -> Measured:
    warmed(run, works)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    for i in range(steps):
        loss = run(works[i % len(works)])
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    done = [works[i % len(works)] for i in range(steps)]
    peak = peak_memory()
    flops = sum(one.flops for one in done)
    return Measured(
        sum(one.tokens for one in done) / seconds, flops / seconds / ceiling, peak, float(loss.detach())
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", default="base", choices=list(SIZES))
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--sequences", type=int, default=1024, help="sequences in a batch")
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--batches", type=int, default=4, help="batches of different lengths, in turn")
    parser.add_argument("--profile", action="store_true", help="ours alone, and where its time goes")
    options = parser.parse_args()
    ceiling = matmul_rate()
    print(f"{options.size}, dropout {options.dropout}, {options.sequences} sequences")
    print(f"ceiling: {ceiling / 1e12:.0f} TFLOP/s")
    works = [work(options.size, options.sequences, seed) for seed in range(options.batches)]
    if options.profile:
        run = ours(options.size, options.dropout)
        found = measure(run, works, options.steps, ceiling)
        print(f"{found.rate:,.0f} tokens/s, share {found.share:.3f}, peak {found.peak:.1f} GiB")
        profile(run, works)
        return
    rows: dict[str, Measured] = {}
    for name, make in {
        "usual": lambda: usual(options.size, options.dropout, compiled=False),
        "usual, compiled": lambda: usual(options.size, options.dropout, compiled=True),
        "liebig": lambda: ours(options.size, options.dropout),
    }.items():
        rows[name] = one = measure(make(), works, options.steps, ceiling)
        speed = f"{one.rate:>11,.0f} tokens/s  share {one.share:.3f}"
        print(f"{name:<16} {speed}  peak {one.peak:5.1f} GiB  loss {one.loss:.3f}")
        torch.cuda.empty_cache()
    mine, plain, compiled = rows["liebig"], rows["usual"], rows["usual, compiled"]
    print(
        f"memory: {mine.peak / plain.peak:.2f} of the usual, {mine.peak / compiled.peak:.2f} of the compiled"
    )
    print(
        f"against the eager: {mine.rate / plain.rate:.2f}, against the compiled: {mine.rate / compiled.rate:.2f}"
    )
    print(f"ratio: {mine.rate / max(plain.rate, compiled.rate):.2f}")


if __name__ == "__main__":
    main()
