"""A contrastive step with cached gradients, against sentence-transformers' CachedMultipleNegativesRankingLoss.

Both sides train a BERT-base on the same pairs of texts' lengths, temperature 0.05, cosine, bf16 autocast, AdamW,
dropout 0.1 but for attention, where only a BERT as it comes has it (shown beside). Theirs runs in bf16 in both passes,
as its trainer has it: in mini-batches, with budgets of tokens where its version has them, and without a cache. Its
FlashAttention needs a package of its own and is not tried. Peak memory is the whole step's. The last part grows the
batch, to show that our memory does not.

    python bench/cached_step.py                  (one CUDA device; about two minutes)
    python bench/cached_step.py --device cpu --size tiny --pairs 32 --steps 2 --grow 64     (does it run?)
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable
from inspect import signature
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import BertConfig, BertModel

from liebig import losses
from liebig.model.backbone import Backbone
from liebig.model.packed import Packed
from liebig.model.pooling import pool
from liebig.ragged import Ragged
from liebig.train.batch import Batch, Side
from liebig.train.distributed import World
from liebig.train.objective import Contrast, Objective, Represented
from liebig.train.step import step
from usual import SIZES, natural_lengths, peak_memory, profile, warmed

Cache = dict[str, int] | None  # settings of the peer's loss with cached gradients; None is the one without
SIZES["tiny"] = {"layers": 2, "width": 64, "heads": 2, "vocab": 30522}
TEMPERATURE = 0.05


class Pairs(Objective):
    """InfoNCE of side a against side b: rows 2i and 2i+1 are the vectors of pair i."""

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.backbone = backbone

    def represent(self, chunk: Batch) -> Represented:
        packed = chunk.sides["texts"].packed
        return Represented(pool(self.backbone(packed).last, packed, "mean"))

    def contrast(self, vectors: Tensor, constants: Tensor | None, batch: Batch, world: World) -> Contrast:
        a, b = vectors[0::2], vectors[1::2]
        found = losses.info_nce(
            a, b, torch.arange(len(a), device=a.device), temperature=TEMPERATURE, similarity="cosine"
        )
        return Contrast(found.loss, {"accuracy": found.accuracy})


def our_batches(pairs: int, n: int, pin: bool) -> list[Batch]:
    """Pairs of natural lengths, mean 82 tokens, at most 128, random tokens."""
    made = []
    for seed in range(n):
        lengths = natural_lengths(2 * pairs, 128, 82, seed).numpy()
        offsets = np.concatenate([[0], lengths.cumsum()])
        tokens = np.random.default_rng(seed).integers(1000, 30000, offsets[-1])
        side = Side(Packed.from_ragged(Ragged(tokens, offsets)), torch.arange(2 * pairs) // 2)
        batch = Batch({"texts": side}, pairs)
        made.append(batch.pin() if pin else batch)
    return made


def their_batches(ours: list[Batch]) -> list[list[dict[str, Tensor]]]:
    """The same sequences as sentence-transformers gets them: padded to the longest of each column."""
    made = []
    for batch in ours:
        packed = batch.sides["texts"].packed
        rows = [packed.tokens[a:b] for a, b in zip(packed.bounds[:-1], packed.bounds[1:])]
        columns = []
        for side in (rows[0::2], rows[1::2]):
            ids = torch.nn.utils.rnn.pad_sequence([r.clone() for r in side], batch_first=True)
            columns.append({"input_ids": ids, "attention_mask": (ids != 0).long()})
        made.append(columns)
    return made


def measure(
    run: Callable[[Any], object], batches: list[Any], device: torch.device, pairs: int, steps: int
) -> tuple[float, float]:
    """Pairs a second and peak GiB of the steps after warm-up."""
    warmed(run, batches)
    cuda = device.type == "cuda"
    if cuda:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    for i in range(steps):
        run(batches[i % len(batches)])
    if cuda:
        torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    return pairs * steps / seconds, peak_memory() if cuda else 0.0


class Ours:
    """One step of ours, as a function of a batch; `replay` is how far the second pass was from the first."""

    def __init__(self, size: str, device: torch.device, dtype: torch.dtype | None, chunk: int) -> None:
        shape = SIZES[size]
        backbone = Backbone.create(
            shape["layers"], shape["width"], shape["heads"], shape["vocab"], dropout=0.1, seed=0
        )
        self.objective = Pairs(backbone).to(device).train()
        if device.type == "cuda":
            backbone.compile()
        self.optimiser = torch.optim.AdamW(self.objective.parameters(), lr=1e-5, fused=device.type == "cuda")
        self.world, self.chunk, self.dtype = World(device=device), chunk, dtype
        self.replay = 0.0

    def __call__(self, batch: Batch) -> Tensor:
        result = step(
            self.objective, batch, self.world, chunk_tokens=self.chunk, dtype=self.dtype, diagnose=True
        )
        self.optimiser.step()
        self.replay = float(result.metrics["replay"])
        return result.loss


def theirs(
    size: str, device: torch.device, dtype: torch.dtype | None, cache: Cache, attention_dropout: float
) -> Callable[[list[dict[str, Tensor]]], Tensor]:
    """One step of sentence-transformers', as a function of a batch; `cache` is one of `their_ways`."""
    from sentence_transformers import SentenceTransformer, models
    from sentence_transformers.losses import (
        CachedMultipleNegativesRankingLoss,
        MultipleNegativesRankingLoss,
    )

    shape = SIZES[size]
    config = BertConfig(
        vocab_size=shape["vocab"],
        hidden_size=shape["width"],
        num_hidden_layers=shape["layers"],
        num_attention_heads=shape["heads"],
        intermediate_size=4 * shape["width"],
        attention_probs_dropout_prob=attention_dropout,
    )
    model = SentenceTransformer(
        modules=[Body(BertModel(config)), models.Pooling(shape["width"], "mean")], device=device
    )
    model.train()
    loss: torch.nn.Module = MultipleNegativesRankingLoss(model, scale=1 / TEMPERATURE)
    if cache is not None:
        loss = CachedMultipleNegativesRankingLoss(model, scale=1 / TEMPERATURE, **cache)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=device.type == "cuda")

    def run(columns: list[dict[str, Tensor]]) -> Tensor:
        optimiser.zero_grad()
        moved = [{k: v.to(device, non_blocking=True) for k, v in column.items()} for column in columns]
        with torch.autocast(device.type, dtype or torch.bfloat16, enabled=dtype is not None):
            value = loss(moved, None)
            value.backward()  # inside autocast: the second forward pass happens here, and would be fp32 outside
        optimiser.step()
        return value.detach()

    return run


