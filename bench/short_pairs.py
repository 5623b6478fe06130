"""Query-as-context's claim of speed: pairs of a passage and a query, against pairs of spans, step by step.

A query is shorter than a span, so its pair costs less arithmetic; whether a step takes less time depends on what
bounds it. coCondenser and CoT-MAE, random tokens at about the lengths of `experiments/queries` (tokens a pair: spans
203 and 414, because a pair of CoT-MAE's goes both ways; queries 120, there 132), the same number of pairs. The last
line is `ratio: X`, the lowest of queries' pairs per second over spans'.

    python bench/short_pairs.py                            (one CUDA device, 12 x 384 and BERT-base)
    python bench/short_pairs.py --device cpu --sizes tiny --pairs 8 --steps 2     (does it run?)
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from cached_step import measure
from liebig.methods.cocondenser import CoCondenser
from liebig.methods.cotmae import DECODER, ENCODER, CotMAE
from liebig.model.backbone import Backbone
from liebig.model.packed import Packed
from liebig.ragged import Ragged, offsets_of
from liebig.train.batch import Batch, Side
from liebig.train.distributed import World
from liebig.train.step import step
from usual import SIZES, natural_lengths

SIZES["small"] = {"layers": 12, "width": 384, "heads": 6, "vocab": 30528}
MASK = 103
QUERY = (6, 26)  # tokens, with the special ones
Lengths = NDArray[np.int64]


def side(lengths: Lengths, owner: Lengths, rate: float, seed: int) -> Side:
    """Random tokens, some of them masked."""
    draw, offsets = np.random.default_rng(seed), offsets_of(lengths)
    tokens = draw.integers(1000, 30000, offsets[-1])
    targets = np.sort(draw.choice(len(tokens), int(rate * len(tokens)), replace=False))
    labels = tokens[targets].copy()
    tokens[targets] = MASK
    return Side(
        Packed.from_ragged(Ragged(tokens, offsets)),
        torch.from_numpy(owner),
        torch.from_numpy(targets),
        torch.from_numpy(labels),
    )


def spans(pairs: int, longest: int, mean: float, seed: int) -> Lengths:
    return natural_lengths(pairs, longest, mean, seed).numpy()


def queries(pairs: int, seed: int) -> Lengths:
    return np.random.default_rng(seed).integers(QUERY[0], QUERY[1] + 1, pairs)


def cocondenser(kind: str, pairs: int, seed: int) -> Batch:
    """Both texts of a pair after each other, 15 % masked."""
    if kind == "spans":
        lengths = spans(2 * pairs, 128, 101.5, seed)
    else:
        lengths = np.stack([queries(pairs, seed), spans(pairs, 128, 115.8, seed)], axis=1).reshape(-1)
    return Batch({"text": side(lengths, np.arange(2 * pairs) // 2, 0.15, seed)}, pairs)


def cotmae(kind: str, pairs: int, seed: int) -> Batch:
    """Spans go both ways; of passage and query the passage is encoded and the query decoded."""
    if kind == "spans":
        encoded, owner = spans(2 * pairs, 128, 103.5, seed), np.arange(2 * pairs) // 2
        decoded = encoded.reshape(-1, 2)[:, ::-1].reshape(-1)
    else:
        encoded, decoded, owner = spans(pairs, 128, 115.8, seed), queries(pairs, seed), np.arange(pairs)
    return Batch(
        {ENCODER: side(encoded, owner, 0.30, seed), DECODER: side(decoded, owner, 0.45, seed + 1)}, pairs
    )


METHODS: dict[str, tuple[Callable[[str, int, int], Batch], Callable[[Backbone], CoCondenser | CotMAE]]] = {
    "coCondenser": (cocondenser, lambda backbone: CoCondenser(CoCondenser.Config(), backbone)),
    "CoT-MAE": (cotmae, lambda backbone: CotMAE(CotMAE.Config(), backbone)),
}


def stepper(size: str, method: str, device: torch.device) -> Callable[[Batch], object]:
    """A step of ours, as a function of a batch."""
    shape = SIZES[size]
    backbone = Backbone.create(
        shape["layers"], shape["width"], shape["heads"], shape["vocab"], dropout=0.0, seed=0
    )
    objective = METHODS[method][1](backbone).to(device).train()
    cuda = device.type == "cuda"
    if cuda:
        backbone.compile()
    optimiser = torch.optim.AdamW(objective.parameters(), lr=1e-4, fused=cuda)
    world = World(device=device)

    def run(batch: Batch) -> object:
        result = step(objective, batch, world, chunk_tokens=262_144, dtype=torch.bfloat16 if cuda else None)
        optimiser.step()
        return result.loss

    return run


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--sizes", nargs="+", default=["small", "base"], choices=list(SIZES))
    parser.add_argument("--pairs", type=int, nargs="+", default=[256, 1024])
    parser.add_argument("--steps", type=int, default=12)
    options = parser.parse_args()
    device, ratios = torch.device(options.device), []
    print("size   method        pairs kind      tokens a pair  ms a step   pairs/s  ratio")
    for size in options.sizes:
        for method, (batch_of, _) in METHODS.items():
            run = stepper(size, method, device)
            for pairs in options.pairs:
                rates = {}
                for kind in ("spans", "queries"):
                    made = [batch_of(kind, pairs, seed) for seed in range(4)]
                    batches = [one.pin() if device.type == "cuda" else one for one in made]
                    rates[kind], _ = measure(run, batches, device, pairs, options.steps)
                    tokens = sum(one.tokens for one in made) / len(made) / pairs
                    ratio = rates[kind] / rates["spans"]
                    print(
                        f"{size:6} {method:12} {pairs:6,} {kind:8} {tokens:14.1f} {1000 * pairs / rates[kind]:10.2f} "
                        f"{rates[kind]:9,.0f} {ratio:6.2f}",
                        flush=True,
                    )
                ratios.append(rates["queries"] / rates["spans"])
            del run
            gc.collect()
    print(f"ratio: {min(ratios):.2f}")


if __name__ == "__main__":
    main()
