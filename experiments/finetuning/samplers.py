"""Ways of putting labelled pairs into batches, beside each other: random, ABS, B3's communities, CDE's clusters.

    python experiments/finetuning/samplers.py DATA OUT [--seeds 1 2 3] [--questions 4000] [--tested 600]

A sampler is one function: from the vectors of the questions and of their positives (unit length, made anew by the model
before every epoch), the number of each positive, the batch and a seed, to the order of an epoch. The encoder of the
package learns InfoNCE in the batch for three epochs (64 pairs, rate 5e-5, no mined negatives), on SQuAD and MedQuAD;
OUT/samplers.json has nDCG@10 of the encoder alone after it.

- `random`: a permutation.
- `abs`: adaptive batch scheduling (ABS), greedy, by Liebig's scheduler.
- `b3`: B3 (arXiv 2505.11293): each question is joined with the ranks 5 to 35 of its positives' list, communities of
  at most half a batch are found by label propagation (the paper takes METIS), and are put one after the other.
- `cde`: CDE (arXiv 2410.02525): k-means of questions and positives side by side, four batches to a cluster.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

sys.path.append(str(Path(__file__).parents[1] / "encoders"))

import evaluate
from liebig import encoders
from liebig.methods.abs.hardness import VectorSimilarity
from liebig.methods.abs.schedule import schedule
from liebig.model.encoder import Encoder
from liebig.model.packed import Packed
from liebig.ragged import Ragged

Longs = NDArray[np.int64]
Way = Callable[[Tensor, Tensor, Longs, int, int], Longs]
BATCH, EPOCHS, LR, TEMPERATURE = 64, 3, 5e-5, 0.05
SKIPPED, KEPT, ROUNDS = 5, 30, 5  # of B3's graph and its label propagation
BATCHES_OF_A_CLUSTER, K_MEANS = 4, 20
LONGEST = (64, 192)  # tokens of a question and of a passage


def random_order(q_ND: Tensor, p_ND: Tensor, positives: Longs, batch: int, seed: int) -> Longs:
    return np.random.default_rng(seed).permutation(len(q_ND))


def abs_order(q_ND: Tensor, p_ND: Tensor, positives: Longs, batch: int, seed: int) -> Longs:
    similarity = VectorSimilarity.of(q_ND, p_ND, torch.from_numpy(positives))
    return schedule(similarity, batch, seed=seed).order("shuffled", seed)


def b3_order(q_ND: Tensor, p_ND: Tensor, positives: Longs, batch: int, seed: int) -> Longs:
    rng, n = np.random.default_rng(seed), len(q_ND)
    same = torch.from_numpy(positives).to(q_ND.device)
    scores = (q_ND @ p_ND.T).masked_fill_(same[:, None] == same[None], -9.0)
    near = scores.topk(min(SKIPPED + KEPT, n - 1), dim=1).indices[:, SKIPPED:].cpu().numpy()
    one, two = np.repeat(np.arange(n), near.shape[1]), near.reshape(-1)
    begins, ends = np.concatenate([one, two]), np.concatenate([two, one])
    ends, starts = ends[np.argsort(begins, kind="stable")], np.searchsorted(np.sort(begins), np.arange(n + 1))
    label, size = np.arange(n), np.ones(n, np.int64)
    for _ in range(ROUNDS):
        for i in rng.permutation(n):
            labels, counts = np.unique(label[ends[starts[i] : starts[i + 1]]], return_counts=True)
            room = (size[labels] < batch // 2) | (labels == label[i])
            if room.any():
                new = labels[room][np.argmax(counts[room])]
                size[label[i]] -= 1
                size[new] += 1
                label[i] = new
    return in_batches([np.flatnonzero(label == group) for group in np.unique(label)], batch, rng)


def cde_order(q_ND: Tensor, p_ND: Tensor, positives: Longs, batch: int, seed: int) -> Longs:
    rng, x_NE = np.random.default_rng(seed), F.normalize(torch.cat([q_ND, p_ND], dim=1), dim=1)
    k = max(2, len(x_NE) // (BATCHES_OF_A_CLUSTER * batch))
    centres_KE = x_NE[torch.from_numpy(rng.choice(len(x_NE), k, replace=False))]
    label = torch.zeros(len(x_NE), dtype=torch.long, device=x_NE.device)
    for _ in range(K_MEANS):
        label = (x_NE @ centres_KE.T).argmax(1)
        centres_KE = F.normalize(torch.zeros_like(centres_KE).index_add_(0, label, x_NE), dim=1)
    numbers = label.cpu().numpy()
    return in_batches([np.flatnonzero(numbers == one) for one in range(k)], batch, rng)


def in_batches(groups: list[Longs], batch: int, rng: np.random.Generator) -> Longs:
    """The groups in random order, cut into batches, and these in random order; the rest is last."""
    flat = np.concatenate([rng.permutation(groups[i]) for i in rng.permutation(len(groups))])
    whole = len(flat) // batch
    return np.concatenate(
        [
            flat[: whole * batch].reshape(whole, batch)[rng.permutation(whole)].reshape(-1),
            flat[whole * batch :],
        ]
    )


WAYS: dict[str, Way] = {"random": random_order, "abs": abs_order, "b3": b3_order, "cde": cde_order}


class Pairs:
    """A set's passages and questions as token ids, and the positives of the training questions."""

    def __init__(self, encoder: Encoder, data: Path, name: str, work: Path, most: dict[str, int]) -> None:
        sets = {split: evaluate.read_set(data, name, split, work) for split in most}
        self.test = sets["test"]
        numbers = {passage.id: number for number, passage in enumerate(self.test.passages)}
        passage, query = encoder.layout_for("passage"), encoder.layout_for("query")
        self.passages = [list(ids)[: LONGEST[1]] for ids in passage.ids(self.test.passages).to_lists()]
        self.questions = {
            split: [list(ids)[: LONGEST[0]] for ids in query.ids(one.queries[: most[split]]).to_lists()]
            for split, one in sets.items()
        }
        best: dict[str, tuple[int, int]] = {}
        for line in (data / name / "qrels" / "train.tsv").read_text(encoding="utf-8").splitlines()[1:]:
            asked, id, grade = line.split("\t")
            if int(grade) > best.get(asked, (0, 0))[0]:
                best[asked] = int(grade), numbers[id]
        train = sets["train"].queries[: most["train"]]
        self.positives = np.array([best[question.id][1] for question in train], np.int64)