def their_ways(minis: list[int], budgets: list[int]) -> dict[str, Cache]:
    """The settings that this version of sentence-transformers has: mini-batches, budgets of tokens, no cache."""
    from sentence_transformers.losses import CachedMultipleNegativesRankingLoss

    ways: dict[str, Cache] = {"no cache": None}
    ways |= {f"mini-batches of {mini:,}": {"mini_batch_size": mini} for mini in minis}
    if "mini_batch_num_tokens" in signature(CachedMultipleNegativesRankingLoss.__init__).parameters:
        ways |= {f"mini-batches of {n:,} tokens": {"mini_batch_num_tokens": n} for n in budgets}
    else:
        print("sentence-transformers: this version has no mini_batch_num_tokens")
    return ways


class Body(torch.nn.Module):
    """A BertModel as a sentence-transformers module, with SDPA."""

    def __init__(self, model: BertModel) -> None:
        super().__init__()
        model.set_attn_implementation("sdpa")
        self.auto_model = model

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        out = self.auto_model(features["input_ids"], attention_mask=features["attention_mask"])
        return features | {"token_embeddings": out.last_hidden_state}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--size", default="base", choices=list(SIZES))
    parser.add_argument("--pairs", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument(
        "--chunk-tokens",
        type=int,
        nargs="+",
        default=[65_536, 1_048_576],
        help="the last holds the whole batch",
    )
    parser.add_argument("--mini", type=int, nargs="+", default=[512, 1024, 2048], help="their mini-batches")
    parser.add_argument(
        "--mini-tokens", type=int, nargs="*", default=[65_536, 262_144], help="their budgets of tokens"
    )
    parser.add_argument("--grow", type=int, nargs="*", default=[2048, 32768])
    parser.add_argument("--profile", action="store_true", help="ours alone, and where its time goes")
    options = parser.parse_args()
    device = torch.device(options.device)
    dtype = torch.bfloat16 if device.type == "cuda" else None
    batches = our_batches(options.pairs, 4, device.type == "cuda")
    rate, peak = 0.0, 0.0
    for chunk in options.chunk_tokens:
        mine = Ours(options.size, device, dtype, chunk)
        found = measure(mine, batches, device, options.pairs, options.steps)
        print(f"liebig, chunks of {chunk:,} tokens: {found[0]:,.0f} pairs/s, {found[1]:.1f} GiB")
        print(
            f"  second pass against first, with dropout: {mine.replay:.1e} of the largest value", flush=True
        )
        rate, peak = max((rate, peak), found)
        if options.profile:
            profile(mine, batches)
        del mine
        free(device)
    if options.profile:
        return
    best, memory, better = 0.0, 0.0, ""
    padded = their_batches(batches)
    ways = their_ways(options.mini, options.mini_tokens)
    for way, cache in ways.items():
        try:
            other, used = measure(
                theirs(options.size, device, dtype, cache, 0.0), padded, device, options.pairs, options.steps
            )
        except torch.OutOfMemoryError:
            print(f"sentence-transformers, {way}: out of memory")
            other, used = 0.0, 0.0
        else:
            print(f"sentence-transformers, {way}: {other:,.0f} pairs/s, {used:.1f} GiB", flush=True)
        best, memory, better = max((best, memory, better), (other, used, way))
        free(device)
    made = theirs(options.size, device, dtype, ways[better], 0.1)
    usual, _ = measure(made, padded, device, options.pairs, options.steps)
    print(f"sentence-transformers, {better}, BERT's own dropout of 0.1 in attention: {usual:,.0f} pairs/s")
    del made
    free(device)
    grow(options, device, dtype)
    print(f"against BERT as it comes, with dropout in attention: {rate / usual:.2f}")
    if peak:
        print(f"memory against the best of theirs: {peak / memory:.2f}")
    print(f"ratio: {rate / best:.2f}")


def free(device: torch.device) -> None:
    """Give back what the side before held."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def grow(options: argparse.Namespace, device: torch.device, dtype: torch.dtype | None) -> None:
    """Peak memory of one step as the batch grows, less the vectors and their gradients."""
    run = Ours(options.size, device, dtype, options.chunk_tokens[0])
    for pairs in options.grow:
        batch = our_batches(pairs, 1, device.type == "cuda")
        rate, peak = measure(run, batch, device, pairs, 2)
        vectors = 2 * pairs * SIZES[options.size]["width"] * 4 / 2**30
        print(f"liebig, {pairs} pairs: {rate:,.0f} pairs/s, peak {peak:.2f} GiB (vectors {vectors:.2f} GiB)")


if __name__ == "__main__":
    main()
