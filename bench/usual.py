"""The usual way to take a Condenser step: padded, SDPA, every position through the vocabulary, twice.

Written for the benchmarks, as a user of transformers would write it; nothing here is used by the package.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import nn
from torch.nn import functional as F
from transformers import BertConfig, BertForMaskedLM
from transformers.models.bert.modeling_bert import BertLayer

T = TypeVar("T")
SIZES = {
    "base": {"layers": 12, "width": 768, "heads": 12, "vocab": 30522},
    "mini": {"layers": 6, "width": 384, "heads": 12, "vocab": 30522},
    "nano": {"layers": 4, "width": 256, "heads": 4, "vocab": 30522},
}


def bert_config(size: str, dropout: float) -> BertConfig:
    """BERT's own configuration at the size asked for; attention dropout is 0 on both sides of a comparison."""
    shape = SIZES[size]
    return BertConfig(
        vocab_size=shape["vocab"],
        hidden_size=shape["width"],
        num_hidden_layers=shape["layers"],
        num_attention_heads=shape["heads"],
        intermediate_size=4 * shape["width"],
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=0.0,
        attn_implementation="sdpa",
    )


class UsualCondenser(nn.Module):
    """Condenser on BertForMaskedLM with two head layers; logits at every position, for both losses."""

    def __init__(self, config: BertConfig, n_head_layers: int = 2) -> None:
        super().__init__()
        self.lm = BertForMaskedLM(config)
        self.head = nn.ModuleList(BertLayer(config) for _ in range(n_head_layers))
        self.early = config.num_hidden_layers // 2

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Late MLM plus head MLM, labels −100 where nothing is asked."""
        out = self.lm.bert(ids, attention_mask=mask, output_hidden_states=True)
        late, early = out.last_hidden_state, out.hidden_states[self.early]
        states = torch.cat([late[:, :1], early[:, 1:]], dim=1)
        additive = (1.0 - mask[:, None, None, :].to(states.dtype)) * torch.finfo(states.dtype).min
        for layer in self.head:
            states = layer(states, attention_mask=additive)
            states = states[0] if isinstance(states, tuple) else states
        losses = [
            F.cross_entropy(self.lm.cls(s).flatten(0, 1), labels.flatten(), ignore_index=-100)
            for s in (late, states)
        ]
        return torch.stack(losses).sum()


def natural_lengths(n: int, longest: int, mean: float, seed: int = 0) -> torch.Tensor:
    """Lengths of spans made of whole sentences: most near the limit, some short; `mean` is reached by shrinking."""
    generator = torch.Generator().manual_seed(seed)
    long = torch.randint(int(0.62 * longest), longest + 1, (n,), generator=generator)
    short = torch.randint(8, longest, (n,), generator=generator)
    pick = torch.rand(n, generator=generator)
    share = (float(long.float().mean()) - mean) / max(1e-9, float((long - short).float().mean()))
    return torch.where(pick < share, short, long)


def matmul_rate(size: int = 8192, dtype: torch.dtype = torch.bfloat16) -> float:
    """The chip's measured ceiling: FLOP/s of a large matrix product on random data."""
    a, b = (torch.randn(size, size, device="cuda", dtype=dtype) for _ in range(2))
    for _ in range(3):
        a @ b
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(20):
        a @ b
    end.record()
    torch.cuda.synchronize()
    return 20 * 2 * size**3 / (start.elapsed_time(end) / 1e3)


def condenser_flops(size: str, lengths: torch.Tensor, masked: int, n_head_layers: int = 2) -> float:
    """Useful FLOP of one step, forward and backward: real tokens, and the vocabulary at masked positions only."""
    shape = SIZES[size]
    width, layers, tokens = shape["width"], shape["layers"] + n_head_layers, float(lengths.sum())
    dense = layers * 12 * width**2 * tokens
    attention = layers * 2 * width * float((lengths.double() ** 2).sum())
    vocabulary = 2 * masked * (width * shape["vocab"] + width**2)
    return 6 * (dense + attention + vocabulary)


def warmed(run: Callable[[T], object], batches: Sequence[T], rounds: int = 8) -> None:
    """Run all batches until the allocator asks for no more memory: tensors of new sizes cost it time at first."""
    reserved = -1
    for _ in range(rounds):
        for one in batches:
            run(one)
        if not torch.cuda.is_available() or torch.cuda.memory_reserved() == reserved:
            return
        reserved = torch.cuda.memory_reserved()


def peak_memory() -> float:
    """GiB that were in use at the most since the last reset, and what lies in CUDA graphs between their runs."""
    graphs = [one for one in torch.cuda.memory_snapshot() if tuple(one["segment_pool_id"]) != (0, 0)]
    resting = sum(one["total_size"] - one["allocated_size"] for one in graphs)
    return (torch.cuda.max_memory_allocated() + resting) / 2**30


def profile(run: Callable[[T], object], batches: Sequence[T], rows: int = 30) -> None:
    """Each kernel's time in one step of every batch, and the time they leave."""
    activities = [torch.profiler.ProfilerActivity.CUDA, torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities) as recorded:
        start = time.perf_counter()
        for one in batches:
            run(one)
        torch.cuda.synchronize()
        wall = time.perf_counter() - start
    kernels = [e for e in recorded.key_averages() if str(e.device_type).endswith("CUDA")]
    busy = sum(e.self_device_time_total for e in kernels) / 1e3
    print(f"{len(batches)} steps under the profiler: wall {wall * 1e3:.0f} ms, kernels {busy:.0f} ms")
    for e in sorted(kernels, key=lambda e: -e.self_device_time_total)[:rows]:
        print(f"{e.self_device_time_total / 1e3:8.2f} ms {e.count:5d}  {e.key[:100]}")