def vectors(encoder: Encoder, rows: list[list[int]]) -> Tensor:
    """Unit vectors without a gradient, on the model's device."""
    return torch.from_numpy(encoder.encode_rows(Ragged.from_lists(rows), unit=True)).to(encoder.device)


def train(encoder: Encoder, pairs: Pairs, way: Way, seed: int) -> float:
    """Three epochs; the seconds that the orders took."""
    optimiser = torch.optim.AdamW(encoder.parameters(), lr=LR, weight_decay=0.01)
    asked, positives, took = pairs.questions["train"], pairs.positives, 0.0
    steps, step = EPOCHS * (len(asked) // BATCH), 0
    for epoch in range(EPOCHS):
        began = time.perf_counter()
        found = [pairs.passages[i] for i in positives]
        order = way(vectors(encoder, asked), vectors(encoder, found), positives, BATCH, 100 * seed + epoch)
        took += time.perf_counter() - began
        for begin in range(0, len(order) - BATCH + 1, BATCH):
            chosen = order[begin : begin + BATCH]
            optimiser.param_groups[0]["lr"] = LR * min(1.0, (step + 1) / (0.1 * steps)) * (1 - step / steps)
            rows = [asked[i] for i in chosen] + [pairs.passages[positives[i]] for i in chosen]
            both = F.normalize(encoder(Packed.from_lists(rows).to(encoder.device)).float(), dim=1)
            scores = both[:BATCH] @ both[BATCH:].T / TEMPERATURE
            own = torch.from_numpy(positives[chosen]).to(scores.device)
            twin = (own[:, None] == own[None]) & ~torch.eye(BATCH, dtype=torch.bool, device=scores.device)
            loss = F.cross_entropy(scores.masked_fill(twin, -1e4), torch.arange(BATCH, device=scores.device))
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(encoder.parameters(), 1.0)
            optimiser.step()
            step += 1
    return took


def tested(encoder: Encoder, pairs: Pairs) -> float:
    """nDCG@10 of the encoder alone on the test questions."""
    ids = [passage.id for passage in pairs.test.passages]
    scores = vectors(encoder, pairs.questions["test"]) @ vectors(encoder, pairs.passages).T
    best = scores.topk(10, dim=1)
    found = [[(ids[n], v) for n, v in zip(*row)] for row in zip(best.indices.tolist(), best.values.tolist())]
    return float(evaluate.values_of(pairs.test, found)[:, 0].sum() / len(found))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--questions", type=int, default=4000, help="of training, at most")
    parser.add_argument("--tested", type=int, default=600, help="test questions, at most")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    start, rows = encoders.folder("liebig:mini-v3"), []
    for name in ("squad", "medquad"):
        most = {"train": args.questions, "test": args.tested}
        pairs = Pairs(Encoder.load(start), args.data, name, args.out / "work", most)
        for seed in args.seeds:
            for way, order in WAYS.items():
                torch.manual_seed(seed)
                encoder = Encoder.load(start).to(device)
                took = train(encoder.train(), pairs, order, seed)
                rows.append(
                    {
                        "set": name,
                        "way": way,
                        "seed": seed,
                        "seconds": took,
                        "nDCG@10": tested(encoder.eval(), pairs),
                    }
                )
                print(rows[-1], flush=True)
                (args.out / "samplers.json").write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
