"""How much two epochs of adaptive batches differ, and what that costs in hardness, on fixed similarities.

    python bench/variety.py --data WIKI [--pairs 2000] [--batch 8] [--seeds 3]

The pairs and vectors of `abs.py`. Each way schedules an epoch with every seed; printed are hardness over that of random
batches, and, over every two seeds, the share of batches that come again whole and the share of two pairs in a batch
that meet again. Similarities do not change between seeds, as they do in training, so this is the most that can repeat.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import torch

from abs import embed, read_pairs
from liebig.methods.abs.hardness import VectorSimilarity
from liebig.methods.abs.sampler import AdaptiveBatching, mean, random_hardness
from liebig.methods.abs.schedule import Schedule, Scheduler, in_parts

WAYS: dict[str, tuple[Sequence[Scheduler], int]] = {
    "ours, greedy": (AdaptiveBatching().ways, 1),
    "ours, start = random": (AdaptiveBatching(start="random").ways, 1),
    "ours, parts = 2": (AdaptiveBatching().ways, 2),
    "ours, parts = 4": (AdaptiveBatching().ways, 4),
    "ours, parts = 8": (AdaptiveBatching().ways, 8),
    "paper, greedy": (AdaptiveBatching(preset="paper").ways, 1),
    "paper, beam": (AdaptiveBatching(preset="paper", search="beam").ways, 1),
    "paper, greedy, parts = 4": (AdaptiveBatching(preset="paper").ways, 4),
    "ours, beam": (AdaptiveBatching(search="beam").ways, 1),
}


def again(one: Schedule, two: Schedule) -> tuple[float, float]:
    """The share of batches, and of two pairs in one, that the other epoch has too."""
    batches = [{frozenset(b.tolist()) for b in found.batches} for found in (one, two)]
    mates = [{two for b in some for two in combinations(sorted(b), 2)} for some in batches]
    whole, met = (len(a & b) / len(a) for a, b in (batches, mates))
    return whole, met


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data",
        type=Path,
        required=True,
        help="folder with articles-*.jsonl.xz: rows with title and sections [{h, p}]",
    )
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--width", type=int, default=128, help="numbers of a vector")
    args = parser.parse_args()
    queries, passages, twin = read_pairs(args.data, args.pairs, 600)
    similarity = VectorSimilarity.of(*embed((queries, passages), args.width, "cpu"), torch.from_numpy(twin))
    usual = random_hardness(similarity, args.batch, 0)
    print(f"{len(similarity):,} pairs, batches of {args.batch}, {args.seeds} seeds\n")
    print("| | hardness over random | batches again | meet again |\n| --- | --- | --- | --- |", flush=True)
    for name, (ways, parts) in WAYS.items():
        made = [in_parts(similarity, args.batch, ways, parts, seed=seed) for seed in range(args.seeds)]
        shares = np.mean([again(one, two) for one, two in combinations(made, 2)], axis=0)
        harder = np.mean([mean(one) for one in made]) / usual
        print(f"| {name} | {harder:.2f} | {shares[0]:.1%} | {shares[1]:.1%} |", flush=True)


if __name__ == "__main__":
    main()
